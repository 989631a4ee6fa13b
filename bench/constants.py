"""Chooses the constants of transformer-engine again without a model or a source, and predicts what was left out (docs/measured.md).

A program that reads the constants from its environment prices the rows. Gauss-Newton steps lessen the errors of the logarithms of times,
with equal weights of models and devices, and a weak pull to START, which was written down without the rows. Without a group, the steps begin
where those with all rows ended, and keep their derivatives.
"""
import argparse
import csv
import json
import math
import os
import pathlib
import re
import subprocess
import tempfile

import measured

BUILD = measured.ROOT / "build/constants"
FOLDER, HEADER = "cost_model/implementations", "transformer_engine_constants.h"
TABLES = ("megatron_bridge", "automodel_h100", "dgxc_h100", "dgxc_gb200", "nemo2407_h100")
# What somebody would guess: parts of peaks and messages, counts of reads and writes of the kernels in the sources, milliseconds of launches.
START = {
    "kMatmulBf16": 0.7, "kMatmulFp8": 0.7, "kMatmulBlockwise": 0.6, "kMatmulMxfp8": 0.6, "kMatmulNvfp4": 0.5, "kMatmulStart": 500,
    "kGroupedWidth": 256, "kGroupedWidthFused": 128, "kWeightTraffic": 0.5, "kMemory": 0.8, "kAttentionForward": 0.7, "kAttentionBackward": 0.6,
    "kAttentionStart": 1000, "kFp8Attention": 1.3, "kScan": 0.03, "kQuantize": 1.2, "kQuantizeNvfp4": 1.5, "kQuantizeRows": 3, "kQuantizeRowsFused": 2,
    "kHiddenPasses": 12, "kHeadPasses": 6, "kAttentionPasses": 3, "kGatePasses": 8, "kRowPasses": 8, "kRowPassesFused": 6, "kAllToAllPasses": 8,
    "kPaddingPasses": 8, "kExpertGatePasses": 8, "kExpertGatePassesFused": 4, "kExpertActivationPasses": 20, "kExpertBiasPasses": 60, "kLink": 0.8, "kNetwork": 0.8,
    "kExpertLink": 0.8, "kExpertNetwork": 0.8, "kAllToAllLink": 0.6, "kAllToAllNetwork": 0.8, "kAllToAllRack": 0.2, "kTensorExposed": 0.5,
    "kContextExposed": 0.5, "kExpertExposed": 0.5, "kGradientsExposed": 0.5, "kShardsExposed": 0.5, "kHostPart": 5e-4, "kHostExperts": 5e-3,
    "kHostExpert": 1e-4, "kHostCounts": 1e-3, "kHostDropping": 0.5, "kHostPartialGraphs": 0.7}
# What large kernels and messages reach of the hardware is known better than counts and parts that overlap.
KNOWN = ("kMatmulBf16", "kMatmulFp8", "kMatmulBlockwise", "kMatmulMxfp8", "kMatmulNvfp4", "kMemory", "kAttentionForward", "kAttentionBackward",
         "kLink", "kNetwork", "kExpertLink", "kExpertNetwork")
# Standard deviations of logarithms: of a row, of what is known, of other constants from the start, and of a device's factor from 1.
ROW, HARDWARE, CONSTANT, FACTOR = 0.05, 0.25, 0.5, 0.2


def build():
    """Returns the program that reads constants from the environment, and the constants of the tree."""
    declared = re.compile(r"(k\w+) =\s*([-+.\de]+)(?=[,;])")
    read = ("#include <cstdlib>\nnamespace penstock::transformer_engine {\ninline double Read(const char* name, double value) {\n"
            "  const char* text = std::getenv(name);\n  return text == nullptr ? value : std::strtod(text, nullptr);\n}")
    for header in ("torch_constants.h", HEADER):  # torch takes some of them
        text = (measured.ROOT / "src" / FOLDER / header).read_text()
        changed = text.replace("inline constexpr double", "inline const double")
        if header == HEADER:
            changed = declared.sub(r'\1 = Read("\1", \2)', changed.replace("namespace penstock::transformer_engine {", read, 1))
        path = BUILD / "read" / FOLDER / header
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != changed:
            path.write_text(changed)
    for command in (["--preset", "core", "-B", BUILD, f"-DCMAKE_CXX_FLAGS=-iquote {BUILD / 'read'}"], ["--build", BUILD, "--target", "penstock"]):
        subprocess.run(["cmake", *command], check=True, cwd=measured.ROOT, stdout=subprocess.DEVNULL)
    program = next(path for path in BUILD.rglob("penstock") if path.is_file() and os.access(path, os.X_OK))
    return program, {name: float(value) for name, value in declared.findall(text)}


class Rows:
    def __init__(self, program, tables, folder):
        self.program, self.folder = program, pathlib.Path(folder)
        measured.convert.write(tables / "megatron_bridge.csv", self.folder)
        measured.public_tables(tables / "public_rows.csv", self.folder)
        self.rows = [{**row, "table": table} for table in TABLES for row in measured.rows_of(self.folder / f"{table}.csv")]
        self.tables = [row.pop("table") for row in self.rows]
        self.tables = [table if table != TABLES[0] else f"{table} {'to 2026-02' if row['release'] < '2026-04' else 'from 2026-04'}"
                       for table, row in zip(self.tables, self.rows)]
        # Models that no name says have a width.
        self.models = [row["model"] if row["model"] not in ("decoder", "gpt") else f"{row['model']} {row['dim']}" for row in self.rows]
        self.models = [f"{model} of experts" if row.get("experts") else model for model, row in zip(self.models, self.rows)]
        self.devices = [(row["device"], row["precision"]) for row in self.rows]
        cells = list(zip(self.models, self.devices))
        self.weights = [1 / cells.count(cell) for cell in cells]

    def errors(self, point):
        """Logarithms of predicted over measured times."""
        columns = list(dict.fromkeys(name for row in self.rows for name in row)) + ["time_factor"]
        with open(self.folder / "all.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, columns, restval="")
            writer.writeheader()
            writer.writerows({**row, "time_factor": point.get(device, "")} for row, device in zip(self.rows, self.devices))
        constants = {name: repr(value) for name, value in point.items() if isinstance(name, str)}
        done = subprocess.run([self.program, "calibrate", "all.csv", "--rows", "--json"], cwd=self.folder, capture_output=True, text=True, check=True,
                              env={**os.environ, **constants})
        return [math.log(row["step_time"] / row["measured_step_time"]) for row in json.loads(done.stdout)["predictions"]]

    def slopes(self, point):
        """Derivatives of the errors by the logarithm of each value of the point."""
        base, step = self.errors(point), 0.02
        changed = {name: self.errors({**point, name: point[name] * math.exp(step)}) for name in START}
        scaled = self.errors({name: value if name in START else value * math.exp(step) for name, value in point.items()})
        changed |= {device: [new if of == device else old for new, old, of in zip(scaled, base, self.devices)] for device in set(self.devices)}
        return {name: [(new - old) / step for new, old in zip(each, base)] for name, each in changed.items()}


def solve(matrix, values):
    """Gaussian elimination of a positive definite system."""
    rows = [[*row, value] for row, value in zip(matrix, values)]
    for i, pivot in enumerate(rows):
        for row in rows[i + 1:]:
            factor = row[i] / pivot[i]
            if factor:
                row[i:] = [a - factor * b for a, b in zip(row[i:], pivot[i:])]
    result = [0] * len(rows)
    for i in reversed(range(len(rows))):
        result[i] = (rows[i][-1] - sum(a * b for a, b in zip(rows[i][i + 1:-1], result[i + 1:]))) / rows[i][i]
    return result


def loss(rows, kept, point, errors):
    """Squares of errors, linear beyond twice what a row is off usually, and of the distance from the start."""
    squares = sum(rows.weights[i] * (error**2 if (error := abs(errors[i]) / ROW) < 2 else 4 * error - 4) for i in kept)
    return squares + sum((math.log(value / START.get(name, 1)) / spread_of(name))**2 for name, value in point.items())


def spread_of(name):
    return HARDWARE if name in KNOWN else CONSTANT if name in START else FACTOR


def improve(rows, kept, point, slopes, steps):
    """Moves the point by Gauss-Newton steps on the rows `kept`, each as far as the loss becomes less."""
    names, errors = list(point), rows.errors(point)
    for _ in range(steps):
        weights = {i: rows.weights[i] / ROW**2 / max(1, abs(errors[i]) / (2 * ROW)) for i in kept}
        weighted = {a: {i: w * slopes[a][i] for i, w in weights.items()} for a in names}
        matrix = [[sum(w * slopes[b][i] for i, w in weighted[a].items()) + (a == b) / spread_of(a)**2 for b in names] for a in names]
        values = [-sum(w * errors[i] for i, w in weighted[a].items()) - math.log(point[a] / START.get(a, 1)) / spread_of(a)**2 for a in names]
        moves, before = dict(zip(names, solve(matrix, values))), loss(rows, kept, point, errors)
        for scale in (1, 0.5, 0.25, 0.1):
            moved = {name: value * math.exp(max(-0.5, min(0.5, scale * moves[name]))) for name, value in point.items()}
            moved |= {name: min(moved[name], 1) for name, start in START.items() if start <= 1}  # parts
            now = rows.errors(moved)
            if loss(rows, kept, moved, now) < before:
                point, errors = moved, now
                break
        else:
            break
    return point, errors


def mean_error(errors, chosen):
    return measured.percent(sum(abs(math.expm1(errors[i])) for i in chosen) / len(chosen))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=pathlib.Path, required=True, help="a folder with megatron_bridge.csv and public_rows.csv")
    parser.add_argument("--steps", type=int, default=8, help="Gauss-Newton steps")
    options = parser.parse_args()
    program, shipped = build()
    with tempfile.TemporaryDirectory() as folder:
        rows = Rows(program, options.tables, folder)
        everything = range(len(rows.rows))
        as_shipped = rows.errors({})
        point = START | dict.fromkeys(rows.devices, 1)
        for _ in range(options.steps):
            slopes = rows.slopes(point)
            point, fitted = improve(rows, everything, point, slopes, 1)
        others = []
        print("| left out | rows | of the tree | chosen on all rows | chosen without |\n| --- | ---: | ---: | ---: | ---: |")
        for kind, names in (("model", rows.models), ("source", rows.tables), ("half", [("odd", "even")[i % 2] for i in everything])):
            left_out = [0] * len(names)
            for name in sorted(set(names)):
                group = [i for i in everything if names[i] == name]
                other, errors = improve(rows, [i for i in everything if names[i] != name], point, slopes, options.steps)
                others.append(other)
                for i in group:
                    left_out[i] = errors[i]
                print(f"| {name} | {len(group)} | {' | '.join(mean_error(each, group) for each in (as_shipped, fitted, errors))} |", flush=True)
            print(f"| **each {kind}** | {len(names)} | {' | '.join(mean_error(each, everything) for each in (as_shipped, fitted, left_out))} |")
    print("\n| constant | start | of the tree | chosen on all rows | without a group |\n| --- | ---: | ---: | ---: | ---: |")
    for name, value in point.items():
        each = [other[name] for other in others]
        name = name if name in START else " ".join(name)
        print(f"| `{name}` | {START.get(name, 1):g} | {shipped.get(name, 1):g} | {value:.3g} | {min(each):.3g} to {max(each):.3g} |")


if __name__ == "__main__":
    main()
