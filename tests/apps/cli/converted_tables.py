"""Tables of other systems as columns of `penstock calibrate`, by bench/tables."""
import csv
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[3]
TABLES = ROOT / "tests/planning/calibrate/tables"


def start(*words):
    return subprocess.run([sys.executable, "-B", ROOT / "bench/tables/convert.py", *words], capture_output=True, text=True, check=False)


def convert(paths, folder):
    """Writes the tables into the folder. Returns what was said of them."""
    done = start(*paths, "-o", folder)
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stderr


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))
