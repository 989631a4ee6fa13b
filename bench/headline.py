"""Step time and activation memory of sequence slices and of schedules of whole sequences.

Real: trains the model of examples/english.yaml on 2 ranks with long sequences and equal tokens per step. Runs of all
rows alternate. A time is the median over rounds of the median over steps; memory is the worst rank's, measured
and predicted.
Emulated: runs the executor on 8 emulated devices with F = I = W = 1 per microbatch, first with equal costs and then
with the extra cost of slices that was measured on this machine.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODEL = dict(dim=128, layers=4, heads=4)  # examples/english.yaml
ROWS = {
    "1f1b": dict(schedule="1f1b"),
    "zb-h1": dict(schedule="zb-h1"),
    "zbv": dict(schedule="zbv", chunks=2),
    "v-half": dict(schedule="v-half", chunks=2),
    "v-min": dict(schedule="v-min", chunks=2),
    "seq1f1b --split": dict(schedule="seq1f1b", split="true"),
    "  balanced slices": dict(schedule="seq1f1b", split="true"),
}
SLICE = [row for row, settings in ROWS.items() if settings["schedule"] == "seq1f1b"]
WARM_UP = 2  # steps that are not counted


def output_of(command):
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode:
        sys.exit("%s failed: %s" % (" ".join(command), process.stderr[-1000:]))
    return process.stdout


def balanced(sequence, slices):
    """Returns lengths of slices of equal FLOPs, forward and backward. Later slices are shorter, as they attend to more."""
    dim = MODEL["dim"]
    linear = 6 * (4 * dim * dim + 3 * dim * 352)  # per token and layer: projections, feed-forward of 352
    pair = 14 * dim                               # one token attending to one: 2 products forward, 5 backward
    whole = linear * sequence + pair * sequence ** 2 / 2
    ends = [((linear ** 2 + 2 * pair * whole * i / slices) ** 0.5 - linear) / pair for i in range(1, slices)]
    ends = [0] + [8 * round(end / 8) for end in ends] + [sequence]
    return [b - a for a, b in zip(ends, ends[1:])]


def train(options, sequence, row, steps, folder):
    settings = dict(MODEL, **ROWS[row], sequence=sequence, microbatches=options.tokens // sequence, ranks=2,
                    steps=steps + WARM_UP, folder=folder, name="run", held_out=0.01)
    if row in SLICE:
        settings["slices"] = options.slices
    if "balanced" in row:
        settings["slice_lengths"] = balanced(sequence, options.slices)
    command = [options.program, "train", os.path.join(ROOT, "bench", "train.yaml"), "--json"]
    summary = json.loads(output_of(command + ["%s=%s" % item for item in settings.items()]))
    return summary


def worst(summary, key):
    return max(rank[key] for rank in summary["per_rank"])


def real(options, sequence, folder):
    """Prints a table. Returns the busy time of each row relative to 1f1b's."""
    runs = {row: [] for row in ROWS}
    for _ in range(options.rounds):
        for row in ROWS:
            runs[row].append(train(options, sequence, row, options.steps, folder))
            print("  %s: %.1f ms" % (row.strip(), runs[row][-1]["step_time"] * 1e3), file=sys.stderr, flush=True)
    print("2 ranks, sequences of %d, %d tokens per step, %d slices" % (sequence, options.tokens, options.slices))
    print("  %-16s %10s %10s %12s %12s %12s %8s" % ("", "step, ms", "over 1f1b", "memory, MiB", "predicted", "over 1f1b", "busy"))
    first, busy = None, {}
    for row, of_row in runs.items():
        time = statistics.median(summary["step_time"] for summary in of_row)
        memory = statistics.median(worst(summary, "peak_activation_bytes") for summary in of_row)
        predicted = statistics.median(worst(summary, "predicted_peak_activation_bytes") for summary in of_row)
        busy[row] = statistics.median(sum(rank["busy"] for rank in summary["per_rank"]) for summary in of_row)
        first = first or (time, memory)
        print("  %-16s %10.1f %10.3f %12.2f %12.2f %12.3f %8.3f" % (
            row, time * 1e3, time / first[0], memory / 2**20, predicted / 2**20, memory / first[1],
            busy[row] / busy["1f1b"]), flush=True)
    return {row: value / busy["1f1b"] for row, value in busy.items()}


def emulated(options, factor):
    """Prints a table for 8 ranks and 32 microbatches. `factor` is the cost of all slices relative to a whole sequence."""
    print("8 ranks, 32 microbatches, emulated: F = I = W = 1, with slices %.3f" % factor)
    print("  %-16s %10s %10s %12s %12s" % ("", "time", "measured", "over 1f1b", "memory"))
    first = None
    for row, settings in ROWS.items():
        if "balanced" in row:
            continue  # all slices cost the same here
        cost = factor if row in SLICE else 1
        command = [options.program, "simulate", "--schedule", settings["schedule"], "--ranks", "8", "--microbatches",
                   "32", "--cost", ",".join(["%.4f" % cost] * 3), "--json", "--run", "--unit", "20ms"]
        if row in SLICE:
            command += ["--slices", str(options.slices), "--split"]
        result = json.loads(output_of(command))["schedules"][0]
        measured = result["measured"]["makespan"]
        first = first or measured
        print("  %-16s %10.2f %10.2f %12.3f %12.3f" % (row, result["makespan"], measured, measured / first,
                                                       result["peak_memory"]), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--sequence", type=int, action="append", help="sequence lengths (default 1024 and 2048)")
    parser.add_argument("--tokens", type=int, default=8192, help="tokens per step")
    parser.add_argument("--slices", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--part", choices=("real", "emulated"), help="only this part")
    options = parser.parse_args()
    factors = {1.0}
    with tempfile.TemporaryDirectory() as folder:
        for sequence in options.sequence or (1024, 2048):
            if options.part != "emulated":
                factors.add(round(real(options, sequence, folder)[SLICE[0]], 3))
    for factor in sorted(factors):
        if options.part != "real":
            emulated(options, factor)


if __name__ == "__main__":
    main()
