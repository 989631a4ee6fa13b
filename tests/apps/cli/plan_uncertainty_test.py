"""penstock plan --samples: how sure the choice is, and which constant to measure."""
import json
import subprocess

import program

SMALL = ("plan", "--model", "gpt2-large", "--device", "a100", "--nodes", "1x8", "--global-batch", "32", "--for", "megatron")
CONSTANTS = ("flops_efficiency", "bandwidth_efficiency", "link_efficiency", "network_efficiency", "hidden_communication",
             "hidden_gradients", "device_launch", "host_launch")
KNOWN = ",".join(f"{name}=0" for name in CONSTANTS)


class PlanUncertaintyTest(program.CommandTest):
    def outlook(self, *words):
        return json.loads(self.run_ok(*SMALL, *words, "--json"))

    def test_figures(self):
        answer = self.outlook("--samples", 100)
        outlook = answer["uncertainty"]
        self.assertEqual((outlook["samples"], outlook["seed"]), (100, 1))
        candidates = outlook["candidates"]
        self.assertEqual(sum(each["wins"] for each in candidates), 100)
        self.assertEqual(candidates[0]["command"], answer["best"]["command"])
        self.assertEqual(candidates[0]["wins"], outlook["wins"])
        self.assertEqual(candidates[0]["expected_regret"], outlook["expected_regret"])
        self.assertEqual(min(each["expected_regret"] for each in candidates), outlook["least_expected_regret"])
        self.assertEqual(len({each["command"] for each in candidates}), len(candidates))
        self.assertEqual({each["name"] for each in outlook["constants"]}, set(CONSTANTS))
        left = [each["regret_left"] for each in outlook["constants"]]
        self.assertEqual(left, sorted(left))
        self.assertLessEqual(left[-1], outlook["least_expected_regret"] * (1 + 1e-12))
        if outlook["measure"]:
            self.assertEqual(outlook["measure"], outlook["constants"][0]["name"])

    def test_without_uncertainty_the_choice_wins_all(self):
        outlook = self.outlook("--samples", 20, "--uncertainty", KNOWN)["uncertainty"]
        self.assertEqual((outlook["wins"], outlook["expected_regret"], outlook["constants"]), (20, 0, []))
        self.assertIsNone(outlook["measure"])

    def test_only_what_is_uncertain_can_settle_the_choice(self):
        known = KNOWN.replace("link_efficiency=0", "link_efficiency=0.6")
        outlook = self.outlook("--samples", 400, "--uncertainty", known)["uncertainty"]
        (constant,) = outlook["constants"]
        self.assertEqual((constant["name"], constant["error"], constant["source"]), ("link_efficiency", 0.6, "given"))
        if outlook["least_expected_regret"] > 0.002:
            self.assertLess(constant["regret_left"], 0.5 * outlook["least_expected_regret"])
            self.assertEqual(outlook["measure"], "link_efficiency")

    def test_the_seed_determines_the_figures(self):
        words = ("--samples", 50, "--tensor", 1)
        one, other = (self.outlook(*words, "--seed", seed)["uncertainty"] for seed in (3, 4))
        self.assertNotEqual(one["candidates"][0]["mean_step_time"], other["candidates"][0]["mean_step_time"])
        command = ["taskset", "-c", "0", program.PROGRAM, *map(str, (*SMALL, *words, "--seed", 3)), "--json"]
        again = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        self.assertEqual(again["uncertainty"], one)

    def test_errors_of_the_machine(self):
        self.write("machine.yaml", "constants:\n  - flops_efficiency: {value: 0.5, error: 0.02}\n")
        outlook = self.outlook("--samples", 5, "--machine", "machine.yaml")["uncertainty"]
        (flops,) = (each for each in outlook["constants"] if each["name"] == "flops_efficiency")
        self.assertAlmostEqual(flops["error"], 0.04)
        self.assertEqual(flops["source"], "machine.yaml")
        self.write("machine.yaml", "constants:\n  - flops_efficiency: {value: 0.5, error: much}\n")
        self.assertIn("--machine: the error 'much'", self.refuse(*SMALL, "--samples", 5, "--machine", "machine.yaml"))

    def test_text(self):
        text = self.run_ok(*SMALL, "--samples", 50)
        self.assertIn("how often others win in 50 samples", text)
        self.assertIn("Expected regret that is left if one constant is known", text)
        self.assertRegex(text, r"The choice wins \d+ of 50 samples; its expected regret is \d")
        self.assertRegex(text, r"Measure [a-z_]+ \(calibrate --fit|No measurement of one constant")


if __name__ == "__main__":
    program.main()
