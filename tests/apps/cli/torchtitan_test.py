"""examples/torchtitan.csv: runs of torchtitan that its repository publishes, and what they need of the cost model."""
import pathlib
import shutil

import program

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples"
TITAN = ("--model", "llama-3-8b", "--device", "h100", "--nodes", "2x8", "--implementation", "torch-compile", "-p", 1)


class TorchtitanTest(program.CommandTest):
    def test_published_runs_are_priced_closely(self):
        shutil.copytree(EXAMPLES, self.folder / "examples")
        scores = self.run_json("calibrate", "examples/torchtitan.csv")
        self.assertEqual(scores["priced"], scores["rows"])
        self.assertLess(scores["time"]["mape"], 0.08)
        self.assertGreater(scores["memory"]["within_10"], 0.8)

    def test_every_microbatch_gathers_and_sums(self):
        def step(microbatches, *words):
            (row,) = self.run_rows("simulate", "1f1b", *TITAN, "--data-parallel", 16, "-m", microbatches, *words)
            return row["step_time"]

        slow = ("--network-efficiency", 0.02)  # so that nothing hides the messages
        for zero, each in ((1, False), (2, True), (3, True)):
            with self.subTest(zero=zero):
                words = ("--zero", zero, *slow)
                growth = (step(8, *words) - step(1, *words)) / 7 / step(1, *words)
                self.assertEqual(growth > 0.7, each)

    def test_frozen_weights_have_no_flops_of_their_gradients(self):
        rows = [self.run_rows("simulate", "1f1b", *TITAN, "--data-parallel", 16, *words)[0] for words in ((), ("--lora",))]
        full, frozen = (row["flops_per_second_per_device"] * row["step_time"] for row in rows)
        self.assertAlmostEqual(frozen / full, 2 / 3, delta=0.03)
        # Of four equal parts, one only runs forward.
        pipeline = ("--model", "llama-3-8b", "--nodes", "1x4", "-p", 4, "-m", 8)
        rows = [self.run_rows("simulate", "1f1b", *pipeline, *words)[0] for words in ((), ("--frozen", "0"))]
        full, frozen = (row["flops_per_second_per_device"] * row["step_time"] for row in rows)
        self.assertAlmostEqual(frozen / full, (3 * 3 + 1) / 12, delta=0.05)


if __name__ == "__main__":
    program.main()
