#!/usr/bin/env python3
"""How far the schedules of `penstock plan` are from its lower bound, over sizes, costs, latencies and memory limits.

Prints one line per case and the mean gap: of all 144 cases, or of the cases that --ranks and --limits choose. A case takes
some seconds, all of them about half an hour on two cores.
"""
import argparse
import json
import subprocess

COSTS = ("1,1,1", "1,1.2,0.8", "1,1,0.5", "1,1.5,1")
LATENCIES = ("0", "0.2")
LIMITS = (0.25, 0.375, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2)  # in microbatches per rank, of p
MICROBATCHES = 4  # per rank


def plan(program, ranks, costs, latency, limit):
    words = (program, "plan", "--ranks", ranks, "--microbatches", MICROBATCHES * ranks, "--cost", costs, "--comm", latency,
             "--memory-limit", limit * ranks, "--json")
    run = subprocess.run([str(word) for word in words], capture_output=True, check=True, text=True)
    return json.loads(run.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/penstock")
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 16])
    parser.add_argument("--limits", type=float, nargs="+", default=LIMITS)
    options = parser.parse_args()
    print("ranks  costs      comm  limit  schedule        chunks  makespan     bound    gap  seconds")
    gaps = []
    for ranks in options.ranks:
        for costs in COSTS:
            for latency in LATENCIES:
                for limit in options.limits:
                    result = plan(options.program, ranks, costs, latency, limit)
                    best = result["best"]
                    gaps.append(best["gap"])
                    print(f"{ranks:5}  {costs:9}  {latency:>4}  {limit * ranks:5g}  {best['schedule'][:14]:14}  "
                          f"{best['chunks']:6}  {best['makespan']:8.2f}  {best['lower_bound']:8.2f}  {best['gap']:5.1%}  "
                          f"{result['seconds']:7.1f}", flush=True)
    print(f"mean gap {sum(gaps) / len(gaps):.2%} of {len(gaps)} cases")


main()
