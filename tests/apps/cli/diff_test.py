"""diff, and what show marks."""
import json

import program


class DiffTest(program.CommandTest):
    def test_where_the_time_went(self):
        result = self.run_json("diff", "1f1b", "zb-h1", "-p", 8, "-m", 32)
        a, b = result["schedules"]
        for row in (a, b):
            times = row["time_per_rank"]
            self.assertAlmostEqual(sum(times["busy"].values()) + sum(times["idle"].values()), row["makespan"])
        self.assertEqual((a["makespan"], b["makespan"]), (117, 103))
        self.assertEqual(a["only_here"], {"B": 256})
        self.assertEqual(b["only_here"], {"I": 256, "W": 256})
        self.assertEqual(result["common"], 256)
        self.assertEqual(len(result["moved"]), 10)
        self.assertEqual(len(self.run_json("diff", "1f1b", "gpipe", "--moves", 3)["moved"]), 3)

    def test_a_schedule_equals_its_own_file(self):
        self.run_ok("schedule", "zbv", "-p", 4, "-m", 8, "-o", "a.csv")
        result = self.run_json("diff", "zbv", "a.csv", "-p", 4, "-m", 8)
        self.assertEqual((result["reordered"], result["on_another_rank"], result["moved"]), (0, 0, []))

    def test_text(self):
        text = self.run_ok("diff", "1f1b", "1f1b:comm=0.5", "-p", 4)
        self.assertIn("idle: communication", text)
        self.assertIn("Only in 1f1b: none.", text)
        self.assertIn("Moved farthest", text)
        self.assertIn("ms", self.run_ok("diff", "1f1b", "zbv", "--model", "llama-3-8b"))

    def dump(self, factor):
        """Writes a dump like those of Primus, whose times are longer by a factor."""
        self.run_ok("simulate", "1f1b", "-p", 3, "-m", 6, "--comm", 0.25, "--dump", "dumps")
        folder = self.folder / "dumps" / "1f1b"
        (folder / "penstock.json").unlink()
        for path in sorted(folder.glob("pp_rank_*.json")):
            rank = json.loads(path.read_text())
            for key in rank["0"]:
                if key.endswith(("_start", "_end")):
                    rank["0"][key] = [factor * time for time in rank["0"][key]]
            path.write_text(json.dumps(rank))
        return "dumps/1f1b"

    def test_recorded_times_are_measured(self):
        dump = self.dump(2)
        (simulated, measured) = self.run_rows("show", dump)
        self.assertEqual(measured["schedule"], dump + ", measured")
        (original,) = self.run_rows("simulate", "1f1b", "-p", 3, "-m", 6, "--comm", 0.25)
        self.assertEqual(measured["makespan"], 2 * original["makespan"])
        self.assertEqual(simulated["makespan"], 2 * 8 * 3)  # the dump has no latency
        result = self.run_json("diff", dump)
        self.assertEqual([row["schedule"] for row in result["schedules"]], [dump, dump + ", measured"])
        self.assertEqual((result["reordered"], result["common"]), (0, 36))
        self.assertEqual(result["schedules"][0]["time_per_rank"]["busy"], result["schedules"][1]["time_per_rank"]["busy"])
        other = self.run_json("diff", dump, "gpipe", "-p", 3, "-m", 6)
        self.assertEqual([row["schedule"] for row in other["schedules"]], [dump + ", measured", "gpipe"])
        self.run_ok("report", dump, "-o", "a.html")
        self.assertIn("Predicted and measured", (self.folder / "a.html").read_text())

    def test_dumps_of_penstock_are_simulated(self):
        self.run_ok("simulate", "1f1b", "--dump", "dumps")
        self.assertEqual(len(self.run_rows("show", "dumps/1f1b")), 1)
        self.assertIn("a dump with measured times", self.refuse("diff", "dumps/1f1b"))

    def test_refusals(self):
        self.assertIn("diff compares two schedules, not 1", self.refuse("diff", "1f1b"))
        self.assertIn("not 3", self.refuse("diff", "1f1b", "zbv", "gpipe"))

    def test_show_marks_causes_path_and_memory(self):
        plain = self.run_ok("show", "1f1b", "-p", 4, "-m", 8)
        self.assertNotIn("warm-up", plain)
        text = self.run_ok("show", "1f1b", "-p", 4, "-m", 8, "--comm", 0.2, "--explain", "--memory", "--width", 90)
        for words in ("w warm-up", "d drain", "c communication", "^ critical path"):
            self.assertIn(words, text)
        for line in text.splitlines()[1:]:
            self.assertLessEqual(len(line), 90, line)
        limited = self.run_ok("show", "zb-auto", "-p", 4, "-m", 8, "--memory-limit", 4, "--explain")
        self.assertIn("m memory limit", limited)
        self.assertIn("no effect", self.refuse("show", "1f1b", "--json", "--explain"))

    def test_show_uses_what_the_terminal_has(self):
        words = ("show", "zbv", "-p", 4, "--color", "always", "--memory")
        self.assertIn("\x1b[38;2;", self.run_ok(*words, env={"COLORTERM": "truecolor"}))
        self.assertIn("\x1b[38;5;", self.run_ok(*words, env={"COLORTERM": ""}))
        self.assertIn("▅", self.run_ok(*words, env={"LC_ALL": "C.UTF-8"}))
        self.assertTrue(self.run_ok(*words, env={"LC_ALL": "C"}).isascii())


if __name__ == "__main__":
    program.main()
