"""Turns tables of runs that others measured into columns of `penstock calibrate` (docs/measured.md): bench/run tables FILE... -o FOLDER

A table is recognized by its header. Rows that these columns cannot express are left out, with a line that says why.
"""
import argparse
import csv
import pathlib
import sys

from bridge import read_bridge
from gpt import read_aceso, read_nemo, read_vtrain
from megatron_tests import read_megatron_tests
from row import Refused, Row

# A header that has all of the columns is of this format.
FORMATS = {
    "vTrain": ("gpus global_batch micro_batch hidden heads layers sequence tensor data pipeline iteration_ms", read_vtrain),
    "NeMo": ("model seq tp pp cp mbs gbs gpus time_per_step_s", read_nemo),
    "Aceso and Mist": ("gpu measured_iter_ms layers hidden heads seq gbs mbs pp gpus_per_stage recompute tp_first_op dp_first_op",
                       read_aceso),
    "Megatron-Bridge": ("release task model system gpus precision gbs mbs seq fsdp tp pp cp vp ep tok_s_gpu", read_bridge),
    "Megatron-LM's tests": ("test platform iter_s_median mem_max_bytes num-layers hidden-size", read_megatron_tests),
}


def say(text):
    print(f"tables: {text}", file=sys.stderr)


def convert(path):
    """Returns the rows of a table as dictionaries of columns."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file, skipinitialspace=True)
        header = {name.strip() for name in reader.fieldnames or []}
        name = next((name for name, (columns, _) in FORMATS.items() if header.issuperset(columns.split())), None)
        if name is None:
            raise SystemExit(f"tables: error: {path}: line 1: no table of {', '.join(FORMATS)} has these columns; "
                             "`penstock calibrate` reads its own as they are")
        rows, count = [], 0
        for count, cells in enumerate(reader, 1):
            if None in cells or None in cells.values():
                raise SystemExit(f"tables: error: {path}: line {reader.line_num}: another number of cells than the header")
            try:
                rows.append(FORMATS[name][1](Row({column.strip(): cell.strip() for column, cell in cells.items()})))
            except Refused as reason:
                say(f"{path}: line {reader.line_num} is left out: {reason}")
    say(f"{path} ({name}): {len(rows)} of {count} rows")
    return rows


def write(path, folder):
    """Converts a table into one of the same name in a folder, which it returns."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / path.name
    if target.exists() and target.samefile(path):
        raise SystemExit(f"tables: error: {target} is the table itself; name another folder")
    rows = convert(path)
    with open(target, "w", newline="") as file:
        writer = csv.DictWriter(file, dict.fromkeys(column for row in rows for column in row), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return target


def main():
    parser = argparse.ArgumentParser(prog="bench/run tables", description=__doc__)
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE")
    parser.add_argument("-o", "--output", required=True, type=pathlib.Path, metavar="FOLDER",
                        help="where the tables are written, by the same names")
    options = parser.parse_args()
    for path in options.files:
        write(path, options.output)


if __name__ == "__main__":
    main()
