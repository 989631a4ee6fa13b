"""plan without a model: the best schedule for costs and a memory limit."""
import json

import program

QUESTION = ("plan", "--ranks", 4, "--microbatches", 8)
COSTS = ("--cost", "1,1.2,0.8", "--comm", "0.2")


class PlanScheduleTest(program.CommandTest):
    def plan(self, limit, *words):
        return self.run_json(*QUESTION, "--memory-limit", limit, *words)

    def test_the_front_is_within_its_bounds(self):
        plan = self.plan(3, *COSTS)
        for row in plan["front"]:
            self.assertGreaterEqual(row["makespan"], row["lower_bound"] - 1e-9)
            self.assertAlmostEqual(row["gap"], row["makespan"] / row["lower_bound"] - 1)
        self.assertEqual(plan["front"][-1]["makespan"], plan["best"]["makespan"])
        self.assertEqual(plan["improvements"][-1]["length"], plan["best"]["makespan"])

    def test_the_csv_is_valid_and_simulates_to_the_same_figures(self):
        for limit, words in ((1.5, ()), (2, COSTS), (4, COSTS), (8, ("--chunks", "3"))):
            best = self.plan(limit, *words, "-o", "best.csv")["best"]
            self.assertTrue(self.run_json("validate", "best.csv")["valid"])
            (row,) = self.run_rows("simulate", "best.csv", *(COSTS if words == COSTS else ()))
            self.assertAlmostEqual(row["makespan"], best["makespan"])
            self.assertAlmostEqual(row["peak_memory"], best["peak_memory"])
            self.assertLessEqual(best["peak_memory"], limit)

    def test_no_named_schedule_that_fits_is_shorter(self):
        limit = 3
        best = self.plan(limit, *COSTS)["best"]["makespan"]
        fits = 0
        for row in self.run_json("schedules")["schedules"]:
            for chunks in (1, 2, 4):
                name = f"{row['name']}:chunks={chunks}"
                for words in ((), ("--overlap", "sum"), ("--memory-limit", limit)):
                    if row["name"].startswith("dualpipe") and "--overlap" not in words:
                        continue
                    run = self.start("simulate", name, "-p", 4, "-m", 8, *COSTS, *words, "--json")
                    if run.returncode:
                        continue
                    (figures,) = json.loads(run.stdout)["schedules"]
                    if figures["peak_memory"] <= limit:
                        fits += 1
                        self.assertLessEqual(best, figures["makespan"] + 1e-9, name)
        self.assertGreater(fits, 5)

    def test_more_memory_is_never_worse(self):
        makespans = [self.plan(limit, *COSTS)["best"]["makespan"] for limit in (1, 1.5, 2, 2.2, 3, 4, 6, 8)]
        self.assertEqual(makespans, sorted(makespans, reverse=True))


if __name__ == "__main__":
    program.main()
