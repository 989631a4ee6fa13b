"""penstock plan --costs: schedules for the costs of a model's layers, and what is refused."""
import json

import program

SIZES = ("-p", 4, "-m", 8)
LAYERS = """layer_costs:
  - {layers: 1, forward: 0.0014, backward_input: 0.0012, backward_weight: 0.0009, activation: 0.25}
  - {layers: 14, forward: 0.001, backward_input: 0.0012, backward_weight: 0.0008, activation: 0.25}
  - {layers: 1, forward: 0.002, backward_input: 0.0022, backward_weight: 0.0018, activation: 0.25}
comm: 0.0002
time_unit: s
"""


class PlanCostsTest(program.CommandTest):
    def setUp(self):
        super().setUp()
        self.write("measured.yaml", LAYERS)

    def plan(self, *words):
        return json.loads(self.run_ok("plan", *SIZES, "--costs", "measured.yaml", *words, "--json"))

    def makespan(self, *words):
        (run,) = json.loads(self.run_ok("simulate", *words, "measured.yaml", "--json"))["schedules"]
        return run["makespan"]

    def test_the_best_schedule_is_priced_by_the_file(self):
        best = self.plan("-o", "best.csv")["best"]
        has_pairs = ";" in (self.folder / "best.csv").read_text()
        self.assertAlmostEqual(self.makespan("best.csv", *(("--overlap", "sum") if has_pairs else ())) / best["makespan"], 1, places=6)
        for name in ("1f1b", "zb-h1", "zbv", "interleaved:v=4"):
            self.assertLessEqual(best["makespan"], self.makespan(name, *SIZES) * (1 + 1e-9), name)
        self.assertLessEqual(best["lower_bound"], best["makespan"] * (1 + 1e-9))

    def test_each_stage_has_a_layer(self):
        self.write("measured.yaml", LAYERS.replace("layers: 14", "layers: 3"))  # 5 layers for 4 ranks
        self.assertEqual({plan["chunks"] for plan in self.plan()["front"]}, {1})
        self.write("measured.yaml", LAYERS.replace("layers: 14", "layers: 1"))
        self.assertIn("costs: has 3 layers for 4 ranks", self.refuse("plan", *SIZES, "--costs", "measured.yaml"))

    def test_only_what_a_framework_runs(self):
        for plan in self.plan("--for", "megatron")["front"]:
            self.assertNotIn(plan["schedule"].partition(":")[0], ("dualpipe", "chimera", "naive"))

    def test_memory_limits_are_in_the_unit_of_the_file(self):
        self.assertLessEqual(self.plan("--memory-limit", 3)["best"]["peak_memory"], 3 * (1 + 1e-9))
        self.write("measured.yaml", LAYERS.replace("activation: 0.25", "activation: 1GiB"))
        self.assertLessEqual(self.plan("--memory-limit", "12GiB")["best"]["peak_memory"], 12 * 2**30 * (1 + 1e-9))

    def test_a_page_names_the_file(self):
        self.run_ok("plan", *SIZES, "--costs", "measured.yaml", "--report", "plan.html")
        self.assertIn("penstock simulate plan-1.csv measured.yaml", (self.folder / "plan.html").read_text())

    def test_refusals(self):
        costs = ("plan", *SIZES, "--costs", "measured.yaml")
        self.assertIn("--costs has no effect with --cost", self.refuse(*costs, "--cost", "1,1,1"))
        self.assertIn("--costs has no effect with --model", self.refuse("plan", "--model", "gpt2", "--global-batch", 8, "--costs", "measured.yaml"))
        self.assertIn("none.yaml", self.refuse("plan", *SIZES, "--costs", "none.yaml"))
        self.write("measured.yaml", LAYERS + "launch: 0.1\n")
        self.assertIn("--costs 'measured.yaml': plans do not heed its launch", self.refuse(*costs))
        self.write("measured.yaml", "stage_costs:\n  - {forward: 1}\n  - {forward: 2}\n")
        self.assertIn("give layer_costs", self.refuse(*costs))


if __name__ == "__main__":
    program.main()
