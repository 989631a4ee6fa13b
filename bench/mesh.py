"""Training tokens per second of a model that tensor ranks divide, against the same model in pipeline stages.

Ranks are threads, one per core. Runs of all rows alternate, so that a drifting machine affects all alike.
"""
import argparse
import statistics
import tempfile

from compare_train import COMPUTE, WARM_UP, ours

ROWS = {
    "pipeline=2": {"ranks": 2, "schedule": "zb-h1"},
    "tensor=2": {"ranks": 1, "parallel.tensor": 2},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    speeds = {name: [] for name in ROWS}
    with tempfile.TemporaryDirectory() as folder:
        for round_ in range(-1, options.rounds):  # round -1 fills the caches of compiled kernels
            for name, more in ROWS.items():
                speed, _ = ours(options, COMPUTE, more, options.steps if round_ >= 0 else WARM_UP, folder)
                if round_ >= 0:
                    speeds[name].append(speed)
    for name, values in speeds.items():
        ratios = [value / other for value, other in zip(values, speeds["pipeline=2"])]
        print(f"{name:12} {statistics.median(values):8.0f} tokens/s, {statistics.median(ratios):.2f} of pipeline=2 "
              f"({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
