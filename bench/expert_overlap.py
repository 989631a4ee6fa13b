"""Experts divided between two ranks with a slow link: how much of the all-to-alls each schedule hides.

The ranks are threads that emulate the link (parallel.link), then processes on two machines (network name spaces, see
slow_link.py). Both have one stage of the pipeline per core, so no rank waits for another stage and the schedules differ only
in what they overlap. Hidden is the share of the communication of 1f1b that a schedule's step does not take, where the
communication is what the link adds to the step of 1f1b. The runs of all schedules alternate; medians are printed.
"""
import argparse
import collections
import itertools
import pathlib
import statistics
import tempfile

import slow_link

MODEL = ("model.name=deepseek_v3", "dim=128", "layers=4", "heads=4", "sequence=128", "vocabulary=256", "hidden=352",
         "model.experts=16", "model.top_k=2", "model.shared_experts=1", "model.expert_hidden=112",
         "ranks=1", "microbatches=16", "parallel.expert=2")
SCHEDULES = {"1f1b": 1, "interleaved-zb": 2, "zbv": 2, "dualpipev": 2}  # chunks

RUN_NUMBERS = itertools.count()


def compare(given, folder, where, launcher, link):
    fast, slow = collections.defaultdict(list), collections.defaultdict(list)  # steps by schedule: seconds, predicted seconds
    for repeat in range(given.repeats):
        for schedule, chunks in SCHEDULES.items():
            words = (*MODEL, f"schedule={schedule}", f"chunks={chunks}")
            for runs, own_launcher, more in ((fast, None, ()), (slow, launcher, (f"parallel.link={link}",))):
                name = f"{schedule}-{next(RUN_NUMBERS)}"
                result = slow_link.train(given, folder, name, own_launcher, *words, *more)
                runs[schedule].append((result["step_time"], result["predicted_step_time"]))

    def median(runs, schedule, column):
        return statistics.median(run[column] for run in runs[schedule]) * 1e3

    added = median(slow, "1f1b", 0) - median(fast, "1f1b", 0)
    print(f"\n{where}\n{'ms per step':16} {'no link':>9} {'link':>9} {'predicted':>10} {'hidden':>8} {'1f1b takes':>11}", flush=True)
    for schedule in SCHEDULES:
        without, measured = median(fast, schedule, 0), median(slow, schedule, 0)
        print(f"{schedule:16} {without:9.1f} {measured:9.1f} {median(slow, schedule, 1):10.1f} {1 - (measured - without) / added:8.0%} "
              f"{median(slow, '1f1b', 0) / measured - 1:+11.1%}", flush=True)


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--program", required=True)
    options.add_argument("--latency", type=float, default=0.0005, help="seconds, one way")
    options.add_argument("--bandwidth", type=float, nargs="+", default=[30e6, 100e6], help="bytes per second")
    options.add_argument("--steps", type=int, default=15)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--only", choices=("threads", "machines"))
    given = options.parse_args()
    print(" ".join(MODEL))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text").write_text("".join(f"line {number * number} of {number}\n" for number in range(600)))
        for bandwidth in given.bandwidth:
            link = f"{bandwidth / 1e6:g}MB/s {given.latency * 1e6:g}us"
            if given.only != "machines":
                compare(given, folder, f"threads, link of {link}", None, link)
            if given.only != "threads":
                machines = slow_link.Machines(folder, given.latency, bandwidth)
                try:
                    compare(given, folder, f"machines, link of {link}", machines.mpirun, link)
                finally:
                    machines.end()


if __name__ == "__main__":
    main()
