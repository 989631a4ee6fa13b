"""simulate --memory: the memory of each rank by kind, its peaks and what causes them."""
import csv
import io

import program

KINDS = ["weights", "versions", "gradients", "optimizer", "activations", "messages", "gathered", "workspace",
         "offloaded", "others", "fragmentation", "context"]
STATES = "weights=3,gradients=2,optimizer=6,workspace=0.5"


class MemoryTest(program.CommandTest):
    def memory(self, *words):
        return self.run_rows("simulate", *words, "--memory")[0]["memory"]

    def test_kinds_of_every_rank(self):
        ranks = self.memory("1f1b", "-p", 4, "-m", 8, "--price", STATES)
        for rank, memory in enumerate(ranks):
            peak = memory["peak"]
            self.assertEqual(list(peak["by_kind"]), KINDS)
            self.assertEqual(list(memory["timelines"]), KINDS)
            self.assertEqual(peak["amount"], 3 + 2 + 6 + 0.5 + (4 - rank))
            self.assertEqual(peak["in_flight"], [4 - rank])
            self.assertEqual(peak["action"], f"{rank}F{3 - rank}")
            self.assertEqual(memory["timelines"]["weights"], [[0, 3]])
            self.assertEqual(max(amount for _, amount in memory["timelines"]["activations"]), 4 - rank)

    def test_chunks_divide_what_a_rank_holds(self):
        for memory in self.memory("interleaved", "-p", 4, "-m", 8, "--price", STATES):
            self.assertEqual([memory["peak"]["by_kind"][kind] for kind in KINDS[:4]], [3, 0, 2, 6])
            self.assertEqual(len(memory["peak"]["in_flight"]), 2)

    def test_a_framework_has_buffers_and_a_context(self):
        words = ("1f1b", "--model", "llama-3-8b", "-p", 4, "-m", 8, "--nodes", "1x8", "--tensor", 2,
                 "--implementation", "megatron")
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
        self.assertEqual(none["step"]["fragmentation"], 0)
        self.assertEqual(none["peak_bytes"], row["peak_bytes"])

    def test_modules_that_are_computed_again_free_their_tensors(self):
        words = ("1f1b", "--model", "llama-3-8b", "-p", 4, "-m", 8, "--implementation", "megatron")
        def activations(recompute):
            (row,) = self.run_rows("simulate", *words, "--recompute", recompute)
            return row["step"]["activations"]
        all_kept, scores = activations("none"), 32 * 4096 * 4096 * 2 * 8 * 4  # of 8 layers, 4 microbatches in flight
        self.assertEqual(all_kept - activations("selective:core_attn") - scores,
                         2 * 2 * 4096 * (4096 - 1024) * 8 * 4)  # repeated keys and values
        self.assertLess(activations("selective:norm,mlp"), activations("selective:mlp"))
        self.assertLess(activations("full"), activations("selective:core_attn,mlp"))

    def test_stages_of_a_configuration(self):
        self.write("c.yaml", """
schedule: 1f1b
ranks: 2
microbatches: 4
stage_costs:
  - {activation: 1GiB, weights: 4GiB, gradients: 2GiB, optimizer: 8GiB}
  - {activation: 1GiB, weights: 1GiB, gradients: 512MiB, optimizer: 2GiB, workspace: 256MiB}
""")
        first, last = self.memory("c.yaml", "--message-bytes", "64MiB", "--comm", 0.5)
        self.assertEqual(first["peak"]["amount"], (14 + 2) * 2 ** 30 + 64 * 2 ** 20)
        self.assertEqual(last["peak"]["by_kind"]["weights"], 2 ** 30)
        self.assertEqual(last["peak"]["by_kind"]["workspace"], 2 ** 28)
        self.assertIn("Memory of 1f1b", self.run_ok("simulate", "c.yaml", "--memory"))
        self.write("d.yaml", "{schedule: 1f1b, ranks: 1, layer_costs: [{layers: 4, weights: 3, workspace: 2}]}")
        (rank,) = self.memory("d.yaml")
        self.assertEqual([rank["peak"]["by_kind"][kind] for kind in ("weights", "workspace")], [12, 2])
        self.write("e.yaml", "{ranks: 1, stage_costs: [{activation: 1GiB, weights: 3}]}")
        self.assertIn("both with a unit", self.refuse("simulate", "1f1b", "e.yaml", "--memory"))

    def test_what_passes_add(self):
        (first, *_) = self.memory("1f1b", "-p", 4, "-m", 8, "--pass", "offload=2", "--price", "offload=0.2")
        self.assertGreater(max(amount for _, amount in first["timelines"]["offloaded"]), 0)
        self.assertLessEqual(first["peak"]["amount"], 2)
        (first, *_) = self.memory("1f1b", "-p", 4, "-m", 8, "--pass", "sharding", "--price", "gathered=5")
        self.assertEqual(max(amount for _, amount in first["timelines"]["gathered"]), 5)
        for rank, memory in enumerate(self.memory("pipedream:steps=4", "-p", 4, "-m", 8, "--price", "weights=3")):
            self.assertEqual(memory["peak"]["by_kind"]["versions"], 3 * (3 - rank))

    def test_a_model_whose_first_and_last_stages_are_larger(self):
        # Llama 3 8B: embedding and head have 128256 x 4096 parameters each, of 8.03 billion.
        ranks = self.memory("1f1b", "--model", "llama-3-8b", "--nodes", "1x8", "-m", 16)
        parameters = [memory["peak"]["by_kind"]["gradients"] / 4 for memory in ranks]
        self.assertEqual(sum(parameters), 8_030_261_248)
        for end in (0, -1):
            self.assertEqual(round(parameters[end] - parameters[1], -4), round(128256 * 4096, -4))
        self.assertGreater(ranks[0]["peak"]["by_kind"]["messages"], 0)

    def test_a_rank_is_above_the_limit_if_its_own_states_and_activations_exceed_the_device(self):
        words = ("1f1b", "--model", "llama-3-8b", "--nodes", "1x8", "-m", 16, "--sequence", 8192)
        peaks = [memory["peak"]["by_kind"] for memory in self.memory(*words)]
        needed = max(sum(peak[kind] for kind in ("weights", "gradients", "optimizer", "activations")) for peak in peaks)
        for name, memory, above in (("fits", needed * 1.001, False), ("small", needed * 0.999, True)):
            self.write(f"{name}.yaml", f"{{name: {name}, like: h100, memory: {int(memory)}}}")
            (row,) = self.run_rows("simulate", *words, "--device", f"{name}.yaml")
            self.assertEqual(row["above_memory_limit"], above, name)

    def test_formats_and_refusals(self):
        text = self.run_ok("simulate", "zbv", "1f1b", "--memory")
        self.assertIn("Memory of zbv", text)
        self.assertIn("Messages are not counted", text)
        rows = list(csv.DictReader(io.StringIO(self.run_ok("simulate", "zbv", "1f1b", "-p", 4, "--memory", "--format", "csv"))))
        self.assertEqual([row["schedule"] for row in rows], ["zbv"] * 4 + ["1f1b"] * 4)
        self.assertEqual(rows[-1]["in_flight"], "1")
        for words, expected in ((("--sweep", "comm=0,1", "--memory"), "no effect in a sweep"),
                                (("--price", "weights=1"), "only --memory of 'penstock simulate'"),
                                (("--memory", "--time-steps", "--format", "csv"), "give one of them")):
            self.assertIn(expected, self.refuse("simulate", "1f1b", *words))


if __name__ == "__main__":
    program.main()
