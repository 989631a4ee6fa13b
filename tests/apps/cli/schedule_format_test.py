"""docs/schedule_format.md: a reader that was written from the page alone reads what the program writes, and its files are read."""
import json
import pathlib
import re
import shutil

import program

PAGE = (pathlib.Path(__file__).resolve().parents[3] / "docs/schedule_format.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (`[A-Z_`, ]+`) \| (yes|no) \|", PAGE, re.MULTILINE)
TAKES_MICROBATCH = {op: takes == "yes" for names, takes in ROWS for op in re.findall(r"[A-Z_]+", names)}
PART = re.compile(r"(\d+)([A-Z_]*[A-Z])(\d*)")
PAIR = re.compile(r"\( *([^;]+?) *; *([^;]+?) *\) *OVERLAP_F_B")
KEYS = re.findall(r"^\| `([a-z]+)` \| ", PAGE, re.MULTILINE)
DEFAULTS = {"replicas": 1, "slices": 1, "steps": 1, "weights": "flush"}


def read_part(text):
    stage, op, microbatch = PART.fullmatch(text).groups()
    assert TAKES_MICROBATCH[op] == bool(microbatch), text
    return int(stage), op, int(microbatch) if microbatch else None


def read_action(cell):
    pair = PAIR.fullmatch(cell)
    return [read_part(part) for part in (pair.groups() if pair else (cell,))]


def cells_of(line):
    cells = [cell.strip() for cell in line.split(",")]
    cells = [cell[1:-1].strip() if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell for cell in cells]
    return [cell for cell in cells if cell]


def hidden(cell):
    """Returns the header that a blank cell spells; empty if it spells none."""
    bits = "".join({" ": "0", "\t": "1"}.get(character, "x") for character in cell)
    if "x" in bits or len(bits) % 8 != 0:
        return ""
    text = bytes(int(bits[at:at + 8], 2) for at in range(0, len(bits), 8)).decode("latin-1")
    return text if "=" in text else ""


def read(path):
    """Returns the lanes of a CSV, each a list of actions, which are lists of parts, and the keys of the header."""
    lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").decode("ascii").split("\n")
    header = cells_of(lines.pop(0) if "=" in lines[0] else hidden(lines[0].split(",")[0]))
    given = dict([part.strip() for part in cell.split("=")] for cell in header)
    assert given.keys() <= set(KEYS) and len(given) == len(header), header
    while lines and not lines[-1].strip(", \t\r\v\f"):
        lines.pop()
    lanes = [[read_action(cell) for cell in cells_of(line)] for line in lines]
    keys = DEFAULTS | given
    if "microbatches" not in keys:
        largest = max(part[2] for lane in lanes for action in lane for part in action if part[2] is not None)
        of_each = int(keys["slices"]) * int(keys["steps"])
        keys["microbatches"] = -(-(largest + 1) // of_each) * int(keys["replicas"])
    return lanes, keys


class ScheduleFormatTest(program.CommandTest):
    def check(self, *words):
        """The reader finds what the program says about a schedule that it writes, and so does the program, if only the CSV is copied."""
        said = json.loads(self.run_ok("schedule", *words, "-o", "a.csv", "--format", "json"))
        lanes, keys = read(self.folder / "a.csv")
        stages = {part[0] for lane in lanes for action in lane for part in action}
        self.assertEqual(stages, set(range(len(stages))))
        self.assertEqual([len(lanes), len(stages), sum(map(len, lanes))], [said[key] for key in ("ranks", "stages", "actions")])
        for key in ("microbatches", "replicas", "slices", "steps"):
            self.assertEqual(int(keys[key]), said[key], (words, key))
        self.assertEqual([path.name for path in self.folder.iterdir()], [said["file"]], "the program names every file that it writes")
        (self.folder / "other").mkdir()
        (self.folder / "a.csv").rename(self.folder / "other/b.csv")
        self.assertEqual(json.loads(self.run_ok("schedule", "other/b.csv", "-o", "a.csv", "--format", "json")) | {"schedule": ""},
                         said | {"schedule": ""})
        self.assertEqual((self.folder / "a.csv").read_bytes(), (self.folder / "other/b.csv").read_bytes())
        self.assertEqual(self.run_ok("schedule", *words), (self.folder / "a.csv").read_text(encoding="ascii"))
        shutil.rmtree(self.folder / "other")
        (self.folder / "a.csv").unlink()

    def test_a_reader_from_the_page_reads_every_schedule(self):
        for row in self.run_rows("schedules"):
            self.check(row["name"], "-p", 4, "-m", 8)
        for words in (["seq1f1b", "--slices", 2], ["pipedream", "--steps", 3], ["pipedream-2bw", "--steps", 2],
                      ["1f1b", "--lower"], ["1f1b", "--pass", "sharding,optimizer"], ["gpipe", "--pass", "offload"],
                      ["1f1b", "--pass", "recompute"], ["1f1b", "--pass", "vocabulary"], ["dualpipe", "--lower"]):
            self.check(*words, "-p", 4, "-m", 8)

    def test_what_the_page_allows_is_read(self):
        plain = "0F0,0F1,0B0,0B1\n1F0,1I0,1W0,1F1,1I1,1W1\n"
        self.assertIn("\n" + "".join(f"    {line}\n" for line in plain.splitlines()), PAGE)
        slices = "slices=2\n0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n"
        self.assertIn("\n" + "".join(f"    {line}\n" for line in slices.splitlines()), PAGE)
        (self.folder / "b.csv").write_text(slices)
        self.assertEqual(self.run_ok("schedule", "b.csv"), self.run_ok("schedule", "seq1f1b", "-p", 2, "-m", 1, "--slices", 2))
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
