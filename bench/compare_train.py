"""Training tokens a second of penstock against torch.distributed.pipelining, in one run.

Runs of the two sides alternate, so that a machine whose speed drifts is fair to both; a ratio is of
neighbouring runs. The peer computes in bf16 alone, ours on fp32 master weights. Both 1F1B, and ours in ZB-H1 beside
it (the peer's zero-bubble schedules refuse compiled stages). Prints a table: medians, and the ratio's median with its least and most.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CASES = {
    "compute-bound": dict(dim=256, layers=8, heads=4, hidden=688, sequence=256, microbatches=8),
    "compute-bound, bf16": dict(dim=256, layers=8, heads=4, hidden=688, sequence=256, microbatches=8, precision="bf16"),
    "overhead-bound": dict(dim=32, layers=8, heads=4, hidden=96, sequence=16, microbatches=16),
}


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit("%s failed:\n%s" % (" ".join(command), done.stderr[-2000:]))
    return json.loads(done.stdout[done.stdout.index("{"):])


def peer(options, shape, compiled, steps):
    command = [options.peer_python, os.path.join(ROOT, "bench", "peer_torch.py"), "--steps", str(steps)]
    for key, value in shape.items():
        command += ["--dtype", "bfloat16"] if key == "precision" else ["--" + key, str(value)]
    result = run(command + (["--compile"] if compiled else []))
    return statistics.median(result["tokens_per_second"])


def ours(options, shape, schedule, steps, folder):
    settings = dict(shape, steps=steps, ranks=2, chunks=1, schedule=schedule, folder=folder, name="run")
    command = [options.program, "train", os.path.join(ROOT, "bench", "train.yaml"), "--json"]
    return run(command + ["%s=%s" % item for item in settings.items()])["tokens_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, shape in CASES.items():
            steps = 60 if name == "overhead-bound" else 10
            rows = {"ours": [], "ours, zb-h1": [], "peer eager": [], "peer compiled": []}
            peer(options, shape, True, 1)  # fills the peer's compile cache
            for _ in range(options.rounds):
                rows["ours"].append(ours(options, shape, "1f1b", steps, folder))
                rows["ours, zb-h1"].append(ours(options, shape, "zb-h1", steps, folder))
                rows["peer eager"].append(peer(options, shape, False, steps))
                rows["peer compiled"].append(peer(options, shape, True, steps))
            print("%s: %s" % (name, " ".join("%s=%s" % item for item in shape.items())))
            print("  %-14s %12s   %s" % ("", "tokens/s", "ours over it: median (least to most)"))
            for side, values in rows.items():
                ratios = [a / b for a, b in zip(rows["ours"], values)]
                print("  %-14s %12.0f   %.2f (%.2f to %.2f)" % (
                    side, statistics.median(values), statistics.median(ratios), min(ratios), max(ratios)))


if __name__ == "__main__":
    main()
