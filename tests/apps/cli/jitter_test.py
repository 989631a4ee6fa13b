"""simulate --jitter: spreads of the makespan in every format, in a configuration, in sweeps."""
import csv
import io

import program

SPREAD = ["mean", "median", "p95"]


class JitterTest(program.CommandTest):
    def jittered(self, *words):
        return self.run_rows("simulate", *words)[0]["jittered"]

    def test_figures(self):
        (row,) = self.run_rows("simulate", "zb-h1", "--jitter", 0.2)
        (plain,) = self.run_rows("simulate", "zb-h1")
        jittered = row.pop("jittered")
        self.assertEqual(row, plain)  # the others are without jitter
        self.assertEqual([jittered.pop(key) for key in ("jitter", "seed", "runs")], [0.2, 0, 100])
        self.assertEqual(list(jittered), ["makespan", "bubble", "span_bubble"])
        for figure in jittered.values():
            self.assertEqual(list(figure), SPREAD)
            self.assertLessEqual(figure["median"], figure["p95"])
        self.assertGreater(jittered["makespan"]["mean"], plain["makespan"])

    def test_runs_repeat(self):
        words = ("1f1b", "--jitter", 0.3, "--runs", 50)
        first = self.jittered(*words)
        self.assertEqual(self.jittered(*words), first)
        self.assertEqual(self.jittered(*words, "--seed", 0), first)
        self.assertNotEqual(self.jittered(*words, "--seed", 1)["makespan"], first["makespan"])
        # A schedule's figures do not depend on what it is compared with.
        self.assertEqual(self.run_rows("simulate", "zbv", *words)[1]["jittered"], first)

    def test_every_schedule_and_pass(self):
        self.run_ok("schedule", "1f1b", "-p", 4, "-m", 8, "--lower", "-o", "a.csv")
        for words in (("a.csv",), ("dualpipe", "-p", 4, "-m", 8), ("1f1b", "--transfers", "batched", "--comm", 0.1),
                      ("1f1b", "--pass", "recompute,optimizer", "--price", "step=1"),
                      ("1f1b", "--model", "llama-3-8b"), ("1f1b", "--microbatch-lengths", "1,2", "--slow-rank", "1=2")):
            spread = self.jittered(*words, "--jitter", 0.2)["makespan"]
            (plain,) = self.run_rows("simulate", *words)
            self.assertGreater(spread["mean"], plain["makespan"], words)

    def test_tables(self):
        text = self.run_ok("simulate", "1f1b", "zb-h1", "dualpipe", "--jitter", 0.1, "--runs", 30)
        self.assertRegex(text.splitlines()[0], "mean +vs first +median +p95$")
        self.assertIn("mean, median and p95 are of the makespans of 30 runs with jitter.", text)
        self.assertNotIn("p95", self.run_ok("simulate", "1f1b", "zb-h1"))
        # A schedule without jitter has none of these figures, and is not the best.
        text = self.run_ok("simulate", "1f1b:jitter=0.1", "zb-h1")
        self.assertRegex(text, r"\nzb-h1 .* - +- +- +-\n")
        (row,) = csv.DictReader(io.StringIO(self.run_ok("simulate", "1f1b", "--jitter", 0.1, "--format", "csv")))
        self.assertEqual(float(row["jittered_makespan_p95"]), self.jittered("1f1b", "--jitter", 0.1)["makespan"]["p95"])

    def test_jitter_0_is_the_plan(self):
        (row,) = self.run_rows("simulate", "zb-h1", "--jitter", 0)
        for figure in ("makespan", "bubble", "span_bubble"):
            self.assertEqual(row["jittered"][figure], dict.fromkeys(SPREAD, row[figure]))

    def test_configurations(self):
        self.write("a.yaml", "schedule: [1f1b, {schedule: 1f1b, jitter: 0.5, runs: 7}]\njitter: 0.2\nseed: 3\nruns: 20\n")
        for command in ("show", "validate"):  # a configuration may serve several commands
            self.assertIn("only 'penstock simulate'", self.refuse(command, "a.yaml"))
        self.assertEqual([row["jittered"] for row in self.run_rows("simulate", "a.yaml")],
                         [self.jittered("1f1b", "--jitter", 0.2, "--seed", 3, "--runs", 20),
                          self.jittered("1f1b", "--jitter", 0.5, "--seed", 3, "--runs", 7)])
        self.write("b.yaml", "schedule: 1f1b\njitter: 0.2\nseed: 3\n")
        for command in ("show", "simulate"):
            self.run_ok(command, "b.yaml")
        for text, words in (("jitter: -0.1", "jitter -0.1: give 0 to 10"), ("jitter: 11", "jitter 11"), ("jitter: x", "'x'"),
                            ("runs: 0\njitter: 1", "runs 0"), ("runs: 1.5", "runs"), ("seed: -1\njitter: 1", "seed -1"),
                            ("seed: 1", "there is no --jitter"), ("runs: 5", "there is no --jitter")):
            self.write("c.yaml", f"schedule: 1f1b\n{text}\n")
            message = self.refuse("simulate", "c.yaml")
            self.assertIn("c.yaml: line 2: ", message)
            self.assertIn(words, message)
        self.write("c.yaml", "schedule: 1f1b\njiter: 1\n")
        self.assertIn("did you mean 'jitter'?", self.refuse("simulate", "c.yaml"))

    def test_refusals(self):
        for words in (("--seed", 1), ("--runs", 5)):
            self.assertIn("no --jitter", self.refuse("simulate", "1f1b", *words))
        for words in (("--jitter", "-0.1"), ("--jitter", "nan"), ("--jitter", 0.1, "--runs", 1000001),
                      ("--jitter", 0.1, "--seed=-1")):
            self.assertIn(words[-1].split("=")[0] if "=" in str(words[-1]) else words[-2],
                          self.refuse("simulate", "1f1b", *words))
        self.assertIn("only 'penstock simulate'", self.refuse("show", "1f1b:jitter=0.1"))

    def test_sweeps(self):
        rows = self.run_rows("simulate", "1f1b", "zb-h1", "--runs", 30, "--sweep", "jitter=0,0.1,0.4", "launch=0,0.2")
        self.assertEqual([(row["jitter"], row["launch"], row["schedule"]) for row in rows],
                         [(j, launch, name) for j in (0, 0.1, 0.4) for launch in (0, 0.2) for name in ("1f1b", "zb-h1")])
        for row in rows:
            self.assertEqual(row["jittered"], self.jittered(row["schedule"], "--runs", 30, "--jitter", row["jitter"],
                                                            "--launch", row["launch"]))
        text = self.run_ok("simulate", "1f1b", "--sweep", "jitter=0,0.1")
        self.assertRegex(text.splitlines()[0], "^jitter +schedule +makespan .* p95$")
        self.assertIn("--jitter", self.refuse("simulate", "1f1b", "--sweep", "jitter=0,-1"))
        self.assertIn("--seed has no effect", self.refuse("simulate", "1f1b", "--seed", 1, "--sweep", "comm=0,1"))


if __name__ == "__main__":
    program.main()
