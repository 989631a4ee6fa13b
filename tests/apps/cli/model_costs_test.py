"""Properties of prices by --model: throughput, memory of ranks, and plans on several sites and unlike devices."""
import program

MODEL = ("--model", "llama-3-8b")
PLAN = (*MODEL, "--global-batch", 64, "--micro-batch-size", 1, "--recompute", "none", "--tensor", 2, "--context", 1)


class ModelCostsTest(program.CommandTest):
    def memory(self, *words):
        return self.run_rows("simulate", *words, "--memory")[0]["memory"]

    def plan(self, *words):
        return self.run_json("plan", *PLAN, *words)

    def test_the_throughput_of_llama_3_405b_is_the_published_one(self):
        # The Llama 3 Herd of Models, 2024, table 4: TFLOP/s per GPU on 8192 and 16384 H100.
        flops = 6 * 405.85e9 * 8192 + 12 * 126 * 8192 ** 2 * 16384  # of a microbatch
        for data, microbatches, published in ((64, 32, 430e12), (128, 16, 400e12)):
            (row,) = self.run_rows("simulate", "interleaved:v=4", "--model", "llama-3-405b", "--nodes", f"{16 * data}x8", "--tensor", 8, "--gather-again",
                                   "--data-parallel", data, "--zero", 2, "--sequence", 8192, "-m", microbatches)
            self.assertLess(abs(microbatches * flops / row["makespan"] / (16 * 8) / published - 1), 0.07)

    def test_idle_devices_are_named_and_count_in_rates(self):
        words = ("simulate", "1f1b", "--model", "llama-3-70b", "--tensor", 8, "-p", 7, "-m", 8, "--nodes")
        self.assertIn("8 of 64 devices are idle", self.run_ok(*words, "8x8"))
        self.assertNotIn("idle,", self.run_ok(*words, "7x8"))
        (some,), (none,) = self.run_rows(*words, "8x8"), self.run_rows(*words, "7x8")
        self.assertEqual([[row["devices"], row["idle_devices"]] for row in (some, none)], [[64, 8], [56, 0]])
        self.assertEqual(some["tokens_per_second"], none["tokens_per_second"])
        for rate in ("tokens_per_second_per_device", "flops_per_second_per_device"):
            self.assertAlmostEqual(some[rate] / none[rate], 56 / 64)

    def test_a_framework_has_buffers_and_a_context(self):
        words = ("1f1b", *MODEL, "-p", 4, "-m", 8, "--nodes", "1x8", "--tensor", 2, "--implementation", "megatron")
        (row,) = self.run_rows("simulate", *words, "--memory", "--fragmentation", 0.1)
        for memory in row["memory"]:
            kinds = memory["peak"]["by_kind"]
            self.assertAlmostEqual(sum(kinds.values()), memory["peak"]["amount"], delta=1)
            self.assertGreater(kinds["workspace"], 64 * 2 ** 20)  # two workspaces of matmuls
            self.assertGreater(kinds["context"], 2 ** 29)
            self.assertGreater(kinds["messages"], 0)
            allocated = memory["peak"]["amount"] - kinds["fragmentation"] - kinds["context"]
            self.assertAlmostEqual(kinds["fragmentation"] / allocated, 0.1, delta=1e-6)
        step = row["step"]
        self.assertAlmostEqual(row["device_bytes"], max(memory["peak"]["amount"] for memory in row["memory"]), delta=1)
        self.assertAlmostEqual(row["peak_bytes"], row["device_bytes"] - step["fragmentation"] - step["context"], delta=1)
        (none,) = self.run_rows("simulate", *words)
        self.assertEqual((none["step"]["fragmentation"], none["peak_bytes"]), (0, row["peak_bytes"]))

    def test_first_and_last_stages_are_larger(self):
        # Llama 3 8B: embedding and head have 128256 x 4096 parameters each, of 8.03 billion.
        ranks = self.memory("1f1b", *MODEL, "--nodes", "1x8", "-m", 16)
        parameters = [memory["peak"]["by_kind"]["gradients"] / 4 for memory in ranks]
        self.assertEqual(sum(parameters), 8_030_261_248)
        for end in (0, -1):
            self.assertEqual(round(parameters[end] - parameters[1], -4), round(128256 * 4096, -4))
        self.assertGreater(ranks[0]["peak"]["by_kind"]["messages"], 0)

    def test_a_rank_is_above_the_limit_if_its_own_states_and_activations_exceed_the_device(self):
        words = ("1f1b", *MODEL, "--nodes", "1x8", "-m", 16, "--sequence", 8192)
        peaks = [memory["peak"]["by_kind"] for memory in self.memory(*words)]
        needed = max(sum(peak[kind] for kind in ("weights", "gradients", "optimizer", "activations")) for peak in peaks)
        for name, memory, above in (("fits", needed * 1.001, False), ("small", needed * 0.999, True)):
            self.write(f"{name}.yaml", f"{{name: {name}, like: h100, memory: {int(memory)}}}")
            (row,) = self.run_rows("simulate", *words, "--device", f"{name}.yaml")
            self.assertEqual(row["above_memory_limit"], above, name)

    def test_a_plan_sends_less_over_the_slower_link(self):
        job = ("--nodes", "4x4", "--sites", 2, "--schedule", "1f1b,interleaved")
        slow = (*job, "--site-bandwidth", "10Gbit/s", "--site-latency", "10ms")
        best = self.plan(*slow)["best"]
        self.assertEqual(best["across_sites"], "pipeline")
        for across in ("pipeline", "data"):
            fixed = self.plan(*slow, "--across-sites", across)["best"]
            self.assertEqual(fixed["across_sites"], across)
            self.assertGreaterEqual(fixed["step_time"], best["step_time"] * (1 - 1e-9))
        for plan in self.plan(*job)["front"]:
            self.assertLessEqual(plan["lower_bound"], plan["step_time"] * (1 + 1e-9))

    def test_a_plan_gives_slower_devices_fewer_layers(self):
        job = ("--nodes", "2x2+2x2", "--device", "h100+a100", "-p", 4, "--schedule", "1f1b")
        answer = self.plan(*job)
        best = answer["best"]
        layers = [int(count) for count in best["layout"].split(",")]
        self.assertGreater(sum(layers[:2]), 1.5 * sum(layers[2:]))
        self.assertLess(best["step_time"], 0.85 * self.plan(*job, "--layout", "8,8,8,8")["best"]["step_time"])
        for bound in (best["lower_bound"], answer["lower_bound"]):
            self.assertLessEqual(bound, best["step_time"] * (1 + 1e-9))
        self.assertEqual(self.run_rows(*best["command"].split()[1:])[0]["step_time"], best["step_time"])

    def test_a_plan_expects_fewer_tokens_with_failures(self):
        best = self.plan("--nodes", "1x8", "-p", 4, "--schedule", "1f1b", "--failures", "50000h")["best"]
        self.assertLess(best["expected_tokens_per_second"], best["tokens_per_second"])


if __name__ == "__main__":
    program.main()
