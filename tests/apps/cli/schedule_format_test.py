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


def read(path):
    """Returns the lanes of a CSV, each a list of actions, which are lists of parts, and the keys of the header."""
    lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").decode("ascii").split("\n")
    header = cells_of(lines.pop(0)) if "=" in lines[0] else []
    given = dict([part.strip() for part in cell.split("=")] for cell in header)
    assert given.keys() <= set(KEYS) and len(given) == len(header), header
    while lines and not lines[-1].strip(", \t\r\v\f"):
        lines.pop()
    lanes = []
    for rank, line in enumerate(lines):
        cells = cells_of(line)
        assert not header or cells.pop(0) == f"rank={rank}", line
        lanes.append([read_action(cell) for cell in cells])
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
        slices = "slices=2\nrank=0,0F0,0F1,0B1,0B0\nrank=1,1F0,1F1,1B1,1B0\n"
        self.assertIn("\n" + "".join(f"    {line}\n" for line in slices.splitlines()), PAGE)
        for text in (slices, re.sub("rank=.,", "", slices)):
            (self.folder / "b.csv").write_text(text)
            self.assertEqual(self.run_ok("schedule", "b.csv"), self.run_ok("schedule", "seq1f1b", "-p", 2, "-m", 1, "--slices", 2))
        for text in (plain, "\ufeff" + plain, plain.replace("\n", "\r\n"), plain.replace(",", ",,\t ,"), plain[:-1], plain + "\n ,\n",
                     plain.replace("1I0", ' "1I0" ')):
            (self.folder / "a.csv").write_bytes(text.encode())
            self.assertEqual(self.run_rows("simulate", "a.csv")[0]["makespan"], 8, repr(text))
        lowered = self.run_ok("schedule", "--csv", "a.csv", "--lower")
        self.assertIn("\n" + "".join(f"    {line}\n" for line in lowered.splitlines()), PAGE)

    def test_a_file_that_lost_its_header_is_refused(self):
        """Whatever drops or changes a file's first line or its blanks, no command reads another schedule."""
        for words in (["seq1f1b", "--slices", 2], ["pipedream", "--steps", 3], ["pipedream-2bw", "--steps", 2], ["chimera"], ["dualpipe"]):
            header, *lanes = self.run_ok("schedule", *words, "-p", 4, "-m", 8).splitlines()
            for lost in (lanes, ["", *lanes], [header, *lanes[1:]]):
                (self.folder / "a.csv").write_text("\n".join(lost) + "\n")
                for command in ("validate", "simulate", "show"):
                    self.assertEqual(self.start(command, "a.csv").returncode, 2, (words, command))
            (self.folder / "a.csv").write_text("\n".join(line.lstrip(" \t") for line in (header, *lanes)) + "\n")
            self.run_ok("validate", "a.csv")

    def test_the_header_of_an_earlier_version(self):
        """It is read with a note, and a file whose blanks were stripped is distinguished from plain microbatches."""
        header, *lanes = self.run_ok("schedule", "seq1f1b", "-p", 2, "-m", 2, "--slices", 2).splitlines()
        lanes = [line.split(",", 1)[1] for line in lanes]
        blanks = "".join("\t" if bit == "1" else " " for character in header for bit in f"{ord(character):08b}")
        (self.folder / "old.csv").write_text(f"{blanks},{lanes[0]}\n{lanes[1]}\n")
        run = self.start("validate", "old.csv")
        self.assertIn("2 microbatches", run.stdout)
        self.assertIn("works in this release only", run.stderr)
        (self.folder / "e.csv").write_text("\n".join(lanes) + "\n")
        run = self.start("validate", "e.csv")
        self.assertEqual(run.returncode, 2)
        self.assertIn("begin the file with a line slices=2 (or slices=1)", run.stderr)
        for answer in ("slices=2", "slices=1"):
            (self.folder / "e.csv").write_text("\n".join((answer, *lanes)) + "\n")
            self.run_ok("validate", "e.csv")
            self.run_ok("validate", "e.csv", "--" + answer)

    def test_bounds_are_those_of_the_page(self):
        for text, read_it in (("65535F0", True), ("65536F0", False), ("0F1073741823", True), ("0F1073741824", False)):
            (self.folder / "a.csv").write_text(text + "\n")
            self.assertEqual("is not an action" in self.start("validate", "a.csv").stderr, not read_it, text)


if __name__ == "__main__":
    program.main()
