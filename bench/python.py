"""Python models on the engine: steps per second and memory against torch.distributed.pipelining (eager and compiled) with the
same layers, and against the same model in C++ (`penstock train`).

All contenders of a case run at the same time in alternating slices (slices.py), with one thread per rank. Prints milliseconds per
step, what training adds to the resident memory of all processes, and the ratio to the faster of the peer's, with the least and the
greatest of 5 parts of the time.
"""
import argparse
import dataclasses
import pathlib
import sys
import tempfile

import slices

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ["llama", "qwen3", "gpt2", "modernbert", "qwen3-moe", "vit", "resnet50", "unet"]
BLOCKS = 5
# Sizes of python_models.SIZES that penstock train gets, too.
SHAPES = {
    "compute-bound": dict(dim=256, hidden=688, sequence=256, microbatches=8, layers=8, heads=4),
    "overhead-bound": dict(dim=32, hidden=96, sequence=16, microbatches=16, layers=8, heads=4),
}
# Steps that one call of Pipeline.steps runs. Fewer of long ones, because only complete calls are counted.
TOGETHER = {"compute-bound": 2, "overhead-bound": 20}


@dataclasses.dataclass
class Result:
    rate: float  # steps per second, of the totals
    blocks: list  # of each of BLOCKS parts of the time
    bytes: int


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
    """Returns the results of programs that run in alternating slices; None for programs that fail."""
    running = []
    for program in programs:
        try:
            program.await_units(10)
            running.append(program)
        except SystemExit as error:
            print(str(error)[-400:], file=sys.stderr)
            running.append(None)
    measured = list(filter(None, running))
    blocks = {id(program): [] for program in measured}
    for _ in range(BLOCKS):
        before = [(program.done, program.seconds) for program in measured]
        for _ in range(max(1, round(options.seconds / slices.SLICE / BLOCKS))):
            for program in measured:
                program.run(slices.SLICE)
        for program, (done, seconds) in zip(measured, before):
            blocks[id(program)].append((program.done - done) / (program.seconds - seconds))
    results = []
    for program in running:
        if program:
            added = added_bytes(program)
            program.end()
            results.append(Result(program.done / program.seconds, blocks[id(program)], added))
        else:
            results.append(None)
    return results


def added_bytes(program):
    """Returns what training has added to the peak of resident memory, in all processes that train."""
    added = 0
    for process in slices.descendants(program.process.pid):
        before = program.progress.with_name("%s.%d" % (program.progress.name, process))
        if before.exists():
            status = pathlib.Path("/proc/%d/status" % process).read_text()
            peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
            added += int(peak.split()[1]) * 1024 - int(before.read_text())
    return added


def ratio(one, *others):
    """Returns the ratio of the totals to the fastest of the others, with the least and the greatest of the blocks."""
    others = [other for other in others if other]
    if one is None or not others:
        return "fails"
    fastest = max(others, key=lambda other: other.rate)
    ratios = [a / b for a, b in zip(one.blocks, fastest.blocks)]
    return "%.2f (%.2f to %.2f)" % (one.rate / fastest.rate, min(ratios), max(ratios))


def cells(result):
    return ["%.2f" % (1e3 / result.rate), "%.0f" % (result.bytes / 2**20)] if result else ["fails", ""]


def against_cpp(options, size):
    together = TOGETHER[size]
    with tempfile.TemporaryDirectory() as folder:
        step, steps, exact, cpp = compare(options, [
            start(options, folder, "blocks", size, "ours"),
            start(options, folder, "blocks", size, "ours", "--together", str(together)),
            start(options, folder, "blocks", size, "ours", "--exact"),
            start_cpp(options, folder, size)])
    for name, each in (("step", step), ("steps, %d at once" % together, steps), ("step, exact=True", exact)):
        print("%s, the same model: C++ %.2f ms per step, Python's %s %.2f ms: %s" % (
            size, 1e3 / cpp.rate, name, 1e3 / each.rate, ratio(each, cpp)), flush=True)


def against_peer(options, models, size, schedules):
    layout = "%-15s" + "%10s%6s" * (len(schedules) + 2) + "  %-20s" * len(schedules)
    names = [*schedules, "eager", "compiled"]
    print(layout % (size, *sum(([name, "MiB"] for name in names), []), *(name + " over the faster" for name in schedules)))
    for model in models:
        with tempfile.TemporaryDirectory() as folder:
            ours = [start(options, folder, model, size, "ours", "--schedule", schedule) for schedule in schedules]
            peers = [start(options, folder, model, size, engine) for engine in ("eager", "compiled")]
            results = compare(options, ours + peers)
        ratios = [ratio(each, *results[-2:]) for each in results[:-2]]
        print(layout % (model, *sum(map(cells, results), []), *ratios), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="with penstock, transformers and torchvision")
    parser.add_argument("--program", required=True)
    parser.add_argument("--seconds", type=int, default=30, help="of each contender")
    parser.add_argument("--part", choices=("cpp", "peer", "table"), action="append", help="only this part")
    parser.add_argument("--model", choices=TABLE, action="append", help="only this model of the table")
    parser.add_argument("--size", choices=SHAPES, action="append", help="only this size of the others")
    options = parser.parse_args()
    parts, sizes = options.part or ("cpp", "peer", "table"), options.size or SHAPES
    for size in sizes:
        if "cpp" in parts:
            against_cpp(options, size)
        if "peer" in parts:
            against_peer(options, ["blocks", "llama", "gpt2"], size, ["1f1b", "zb-h1"])
    if "table" in parts:
        against_peer(options, options.model or TABLE, "table", ["1f1b"])


if __name__ == "__main__":
    main()
