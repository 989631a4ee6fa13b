"""Published figures next to simulated ones.

A file of examples/published/ has a table: what it shows, its source, and for each row the options of `penstock
simulate`, for each column a schedule. What is fitted, if anything, is the same for all rows and columns. A schedule
such as "interleaved:v={chunks}" takes values from the row. Options that are lists belong to a configuration. Columns
can have a figure of their own.
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "examples" / "published"


def idle_of_least_busy(run, table, row):
    return run["makespan"] - min(rank["busy"] for rank in run["per_rank"])


def samples_per_rank_and_second(run, table, row):
    """Steps follow each other without a barrier, so one takes the longest span. Times are in milliseconds."""
    span = max(rank["last_end"] - rank["first_start"] for rank in run["per_rank"])
    samples = run["microbatches"] * row["batch"]
    return samples / (span / 1000 * table["fitted"]["step_factor"] * run["ranks"])


def mfu(run, table, row):
    """In percent of an A100's peak."""
    return 100 * row["flops"] / (run["makespan"] * run["ranks"] * 312e12)


def extra_bubble(run, table, row):
    """Idle time of the last rank to finish, minus the schedule's with all ranks in a group: in times of a chunk's F."""
    return (run["makespan"] - max(rank["busy"] for rank in run["per_rank"])) * run["chunks"] - (run["ranks"] - 1)


def peak_memory_with_states(run, table, row):
    """Activations, and weights, gradients and optimizer state of the first, the last and any other rank."""
    states = [row["states"]["first"], *[row["states"]["other"]] * (run["ranks"] - 2), row["states"]["last"]]
    return max(rank["peak_memory"] + held for rank, held in zip(run["per_rank"], states))


FIGURES = {
    "span_bubble": lambda run, table, row: run["span_bubble"],
    "bubble_over_ideal": lambda run, table, row: run["bubble"] / (1 - run["bubble"]),
    "speed": lambda run, table, row: 1 / run["makespan"],
    "peak_memory": lambda run, table, row: run["peak_memory"],
    "peak_chunks": lambda run, table, row: run["peak_memory"] * run["chunks"],
    "peak_memory_with_states": peak_memory_with_states,
    "peak_of_rank": lambda run, table, row: max(rank["peak"]["amount"] for rank in run["memory"]),
    "mfu": mfu,
    "extra_bubble": extra_bubble,
    "idle_of_least_busy": idle_of_least_busy,
    "samples_per_rank_and_second": samples_per_rank_and_second,
}


def simulate(program, table, row, column):
    options = row["options"]
    schedule = column["schedule"].format(**options, **row, twice_ranks=2 * options["ranks"])
    words = [word for key, value in options.items() if not isinstance(value, list) for word in (f"--{key.replace('_', '-')}", str(value))]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as configuration:
        json.dump({key: value for key, value in options.items() if isinstance(value, list)}, configuration)
        configuration.flush()
        command = [program, "simulate", schedule, configuration.name, *words, "--json", *["--memory"] * table.get("memory", False)]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=FOLDER).stdout
    figure = FIGURES[column.get("figure", table["figure"])]
    return figure(json.loads(output)["schedules"][0], table, row) / column.get("unit", table["unit"])


def compare(program, table):
    """Returns (row's name, column's name, published, simulated) for each entry of the table."""
    entries = []
    for row in table["rows"]:
        simulated = [simulate(program, table, row, column) for column in table["columns"]]
        if table.get("relative"):
            simulated = [figure / simulated[0] for figure in simulated]
        name = f"{row['name']} m={row['options']['microbatches']}"
        entries += [(name, column["name"], *figures) for column, *figures in zip(table["columns"], row["published"], simulated)]
    return entries


def in_published_order(entries):
    """Whether of any two columns the one with the higher published figure is simulated higher, too."""
    return all((a[2] - b[2]) * (a[3] - b[3]) > 0 for a in entries for b in entries if a[2] != b[2])


def show(table, entries):
    columns = [column["name"] for column in table["columns"]]
    print(f"{table['title']}\n{table['source']}\nPublic: {table['public']}.")
    print(f"Fitted: {table['fitted']['what'] if 'fitted' in table else 'nothing'}.")
    print("".join(f"{text:>20}" for text in ["", *columns]))
    rows = [entries[begin:begin + len(columns)] for begin in range(0, len(entries), len(columns))]
    for row in rows:
        cells = [f"{published:g} / {simulated:.4g}" for _, _, published, simulated in row]
        print("".join(f"{text:>20}" for text in [row[0][0], *cells]))
    off = {name: max(abs(simulated - published) / published for _, column, published, simulated in entries if column == name)
           for name in columns}
    print("".join(f"{text:>20}" for text in ["furthest off", *(f"{off[name]:.1%}" for name in columns)]))
    mean = sum(abs(simulated - published) / published for _, _, published, simulated in entries) / len(entries)
    ordered = f"; {sum(map(in_published_order, rows))} of {len(rows)} rows in the published order" if table.get("ranked") else ""
    print(f"mean distance {mean:.1%}{ordered}", end="\n\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("tables", nargs="*", default=sorted(path.stem for path in FOLDER.glob("*.json")))
    args = parser.parse_args()
    results = {}
    for name in args.tables:
        table = json.loads((FOLDER / f"{name}.json").read_text())
        results[name] = compare(pathlib.Path(args.program).resolve(), table)
        if not args.json:
            show(table, results[name])
    if args.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
