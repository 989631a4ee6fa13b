"""Predictions next to what others measured (docs/measured.md): scores of every table, and a picture.

Reads the tables that `bench/run tables` converts; tests/planning/calibrate/tables has some rows of each.
"""
import argparse
import csv
import json
import math
import pathlib
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench/tables"))
import convert  # noqa: E402
TIME, MEMORY = ("step_time", "measured_step_time"), ("peak_bytes", "measured_peak_bytes")
# Title, table, what is fitted, and what the picture shows, in which unit.
SETS = [
    ("A100, several nodes", "a100_multi_node", [], TIME, "s"),
    ("A100, one node", "a100_single_node", ["--fit", "host_launch,flops_efficiency"], TIME, "s"),
    ("NVIDIA's pages", "megatron_bridge", ["--fit", "flops_efficiency"], TIME, "s"),
    ("Llama 8B by NeMo", "nemo_sweep", [], TIME, "s"),
    ("uneven stages", "uneven_stages", [], TIME, "s"),
    ("Memory of Megatron-LM's tests", "megatron_tests", [], MEMORY, "GiB"),
]
# One layer of experts on 8 H100 (Megatron-LM, tests/functional_tests/test_cases/common/moe_perf): 4096 tokens per rank.
EXPERT_LAYERS = {
    "mixtral": {"dim": 4096, "experts": 8, "top-k": 2, "expert-hidden": 14336, "heads": 32},
    "deepseek": {"dim": 7168, "experts": 32, "top-k": 8, "expert-hidden": 2048, "heads": 64, "shared-experts": 1},
}
DISPATCHERS = {"a2a": "all-to-all", "deepep": "deepep", "hybridep": "hybridep"}
PRECISIONS = {"bf16": "bf16", "fp8": "fp8-blockwise"}


def run(program, *words):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr.strip())
    return json.loads(done.stdout)


def percent(value):
    return "-" if value is None else f"{100 * value:.1f}%"


def score_row(title, rows, scores):
    time, groups = scores["time"], scores["groups"]
    found = sum(group["best_found"] for group in groups)
    regrets = [group["regret"] for group in groups] or [0]
    fitted = scores["fitted"]
    cells = [title, f"{scores['priced']} of {rows}", percent(time["mape"]), percent(time["bias"]),
             percent(time["pairs_in_order"]), f"{found} of {len(groups)}",
             f"{percent(sum(regrets) / len(regrets))}, {percent(max(regrets))}",
             percent(fitted and fitted["cross_validated_mape"])]
    print("| " + " | ".join(cells) + " |")


def show_scores(program, tables, converted):
    print("| table | priced | mean error | bias | pairs in order | best found | regret: mean, largest | of rows left out |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for title, table, fit, what, _ in SETS:
        path = converted / f"{table}.csv"
        if what != TIME or not path.exists():
            continue
        rows = len(rows_of(tables / path.name))
        score_row(title, rows, run(program, "calibrate", path, "--json"))
        if fit:
            score_row(f"{title}, `{' '.join(fit)}`", rows, run(program, "calibrate", path, *fit, "--json"))


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def show_memory(program, converted):
    """Scores dense models and models with experts."""
    path = converted / "megatron_tests.csv"
    if not path.exists():
        return
    rows = rows_of(path)
    print("\n| peak memory | rows | within 2% | within 5% | within 10% | bias |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    errors = {"dense": [], "with experts": []}
    for each in run(program, "calibrate", path, "--json", "--rows")["predictions"]:
        if each["measured_peak_bytes"]:
            kind = "with experts" if rows[each["row"] - 1]["experts"] else "dense"
            errors[kind].append(each["peak_bytes"] / each["measured_peak_bytes"] - 1)
    for kind, all_errors in errors.items():
        shares = [percent(sum(abs(error) <= most for error in all_errors) / len(all_errors)) for most in (0.02, 0.05, 0.1)]
        print(f"| {kind} | {len(all_errors)} | {' | '.join(shares)} | {percent(sum(all_errors) / len(all_errors))} |")


def show_transfer(program, converted, folder):
    """Fits one efficiency to all rows of other models, and scores it on a model."""
    path = converted / "a100_multi_node.csv"
    if not path.exists():
        return
    rows = rows_of(path)
    names = {"3072": "3.6", "6144": "18.4", "8192": "39.1", "12288": "175"}  # billions of parameters by the model's width
    print("\n| A100, several nodes: `flops_efficiency` from all other models | mean error |")
    print("| --- | ---: |")
    for dim in sorted({row["dim"] for row in rows}, key=int):
        for name, keep in (("others.csv", False), ("group.csv", True)):
            with open(folder / name, "w", newline="") as file:
                writer = csv.DictWriter(file, rows[0].keys())
                writer.writeheader()
                writer.writerows(row for row in rows if (row["dim"] == dim) == keep)
        machine = folder / "machine.yaml"
        run(program, "calibrate", folder / "others.csv", "--fit", "flops_efficiency", "-o", machine, "--json")
        scores = run(program, "calibrate", folder / "group.csv", "--machine", machine, "--json")
        print(f"| {names[dim]}B | {percent(scores['time']['mape'])} |")


def step_of(program, shape, precision, dispatcher, layers, dense_layers):
    words = [word for key, value in EXPERT_LAYERS[shape].items() for word in (f"--{key}", value)]
    (result,) = run(program, "simulate", "1f1b", "-p", 1, "-m", 1, "--model", "decoder", "--vocabulary", 1024, "--hidden", 64,
                    "--layers", layers, "--dense-layers", dense_layers, *words, "--sequence", 4096, "--nodes", "1x8",
                    "--data-parallel", 8, "--expert", 8, "--implementation", "transformer-engine", "--precision", precision,
                    "--dispatcher", dispatcher, "--cuda-graphs", "full", "--time-factor", 1, "--json")["schedules"]
    return result["makespan"]


def show_expert_layer(program, tables):
    """A layer of experts without attention: what a layer with experts takes more than one without."""
    path = tables / "moe_layer_h100.json"
    if not path.exists():
        return
    print("\n| one layer of experts, F and B | measured ms | predicted ms | ratio | over the median ratio |")
    print("| --- | ---: | ---: | ---: | ---: |")
    rows = []
    for name, measured in json.loads(path.read_text()).items():
        shape, dispatcher, _, precision = name.split("_")
        words = (program, shape, PRECISIONS[precision], DISPATCHERS[dispatcher])
        predicted = 1e3 * (step_of(*words, 3, 1) - step_of(*words, 3, 2))
        took = measured["forward_ms"] + measured["backward_ms"]
        rows.append((f"{shape}, {DISPATCHERS[dispatcher]}, {precision}", took, predicted, predicted / took))
    median = sorted(row[3] for row in rows)[len(rows) // 2]
    for name, took, predicted, ratio in rows:
        print(f"| {name} | {took:.1f} | {predicted:.1f} | {ratio:.2f} | {100 * (ratio / median - 1):+.0f}% |")


class Panel:
    """Predicted against measured values, both logarithmic, with lines at equality and 10% beside it."""

    SIZE, LEFT, TOP = 216, 62, 34

    def __init__(self, title, points, unit):
        self.title, self.points, self.unit = title, points, unit
        values = [value for point in points for value in point]
        self.least, self.most = math.log10(min(values) / 1.15), math.log10(max(values) * 1.15)

    def at(self, value):
        return self.SIZE * (math.log10(value) - self.least) / (self.most - self.least)

    def ticks(self):
        decades = self.most - self.least
        steps = (1,) if decades > 2.2 else (1, 3) if decades > 1.2 else (1, 2, 5) if decades > 0.5 else (1, 1.5, 2, 2.5, 3, 4, 5, 7)
        for exponent in range(math.floor(self.least), math.ceil(self.most) + 1):
            for step in steps:
                if self.least <= math.log10(step * 10**exponent) <= self.most:
                    yield step * 10**exponent

    def line(self, factor, kind):
        low, high = 10**self.least, 10**self.most
        begin, end = max(low, low / factor), min(high, high / factor)
        return (f'<path class="{kind}" d="M{self.at(begin):.1f} {self.SIZE - self.at(begin * factor):.1f}'
                f'L{self.at(end):.1f} {self.SIZE - self.at(end * factor):.1f}"/>')

    def svg(self, column, row):
        size = self.SIZE
        parts = [f'<g transform="translate({self.LEFT + column * (size + 84)} {self.TOP + row * (size + 84)})">',
                 f'<text class="title" x="0" y="-10">{self.title}</text>', f'<rect class="frame" width="{size}" height="{size}"/>']
        for tick in self.ticks():
            at, text = self.at(tick), f"{tick:g}"
            parts.append(f'<path class="grid" d="M{at:.1f} 0V{size}M0 {size - at:.1f}H{size}"/>'
                         f'<text x="{at:.1f}" y="{size + 16}" text-anchor="middle">{text}</text>'
                         f'<text x="-6" y="{size - at + 4:.1f}" text-anchor="end">{text}</text>')
        parts += [self.line(1, "equal"), self.line(1.1, "band"), self.line(1 / 1.1, "band")]
        dots = "".join(f"M{self.at(measured):.1f} {size - self.at(predicted):.1f}h0" for predicted, measured in self.points)
        parts.append(f'<path class="dot" d="{dots}"/>'
                     f'<text x="{size / 2}" y="{size + 34}" text-anchor="middle">measured, {self.unit}</text>'
                     f'<text transform="translate(-46 {size / 2}) rotate(-90)" text-anchor="middle">predicted, {self.unit}</text></g>')
        return "".join(parts)


def draw(program, converted, path):
    panels = []
    for title, table, fit, (predicted, measured), unit in SETS:
        file = converted / f"{table}.csv"
        if not file.exists():
            raise SystemExit(f"{file.name} is missing: the picture shows all tables")
        scale = 2**-30 if unit == "GiB" else 1
        rows = run(program, "calibrate", file, *fit, "--rows", "--json")["predictions"]
        panels.append(Panel(title, [(row[predicted] * scale, row[measured] * scale) for row in rows if row[measured]], unit))
    pitch = Panel.SIZE + 84
    style = ("text{fill:#5f6b7a}.title{fill:#18212f;font-weight:600}.frame{fill:none;stroke:#18212f;stroke-opacity:.3}"
             ".grid{stroke:#18212f;stroke-opacity:.09}.equal{stroke:#18212f}.band{stroke:#18212f;stroke-dasharray:3 4;stroke-opacity:.5}"
             ".dot{stroke:#2563eb;stroke-opacity:.55;stroke-width:5;stroke-linecap:round}path{fill:none}")
    width, height = 3 * pitch, 2 * pitch
    path.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
                    f"font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif\" font-size=\"12\">"
                    f'<style>{style}</style><rect width="{width}" height="{height}" fill="#ffffff"/>'
                    + "".join(panel.svg(i % 3, i // 3) for i, panel in enumerate(panels)) + "</svg>\n")
    print(f"\nWrote {path}.")


class MeasuredRun:
    """A row of a table with its price: what kind of prediction it tests, and by how much that is off."""

    models = {}  # whether they have experts

    def __init__(self, program, folder, table, row):
        options = dict(word.split("=", 1) for word in shlex.split(row["command"]) if "=" in word)
        device = options.get("--device", "h100")
        self.table, self.ratio = table, row["step_time"] / row["measured_step_time"]
        self.device = next((line.split(":")[1].strip() for line in (folder / device).read_text().splitlines() if line.startswith("like")),
                           device) if device.endswith(".yaml") else device
        self.sequence = int(options.get("--sequence", 4096))
        self.devices = math.prod(map(int, options["--nodes"].split("x"))) if "+" not in options["--nodes"] else 0
        self.implementation = options.get("--implementation", "penstock")
        self.context = int(options.get("--context", 1)) > 1
        self.experts = int(options["--experts"]) > 0 if "--experts" in options else self.has_experts(program, options["--model"])

    @classmethod
    def has_experts(cls, program, model):
        if model in ("decoder", "gpt"):
            return False
        if model not in cls.models:
            done = subprocess.run([program, "simulate", "1f1b", "-p", "1", "--nodes", "1x1", "--model", model, "--json"], capture_output=True, text=True)
            cls.models[model] = json.loads(done.stdout)["schedules"][0]["measured"]["experts"]
        return cls.models[model]


def torchtitan_row(row):
    """Says what the file could not express when it was written: FP8 without TE, its recomputation, asynchronous tensor parallelism, its release."""
    release = re.search(r"(202\d)-?(\d\d)_", row["source"])
    row = {**row, "async_tensor": str("async TP" in row["assumed"]).lower(), "release": "-".join(release.groups())}
    if row["implementation"] == "transformer-engine":
        row["implementation"] = "torch-compile"
    if "selective AC" in row["assumed"]:
        row["recompute"] = "selective"
    if int(row["ranks"]) > 1:  # as many microbatches as ranks
        row["micro_batch_size"] = str(int(row["global_batch"]) // int(row["data_parallel"]) // int(row["ranks"]))
    return row


def automodel_row(row):
    """NeMo AutoModel's benchmarks have no router: fake_balanced_gate takes the experts one after the other (examples/llm_benchmark).

    A pass of the pipeline has 8 samples (LBS; docs/performance-summary.md), and a step as many passes as GA says. Ranks of torch 2.8's
    schedules send and receive together, after each action (PipelineScheduleMulti).
    """
    row = {**row, "consecutive_experts": str(bool(row["expert"])).lower(), "transfers": ""}
    if int(row["ranks"]) > 1:
        passes = int(row["global_batch"]) // (8 * int(row["data_parallel"]))
        row |= {"transfers": "batched", "global_batch": int(row["global_batch"]) // passes, "step_time": float(row["step_time"]) / passes}
    return row


def public_tables(path, folder):
    """Divides a file of rows of several sources, in columns of calibrate, by its column `table`."""
    by_table = {}
    for row in rows_of(path):
        read = {"torchtitan": torchtitan_row, "automodel_h100": automodel_row}.get(row["table"])
        if read:
            row = read(row)
        by_table.setdefault(row.pop("table"), []).append(row)
    for device in path.parent.glob("*.yaml"):
        shutil.copy(device, folder)
    for table, rows in by_table.items():
        columns = [name for name in rows[-1] if name not in ("source", "assumed") and any(row[name] for row in rows)]
        with open(folder / f"{table}.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)


def measured_runs(program, folder):
    for path in sorted(folder.glob("*.csv")):
        if path.stem == "megatron_tests":  # its times are launches of tiny models
            continue
        done = subprocess.run([program, "calibrate", path.name, "--rows", "--json"], capture_output=True, text=True, cwd=folder)
        if done.returncode:
            raise SystemExit(done.stderr.strip())
        for row in json.loads(done.stdout)["predictions"]:
            if row["measured_step_time"]:
                yield MeasuredRun(program, folder, path.stem, row)


def left_out_factor(runs, rows):
    """Returns the factor of all times that the other tables of the implementation give, of the same kind if there are such."""
    first = rows[0]
    others = [run for run in runs if run.table != first.table and run.implementation == first.implementation]
    alike = [run for run in others if (run.experts, run.context) == (first.experts, first.context)]
    return statistics.median(1 / run.ratio for run in alike or others) if others else 1


def write_evidence(program, folder, path):
    """Writes what the core knows of how far its prices were off, leaving out one table at a time."""
    runs = list(measured_runs(program, folder))
    groups = {}
    for run in runs:
        groups.setdefault((run.table, run.implementation, run.device, run.experts, run.context), []).append(run)
    lines = ["// Written by `bench/run measured --tables FOLDER --evidence FILE`: rows of evidence.h, by leave-one-table-out.", ""]
    print("\n| table | implementation | device | kind | rows | error | bias |")
    print("| --- | --- | --- | --- | ---: | ---: | ---: |")
    for (table, implementation, device, experts, context), rows in sorted(groups.items()):
        factor = left_out_factor(runs, rows)
        error = statistics.fmean(abs(factor * run.ratio - 1) for run in rows)
        bias = statistics.fmean(run.ratio - 1 for run in rows)
        devices, sequences = [run.devices for run in rows], [run.sequence for run in rows]
        flags = ", ".join(str(flag).lower() for flag in (experts, context))
        lines.append(f'MEASURED("{table}", "{implementation}", "{device}", {flags}, {len(rows)}, {error:.4f}, {bias:.4f}, '
                     f"{{{min(devices)}, {max(devices)}}}, {{{min(sequences)}, {max(sequences)}}})")
        kind = ("with experts" if experts else "dense") + (", context" if context else "")
        print(f"| {table} | {implementation} | {device} | {kind} | {len(rows)} | {percent(error)} | {percent(bias)} |")
    path.write_text("\n".join(lines) + "\n")
    print(f"\nWrote {path}.")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default="build/penstock")
    parser.add_argument("--tables", type=pathlib.Path, default=ROOT / "tests/planning/calibrate/tables", help="a folder with the tables")
    parser.add_argument("--picture", type=pathlib.Path, help="draw docs/pictures/measured.svg, or another file")
    parser.add_argument("--evidence", type=pathlib.Path, help="write src/scenario/evidence/measured_tables.def, or another file")
    options = parser.parse_args()
    options.program = str(pathlib.Path(options.program).resolve())
    with tempfile.TemporaryDirectory() as folder:
        converted = pathlib.Path(folder) / "converted"
        for _, table, *_ in SETS:
            if (path := options.tables / f"{table}.csv").exists():
                convert.write(path, converted)
        show_scores(options.program, options.tables, converted)
        show_memory(options.program, converted)
        show_transfer(options.program, converted, pathlib.Path(folder))
        show_expert_layer(options.program, options.tables)
        if options.evidence:
            if (path := options.tables / "public_rows.csv").exists():
                public_tables(path, converted)
            write_evidence(options.program, converted, options.evidence)
        if options.picture:
            draw(options.program, converted, options.picture)


if __name__ == "__main__":
    main()
