"""--model: schedules priced in seconds and bytes without any file."""
import json

import program

LLAMA_70B = ("--model", "llama-3-70b", "--device", "h100", "--nodes", "8x8", "--tensor", 8, "-m", 32)


class ModelCostsTest(program.CommandTest):
    def test_seconds_and_bytes(self):
        rows = self.run_rows("simulate", "1f1b", "zb-h1", "zbv", *LLAMA_70B)
        for row in rows:
            self.assertEqual(row["ranks"], 8)
            # 32 microbatches of 4096 tokens, 6 FLOPs per parameter and token, at 30% to 70% of the peak
            ideal = 32 * 4096 * 6 * 70.55e9 / 64 / 989.4e12
            self.assertGreater(row["makespan"], ideal / 0.7)
            self.assertLess(row["makespan"], ideal / 0.3)
            self.assertEqual(row["bytes_per_microbatch"], row["messages"] / 32 * 4096 * 8192 * 2 / 8)
            self.assertFalse(row["above_memory_limit"])
            self.assertLess(row["peak_memory"], row["memory_limit"])
        table = self.run_ok("simulate", "1f1b", *LLAMA_70B)
        self.assertIn(" ms ", table)
        self.assertIn("weights, gradients and optimizer state of llama-3-70b take up to 20.1 GiB of the 80.0 GiB",
                      table)
        self.assertNotIn("--cost", table)

    def test_the_throughput_of_llama_3_405b_is_the_published_one(self):
        # The Llama 3 Herd of Models, 2024, table 4: TFLOP/s per GPU on 8192 and 16384 H100.
        flops = 6 * 405.85e9 * 8192 + 12 * 126 * 8192 ** 2 * 16384  # of a microbatch
        for data, microbatches, published in ((64, 32, 430e12), (128, 16, 400e12)):
            (row,) = self.run_rows("simulate", "interleaved:v=4", "--model", "llama-3-405b", "--nodes",
                                   f"{16 * data}x8", "--tensor", 8, "--data-parallel", data, "--zero", 2, "--sequence", 8192,
                                   "-m", microbatches)
            predicted = microbatches * flops / row["makespan"] / (16 * 8)
            self.assertLess(abs(predicted / published - 1), 0.07)

    def test_an_algorithm_with_a_memory_limit_stays_within_what_the_device_has_left(self):
        for name in ("zb-auto", "v-auto", "hanayo"):
            (row,) = self.run_rows("simulate", name, "--model", "llama-3-8b", "--nodes", "1x4", "--sequence", 8192,
                                   "-m", 16)
            self.assertFalse(row["above_memory_limit"], name)
        (row,) = self.run_rows("simulate", "gpipe", "--model", "llama-3-8b", "--nodes", "1x4", "--sequence", 8192,
                               "-m", 16)
        self.assertTrue(row["above_memory_limit"])

    def test_a_sharded_vocabulary_balances_the_ranks(self):
        ends, shared = self.run_rows("simulate", "1f1b", "1f1b:pass=vocabulary", "--model", "llama-3-8b", "-m", 32)
        self.assertLess(shared["makespan"], 0.8 * ends["makespan"])
        busy = [[rank["busy"] for rank in row["per_rank"]] for row in (ends, shared)]
        self.assertGreater(max(busy[0]), 1.5 * min(busy[0]))
        self.assertLess(max(busy[1]), 1.02 * min(busy[1]))
        self.assertLess(abs(sum(busy[1]) / sum(busy[0]) - 1), 0.02)

    def test_neighbors_in_a_node_have_its_links(self):
        words = ("1f1b", "--model", "llama-3-8b", "--nodes", "2x8", "--tensor", 2, "-m", 32)
        (mixed,) = self.run_rows("simulate", *words)
        (slow,) = self.run_rows("simulate", *words, "--comm", f"{10e-6 + 4096 * 4096 * 2 / 2 / (50e9 * 0.8)}s")
        (fast,) = self.run_rows("simulate", *words, "--comm", f"{10e-6 + 4096 * 4096 * 2 / 2 / (450e9 * 0.8)}s")
        self.assertLess(mixed["makespan"], slow["makespan"])
        self.assertGreater(mixed["makespan"], fast["makespan"])

    def test_a_config_json_gives_the_figures_of_the_published_model(self):
        self.write("config.json", json.dumps({
            "model_type": "llama", "vocab_size": 128256, "hidden_size": 8192, "num_hidden_layers": 80,
            "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672}))
        named = self.run_rows("simulate", "1f1b", *LLAMA_70B)
        read = self.run_rows("simulate", "1f1b", "--model", "config.json", *LLAMA_70B[2:])
        self.assertEqual(named, read)

    def test_a_configuration_and_a_device_file(self):
        self.write("h20.yaml", "{name: h20, like: h100, bf16_flops: 148e12}")
        self.write("c.yaml", "{schedule: 1f1b, model: gpt2-xl, device: h20.yaml, nodes: 1x4, micro_batch_size: 4, "
                             "zero: 1, data_parallel: 2, flops_efficiency: 0.5}")
        (row,) = self.run_rows("simulate", "c.yaml")
        self.assertEqual(row["ranks"], 2)
        (faster,) = self.run_rows("simulate", "c.yaml", "--device", "h100")
        self.assertLess(faster["makespan"], row["makespan"])

    def test_other_commands_read_it(self):
        self.assertIn("makespan", self.run_ok("show", "zbv", "--model", "qwen3-8b"))
        self.run_ok("report", "1f1b", "--model", "qwen3-8b", "-o", "page.html")
        self.assertIn("0F0", self.run_ok("schedule", "zb-auto", "--model", "qwen3-8b"))
        self.run_ok("schedule", "1f1b", "-p", 8, "-m", 4, "-o", "mine.csv")
        (row,) = self.run_rows("simulate", "mine.csv", "--model", "qwen3-8b")
        self.assertEqual(row["makespan"],
                         self.run_rows("simulate", "1f1b", "--model", "qwen3-8b", "-m", 4)[0]["makespan"])

    def test_every_pass_is_priced(self):
        words = ("simulate", "1f1b", "--model", "llama-3-8b", "--nodes", "1x8", "--data-parallel", 2)
        plain = self.run_rows(*words)[0]
        self.assertGreater(self.run_rows(*words, "--pass", "optimizer")[0]["makespan"], plain["makespan"])
        recomputed = self.run_rows(*words, "--pass", "recompute")[0]
        self.assertGreater(recomputed["per_rank"][0]["busy"], plain["per_rank"][0]["busy"])
        self.assertLess(recomputed["peak_memory"], plain["peak_memory"] / 2)
        # A microbatch takes longer to the host and back than it waits.
        self.assertEqual(self.run_rows(*words, "--pass", "offload")[0]["makespan"], plain["makespan"])
        self.assertIn("above the limit", self.refuse(*words, "--pass", "offload=6GiB"))

    def test_emulated_devices_run_in_real_time(self):
        (row,) = self.run_rows("simulate", "1f1b", "--model", "llama-3-8b", "--nodes", "1x4", "-m", 4, "--run")
        self.assertEqual(row["measured"]["unit_seconds"], 1)
        self.assertGreater(row["measured"]["makespan"], 0.9 * row["makespan"])

    def test_recompute_runs_every_forward_again(self):
        for words in (("-p", 1), ("-p", 4)):
            words = ("1f1b", "--model", "gpt2", "-m", 4, *words)
            plain, recomputed = (self.run_rows("simulate", *words, *more)[0]
                                 for more in ((), ("--pass", "recompute")))
            steps = self.run_rows("show", *words, "--pass", "recompute")[0]["time_steps"]
            for rank, lane in enumerate(steps):
                count = sum("RECOMPUTE" in step["action"] for step in lane)
                self.assertEqual(count, 4)
                forward = next(s["end"] - s["start"] for s in lane if "F" in s["action"])
                self.assertAlmostEqual(recomputed["per_rank"][rank]["busy"],
                                       plain["per_rank"][rank]["busy"] + 4 * forward)

    def test_times_next_to_a_model_need_a_unit(self):
        words = ("1f1b", "--model", "gpt2", "-p", 2, "-m", 4)
        by_unit = [self.run_rows("simulate", *words, "--comm", comm)[0]["makespan"] for comm in ("500ms", "0.5s")]
        self.assertEqual(*by_unit)
        self.run_ok("simulate", *words, "--comm", 0)
        self.run_ok("simulate", *words, "--launch", "5us", "--pass", "optimizer", "--price", "step=2ms")
        self.write("model.yaml", "{schedule: 1f1b, model: gpt2, ranks: 2, microbatches: 4, comm: 0.5s}")
        self.assertEqual(self.run_rows("simulate", "model.yaml")[0]["makespan"], by_unit[0])
        self.write("plain.yaml", "{schedule: 1f1b, model: gpt2, ranks: 2, comm: 0.5}")
        for more in (("--comm", 0.5), ("--launch", "1e-5"), ("--pass", "optimizer", "--price", "step=2")):
            message = self.refuse("simulate", *words, *more)
            self.assertIn(" ".join(map(str, more[-2:])), message)
            for reading in ("seconds", "milliseconds"):
                self.assertIn(reading, message)
        self.assertIn("plain.yaml: line 1: comm 0.5", self.refuse("simulate", "plain.yaml"))
        self.assertIn("0.5s for seconds", self.refuse("simulate", "1f1b:comm=0.5", "--model", "gpt2"))
        self.assertIn("no unit of time", self.refuse("simulate", "1f1b", "--comm", "5ms"))
        self.assertIn("not a time", self.refuse("simulate", "1f1b", "--comm", "5parsecs"))
        self.write("model.yaml", "{schedule: 1f1b, model: gpt2, ranks: 2, microbatches: 4, comm: 0.5, time_unit: s}")
        self.assertEqual(self.run_rows("simulate", "model.yaml")[0]["makespan"], by_unit[0])
        self.write("timed.yaml", "{schedule: 1f1b, ranks: 2, cost: 1, comm: 500ms, time_unit: s}")
        self.write("seconds.yaml", "{schedule: 1f1b, ranks: 2, cost: 1, comm: 0.5, time_unit: s}")
        self.assertEqual(self.run_rows("simulate", "timed.yaml")[0]["makespan"],
                         self.run_rows("simulate", "seconds.yaml")[0]["makespan"])

    def test_what_microbatches_and_activations_are_is_said(self):
        words = ("1f1b", "--model", "llama-3-8b", "--nodes", "4x8", "--data-parallel", 4, "-m", 16)
        (row,) = self.run_rows("simulate", *words)
        self.assertEqual((row["microbatches"], row["global_microbatches"]), (16, 64))
        text = self.run_ok("simulate", *words)
        self.assertIn("microbatches are those of each of the 4 replicas, 64 in all", text)
        self.assertIn("activations are those that Penstock's stages save", text)
        self.assertNotIn("replicas", self.run_ok("simulate", "1f1b", "--model", "gpt2"))

    def test_formats_of_8_bits_need_an_implementation_that_has_them(self):
        words = ("1f1b", "--model", "llama-3-8b", "--device", "gb200", "--precision", "mxfp8", "-m", 16)
        self.assertIn("--precision mxfp8: penstock computes in bf16, fp16 or f32; give --implementation transformer-engine",
                      self.refuse("simulate", *words))
        fast = self.run_rows("simulate", *words, "--implementation", "transformer-engine", "--dispatcher", "hybridep")[0]
        slow = self.run_rows("simulate", *words[:5], "-m", 16, "--implementation", "transformer-engine")[0]
        self.assertLess(fast["makespan"], slow["makespan"])
        text = self.run_ok("simulate", *words, "--implementation", "transformer-engine")
        self.assertIn("activations are those that transformer-engine saves", text)
        self.assertIn("no units", self.refuse("simulate", *words[:3], "--device", "a100", *words[5:],
                                              "--implementation", "transformer-engine"))

    def test_no_memory_limit_explains_a_schedule_that_heeds_none(self):
        model = ("--model", "llama-3-8b", "--nodes", "1x4", "--sequence", 8192, "-m", 16)
        for words in (("1f1b", *model), ("gpipe", *model), ("1f1b", "-m", 16, "--memory-limit", 2)):
            self.assertNotIn("memory limit", self.run_ok("show", *words, "--explain"), words)
        self.assertIn("memory limit", self.run_ok("show", "zb-auto", "-p", 4, "-m", 8, "--memory-limit", 4, "--explain"))

    def test_refusals(self):
        self.run_ok("schedule", "1f1b", "--pass", "vocabulary", "-o", "sharded.csv")
        for message, *words in (
                ("--model 'llama-3-70': no model is called 'llama-3-70'; did you mean 'llama-3-70b'?", "--model", "llama-3-70"),
                ("--device 'h110': no device is called 'h110'; did you mean 'h100'?", "--model", "gpt2", "--device", "h110"),
                ("--cost has no effect here: the model determines it", "--model", "gpt2", "--cost", 1),
                ("--message-bytes has no effect here", "--model", "gpt2", "--message-bytes", "1MiB"),
                ("--tensor has no effect here: it describes how a model is trained, and there is no --model",
                 "--tensor", 2),
                ("--nodes '8y8': give nodes and devices per node (8x8)", "--model", "gpt2", "--nodes", "8y8"),
                ("--nodes 4: give nodes and devices per node: 4x8 for 4 nodes of 8 devices, or 1x4",
                 "--model", "gpt2", "--nodes", "4"),
                ("--precision 'fp12': give one of f32, bf16, fp16, fp8", "--model", "gpt2", "--precision", "fp12"),
                ("--zero 1: there is one replica; give --data-parallel", "--model", "gpt2", "--zero", 1),
                ("--zero 4: 0 to 3 is needed", "--model", "gpt2", "--zero", 4),
                ("--sequence 2048: gpt2 has 1024 positions", "--model", "gpt2", "--sequence", 2048),
                ("--flops-efficiency 2: more than 0 and at most 1", "--model", "gpt2", "--flops-efficiency", 2),
                ("gpt2: 12 layers cannot fill 16 stages", "--model", "gpt2", "-p", 16),
                ("--ranks 9: 8 devices have at most 8 pipeline ranks (--tensor 1, --data-parallel 1); add --nodes",
                 "--model", "gpt2", "-p", 9),
                ("--pass vocabulary", "sharded.csv", "--model", "gpt2"),
                ("--hidden-communication 2: 0 to 1", "--model", "gpt2", "--hidden-communication", 2),
                ("--slices 3: does not divide --sequence, 1024", "seq1f1b:slices=3", "--model", "gpt2"),
                ("give a size with its unit", "--model", "gpt2", "--memory-limit", 3)):
            self.assertIn(message, self.refuse("simulate", "1f1b", *words))
        self.assertIn("no memory is left for activations",
                      self.refuse("simulate", "zb-auto", "--model", "llama-3-405b", "--tensor", 8, "--nodes", "4x8"))
        self.write("both.yaml", "{schedule: 1f1b, model: gpt2, cost: 1}")
        self.assertIn("both.yaml: line 1: cost: model says what stages cost; keep one of the two",
                      self.refuse("simulate", "both.yaml"))
        self.write("missing.json", "{}")
        self.assertIn("missing.json: model_type is missing", self.refuse("simulate", "1f1b", "--model", "missing.json"))


if __name__ == "__main__":
    program.main()
