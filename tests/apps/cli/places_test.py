"""Sites, unlike devices and failures: what they add to a step, and what a plan makes of them."""
import json

import program

MODEL = ("--model", "llama-3-8b")
JOB = (*MODEL, "--nodes", "4x2", "-m", 8)
PLAN = (*MODEL, "--global-batch", 64, "--micro-batch-size", 1, "--recompute", "none", "--tensor", 2, "--context", 1)


class PlacesTest(program.CommandTest):
    def simulated(self, *words):
        (row,) = json.loads(self.run_ok("simulate", "1f1b", *words, "--json"))["schedules"]
        return row

    def plan(self, *words):
        return json.loads(self.run_ok("plan", *PLAN, *words, "--json"))

    def test_a_microbatch_passes_the_links_between_sites_twice(self):
        job = (*MODEL, "--nodes", "4x2", "--tensor", 2, "-p", 4, "-m", 1, "--sites", 2)
        near, far = (self.simulated(*job, "--site-latency", latency)["makespan"] for latency in ("10ms", "1010ms"))
        self.assertAlmostEqual(far - near, 2, places=9)
        # The two devices of a stage send half of 4096 tokens each, with 4096 values in bf16.
        sent = 4096 * 4096 * 2
        fast, slow = (self.simulated(*job, "--site-bandwidth", bandwidth)["makespan"] for bandwidth in ("1GB/s", "500MB/s"))
        self.assertAlmostEqual(slow - fast, 2 * sent * (1 / 500e6 - 1 / 1e9), places=9)

    def test_four_sites_have_three_links_on_the_way(self):
        job = (*MODEL, "--nodes", "4x2", "--tensor", 2, "-p", 4, "-m", 1, "--sites", 4)
        near, far = (self.simulated(*job, "--site-latency", latency)["makespan"] for latency in ("10ms", "1010ms"))
        self.assertAlmostEqual(far - near, 6, places=9)

    def test_replicas_on_sites_sum_their_gradients_over_the_links_between_these(self):
        job = (*JOB, "-p", 4, "--data-parallel", 2, "--sites", 2, "--across-sites", "data")
        near = self.simulated(*job, "--site-bandwidth", "1GB/s")
        far = self.simulated(*job, "--site-bandwidth", "500MB/s")
        self.assertEqual(near["makespan"], far["makespan"])
        # The largest stage sends half of its fp32 gradients each way, and four devices of a site share the link.
        parameters = near["step"]["gradients"] / 4
        more = 2 * (parameters * 4 / 2) * (4 / 500e6 - 4 / 1e9)
        self.assertAlmostEqual((far["step"]["reduce"] - near["step"]["reduce"]) / more, 1, places=4)

    def test_one_site_is_no_site(self):
        job = (*JOB, "-p", 4, "--data-parallel", 2)
        self.assertEqual(self.simulated(*job), self.simulated(*job, "--sites", 1))

    def test_what_sites_cannot_divide_is_refused(self):
        for words, said in (
                (("--sites", 3), "do not divide the 4 --nodes"),
                (("--sites", 2, "-p", 1, "--data-parallel", 8), "--across-sites data"),
                (("--sites", 4, "-p", 4, "--data-parallel", 2, "--across-sites", "data"), "do not divide --data-parallel"),
                (("--sites", 2, "-p", 4), "have 8 pipeline ranks"), (("--site-latency", "1s"), "no --sites"),
                (("--sites", 2, "-p", 8, "--comm", "1ms"), "--sites determine the links"),
                (("--sites", 2, "--site-bandwidth", "10Gb"), "not a bandwidth"), (("--across-sites", "data"), "no --sites"),
                (("--sites", 2, "--across-sites", "tensor"), "give one of pipeline, data")):
            with self.subTest(words=words):
                self.assertIn(said, self.refuse("simulate", "1f1b", *JOB, *words))

    def test_a_plan_sends_less_over_the_slower_link(self):
        job = ("--nodes", "4x4", "--sites", 2, "--schedule", "1f1b,interleaved")
        best = self.plan(*job, "--site-bandwidth", "10Gbit/s", "--site-latency", "10ms")["best"]
        for across in ("pipeline", "data"):
            fixed = self.plan(*job, "--across-sites", across, "--site-bandwidth", "10Gbit/s", "--site-latency", "10ms")
            self.assertEqual(fixed["best"]["across_sites"], across)
            self.assertGreaterEqual(fixed["best"]["step_time"], best["step_time"] * (1 - 1e-9))
        self.assertEqual(best["across_sites"], "pipeline")
        for plan in self.plan(*job)["front"]:
            self.assertLessEqual(plan["lower_bound"], plan["step_time"] * (1 + 1e-9))

    def test_unlike_devices_that_are_alike_cost_the_same(self):
        job = (*MODEL, "-m", 8, "-p", 4, "--tensor", 2)
        same = self.simulated(*job, "--nodes", "4x2", "--device", "h100")
        self.assertEqual(same, self.simulated(*job, "--nodes", "1x2+3x2", "--device", "h100+h100"))

    def test_unlike_devices_take_as_long_as_the_slower_with_even_stages(self):
        job = (*MODEL, "-m", 32, "-p", 4, "--tensor", 2)
        fast = self.simulated(*job, "--nodes", "4x2", "--device", "h100")["makespan"]
        slow = self.simulated(*job, "--nodes", "4x2", "--device", "a100")["makespan"]
        mixed = self.simulated(*job, "--nodes", "2x2+2x2", "--device", "h100+a100")["makespan"]
        self.assertLess(fast, mixed)
        self.assertLess(mixed, slow)
        # The head, which is on the last rank, takes longer than the embedding on the first.
        first = self.simulated(*job, "--nodes", "2x2+2x2", "--device", "a100+h100")["makespan"]
        self.assertLess(first, mixed)

    def test_a_plan_gives_slower_devices_fewer_layers(self):
        answer = self.plan("--nodes", "2x2+2x2", "--device", "h100+a100", "-p", 4, "--schedule", "1f1b")
        best = answer["best"]
        layers = [int(count) for count in best["layout"].split(",")]
        self.assertGreater(sum(layers[:2]), 1.5 * sum(layers[2:]))
        even = self.plan("--nodes", "2x2+2x2", "--device", "h100+a100", "-p", 4, "--schedule", "1f1b", "--layout", "8,8,8,8")["best"]
        self.assertLess(best["step_time"], 0.85 * even["step_time"])
        self.assertLessEqual(best["lower_bound"], best["step_time"] * (1 + 1e-9))
        self.assertLessEqual(answer["lower_bound"], best["step_time"] * (1 + 1e-9))
        words = best["command"].split()
        self.assertEqual(json.loads(self.run_ok(*words[1:], "--json"))["schedules"][0]["step_time"], best["step_time"])

    def test_each_device_has_its_own_memory(self):
        job = (*MODEL, "-m", 8, "-p", 2, "--tensor", 2, "--nodes", "1x2+1x2")
        self.assertFalse(self.simulated(*job, "--device", "h200+h200")["above_memory_limit"])
        self.assertTrue(self.simulated(*job, "--device", "h200+a10g")["above_memory_limit"])

    def test_what_has_no_price_on_unlike_devices_is_refused(self):
        job = (*MODEL, "-m", 8, "--device", "h100+a100")
        for words, said in (
                (("--nodes", "4x2"), "the nodes of each of the 2 devices"), (("--nodes", "2x2+2x4"), "equally many devices"),
                (("--nodes", "1x2+1x2", "--data-parallel", 4), "must be alike"), (("--nodes", "3x2+1x2", "--tensor", 4), "must be alike")):
            with self.subTest(words=words):
                self.assertIn(said, self.refuse("simulate", "1f1b", *job, *words))
        self.assertIn("two chains", self.refuse("simulate", "dualpipe", *job, "--tensor", 2, "--nodes", "2x2+2x2", "-p", 4))

    def test_failures_cost_checkpoints_and_what_is_computed_again(self):
        job = (*JOB, "-p", 4, "--data-parallel", 2)
        plain = self.simulated(*job)
        row = self.simulated(*job, "--failures", "50000h")
        self.assertEqual(row["step_time"], plain["step_time"])
        self.assertAlmostEqual(row["expected_tokens_per_second"], row["tokens_per_second"] * row["training_part"])
        parts = [self.simulated(*job, "--failures", between)["training_part"] for between in ("10h", "100h", "10000h")]
        self.assertEqual(parts, sorted(parts))
        slow = self.simulated(*job, "--failures", "50000h", "--storage-bandwidth", "10MB/s")
        self.assertGreater(slow["checkpoint_steps"], row["checkpoint_steps"])
        self.assertLess(slow["training_part"], row["training_part"])
        self.assertIn("expected tokens per second", self.run_ok("simulate", "1f1b", "gpipe:failures=1h", *job))
        self.assertIn("no --failures", self.refuse("simulate", "1f1b", *job, "--restart", "1h"))
        self.assertIn("more than 0", self.refuse("simulate", "1f1b", *job, "--failures", "0s"))
        best = self.plan("--nodes", "1x8", "-p", 4, "--schedule", "1f1b", "--failures", "50000h")["best"]
        self.assertLess(best["expected_tokens_per_second"], best["tokens_per_second"])


if __name__ == "__main__":
    program.main()
