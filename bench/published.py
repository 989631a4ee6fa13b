"""Published figures next to simulated ones.

A file of examples/published/ has a table: what it shows, its source, and for each row the options of `penstock
simulate`, for each column a schedule. Nothing is fitted.
"""
import argparse
import json
import pathlib
import subprocess

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "examples" / "published"


def idle_of_least_busy(run):
    return run["makespan"] - min(rank["busy"] for rank in run["per_rank"])


FIGURES = {
    "span_bubble": lambda run: run["span_bubble"],
    "bubble_over_ideal": lambda run: run["bubble"] / (1 - run["bubble"]),
    "peak_memory": lambda run: run["peak_memory"],
    "idle_of_least_busy": idle_of_least_busy,
}


def simulate(program, table, row, column):
    options = row["options"]
    schedule = column["schedule"].format(**options, chunks=row.get("chunks"), twice_ranks=2 * options["ranks"])
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    command = [program, "simulate", schedule, *words, "--json"]
    run = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)[0]
    return FIGURES[table["figure"]](run) / table["unit"]


def compare(program, table):
    """Returns (row's name, column's name, published, simulated) for each entry of the table."""
    return [(f"{row['name']} m={row['options']['microbatches']}", column["name"], published, simulate(program, table, row, column))
            for row in table["rows"] for column, published in zip(table["columns"], row["published"])]


def show(table, entries):
    columns = [column["name"] for column in table["columns"]]
    print(f"{table['title']}\n{table['source']}\nPublic: {table['public']}. Fitted: nothing.")
    print("".join(f"{text:>20}" for text in ["", *columns]))
    for begin in range(0, len(entries), len(columns)):
        row = entries[begin:begin + len(columns)]
        cells = [f"{published:g} / {simulated:.4g}" for _, _, published, simulated in row]
        print("".join(f"{text:>20}" for text in [row[0][0], *cells]))
    off = {name: max(abs(simulated - published) / published for _, column, published, simulated in entries if column == name)
           for name in columns}
    print("".join(f"{text:>20}" for text in ["furthest off", *(f"{off[name]:.1%}" for name in columns)]), end="\n\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("tables", nargs="*", default=sorted(path.stem for path in FOLDER.glob("*.json")))
    args = parser.parse_args()
    results = {}
    for name in args.tables:
        table = json.loads((FOLDER / f"{name}.json").read_text())
        results[name] = compare(args.program, table)
        if not args.json:
            show(table, results[name])
    if args.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
