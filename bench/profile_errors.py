"""Steps predicted from a profile against measured ones, for runs that were not profiled.

Each round profiles the model anew and then runs every case. Printed are, over the rounds, the medians and the least of
the step that 'penstock simulate --machine' predicts and of the step that 'penstock train' measures, and how far off the
prediction is. Where other programs use the machine, the least is nearest to what an idle one takes. Exits with 1 if the
median of a case is off by more than --allowed.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

CONFIG = """
name: bench
folder: {folder}/runs
batch: 1
sample: 0
steps: {steps}
model: {{name: llama, dim: {dim}, heads: 4, layers: 8, sequence: 128}}
pipeline: {{schedule: 1f1b, ranks: 2, chunks: 1, microbatches: 8}}
exact: false
"""

# Overrides of the profiled run.
CASES = {
    "1f1b, 16 microbatches": ("pipeline.microbatches=16",),
    "gpipe, 4 microbatches": ("pipeline.schedule=gpipe", "pipeline.microbatches=4"),
    "interleaved, 2 chunks": ("pipeline.schedule=interleaved", "pipeline.chunks=2"),
    "zbv": ("pipeline.schedule=zbv", "pipeline.chunks=2"),
    "zb-h1, 12 layers": ("pipeline.schedule=zb-h1", "model.layers=12"),
}


def run(*words):
    done = subprocess.run([*map(str, words), "--json"], check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--program", required=True)
    options.add_argument("--rounds", type=int, default=7, help="profiles, and runs of each case")
    options.add_argument("--steps", type=int, default=8, help="of each run; the first two are not measured")
    options.add_argument("--dim", type=int, default=128, help="width of the model")
    options.add_argument("--allowed", type=float, default=0.05)
    given = options.parse_args()
    predicted = {name: [] for name in CASES}
    measured = {name: [] for name in CASES}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text = CONFIG.format(folder=folder, steps=given.steps, dim=given.dim)
        base = folder / "profiled.yaml"
        base.write_text(text)
        for turn in range(given.rounds):
            machine = folder / "machine.yaml"
            profile = run(given.program, "profile", base, "-o", machine, "--rounds", 1)
            for case, overrides in CASES.items():
                trained = run(given.program, "train", base, *overrides)
                (row,) = run(given.program, "simulate", folder / "runs/bench/config.yaml", "--machine",
                             machine)["schedules"]
                predicted[case].append(row["steady_step"])
                measured[case].append(trained["step_time"])
            print(f"round {turn + 1} of {given.rounds}; {profile['busy_machine'] or 'the machine was idle'}", flush=True)
    print(f"\n{'ms':24} {'predicted':>9} {'measured':>9} {'off':>7}   {'predicted':>9} {'measured':>9} {'off':>7}")
    print(f"{'':24} {'median':>27}   {'least':>27}")
    worst = 0
    for case in CASES:
        line = f"{case:24}"
        for figure in (statistics.median, min):
            expected, took = figure(predicted[case]), figure(measured[case])
            off = expected / took - 1
            worst = max(worst, abs(off)) if figure is statistics.median else worst
            line += f" {1e3 * expected:9.1f} {1e3 * took:9.1f} {off:+7.1%}  "
        print(line.rstrip())
    raise SystemExit(f"off by {worst:.1%}" if worst > given.allowed else 0)


if __name__ == "__main__":
    main()
