"""simulate: figures, forms of output, refusals."""
import csv
import io

import program

KEYS = ["schedule", "ranks", "chunks", "microbatches", "actions", "makespan", "bubble",
        "span_bubble", "peak_memory", "messages", "per_rank"]
RANK_KEYS = ["busy", "first_start", "last_end", "peak_memory"]


class SimulateTest(program.CommandTest):
    def test_json_has_the_agreed_keys(self):
        (row,) = self.run_json("simulate", "--schedule", "1f1b", "-p", 8, "-m", 32)
        self.assertEqual(list(row), KEYS)
        self.assertEqual(len(row["per_rank"]), 8)
        for rank in row["per_rank"]:
            self.assertEqual(list(rank), RANK_KEYS)
        self.assertEqual([row[key] for key in KEYS[:6]], ["1f1b", 8, 1, 32, 512, 117])
        self.assertAlmostEqual(row["bubble"], 1 - 96 / 117)
        self.assertEqual(row["peak_memory"], 8)
        self.assertEqual(row["messages"], 2 * 7 * 32)

    def test_reference_figures(self):
        rows = self.run_json("simulate", "--schedule", "naive,gpipe,1f1b,interleaved", "-p", 8,
                             "-m", 32)
        self.assertEqual([row["makespan"] for row in rows], [768, 117, 117, 106.5])
        self.assertEqual([row["peak_memory"] for row in rows], [1, 32, 8, 11.5])

    def test_costs_are_of_a_rank_and_microbatch(self):
        for name in ("1f1b", "interleaved"):
            (row,) = self.run_json("simulate", "--schedule", name, "-p", 4, "-m", 8, "--cost",
                                   "2,3,4", "--comm", 0)
            for rank in row["per_rank"]:
                self.assertAlmostEqual(rank["busy"], 8 * 9)

    def test_comm_delays(self):
        words = ("simulate", "--schedule", "gpipe", "-p", 3, "-m", 1)
        self.assertEqual(self.run_json(*words)[0]["makespan"], 9)
        self.assertEqual(self.run_json(*words, "--comm", 0.25)[0]["makespan"], 10)

    def test_time_steps(self):
        (row,) = self.run_json("simulate", "--schedule", "gpipe", "-p", 2, "-m", 1, "--time-steps")
        self.assertEqual(row["time_steps"],
                         [[{"action": "0F0", "start": 0, "end": 1},
                           {"action": "0B0", "start": 4, "end": 6}],
                          [{"action": "1F0", "start": 1, "end": 2},
                           {"action": "1B0", "start": 2, "end": 4}]])
        self.assertIn("1B0", self.run_ok("simulate", "--schedule", "gpipe", "-p", 2, "-m", 1,
                                         "--time-steps"))

    def test_file_has_the_figures_of_its_schedule(self):
        for name in ("1f1b", "interleaved"):
            for lower in ((), ("--lower",)):
                self.run_ok("schedule", name, "-p", 4, "-m", 8, "-o", "a.csv", *lower)
                (made,) = self.run_json("simulate", "--schedule", name, "-p", 4, "-m", 8)
                (read,) = self.run_json("simulate", "--csv", "a.csv")
                self.assertEqual({**read, "schedule": name}, made)

    def test_comparison_has_closed_forms_beside(self):
        table = self.run_ok("simulate", "--schedule", "gpipe,1f1b,interleaved", "-p", 8, "-m", 32)
        lines = table.splitlines()
        self.assertEqual(lines[0].count("closed form"), 2)
        self.assertEqual(lines[4].split()[:7],
                         ["interleaved", "8", "2", "32", "1024", "106.5", "106.5"])

    def test_csv_output(self):
        text = self.run_ok("simulate", "--schedule", "gpipe,1f1b", "--format", "csv")
        rows = list(csv.DictReader(io.StringIO(text)))
        self.assertEqual(list(rows[0]), KEYS[:-1])
        self.assertEqual([row["schedule"] for row in rows], ["gpipe", "1f1b"])

    def test_invalid_schedules_are_refused(self):
        for text in ("0B0,0F0\n", "0F0\n", "0F0,0F0,0B0\n", "0F0,0B0\n1B0,1F0\n",
                     "0F0,0B0\n1RECV_F0,1F0,1B0\n"):
            self.write("a.csv", text)
            for command in (("simulate",), ("show",), ("report", "-o", "a.html")):
                self.assertIn("a.csv", self.refuse(*command, "--csv", "a.csv"))
        self.assertEqual(self.files(), ["a.csv"])
        self.refuse("simulate", "--csv", "none.csv")
        self.refuse("simulate", "--schedule", "1f1b", "--format", "xml")


if __name__ == "__main__":
    program.main()
