"""simulate --sweep: combinations, their figures, tables, pages and refusals."""
import csv
import io
import itertools
import re
import xml.etree.ElementTree

import program

NAMES = ["gpipe", "1f1b", "interleaved", "zb-auto"]


def without_ranks(row):
    return {key: value for key, value in row.items() if key != "per_rank"}


class SweepTest(program.CommandTest):
    def sweep(self, *words):
        """Returns the schedules that were simulated and those that were skipped."""
        result = self.run_json("simulate", "--sweep", *words)
        self.assertEqual(list(result), ["schedules", "skipped"])
        return result["schedules"], result["skipped"]

    def test_figures_are_those_of_single_calls(self):
        rows, skipped = self.sweep("ranks=2,4", "microbatches=4..16", f"schedule={','.join(NAMES)}", "comm=0,0.25")
        self.assertEqual(skipped, [])
        points = list(itertools.product((2, 4), (4, 8, 16), (0, 0.25), NAMES))
        self.assertEqual([(r["ranks"], r["microbatches"], r["comm"], r["schedule"]) for r in rows],
                         [(p, m, comm, name) for (p, m, comm, name) in points])
        for row, (ranks, microbatches, comm, name) in zip(rows, points, strict=True):
            (single,) = self.run_rows("simulate", name, "-p", ranks, "-m", microbatches, "--comm", comm)
            self.assertEqual(row, {**without_ranks(single), "comm": comm})

    def test_every_kind_of_value(self):
        points = (("cost", ["1", "2,1,0.5"]), ("overlap", ["sum", "0.7"]), ("memory-limit", ["8", "12"]),
                  ("pass", ["offload=2", "overlap"]), ("price", ["offload=2", "step=1"]),
                  ("message-bytes", ["1KiB", "2MiB"]), ("activation-bytes", ["1GiB", "2GiB"]),
                  ("split", ["true", "false"]), ("group", ["4", "8"]), ("waves", ["1", "2"]),
                  ("slices", ["2", "4"]), ("steps", ["1", "3"]), ("chunks", ["2", "4"]))
        takes = {"overlap": "dualpipe", "split": "chimera", "group": "interleaved", "waves": "hanayo",
                 "slices": "seq1f1b", "steps": "pipedream", "chunks": "interleaved", "memory-limit": "v-auto"}
        for key, values in points:
            name = takes.get(key, "1f1b")
            words = ("-p", 4, "-m", 8) + (("--pass", "offload") if key == "price" else ())
            lists = [f"{key}={value}" for value in values] if key in ("cost", "pass", "price") else [
                f"{key}={','.join(values)}"]
            if key == "price":
                values, lists = values[:1], lists[:1]
            rows = self.run_rows("simulate", name, *words, "--sweep", *lists)
            self.assertEqual(len(rows), len(values), key)
            for row, value in zip(rows, values):
                option = [f"--{key}"] * (value != "false") if key == "split" else [f"--{key}", value]
                (single,) = self.run_rows("simulate", name, *words, *option)
                expected = without_ranks(single)
                self.assertEqual({k: row[k] for k in expected}, expected, (key, value))

    def test_ranges(self):
        for text, values in (("3..24", [3, 6, 12, 24]), ("3..23", [3, 6, 12]), ("4..10+3", [4, 7, 10]),
                             ("2,8..16,5", [2, 8, 16, 5]), ("7..7", [7])):
            rows, _ = self.sweep("schedule=1f1b", f"m={text}")
            self.assertEqual([row["microbatches"] for row in rows], values)

    def test_all_schedules_and_what_they_refuse(self):
        names = [row["name"] for row in self.run_rows("schedules")]
        rows, skipped = self.sweep("schedule=all", "microbatches=8", "ranks=8", "chunks=1,2")
        self.assertEqual(len(rows) + len(skipped), 2 * len(names))
        found = {(row["schedule"], row["chunks"]) for row in rows}
        self.assertLessEqual({("1f1b", 1), ("interleaved", 2), ("zbv", 2)}, found)
        for row in skipped:
            self.assertNotIn((row["schedule"], row["chunks"]), found)
            self.assertIn(f"schedule {row['schedule']}: ", row["reason"])
        self.assertIn({"schedule": "1f1b", "chunks": 2, "microbatches": 8, "ranks": 8,
                       "reason": "schedule 1f1b: --chunks 2: must be 1"}, skipped)
        text = self.run_ok("simulate", "1f1b", "interleaved", "--sweep", "chunks=1..4", "comm=0,1")
        self.assertTrue(text.endswith("12 combinations, 4 skipped:\n  schedule 1f1b: --chunks 2: must be 1 (2 times)\n"
                                      "  schedule 1f1b: --chunks 4: must be 1 (2 times)\n"), text)

    def test_options_of_schedules_and_files(self):
        self.run_ok("schedule", "gpipe", "-p", 4, "-m", 8, "-o", "a.csv")
        rows, skipped = self.sweep("schedule=1f1b,interleaved:v=4,a.csv", "comm=0,1")
        self.assertEqual([row["schedule"] for row in rows], ["1f1b", "interleaved:v=4", "a.csv"] * 2)
        self.assertEqual((rows[1]["chunks"], skipped), (4, []))
        other = self.run_json("simulate", "1f1b", "interleaved:v=4", "a.csv", "--sweep", "comm=0,1")
        self.assertEqual(other["schedules"], rows)

    def test_a_limit_marks_schedules_that_support_none(self):
        rows, skipped = self.sweep("schedule=gpipe,1f1b,zb-auto", "memory-limit=4,8", "ranks=4", "microbatches=8")
        self.assertEqual(skipped, [])
        self.assertEqual([(r["schedule"], r["memory_limit"], r["above_memory_limit"]) for r in rows],
                         [("gpipe", 4, True), ("1f1b", 4, False), ("zb-auto", 4, False),
                          ("gpipe", 8, False), ("1f1b", 8, False), ("zb-auto", 8, False)])

    def test_table_marks_the_best_of_each_group(self):
        text = self.run_ok("simulate", "1f1b", "interleaved", "--sweep", "ranks=4,8", "microbatches=32")
        lines = text.splitlines()
        self.assertEqual(lines[0].split()[:6], ["ranks", "microbatches", "schedule", "makespan", "vs", "first"])
        self.assertEqual([line.split()[2:5] for line in (lines[2], lines[3], lines[5], lines[6])],
                         [["1f1b", "105", "1.00x"], ["interleaved", "100.5*", "0.96x"],
                          ["1f1b", "117", "1.00x"], ["interleaved", "106.5*", "0.91x"]])
        self.assertEqual(lines[4], "")
        self.assertIn("* the best value of its group", text)
        single = self.run_ok("simulate", "1f1b", "--sweep", "microbatches=8,16")
        self.assertIn("1.73x", single)
        self.assertIn("* the best value;", single)

    def test_csv_has_the_fields_of_simulate_and_the_swept_values(self):
        words = ("1f1b", "interleaved", "--format", "csv")
        rows = list(csv.DictReader(io.StringIO(self.run_ok("simulate", *words, "--sweep", "comm=0,0.5"))))
        plain = list(csv.DictReader(io.StringIO(self.run_ok("simulate", *words, "--comm", "0.5"))))
        self.assertEqual([row.pop("comm") for row in rows], ["0", "0", "0.5", "0.5"])
        self.assertEqual(rows[2:], plain)

    def test_configuration(self):
        self.write("a.yaml", "microbatches: 8\nsweep:\n  schedule: [1f1b, 'interleaved:v=2']\n  ranks: 2..8\n"
                             "  comm: [0, 0.5]\n  cost: [1, [1, 2, 0.5]]\n")
        words = ("schedule=1f1b,interleaved:v=2", "ranks=2..8", "comm=0,0.5", "cost=1", "cost=1,2,0.5")
        result = self.run_json("simulate", "a.yaml")
        self.assertEqual((result["schedules"], result["skipped"]), self.sweep(*words))
        self.assertEqual(len(result["schedules"]), 24)
        # The command line takes precedence.
        rows = self.run_rows("simulate", "a.yaml", "--ranks", 2)
        self.assertEqual({row["ranks"] for row in rows}, {2})
        rows = self.run_rows("simulate", "a.yaml", "--sweep", "schedule=gpipe", "ranks=3")
        self.assertEqual([(row["schedule"], row["ranks"]) for row in rows], [("gpipe", 3)])
        for command in (("show",), ("validate",), ("schedule",), ("report", "-o", "a.html")):
            self.assertIn("a.yaml: line 2: sweep: only 'penstock simulate'", self.refuse(*command, "a.yaml"))

    def test_page(self):
        printed = self.run_ok("simulate", "--sweep", "schedule=all", "ranks=2,4", "microbatches=8..32", "-o", "a.html")
        self.assertTrue(printed.startswith("wrote a.html\n132 combinations, "))
        page = (self.folder / "a.html").read_text(encoding="utf-8")
        for text in ("Sweep of ranks, microbatches, schedule", "Makespan, ranks 2", "Bubble, ranks 4",
                     "prefers-color-scheme: dark", "peak activations", "<h2>All combinations</h2>"):
            self.assertIn(text, page)
        self.assertNotRegex(page, "(src|href)=")
        pictures = re.findall("<svg.*?</svg>", page, re.DOTALL)
        self.assertEqual(len(pictures), 2 * 3)
        names = [row["name"] for row in self.run_rows("schedules")]
        for picture in pictures:
            texts = {"".join(element.itertext()) for element in xml.etree.ElementTree.fromstring(picture).iter("text")}
            self.assertLessEqual({*names, "microbatches", "8", "16", "32"}, texts)
        self.assertEqual(page.count("<td>zb-auto</td>"), 6)
        self.assertIn('class="right best"', page)
        self.assertIn(">makespan, unit of --cost<", page)
        self.run_ok("simulate", "--model", "llama-3-8b", "--device", "h100", "--sweep", "schedule=1f1b", "microbatches=8,16",
                    "-o", "c.html")
        page = (self.folder / "c.html").read_text(encoding="utf-8")
        self.assertIn(">makespan, s<", page)
        self.assertNotIn("--cost<", page)
        self.run_ok("simulate", "--sweep", "schedule=1f1b,gpipe", "-o", "b.html", "--format", "csv")
        self.assertNotIn("<svg", (self.folder / "b.html").read_text(encoding="utf-8"))

    def test_progress_is_shown_on_a_terminal_only(self):
        words = ("simulate", "--sweep", "schedule=1f1b", "microbatches=8..64")
        text = self.on_terminal(*words)
        self.assertIn("] 0 of 4", text)
        self.assertTrue(re.sub("\x1b\\[[01]m", "", text).endswith("\r\x1b[K" + self.run_ok(*words)))

    def test_ctrl_c(self):
        result = self.interrupt("simulate", "--sweep", "schedule=zbv", "ranks=16", "microbatches=64",
                                "comm=" + ",".join(map(str, range(1, 2000))), thread="sweep")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertRegex(result.stderr, r"^penstock: error: the sweep was stopped on request after \d+ of 1999 "
                                        "combinations\n$")

    def test_dimensions_of_a_model(self):
        words = ("--model", "llama-3-8b", "--device", "h100", "--nodes", "1x8", "-m", 8)
        rows, skipped = self.sweep("schedule=1f1b", "tensor=1,2,16", "data-parallel=1,2", *words)
        self.assertEqual([row["tensor"] for row in rows], [1, 1, 2, 2])
        self.assertTrue(skipped)
        for row in rows:
            (single,) = self.run_rows("simulate", "1f1b", *words, "--tensor", row["tensor"], "--data-parallel", row["data_parallel"])
            for key in ("ranks", "makespan", "step_time", "device_bytes"):
                self.assertEqual(row[key], single[key], key)

    def test_refusals(self):
        for words, reason in ((("rank=4",), "--sweep rank=4: 'rank' is not an option of a schedule; did you mean 'ranks'"),
                              (("ranks",), "write KEY=VALUES"), (("ranks=",), "a value is empty"),
                              (("ranks=4,,8",), "a value is empty"), (("ranks=8,8",), "'8' is given twice"),
                              (("ranks=2", "p=4"), "ranks is given twice"), (("ranks=0",), "at least 1"),
                              (("ranks=x",), "'x' is not a whole number"), (("ranks=8..4",), "a range is ascending"),
                              (("ranks=0..4",), "at least 1"), (("ranks=1..b",), "is not a range"),
                              (("ranks=1..9+0",), "at least 1"), (("overlap=often",), "--overlap 'often'"),
                              (("memory-limit=4,six",), "--memory-limit 'six'"), (("cost=1,x",), "--cost"),
                              (("ranks=1..9999+1", "m=1..9999+1"), "more than 1000000 combinations"),
                              (("m=1..2000000+1",), "more than 1000000 values"),
                              (("slices=2,4",), "no schedule takes any of the 2 combinations; the first: schedule 1f1b: "
                                                "--slices 2"),
                              (("schedule=gpipe",), "--sweep has schedule, so '1f1b' cannot be given as well"),
                              (("ranks=4", "--ranks", 4), "--ranks is given, but --sweep varies it"),
                              (("ranks=4", "--run"), "--run has no effect in a sweep"),
                              (("ranks=4", "--time-steps"), "--time-steps has no effect"),
                              (("ranks=4", "--group", 4), "--group has no effect"),
                              (("ranks=4", "--overlap", "sum"), "--overlap has no effect"),
                              (("ranks=4", "-o", "a.pdf"), "a file ending in .html"),
                              (("ranks=4", "-o", "none/a.html"), "none/a.html")):
            message = self.refuse("simulate", "1f1b", "--sweep", *words)
            self.assertIn(reason, message, words)
        self.assertIn("schedule=all", self.refuse("simulate", "--sweep", "ranks=4"))
        self.assertIn("did you mean 'gpipe'", self.refuse("simulate", "--sweep", "schedule=gpip"))
        self.assertIn("sets chunks", self.refuse("simulate", "interleaved:v=2", "--sweep", "chunks=2,4"))
        self.assertIn("--output has no effect without --sweep", self.refuse("simulate", "1f1b", "-o", "a.html"))
        self.assertEqual(self.files(), [])

    def test_configurations_are_refused(self):
        for text, reason in (("sweep: {rank: 4}", "line 1: rank: 'rank' is not an option of a schedule; did you mean"),
                             ("sweep: 4", "line 1: sweep is not a map"), ("sweep: {}", "it has no keys"),
                             ("sweep: {ranks: []}", "the list is empty"), ("sweep: {ranks: {a: 1}}", "a list of values"),
                             ("sweep: {p: 4, ranks: 8}", "it is given twice"),
                             ("ranks: 4\nsweep: {ranks: 8, schedule: all}", "line 1: ranks is given, but sweep varies it"),
                             ("schedule: 1f1b\nsweep: {schedule: all}", "sweep has schedule"),
                             ("schedule: 1f1b\nsweep: {ranks: 0}", "line 2: sweep: --ranks 0: at least 1")):
            self.write("a.yaml", text)
            self.assertIn(f"a.yaml: {reason}" if reason.startswith("line") else reason, self.refuse("simulate", "a.yaml"))


if __name__ == "__main__":
    program.main()
