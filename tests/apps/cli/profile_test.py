"""penstock profile on a tiny model, and what simulate makes of the file. Nothing here depends on measured times."""
import re

import program

CONFIG = """
name: tiny
batch: 2
steps: 4
sample: 0
data: {path: text}
model: {name: llama, dim: 16, heads: 2, layers: 4, sequence: 32}
pipeline: {stages: 2, ranks: 2, schedule: 1f1b, microbatches: 4}
"""
PLACES = ("first", "middle", "last")
CONNECTION = ["latency", "message", "all_reduce_latency", "all_reduce_bandwidth"]


class ProfileTest(program.CommandTest):
    def setUp(self):
        super().setUp()
        self.require_engine()
        self.write("text", "".join(f"line {i * i} of {i}\n" for i in range(3000)))
        self.write("tiny.yaml", CONFIG)

    def profile(self, *words):
        result = self.start("profile", "tiny.yaml", "-o", "machine.yaml", "--rounds", 1, "--json", *words)
        self.assertEqual(result.returncode, 0, result.stderr)
        return program.json.loads(result.stdout)

    def read(self):
        return (self.folder / "machine.yaml").read_text()

    def test_file_and_json_have_all_measured_values(self):
        measured = self.profile()
        self.assertEqual([measured["ranks"] * measured["threads"] <= measured["cores"], measured["file"]],
                         [True, "machine.yaml"])
        for place in PLACES:
            self.assertEqual(list(measured[place]), ["stage", "layer"])
            for part in measured[place].values():
                self.assertEqual(list(part), ["forward", "backward_input", "backward_weight", "backward", "step",
                                              "activation_bytes"])
                self.assertTrue(all(value >= 0 for value in part.values()), part)
            layer, stage = measured[place]["layer"], measured[place]["stage"]
            for cost in ("forward", "backward", "activation_bytes"):
                self.assertGreater(layer[cost] + stage[cost], 0, place)
        # 2 samples of 32 tokens of 16 floats
        self.assertEqual(measured["message_bytes"], 2 * 32 * 16 * 4)
        for key in ("between_threads", "between_processes"):
            self.assertEqual(list(measured[key]), CONNECTION)
            self.assertTrue(all(value > 0 for value in measured[key].values()), measured[key])

        keys = re.findall(r"^  (\w+):", self.read(), re.MULTILINE)
        self.assertEqual(keys, ["ranks", "threads", "cores", "layers", "comm", "message_bytes", "early_gradients", "update",
                                "between_threads", "between_processes", *PLACES, "run"])
        self.assertRegex(self.read(), r'\n    model.dim: "16"\n')
        self.assertRegex(self.read(), r"\A# penstock profile tiny.yaml: \d ranks with \d+ threads each on \d+ cores\n")

    def test_memory_of_a_layer_is_exact(self):
        # Activations, weights and states are no measured times: each layer has the same, and so have two profiles.
        memory = []
        for _ in range(2):
            self.profile()
            memory.append(re.findall(r"(?:activation|weights|gradients|optimizer)\w*: [\d.e+]+", self.read()))
        self.assertEqual(*memory)
        self.assertGreater(len(memory[0]), 20)

    def test_simulate_prices_runs_that_were_not_profiled(self):
        self.profile()
        (run,) = self.run_rows("simulate", "tiny.yaml", "--machine", "machine.yaml")
        self.assertEqual([run["schedule"], run["ranks"], run["microbatches"]], ["1f1b", 2, 4])
        self.assertGreater(run["makespan"], 0)
        self.assertGreater(run["peak_memory"], 0)
        self.assertGreater(run["steady_step"], 0)
        for words in (("-m", 8), ("--schedule", "zbv"), ("--schedule", "interleaved", "--chunks", 2),
                      ("--schedule", "gpipe")):
            (other,) = self.run_rows("simulate", "tiny.yaml", "--machine", "machine.yaml", *words)
            self.assertNotEqual(other["makespan"], run["makespan"], words)
        (named,) = self.run_rows("simulate", "1f1b", "--machine", "machine.yaml", "-p", 2, "-m", 4)
        self.assertEqual(named["makespan"], run["makespan"])
        text = self.run_ok("simulate", "1f1b", "zbv", "--machine", "machine.yaml", "-p", 2, "-m", 4)
        self.assertRegex(text, r"1f1b .* [mu]?s ")
        self.assertIn("'penstock profile'", text)
        # An update between steps, and the same file again.
        (slower,) = self.run_rows("simulate", "1f1b", "--machine", "machine.yaml", "-p", 2, "-m", 4, "--price", "step=10")
        self.assertGreater(slower["makespan"], run["makespan"] + 4)
        sweep = self.write("sweep.yaml", "schedule: 1f1b\nmachine: machine.yaml\nranks: 2\n"
                                         "sweep: {microbatches: [2, 4]}\n")
        self.assertEqual(self.run_rows("simulate", sweep)[1]["makespan"], run["makespan"])

    def test_replicas_add_an_all_reduce(self):
        self.profile()
        one, two = (self.run_rows("simulate", name, "--machine", "machine.yaml")[0]["makespan"] for name in (
            "tiny.yaml", self.write("two.yaml", CONFIG.replace("microbatches: 4", "microbatches: 8")
                                    + "parallel: {data: 2}\n")))
        self.assertGreater(two, one)

    def test_refusals_name_what_is_wrong(self):
        run = ("profile", "tiny.yaml", "-o", "machine.yaml")
        self.assertIn("heads", self.refuse(*run, "model.heads=3"))
        self.assertIn("nothing.yaml", self.refuse("profile", "nothing.yaml", "-o", "machine.yaml"))
        self.assertIn("--output is required", self.refuse("profile", "tiny.yaml"))
        self.assertIn("--rounds", self.refuse(*run, "--rounds", 0))
        self.assertIn("model.dims", self.refuse(*run, "model.dims=3"))
        for word in ("pipeline.slices=2", "parallel.shard_vocabulary=true", "weights=folder"):
            self.assertIn(word.split("=", maxsplit=1)[0], self.refuse(*run, word))
        self.assertNotIn("machine.yaml", self.files())
        self.assertIn("folder", self.refuse("profile", "tiny.yaml", "-o", "no/machine.yaml"))

    def test_simulate_refuses_other_models_and_bad_files(self):
        self.profile()
        for key, wrong in (("batch: 2", "batch: 1"), ("dim: 16", "dim: 32"), ("steps: 4", "steps: 4\nprecision: bf16"),
                           ("steps: 4", "steps: 4\ndevice: cuda")):
            other = self.write("other.yaml", CONFIG.replace(key, wrong))
            error = self.refuse("simulate", other, "--machine", "machine.yaml")
            self.assertIn("profile", error)
            self.assertIn("profile it again", error)
        self.assertIn("slices", self.refuse("simulate", "seq1f1b", "--slices", 2, "--machine", "machine.yaml", "-p", 2,
                                            "-m", 4))
        self.assertIn("has no effect", self.refuse("simulate", "1f1b", "--cost", "1,1,1", "--machine", "machine.yaml",
                                                   "-p", 2, "-m", 4))
        for old, new, word in (("  ranks: 2", "  ranks: none", "ranks"), ("  ranks: ", "  rank: ", "rank"),
                               ("forward: ", "forward: -", "forward"), ("update: optimizer", "update: never", "update"),
                               ("  last:", "  lost:", "lost")):
            self.write("bad.yaml", self.read().replace(old, new))
            error = self.refuse("simulate", "1f1b", "--machine", "bad.yaml", "-p", 2, "-m", 4)
            self.assertIn("bad.yaml", error)
            self.assertIn(word, error)


if __name__ == "__main__":
    program.main()
