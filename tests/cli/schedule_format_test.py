"""docs/schedule_format.md: a reader that was written from the page alone reads what the program writes, and its files are read."""
import pathlib
import re

import program

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs/schedule_format.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (`[A-Z_`, ]+`) \| (yes|no) \|", PAGE, re.MULTILINE)
TAKES_MICROBATCH = {op: takes == "yes" for names, takes in ROWS for op in re.findall(r"[A-Z_]+", names)}
PART = re.compile(r"(\d+)([A-Z_]*[A-Z])(\d*)")
PAIR = re.compile(r"\( *([^;]+?) *; *([^;]+?) *\) *OVERLAP_F_B")
DEFAULTS = {"replicas": 1, "slices": 1, "steps": 1, "weights": "flush"}


def read_part(text):
    stage, op, microbatch = PART.fullmatch(text).groups()
    assert TAKES_MICROBATCH[op] == bool(microbatch), text
    return int(stage), op, int(microbatch) if microbatch else None


def read_action(cell):
    pair = PAIR.fullmatch(cell)
    return [read_part(part) for part in (pair.groups() if pair else (cell,))]


def read(path):
    """Returns the lanes of a CSV, each a list of actions, which are lists of parts, and the keys of the companion file."""
    lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").decode("ascii").split("\n")
    while lines and not lines[-1].strip(", \t\r\v\f"):
        lines.pop()
    lanes = []
    for line in lines:
        cells = [cell.strip() for cell in line.split(",")]
        cells = [cell[1:-1].strip() if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell for cell in cells]
        lanes.append([read_action(cell) for cell in cells if cell])
    keys = dict(DEFAULTS)
    companion = path.with_suffix(".yaml")
    if companion.exists():
        keys.update(line.split(": ") for line in companion.read_text(encoding="utf-8").splitlines())
    if "microbatches" not in keys:
        largest = max(part[2] for lane in lanes for action in lane for part in action if part[2] is not None)
        of_each = int(keys["slices"]) * int(keys["steps"])
        keys["microbatches"] = -(-(largest + 1) // of_each) * int(keys["replicas"])
    return lanes, keys


class ScheduleFormatTest(program.CommandTest):
    def check(self, *words):
        """The reader finds what the program says about a schedule that it writes."""
        self.run_ok("schedule", *words, "-o", "a.csv")
        lanes, keys = read(self.folder / "a.csv")
        stages = {part[0] for lane in lanes for action in lane for part in action}
        self.assertEqual(stages, set(range(len(stages))))
        actions = sum(map(len, lanes))
        self.assertIn(f": {len(lanes)} ranks, {len(stages)} stages, {keys['microbatches']} microbatches, {actions} actions",
                      self.run_ok("validate", "a.csv").replace(" is valid", ""))
        for path in self.folder.iterdir():
            path.unlink()

    def test_a_reader_from_the_page_reads_every_schedule(self):
        for row in self.run_rows("schedules"):
            self.check(row["name"], "-p", 4, "-m", 8)
        for words in (["seq1f1b", "--slices", 2], ["pipedream", "--steps", 3], ["1f1b", "--lower"],
                      ["1f1b", "--pass", "sharding,optimizer"], ["gpipe", "--pass", "offload"], ["1f1b", "--pass", "recompute"],
                      ["1f1b", "--pass", "vocabulary"]):
            self.check(*words, "-p", 4, "-m", 8)

    def test_what_the_page_allows_is_read(self):
        plain = "0F0,0F1,0B0,0B1\n1F0,1I0,1W0,1F1,1I1,1W1\n"
        self.assertIn("\n" + "".join(f"    {line}\n" for line in plain.splitlines()), PAGE)
        for text in (plain, "\ufeff" + plain, plain.replace("\n", "\r\n"), plain.replace(",", ",,\t ,"), plain[:-1], plain + "\n ,\n",
                     plain.replace("1I0", ' "1I0" ')):
            (self.folder / "a.csv").write_bytes(text.encode())
            self.assertEqual(self.run_rows("simulate", "a.csv")[0]["makespan"], 8, repr(text))
        lowered = self.run_ok("schedule", "--csv", "a.csv", "--lower")
        self.assertIn("\n" + "".join(f"    {line}\n" for line in lowered.splitlines()), PAGE)

    def test_bounds_are_those_of_the_page(self):
        for text, read_it in (("65535F0", True), ("65536F0", False), ("0F1073741823", True), ("0F1073741824", False)):
            (self.folder / "a.csv").write_text(text + "\n")
            self.assertEqual("is not an action" in self.start("validate", "a.csv").stderr, not read_it, text)


if __name__ == "__main__":
    program.main()
