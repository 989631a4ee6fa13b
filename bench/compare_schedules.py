"""Training tokens per second by schedule: penstock against the schedules of the same name in torch.distributed.pipelining.

Runs of both sides alternate, and a ratio compares neighboring runs. The peer's stages are eager, because its schedules
with a split backward refuse compiled ones. The last column compares with its compiled 1F1B, its fastest schedule.
"""
import argparse
import tempfile
from statistics import median

from compare_train import COMPUTE, ours, peer

SCHEDULES = {"1f1b": 1, "zb1p": 1, "zbv": 2, "dualpipev": 2}  # chunks per rank
STEPS = 10


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    speed = {name: ([], []) for name in SCHEDULES}
    compiled = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            compiled.append(peer(options, COMPUTE, ["--compile"], STEPS)[0])
            for name, chunks in SCHEDULES.items():
                speed[name][0].append(ours(options, COMPUTE, dict(schedule=name, chunks=chunks), STEPS, folder)[0])
                speed[name][1].append(peer(options, COMPUTE, ["--schedule", name, "--chunks", str(chunks)], STEPS)[0])
    print("2 ranks, fp32: %s" % " ".join("%s=%s" % item for item in COMPUTE.items()))
    print("  %-10s %10s %10s   %s" % ("tokens/s", "ours", "peer", "ratio: median (min to max), over its compiled 1F1B"))
    for name, (own, other) in speed.items():
        ratios = [a / b for a, b in zip(own, other)]
        print("  %-10s %10.0f %10.0f   %.2f (%.2f to %.2f)  %.2f" % (
            name, median(own), median(other), median(ratios), min(ratios), max(ratios),
            median(a / b for a, b in zip(own, compiled))))


if __name__ == "__main__":
    main()
