"""simulate --memory: the memory of each rank by kind, its peaks and what causes them."""
import csv
import io

import program

KINDS = ["weights", "versions", "gradients", "optimizer", "activations", "messages", "gathered", "workspace",
         "offloaded"]
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
