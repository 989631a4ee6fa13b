"""Tokens per second of Python models on the engine: the same stages with penstock.torch.Pipeline, with
torch.distributed.pipelining (eager and compiled), and in C++ with penstock train.

Runs of all rows alternate, as in bench/compare_train.py.
"""
import argparse
import os
import statistics
import tempfile

import compare_train

SCRIPT = os.path.join(compare_train.ROOT, "bench", "python_train.py")
PYTHON = {"python, 1f1b, exact": ["--exact"], "python, 1f1b": [], "python, transformers' llama": ["--model", "llama"],
          "python, transformers' gpt2": ["--model", "gpt2"]}
CASES = {name: case for name, case in compare_train.CASES.items() if not name.endswith("bf16")}


def python(options, shape, more, steps):
    command = [options.python, SCRIPT, "--steps", str(steps), "--warmup", str(compare_train.WARM_UP)]
    result, _ = compare_train.run(command + compare_train.shape_options(shape) + more)
    return statistics.median(result["tokens_per_second"]), result["resident"]


def measure(options, shape, steps, folder):
    """Returns, by row, (tokens per second, resident bytes per rank) of each round."""
    cpp = {"c++, 1f1b": dict(schedule="1f1b")}
    rows = {name: [] for name in [*PYTHON, *cpp, *compare_train.PEER]}
    for round_ in range(-1, options.rounds):  # round -1 fills the caches of compiled kernels
        count = steps if round_ >= 0 else 1
        for name, more in PYTHON.items():
            rows[name].append(python(options, shape, more, count))
        for name, more in cpp.items():
            rows[name].append(compare_train.ours(options, shape, more, count, folder))
        for name, more in compare_train.PEER.items():
            rows[name].append(compare_train.peer(options, shape, more, count))
    return {name: values[1:] for name, values in rows.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="with penstock and transformers")
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--case", choices=CASES, action="append", help="only this case")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in options.case or CASES:
            steps = 60 if name.startswith("overhead") else 10
            rows = measure(options, CASES[name], steps, folder)
            compare_train.print_case(name, CASES[name], rows)
            ratios = [a[0] / b[0] for a, b in zip(rows["python, 1f1b"], rows["c++, 1f1b"])]
            print("  python over c++: %.3f (%.3f to %.3f)" % (statistics.median(ratios), min(ratios), max(ratios)), flush=True)


if __name__ == "__main__":
    main()
