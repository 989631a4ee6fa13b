"""Training tokens per second of a model that tensor ranks divide, and how much of their communication a slow link leaves hidden.

First, two tensor ranks against two stages of a pipeline. Then two tensor ranks over an emulated link (parallel.link): with 1f1b, backwards
hide collectives under weight gradients; with dualpipev (two stages on one rank), pairs hide them under another microbatch, too. The
engine's counts and the link say how long the collectives of a step are in flight. Hidden is the share of that time which the link does
not add to the step. Predicted is the share that the order of the graphs hides by estimated costs.
Ranks are threads, one per core. Runs of all rows alternate, so that a drifting machine affects all alike; medians are printed.
"""
import argparse
import json
import os
import statistics
import tempfile

from compare_train import COMPUTE, ROOT, WARM_UP, ours, run

PAIR = {
    "pipeline=2": {"ranks": 2, "schedule": "zb-h1"},
    "tensor=2": {"ranks": 1, "parallel.tensor": 2},
    "tensor=2, gather_again": {"ranks": 1, "parallel.tensor": 2, "parallel.gather_again": "true"},
}
HIDING = {
    "1f1b": {"ranks": 1, "parallel.tensor": 2, "schedule": "1f1b"},
    "dualpipev": {"ranks": 1, "parallel.tensor": 2, "schedule": "dualpipev", "chunks": 2},
}
#: The graphs that a microbatch runs, and their stages.
GRAPHS = {"1f1b": [("forward", [0]), ("backward_weight", [0])], "dualpipev": [("overlapped", [0, 1])]}


def measure(options, rows, folder):
    """Returns the tokens per second of each round, by row."""
    speeds = {name: [] for name in rows}
    for round_ in range(-1, options.rounds):  # round -1 fills the caches of compiled kernels
        for name, more in rows.items():
            speed, _ = ours(options, COMPUTE, more, options.steps if round_ >= 0 else WARM_UP, folder)
            if round_ >= 0:
                speeds[name].append(speed)
    return speeds


def graphs_of(options, more, schedule):
    """Returns the JSON of the graphs that a microbatch runs."""
    settings = dict(COMPUTE, **more)
    words = ["%s=%s" % item for item in settings.items()]
    for name, stages in GRAPHS[schedule]:
        for stage in stages:
            command = [options.program, "graph", os.path.join(ROOT, "bench", "train.yaml"), "--stage", str(stage), "--graph", name,
                       "--inexact", "--json", *words]
            yield run(command)[0]["graphs"][0]


def seconds_on_link(options, collectives):
    """Returns how long two ranks' collectives are in flight, as NodeCosts has it."""
    bytes_ = sum(each["bytes"] * (1 if each["op"] == "all_reduce" else 0.5) for each in collectives)
    calls = sum(each["calls"] * (2 if each["op"] == "all_reduce" else 1) for each in collectives)
    return calls * options.latency + bytes_ / options.bandwidth


def print_pair(speeds):
    for name, values in speeds.items():
        ratios = [value / other for value, other in zip(values, speeds["pipeline=2"])]
        print(f"{name:24} {statistics.median(values):8.0f} tokens/s, {statistics.median(ratios):.2f} of pipeline=2 "
              f"({min(ratios):.2f} to {max(ratios):.2f})", flush=True)


def print_hiding(options, link, speeds):
    microbatches = COMPUTE["microbatches"]
    tokens = microbatches * COMPUTE["sequence"]
    print(f"\nlink of {link}, ms per step\n{'':12} {'no link':>9} {'link':>9} {'in flight':>10} {'hidden':>8} {'predicted':>10}")
    for schedule, more in HIDING.items():
        graphs = list(graphs_of(options, more | {"parallel.link": link}, schedule))
        in_flight = microbatches * sum(seconds_on_link(options, graph["collectives"]) for graph in graphs)
        saved = microbatches * sum(g["predicted_seconds"]["in_turn"] - g["predicted_seconds"]["ordered"] for g in graphs)
        without, slow = (tokens / statistics.median(speeds[name]) for name in (schedule, f"{schedule}, link"))
        print(f"{schedule:12} {without * 1e3:9.1f} {slow * 1e3:9.1f} {in_flight * 1e3:10.1f} {1 - (slow - without) / in_flight:8.0%} "
              f"{saved / in_flight:10.0%}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--latency", type=float, default=100e-6, help="seconds, one way")
    parser.add_argument("--bandwidth", type=float, default=200e6, help="bytes per second")
    parser.add_argument("--part", choices=("pair", "hiding"), help="only this part")
    options = parser.parse_args()
    link = f"{options.bandwidth / 1e6:g}MB/s {options.latency * 1e6:g}us"
    with tempfile.TemporaryDirectory() as folder:
        if options.part != "hiding":
            print_pair(measure(options, PAIR, folder))
        if options.part != "pair":
            rows = {}
            for name, more in HIDING.items():
                rows |= {name: more, f"{name}, link": more | {"parallel.link": link}}
            print_hiding(options, link, measure(options, rows, folder))


if __name__ == "__main__":
    main()
