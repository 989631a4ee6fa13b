"""Collectives of `penstock simulate`: times of UNSHARD and REDUCE_GRAD from sizes, links and algorithm."""
import json

import program

# A rank gathers 7 of 8 parts of 64 MiB and reduces those of 128 MiB.
CONFIG = """
schedule: 1f1b
ranks: 2
microbatches: 4
activation_bytes: 1GiB
pass: [sharding]
price: ["gathered=56MiB", "reduced=112MiB"]
collectives:
  algorithm: ring
  replicas: 8
  levels:
    - {level: node, ranks: 4, latency: 0.125, bandwidth: 1GiB}
    - {level: cluster, latency: 0.25, bandwidth: 32MiB}
"""


class CollectivesTest(program.CommandTest):
    def config(self, text):
        (self.folder / "c.yaml").write_text(text)
        return "c.yaml"

    def spans(self, text, op):
        out = self.run_ok("simulate", self.config(text), "--time-steps", "--json")
        return [step["end"] - step["start"] for rank in json.loads(out)["schedules"][0]["time_steps"]
                for step in rank if op in step["action"]]

    def test_times_are_those_of_the_algorithm(self):
        steps = {"ring": 7 * (0.25 + 8 / 32), "direct": 0.25 + 32 / 32,
                 "hierarchical": 3 * (0.125 + 16 / 1024) + 0.25 + 8 / 32,
                 "tree": 2 * 0.125 + 24 / 1024 + 0.25 + 32 / 32}
        steps["auto"] = min(steps.values())
        for algorithm, time in steps.items():
            for end in self.spans(CONFIG.replace("ring", algorithm), "UNSHARD"):
                self.assertAlmostEqual(end, time, 9, algorithm)
        for end in self.spans(CONFIG, "REDUCE_GRAD"):
            self.assertAlmostEqual(end, 7 * (0.25 + 16 / 32), 9)
        for end in self.spans(CONFIG.replace(', "reduced=112MiB"', ""), "REDUCE_GRAD"):
            self.assertAlmostEqual(end, steps["ring"], 9)
        default = CONFIG.replace("  algorithm: ring\n", "")
        self.assertAlmostEqual(self.spans(default, "UNSHARD")[0], steps["auto"], 9)

    def test_one_replica_has_no_collectives(self):
        self.assertEqual(set(self.spans(CONFIG.replace("replicas: 8", "replicas: 1"), "UNSHARD")), {0})

    def test_chunks_divide_the_sizes(self):
        chunked = CONFIG.replace("1f1b", "interleaved:v=2").replace("ring", "direct")
        self.assertAlmostEqual(self.spans(chunked, "UNSHARD")[0], 0.25 + 32 / 2 / 32, 9)

    def test_stage_costs_with_sizes(self):
        stages = CONFIG.replace("activation_bytes: 1GiB\n", "stage_costs: [{activation: 1GiB}, {activation: 2GiB}]\n")
        self.assertEqual(self.spans(stages, "UNSHARD"), self.spans(CONFIG, "UNSHARD"))

    def test_other_commands_read_the_configuration(self):
        config = self.config(CONFIG)
        for command in ("show", "schedule"):
            self.assertIn("UNSHARD", self.run_ok(command, config, *(("--json",) if command == "show" else ())))
        self.run_ok("report", config, "-o", "page.html")
        self.run_ok("simulate", config, "--run", "--unit", "5ms")

    def test_refusals(self):
        for old, new, says in (
                ("algorithm: ring", "algorithm: rign", "'ring'"), ("replicas: 8", "replcas: 8", "replicas"),
                ("replicas: 8", "replicas: 0", "replicas"), ("  replicas: 8\n", "", "replicas"),
                ("replicas: 8", "replicas: 6", "whole groups"), ("latency: 0.25", "latncy: 0.25", "latency"),
                ("latency: 0.25", "latency: -1", "latency"), ("level: cluster", "ranks: 8", "level"),
                ("level: cluster", "level: cluster, links: shared", "links"),
                ("cluster, ", "cluster, ranks: 6, ", "cluster"), ("cluster, ", "cluster, ranks: 4, ", "cluster"),
                ("bandwidth: 32MiB", "bandwidth: 0", "bandwidth"), ('"reduced=112MiB"', "unshard=1", "unshard"),
                ('"reduced=112MiB"', "reduce=1", "price reduce"), ("activation_bytes: 1GiB\n", "", "not in bytes"),
                ('"gathered=56MiB", "reduced=112MiB"', "step=1", "gathered"),
                ("latency: 0.25", "latency: 1000000000000000", "at most")):
            self.assertIn(old, CONFIG)
            message = self.refuse("simulate", self.config(CONFIG.replace(old, new)))
            self.assertIn(says, message)
            self.assertIn("c.yaml: line ", message, new)
        in_activations = CONFIG.replace("activation_bytes: 1GiB\n", "").replace("MiB\"", "\"")
        self.assertIn("c.yaml: line 7: collectives: their sizes", self.refuse("simulate", self.config(in_activations)))
        self.assertIn("reduced", self.refuse("simulate", "1f1b", "--pass", "sharding", "--price", "reduced=1"))
        (self.folder / "primus.yaml").write_text(
            "fwd_time: 1\nbwd_time: 1\nwgrad_time: 1\n"
            "schedulers: [{name: 1f1b, pp_size: 2, vpp_size: 1, micro_batches: 4}]\n")
        self.assertIn("reduced", self.refuse("simulate", "primus.yaml", "--pass", "sharding", "--price", "reduced=1"))
        config = self.config(CONFIG.replace("activation_bytes: 1GiB\n", "").replace("ranks: 2\n", ""))
        self.assertIn("--model", self.refuse("simulate", config, "--model", "gpt2"))


if __name__ == "__main__":
    program.main()
