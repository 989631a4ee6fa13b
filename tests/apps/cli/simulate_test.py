"""simulate: measured runs, what a terminal shows, and Ctrl-C."""
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
