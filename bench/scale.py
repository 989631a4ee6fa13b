"""Training on processes and with sharded replicas, against threads and whole replicas of the same program.

Contenders run at the same time in alternating slices (slices.py). Steps are counted, so figures of short steps are the
most precise.
"""
import argparse
import os
import pathlib
import resource
import statistics
import subprocess
import tempfile
import time

import slices

ROOT = pathlib.Path(__file__).resolve().parents[1]
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
       "OMPI_MCA_rmaps_base_oversubscribe": "1"}
SHAPES = {
    "compute-bound": ("dim=256", "layers=8", "heads=4", "hidden=688", "sequence=128", "microbatches=4"),
    "small": ("dim=64", "layers=8", "heads=4", "hidden=172", "sequence=64", "microbatches=8"),
}
MANY = ("steps=1000000", "warmup=10")


class Bench:
    def __init__(self, given, folder):
        self.given = given
        self.folder = pathlib.Path(folder)

    def command(self, name, processes, *words):
        launcher = ["mpirun", "--quiet", "--bind-to", "none", "-n", str(processes)] if processes > 1 else []
        return [*launcher, self.given.program, "train", str(ROOT / "bench" / "train.yaml"), f"folder={self.folder}",
                f"name={name}", *words]

    def start(self, name, processes, *words):
        return slices.Program(self.command(name, processes, *words, *MANY), self.folder / name / "metrics.jsonl", MPI)

    def run(self, name, processes, *words):
        """Returns the seconds that a whole run takes."""
        start = time.monotonic()
        subprocess.run(self.command(name, processes, *words), check=True, capture_output=True,
                       env={**os.environ, **MPI})
        return time.monotonic() - start

    def ratio(self, title, one, other, asked):
        """Prints the steps per second of `other` relative to `one`; each is (name, processes, words)."""
        first, second = slices.rates([self.start(name, processes, *words) for name, processes, words in (one, other)],
                                     self.given.rounds)
        print(f"{title:58} {first:8.2f} {second:8.2f} {second / first:7.3f}   {asked}", flush=True)

    def processes(self):
        for name, shape in SHAPES.items():
            for schedule in ("1f1b", "zbv"):
                words = (*shape, f"schedule={schedule}", f"chunks={2 if schedule == 'zbv' else 1}", "ranks=2")
                self.ratio(f"{name}, {schedule}: 2 threads, 2 processes", ("threads", 1, words),
                           ("processes", 2, words), "at least 0.95")
                self.clear()

    def sharding(self):
        shape = (*SHAPES["compute-bound"], "schedule=looped-bfs", "ranks=2", "chunks=2", "parallel.data=2")
        for zero in (1, 2, 3):
            self.ratio(f"compute-bound, d=2: zero=0, zero={zero}", ("whole", 1, (*shape, "parallel.zero=0")),
                       ("sharded", 1, (*shape, f"parallel.zero={zero}")), "at least 0.9")
            self.clear()

    def checkpoints(self):
        """The cost of one checkpoint, from a run with many: a share of a minute, too small to measure directly."""
        shape = (*SHAPES["compute-bound"], "ranks=2")
        every = 20
        none, many = slices.rates([self.start("none", 1, *shape), self.start("many", 1, *shape, f"checkpoint.every={every}")],
                                  self.given.rounds)
        cost = every / many - every / none  # seconds
        print(f"{f'a checkpoint every {every} steps, none':58} {many:8.2f} {none:8.2f}; one costs {cost * 1e3:.0f} ms, "
              f"one a minute {cost / 60:.2%}   at most 1%", flush=True)
        self.clear()

    def start_time(self):
        words = (*SHAPES["small"], "ranks=2", "steps=1")
        times = {1: [], 2: []}
        for run in range(5):
            for processes, of in times.items():
                of.append(self.run(f"start-{processes}-{run}", processes, *words))
        one, two = (statistics.median(of) for of in times.values())
        print(f"{'seconds of a run of one step: 1 process, 2 processes':58} {one:8.2f} {two:8.2f} {two - one:+7.2f}   "
              "at most +2", flush=True)

    def memory(self):
        """The resident memory of a process, against the model's."""
        shape = ("dim=768", "layers=8", "heads=12", "hidden=2048", "sequence=64", "microbatches=4", "ranks=1",
                 "schedule=looped-bfs", "chunks=8", "parallel.data=2")
        for zero in (0, 1, 2, 3):
            watched = self.start(f"memory-{zero}", 2, *shape, f"parallel.zero={zero}")
            watched.await_units(3)
            most = max(map(resident, slices.descendants(watched.process.pid)))
            lines = [line for line in watched.end().splitlines() if "parameters" in line or line.startswith("memory")]
            print(f"zero={zero}: {most / 2**20:.0f} MiB resident; " + "; ".join(lines), flush=True)

    def clear(self):
        subprocess.run(["rm", "-rf", *map(str, self.folder.iterdir())], check=True)


def resident(process):
    """Returns the resident bytes of a process that trains, else 0."""
    try:
        if b"penstock" not in pathlib.Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[0]:
            return 0
        return int(pathlib.Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--program", required=True)
    options.add_argument("--process-speed", required=True, help="the program of that name in this folder")
    options.add_argument("--rounds", type=int, default=15, help="slices of 2 s of each contender")
    parts = ("processes", "actions", "sharding", "checkpoints", "start", "memory")
    options.add_argument("--only", choices=parts, action="append")
    given = options.parse_args()
    print(f"{'steps per second of two contenders':58} {'first':>8} {'second':>8} {'ratio':>7}   asked")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(given, folder)
        chosen = given.only or parts
        if "processes" in chosen:
            bench.processes()
        if "actions" in chosen:
            subprocess.run(["mpirun", "--quiet", "-n", "2", given.process_speed], check=True, env={**os.environ, **MPI})
        if "sharding" in chosen:
            bench.sharding()
        if "checkpoints" in chosen:
            bench.checkpoints()
        if "start" in chosen:
            bench.start_time()
        if "memory" in chosen:
            bench.memory()


main()
