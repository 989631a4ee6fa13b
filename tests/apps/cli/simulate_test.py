"""simulate: measured runs, schedules next to a file, what a terminal shows, and Ctrl-C."""
import json
import re

import program

RANK_KEYS = ["busy", "first_start", "last_end", "peak_memory"]


class SimulateTest(program.CommandTest):
    def test_run_matches_the_prediction(self):
        self.write("whole.yaml", "{schedule: 1f1b, ranks: 2, stage_costs: [{backward: 1.6}, {backward: 1.6}]}")
        for words in (("-s", "1f1b,zbv,dualpipe,seq1f1b,pipedream", "-p", 4, "-m", 8, "--slices", 2, "--steps", 2, "--comm", 0.5,
                       "--unit", "1ms"), ("whole.yaml", "--unit", "10ms"),
                      ("1f1b", "--model", "llama-3-8b", "--nodes", "1x4", "-m", 4)):
            for row in self.run_rows("simulate", *words, "--run"):
                run = row["measured"]
                self.assertEqual(run["messages"], row["messages"], row["schedule"])
                self.assertAlmostEqual(run["peak_memory"] / row["peak_memory"], 1)
                self.assertGreater(run["makespan"], 0.99 * row["makespan"])  # no sleep ends early
                self.assertEqual(run["unit_seconds"], {"1ms": 0.001, "10ms": 0.01}.get(words[-1], 1))
                self.assertEqual([len(run["per_rank"]), list(run["per_rank"][0])], [row["ranks"], RANK_KEYS])

    def test_an_algorithm_next_to_a_file_has_its_size(self):
        """By one rule for all commands, and options take precedence."""
        self.run_ok("schedule", "1f1b", "-p", 8, "-m", 16, "-o", "a.csv")
        self.run_ok("schedule", "interleaved", "-p", 4, "-v", 4, "-m", 8, "-o", "b.csv")
        self.run_ok("schedule", "seq1f1b", "-p", 4, "-m", 6, "--slices", 3, "-o", "c.csv")
        for file, name, size in (("a.csv", "zb-h2", ("-p", 8, "-m", 16)), ("a.csv", "interleaved", ("-p", 8, "-m", 16)),
                                 ("b.csv", "interleaved", ("-p", 4, "-m", 8, "-v", 4)), ("b.csv", "zbv", ("-p", 4, "-m", 8)),
                                 ("c.csv", "seq1f1b", ("-p", 4, "-m", 6, "--slices", 3)), ("b.csv", "1f1b:m=12:p=2", ("-p", 2, "-m", 12))):
            for costs in ((), ("--cost", "1,1.5,0.5", "--comm", 0.25)):
                alone = self.run_rows("simulate", name.split(":")[0], *size, *costs)[0]
                for row in (self.run_rows("simulate", file, name, *costs)[1], self.run_rows("simulate", name, file, *costs)[0]):
                    self.assertEqual(row | {"schedule": alone["schedule"], "closed_form": 0}, alone | {"closed_form": 0}, (file, name))
                for command in (("show",), ("diff",), ("report", "-o", "a.html")):
                    rows = json.loads(self.run_ok(*command, file, name, *costs, "--json"))["schedules"]
                    self.assertEqual(rows[1]["makespan"], alone["makespan"], (command, file, name))
        swept = self.run_rows("simulate", "a.csv", "zb-h2", "--sweep", "comm=0,0.5")
        self.assertEqual([row["ranks"] for row in swept], [8] * 4)

    def test_a_schedule_next_to_a_dump_has_its_costs(self):
        costs = ("--cost", "2,1,1", "--comm", 0.5, "--slow-rank", "2=1.5", "-p", 4, "-m", 8)
        self.run_ok("simulate", "1f1b", *costs, "--dump", "dumps")
        self.run_ok("schedule", "zb-h1", "-p", 4, "-m", 8, "-o", "z.csv")
        for name in ("zb-h1", "z.csv", "gpipe"):
            (alone,) = self.run_rows("simulate", name, *costs)
            row = self.run_rows("simulate", "dumps/1f1b", name)[-1]
            for key in ("makespan", "bubble", "peak_memory"):
                self.assertAlmostEqual(row[key], alone[key], 9, (name, key))
            ours, given = (self.run_rows("simulate", *first, name, "--cost", "1")[-1] for first in ((), ("dumps/1f1b",)))
            self.assertEqual(given["makespan"] * (name == "z.csv"), ours["makespan"] * (name == "z.csv"), "given costs take precedence")

    def test_a_slow_rank_stays_slow(self):
        """Whatever the number of its stages and their placement: each rank is as busy as the file's."""
        self.run_ok("report", "1f1b", "-p", 4, "-m", 8, "--slow-rank", "1=1.5", "-o", "a.trace.json")
        self.run_ok("report", "interleaved", "-v", 2, "-p", 4, "-m", 8, "--slow-rank", "1=1.5", "-o", "b.trace.json")
        names = ("1f1b", "zb-h1", "interleaved", "interleaved:v=4", "zbv", "hanayo", "v-half", "seq1f1b:slices=2", "chimera")
        for file in ("a.trace.json", "b.trace.json"):
            for row in self.run_rows("simulate", file, *names):
                busy = [rank["busy"] for rank in row["per_rank"]]
                for rank, time in enumerate((24, 36, 24, 24)):
                    self.assertAlmostEqual(busy[rank], time, 9, (file, row["schedule"], busy))
                self.assertGreaterEqual(row["makespan"], 36)

    def test_ctrl_c(self):
        for words, thread, said in (
                (("1f1b", "-p", 4, "--run", "--unit", "1000s"), "rank 3", "1f1b: stopped on request"),
                (("--sweep", "schedule=zbv", "ranks=16", "microbatches=64", "comm=" + ",".join(map(str, range(1, 2000)))), "sweep",
                 r"the sweep was stopped on request after \d+ of 1999 combinations")):
            result = self.interrupt("simulate", *words, thread=thread)
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertRegex(result.stderr, f"^penstock: error: {said}\n$")

    def test_the_best_values_are_bold_on_a_terminal(self):
        words = ("simulate", "gpipe", "1f1b", "interleaved", "-p", 8, "-m", 32)
        text, shown = self.run_ok(*words), self.on_terminal(*words)
        self.assertEqual(shown.count("\x1b[1m"), 8)
        self.assertEqual(shown.replace("\x1b[1m", "").replace("\x1b[0m", ""), text)
        for refusal in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            self.assertEqual(self.on_terminal(*words, env=refusal), text)

    def test_progress_is_shown_on_a_terminal_only(self):
        words = ("simulate", "--sweep", "schedule=1f1b", "microbatches=8..64")
        text = self.on_terminal(*words)
        self.assertIn("] 0 of 4", text)
        self.assertTrue(re.sub("\x1b\\[[01]m", "", text).endswith("\r\x1b[K" + self.run_ok(*words)))


if __name__ == "__main__":
    program.main()
