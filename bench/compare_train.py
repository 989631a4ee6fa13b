"""Training tokens per second and memory of penstock against torch.distributed.pipelining.

Runs of all rows alternate, so that a drifting machine affects all alike. A ratio compares a run with the faster of the
neighboring runs of the peer's eager and compiled stages. In bf16 the peer has bf16 weights, penstock fp32 master
weights. The peer's zero-bubble schedules refuse compiled stages, so its rows are 1F1B. The limit is measured by
bench/matmul_limit.py.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COMPUTE = dict(dim=256, layers=8, heads=4, hidden=688, sequence=256, microbatches=8)
CASES = {
    "compute-bound, fp32": COMPUTE,
    "compute-bound, bf16": dict(COMPUTE, precision="bf16"),
    "overhead-bound, fp32": dict(dim=32, layers=8, heads=4, hidden=96, sequence=16, microbatches=16),
}
OURS = {
    "ours, 1f1b, exact": dict(schedule="1f1b", exact="true"),
    "ours, 1f1b": dict(schedule="1f1b"),
    "ours, zb-h1": dict(schedule="zb-h1"),
    "ours, zbv": dict(schedule="zbv", chunks=2),
}
WARM_UP = 3  # steps of either side that are not counted
PEER = {"peer, 1f1b, eager": [], "peer, 1f1b, compiled": ["--compile"]}


def run(command):
    """Returns the JSON object that a command prints, and its peak resident bytes."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit("%s failed" % " ".join(command))
    return json.loads(output[output.index("{"):]), usage.ru_maxrss * 1024


def shape_options(shape):
    options = []
    for key, value in shape.items():
        options += ["--dtype", "bfloat16"] if key == "precision" else ["--" + key, str(value)]
    return options


def peer(options, shape, more, steps):
    script = os.path.join(ROOT, "bench", "peer_torch.py")
    result, _ = run([options.peer_python, script, "--steps", str(steps), "--warmup", str(WARM_UP)] + shape_options(shape) + more)
    return statistics.median(result["tokens_per_second"]), result["resident"]


def ours(options, shape, more, steps, folder):
    settings = dict(shape, steps=steps + WARM_UP, ranks=2, folder=folder, name="run") | more
    command = [options.program, "train", os.path.join(ROOT, "bench", "train.yaml"), "--json"]
    _, resident = run(command + ["%s=%s" % item for item in settings.items()])
    with open(os.path.join(folder, "run", "metrics.jsonl")) as file:
        ends = [json.loads(line)["seconds"] for line in file]
    step = statistics.median(b - a for a, b in zip(ends[WARM_UP - 1:], ends[WARM_UP:]))
    return shape["microbatches"] * shape["sequence"] / step, resident / 2  # two ranks are threads of one process


def measure(options, shape, steps, folder):
    """Returns, by row, (tokens per second, resident bytes per rank) of each round."""
    rows = {name: [] for name in [*OURS, *PEER, "matmul limit"]}
    for round_ in range(-1, options.rounds):  # round -1 fills the caches of compiled kernels
        for name, more in OURS.items():
            rows[name].append(ours(options, shape, more, steps if round_ >= 0 else 1, folder))
        for name, more in PEER.items():
            rows[name].append(peer(options, shape, more, steps if round_ >= 0 else 1))
        if steps < 60:
            limit, _ = run([options.peer_python, os.path.join(ROOT, "bench", "matmul_limit.py")] + shape_options(shape))
            rows["matmul limit"].append((limit["tokens_per_second"], 0))
    return {name: values[1:] for name, values in rows.items() if values}


def print_case(name, shape, rows):
    print("%s: %s" % (name, " ".join("%s=%s" % item for item in shape.items())))
    print("  %-22s %10s %10s   %s" % ("", "tokens/s", "MiB per rank", "over the peer's faster: median (min to max)"))
    best = [max(pair[0] for pair in pairs) for pairs in zip(*(rows[name] for name in PEER))]
    for side, values in rows.items():
        ratios = [value[0] / peer for value, peer in zip(values, best)]
        print("  %-22s %10.0f %10.0f   %.2f (%.2f to %.2f)" % (
            side, statistics.median(value[0] for value in values),
            statistics.median(value[1] for value in values) / 2**20,
            statistics.median(ratios), min(ratios), max(ratios)), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", choices=CASES, action="append", help="only this case")
    options = parser.parse_args()
    version = [options.peer_python, "-c", "import torch; print(torch.__version__)"]
    print("peer: torch", subprocess.run(version, stdout=subprocess.PIPE, text=True, check=True).stdout.strip(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in options.case or CASES:
            steps = 60 if name.startswith("overhead") else 10
            print_case(name, CASES[name], measure(options, CASES[name], steps, folder))


if __name__ == "__main__":
    main()
