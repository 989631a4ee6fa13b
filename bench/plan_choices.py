#!/usr/bin/env python3
"""How `penstock plan` chooses where others measured which configuration is the best (docs/plan.md).

For each group of rows that compete: what the row that is predicted to be the fastest loses against the best one (the regret of
`penstock calibrate`), and the free choice: the plan for the same model, devices and batch, all dimensions open, relative to the best
measured row as the same model prices it. Where that row needs more memory than a plan may, the limit is raised to what it needs.
"""
import argparse
import json
import math
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench/tables"))
import convert  # noqa: E402
SETS = [("A100, several nodes", "a100_multi_node"), ("A100, one node", "a100_single_node"), ("uneven stages", "uneven_stages"),
        ("Llama 8B by NeMo", "nemo_sweep"), ("NVIDIA's pages", "megatron_bridge")]
# What a plan chooses. All other options of a row describe the job.
CHOSEN = {"ranks", "chunks", "microbatches", "micro-batch-size", "tensor", "data-parallel", "expert", "expert-tensor", "context",
          "recompute", "layout", "zero", "zero-ranks", "stage-tensor", "stage-data", "stage-recompute"}


def run(program, *words):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip()


class Row:
    """A measured row with its price."""

    def __init__(self, prediction):
        self.group, self.command = prediction["group"], shlex.split(prediction["command"])
        self.step_time, self.measured = prediction["step_time"], prediction["measured_step_time"]
        self.options = dict(word[2:].split("=", 1) for word in self.command[3:])
        self.samples = math.prod(int(self.options.get(key, 1)) for key in ("micro-batch-size", "microbatches", "data-parallel"))
        self.devices = math.prod(map(int, self.options["nodes"].split("x")))

    def device_seconds(self):
        """Measured, per token."""
        return self.measured * self.devices / (self.samples * int(self.options.get("sequence", 1)))

    def question(self):
        words = [f"--{key}={value}" for key, value in self.options.items() if key not in CHOSEN]
        return ["plan", *words, "--global-batch", self.samples, "--json"]


class Choice:
    """The free choice for a group."""

    def __init__(self, program, best, extra):
        self.best, self.is_raised, self.error = best, False, None
        priced = run(program, *best.command[1:], "--json")["schedules"][0]
        question = [*best.question(), *extra]
        plan = run(program, *question)
        needs = priced["device_bytes"]
        if isinstance(plan, str) or needs > plan["memory_limit"]:
            self.is_raised = True
            plan = run(program, *question, "--memory-limit", f"{math.ceil(needs)}B")
        if isinstance(plan, str):
            self.error = plan
            return
        self.plan, self.seconds = plan["best"], plan["seconds"]
        self.ratio = self.plan["step_time"] / best.step_time


def percent(value):
    return f"{100 * value:.1f}%"


def choices_of(program, path, options):
    scores = run(program, "calibrate", path, "--rows", "--json")
    if isinstance(scores, str):
        raise SystemExit(scores)
    rows = [Row(each) for each in scores["predictions"] if each["measured_step_time"]]
    regrets, found, choices = [], 0, []
    for group in scores["groups"][: options.groups]:
        regrets.append(group["regret"])
        found += group["best_found"]
        best = min((row for row in rows if row.group == group["group"]), key=Row.device_seconds)
        choice = Choice(program, best, options.plan)
        choices.append(choice)
        if options.rows or choice.error or choice.ratio > 1 + 1e-9:
            print_group(group, choice)
    return regrets, found, choices


def print_group(group, choice):
    print(f"\n{group['group']}: {group['rows']} rows, regret {percent(group['regret'])}\n  best row: {' '.join(choice.best.command)}")
    print(f"    measured {choice.best.measured:.4g} s, predicted {choice.best.step_time:.4g} s")
    if choice.error:
        print(f"  no plan: {choice.error}")
        return
    raised = ", with the memory that the row needs" if choice.is_raised else ""
    print(f"  plan: {choice.plan['command']}\n    predicted {choice.plan['step_time']:.4g} s, "
          f"{percent(choice.ratio - 1)}{raised}; {choice.seconds:.1f} s of search", flush=True)


def table_row(title, regrets, found, choices):
    free = [choice for choice in choices if not choice.error]
    slower = sum(choice.ratio > 1 + 1e-9 for choice in free)
    ratios = [choice.ratio - 1 for choice in free] or [0]
    cells = [title, len(regrets), found, f"{percent(statistics.mean(regrets))}, {percent(max(regrets))}",
             f"{percent(statistics.median(ratios))}, {percent(max(ratios))}", f"{slower} of {len(free)}",
             sum(choice.is_raised for choice in choices), f"{statistics.mean([c.seconds for c in free] or [0]):.1f} s"]
    return "| " + " | ".join(map(str, cells)) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/penstock")
    parser.add_argument("--tables", type=pathlib.Path, default=ROOT / "tests/planning/calibrate/tables", help="a folder with the tables")
    parser.add_argument("--sets", nargs="+", default=[table for _, table in SETS], help="which tables")
    parser.add_argument("--groups", type=int, help="at most so many groups of each table")
    parser.add_argument("--rows", action="store_true", help="print every group, not only those where the plan is slower")
    parser.add_argument("--plan", nargs="+", default=[], metavar="OPTION", help="further options of penstock plan: --plan=--for=megatron")
    options = parser.parse_args()
    lines = ["| table | groups | best found | regret: mean, largest | plan over best row: median, largest | slower | memory raised | search |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for title, table in SETS:
        path = options.tables / f"{table}.csv"
        if table in options.sets and path.exists():
            with tempfile.TemporaryDirectory() as folder:
                regrets, found, choices = choices_of(options.program, convert.write(path, pathlib.Path(folder)), options)
            if regrets:
                lines.append(table_row(title, regrets, found, choices))
    print("\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
