"""Measured against predicted time of every schedule of the catalog on emulated devices.

One table per number of ranks, with two microbatches per rank. The unit makes the shortest action take 5 ms; a
transfer takes a quarter of a forward. Exits with 1 if a schedule is off by more than --allowed.
"""
import argparse
import json
import subprocess

SHORTEST_MS = 5


def run(program, *words):
    return json.loads(subprocess.run([program, *map(str, words), "--json"], check=True, capture_output=True,
                                     text=True).stdout)["schedules"]


def measure(program, row, ranks):
    """Returns the figures of one schedule by column; None if it does not support the size."""
    words = ["simulate", "-s", row["name"], "-p", ranks, "-m", 2 * ranks, "--comm", 0.25]
    if row["name"] == "seq1f1b":
        words += ["--slices", 2, "--split"]
    if row["name"].startswith("pipedream"):
        words += ["--steps", 2]
    try:
        (priced,) = run(program, *words)
    except subprocess.CalledProcessError:
        return None
    share = priced["chunks"] * (2 if row["name"] == "seq1f1b" else 1)
    (priced,) = run(program, *words, "--run", "--unit", f"{SHORTEST_MS * share}ms")
    measured = priced["measured"]
    return {"predicted": measured["unit_seconds"] * priced["makespan"], "measured": measured["makespan_seconds"],
            "off": measured["excess"], "memory": measured["peak_memory"] - priced["peak_memory"],
            "messages": measured["messages"] - priced["messages"], "cpu": measured["cpu_seconds"],
            "late": measured["worst_lateness_seconds"]}


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--program", required=True)
    options.add_argument("--ranks", type=int, nargs="*", default=[8, 32])
    options.add_argument("--allowed", type=float, default=0.02)
    given = options.parse_args()
    worst = 0
    for ranks in given.ranks:
        print(f"{ranks} ranks, {2 * ranks} microbatches: seconds; memory and messages: measured - predicted")
        print(f"{'schedule':16} {'predicted':>9} {'measured':>9} {'off':>7} {'memory':>7} {'messages':>8}"
              f" {'cpu':>6} {'latest':>8}")
        for row in run(given.program, "schedules"):
            figures = measure(given.program, row, ranks)
            if figures is None:
                continue
            worst = max(worst, abs(figures["off"]), abs(figures["memory"]), abs(figures["messages"]))
            print(f"{row['name']:16} {figures['predicted']:9.3f} {figures['measured']:9.3f} {figures['off']:+7.2%}"
                  f" {figures['memory']:7.3g} {figures['messages']:8} {figures['cpu']:6.2f} {figures['late']:8.4f}",
                  flush=True)
        print()
    raise SystemExit(f"off by {worst:.2%}" if worst > given.allowed else 0)


if __name__ == "__main__":
    main()
