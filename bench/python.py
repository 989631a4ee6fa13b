"""Python models on the engine: steps per second and memory against torch.distributed.pipelining (eager and compiled) with the
same stages, and against the same model in C++ (`penstock train`).

All contenders of a case run at the same time in alternating slices (slices.py), with 1F1B and one thread per rank. Memory is what
training adds to the resident memory of all processes.
"""
import argparse
import dataclasses
import os
import pathlib
import statistics
import sys
import tempfile

import slices

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ["llama", "qwen3", "gpt2", "modernbert", "qwen3-moe", "vit", "resnet50", "unet"]
# Those of python_models.SIZES that penstock train gets, too.
SHAPES = {
    "compute-bound": dict(dim=256, hidden=688, sequence=256, microbatches=8, layers=8, heads=4),
    "overhead-bound": dict(dim=32, hidden=96, sequence=16, microbatches=16, layers=8, heads=4),
}


@dataclasses.dataclass
class Result:
    rates: list  # steps per second of each slice
    bytes: int

    @property
    def milliseconds(self):
        return 1e3 / statistics.median(self.rates)


def start(options, folder, model, size, engine, *more):
    path = pathlib.Path(folder) / f"{model}-{engine}{''.join(more)}"
    command = [options.python, "-B", ROOT / "bench" / "python_train.py", "--model", model, "--size", size, "--engine", engine,
               "--progress", path, *more]
    return slices.Program(list(map(str, command)), path, {"OMP_NUM_THREADS": "1"})


def start_cpp(options, folder, size):
    settings = dict(SHAPES[size], ranks=2, schedule="1f1b", steps=10**6, folder=folder, name="cpp")
    command = [options.program, "train", str(ROOT / "bench" / "train.yaml"), *("%s=%s" % item for item in settings.items())]
    return slices.Program(command, pathlib.Path(folder) / "cpp" / "metrics.jsonl")


def compare(options, programs):
    """Returns the results of programs that run in alternating slices; None for those that fail."""
    running = []
    for program in programs:  # one after the other, so that compilation does not slow the others down
        try:
            program.await_units(10)
            running.append(program)
        except SystemExit as error:
            print(str(error)[-400:], file=sys.stderr)
            running.append(None)
    rates = {id(program): [] for program in running if program}
    for _ in range(options.rounds):
        for program in filter(None, running):
            before = program.done, program.seconds
            program.run(slices.SLICE)
            rates[id(program)].append((program.done - before[0]) / (program.seconds - before[1]))
    results = []
    for program in running:
        if program:
            program.end()
        results.append(Result(rates[id(program)], added_bytes(program)) if program else None)
    return results


def added_bytes(program):
    paths = [program.progress, program.progress.with_name(program.progress.name + ".1")]
    lines = [path.read_text().split()[-2] for path in paths if path.exists()]
    return sum(int(line) for line in lines if line.isdigit())


def ratio(one, *others):
    """Returns the median of the ratios of neighboring slices to the fastest of the others, with the quartiles."""
    others = [other for other in others if other]
    if one is None or not others:
        return "fails"
    fastest = max(others, key=lambda other: statistics.median(other.rates))
    ratios = [a / b for a, b in zip(one.rates, fastest.rates)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return "%.2f (%.2f to %.2f)" % (middle, low, high)


def cells(result):
    return ["%.2f" % result.milliseconds, "%.0f" % (result.bytes / 2**20)] if result else ["fails", ""]


def against_cpp(options, size):
    with tempfile.TemporaryDirectory() as folder:
        python, exact, cpp = compare(options, [start(options, folder, "blocks", size, "ours"),
                                               start(options, folder, "blocks", size, "ours", "--exact"),
                                               start_cpp(options, folder, size)])
    print("%s, the same model: C++ %.2f ms per step, Python %.2f ms, with exact=True %.2f ms; Python over C++ %s" % (
        size, cpp.milliseconds, python.milliseconds, exact.milliseconds, ratio(python, cpp)), flush=True)


def against_peer(options, models, size):
    layout = "%-11s" + "%10s%6s" * 3 + "  %s"
    print(layout % (size, "ours, ms", "MiB", "eager, ms", "MiB", "comp., ms", "MiB", "over the faster: median (quartiles)"))
    for model in models:
        with tempfile.TemporaryDirectory() as folder:
            results = compare(options, [start(options, folder, model, size, engine) for engine in ("ours", "eager", "compiled")])
        print(layout % (model, *sum(map(cells, results), []), ratio(*results)), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="with penstock, transformers and torchvision")
    parser.add_argument("--program", required=True)
    parser.add_argument("--rounds", type=int, default=20, help="slices of each contender")
    parser.add_argument("--part", choices=("cpp", "peer", "table"), action="append", help="only this part")
    parser.add_argument("--model", choices=TABLE, action="append", help="only this model of the table")
    parser.add_argument("--size", choices=SHAPES, action="append", help="only this size of the others")
    options = parser.parse_args()
    parts, sizes = options.part or ("cpp", "peer", "table"), options.size or SHAPES
    for size in sizes:
        if "cpp" in parts:
            against_cpp(options, size)
        if "peer" in parts:
            against_peer(options, ["blocks", "llama", "gpt2"], size)
    if "table" in parts:
        against_peer(options, options.model or TABLE, "table")


if __name__ == "__main__":
    main()
