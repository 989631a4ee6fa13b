"""penstock plan with a model: what it prints is what simulate says, and it keeps what is given."""
import itertools
import json
import random
import re
import shlex
import signal
import subprocess

import program
from python_keywords import python_keywords

JOB = ("--model", "llama-3-8b", "--device", "h100", "--nodes", "1x8", "--global-batch", "32")
SMALL = ("--model", "gpt2", "--device", "a100", "--nodes", "1x4")
KEYS = {"tensor", "pipeline", "chunks", "context", "data", "expert", "zero", "micro_batch", "schedule", "recompute", "step_time",
        "tokens_per_second", "peak_bytes", "lower_bound"}


class PlanModelTest(program.CommandTest):
    def plan(self, *words):
        return json.loads(self.run_ok("plan", *JOB, *words, "--json"))

    def test_the_command_of_each_plan_gives_its_figures(self):
        answer = self.plan("--for", "megatron")
        self.assertLessEqual({"best", "front", "searched", "seconds"}, set(answer))
        self.assertEqual(answer["best"], answer["front"][0])
        for plan in answer["front"]:
            self.assertLessEqual(KEYS, set(plan))
            words = shlex.split(plan["command"])
            self.assertEqual(words[:2], ["penstock", "simulate"])
            (run,) = json.loads(self.run_ok(*words[1:], "--json"))["schedules"]
            self.assertAlmostEqual(run["step_time"] / plan["step_time"], 1, places=9)
            self.assertAlmostEqual(run["device_bytes"] / plan["peak_bytes"], 1, places=9)
            self.assertLessEqual(plan["lower_bound"], plan["step_time"] * (1 + 1e-9))
            self.assertEqual(plan["tensor"] * plan["pipeline"] * plan["context"] * plan["data"], 8)

    def test_the_answer_does_not_depend_on_the_number_of_cores(self):
        answers = []
        for cores in ("0", None):
            command = [program.PROGRAM, "plan", *JOB, "--tensor", "1", "--schedule", "1f1b,interleaved", "--json"]
            text = subprocess.run(["taskset", "-c", cores, *command] if cores else command, check=True, capture_output=True, text=True).stdout
            answer = json.loads(text)
            answer.pop("seconds")
            answers.append(answer)
        self.assertEqual(*answers)

    def test_frameworks_and_given_dimensions(self):
        answer = self.plan("--for", "penstock", "-p", 4)
        for plan in answer["front"] + answer["runners_up"]:
            self.assertEqual((plan["pipeline"], plan["recompute"]), (4, "none"))
        answer = self.plan("--for", "megatron", "--chunks", "2", "--micro-batch-size", 1, "--recompute", "full")
        for plan in answer["front"] + answer["runners_up"]:
            self.assertIn(plan["schedule"], ("1f1b", "interleaved", "interleaved-zb", "zbv", "v-half"))
            self.assertEqual((plan["micro_batch"], plan["recompute"]), (1, "full"))
            self.assertLessEqual(plan["zero"], 1)

    def small_plan(self, *words):
        return json.loads(self.run_ok("plan", *SMALL, "--global-batch", 8, *words, "--json"))

    def test_no_plan_of_the_front_beats_another_or_its_bound(self):
        answer = self.small_plan()
        front = answer["front"]
        self.assertGreater(len(front), 2)
        for fast, slow in itertools.pairwise(front):
            self.assertLess(fast["step_time"], slow["step_time"])
            self.assertGreater(fast["peak_bytes"], slow["peak_bytes"])
        for plan in front + answer["runners_up"]:
            self.assertLessEqual(answer["lower_bound"], plan["step_time"] * (1 + 1e-9))

    def test_no_random_configuration_is_faster(self):
        best = self.small_plan()["best"]["step_time"]
        choice = random.Random(5).choice
        priced = 0
        while priced < 100:
            tensor, data, ranks = choice([(1, 1, 4), (1, 2, 2), (2, 1, 2), (1, 4, 1), (2, 2, 1), (4, 1, 1)])
            schedule = choice(["1f1b", "gpipe", "zb-h1", "interleaved:v=2", "interleaved-zb:v=3", "zbv", "hanayo", "v-half", "dualpipev"])
            if ranks == 1:
                schedule = "1f1b"
            size = choice([1, 2, 4, 8])
            if 8 % (data * size):
                continue
            words = ["-p", ranks, "--tensor", tensor, "--data-parallel", data, "--micro-batch-size", size, "-m", 8 // data // size,
                     "--recompute", choice(["none", "full", "block:2"])]
            if schedule == "dualpipev":
                words += ["--overlap", "sum"]
            run = self.start("simulate", schedule, *SMALL, *words, "--json")
            if run.returncode:
                continue
            priced += 1
            (figures,) = json.loads(run.stdout)["schedules"]
            self.assertGreaterEqual(figures["step_time"], best * (1 - 1e-9), (schedule, *words))

    def test_more_memory_is_never_slower(self):
        previous = float("inf")
        for limit in ("1200MiB", "1500MiB", "1700MiB", "2GiB", "4GiB"):
            best = self.small_plan("--memory-limit", limit)["best"]["step_time"]
            self.assertLessEqual(best, previous * (1 + 1e-9), limit)
            previous = best

    def test_runners_up_say_why_they_lose(self):
        runners_up = self.small_plan()["runners_up"]
        self.assertTrue(runners_up)
        for plan in runners_up:
            self.assertRegex(plan["why_not"], r"^\+\d+\.\d%: (compute|recomputation|exposed|bubble|gradients)")

    def test_python_has_every_option(self):
        keywords = {name.replace("_", "-") for name in python_keywords("PlanFields")}
        options = set(re.findall(r"^\s+(?:-\w,\s*)?--([a-z0-9-]+)", self.run_ok("plan", "--help"), re.MULTILINE))
        ours = {"help", "quiet", "output", "report", "configs", "format", "json"}  # of the command line only
        self.assertEqual(keywords, options - ours - {"for"} | {"framework"})

    def test_what_does_not_fit_says_what_would(self):
        job = ("--model", "llama-3-8b", "--device", "a100", "--nodes", "1x8", "--global-batch", 32, "--tensor", 8, "--memory-limit", "30GiB",
               "--for", "megatron")
        line = self.refuse("plan", *job, "--recompute", "none", "--offloaded-layers", 0, "--offloaded-states", 0, "--sequence", 32768)
        self.assertRegex(line, r"30.0 GiB each do not fit .* on pipeline rank \d+, .* too many \(weights .*activations ")
        option, value, size = re.search(r"; (--[a-z-]+) (\S+) fits with ([0-9.]+) GiB", line).groups()
        self.assertLessEqual(float(size), 30)
        answer = json.loads(self.run_ok("plan", *job, "--sequence", 32768, option, value, "--json"))
        self.assertLessEqual(answer["best"]["peak_bytes"], 30 * 2**30)

    def test_interrupts_give_the_best_so_far(self):
        command = [program.PROGRAM, "plan", "--model", "llama-3-70b", "--nodes", "16x8", "--global-batch", "1024", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=120)
        self.assertEqual((process.returncode, errors), (0, ""))
        self.assertTrue(json.loads(output)["front"])


if __name__ == "__main__":
    program.main()
