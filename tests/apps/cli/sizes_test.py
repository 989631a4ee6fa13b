"""Models, batches and windows that no machine has memory for are refused before anything is built, by every command that builds a model."""
import json
import pathlib

import program

ENGLISH = pathlib.Path(__file__).resolve().parents[3] / "examples" / "english.yaml"
HUGE = 1_000_000_000
LLAMA = {"model_type": "llama", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
         "num_attention_heads": 2, "vocab_size": 256, "max_position_embeddings": 64}


class SizesTest(program.CommandTest):
    def setUp(self):
        super().setUp()
        self.require_engine()

    def test_sizes_of_a_configuration(self):
        building = (("graph", ENGLISH), ("compile", ENGLISH, "-o", "out"), ("profile", ENGLISH, "-o", "out"), ("train", ENGLISH))
        for size in ("model.dim", "model.layers", "model.vocabulary", "model.hidden", "model.sequence", "batch"):
            for command in building:
                if command[0] == "profile" and size == "model.layers":
                    continue  # it measures a few
                line = self.refuse(*command, f"{size}={HUGE}")
                self.assertRegex(line, "memory|8 EiB|model.layers|the text is too short", (command, size))
                self.assertLess(len(line), 500)
        for size in ("model.dim", "model.layers"):
            self.assertIn("model.", self.refuse("graph", ENGLISH, "--shapes-only", f"{size}={HUGE}"))
        self.assertIn("must be at most", self.refuse("train", ENGLISH, f"model.layers={HUGE}", "memory_limit=none"))
        self.assertIn("8 EiB", self.refuse("graph", ENGLISH, "--shapes-only", f"batch={HUGE}", f"model.sequence={HUGE}"))

    def test_shapes_of_a_large_model_need_no_memory(self):
        self.run_ok("graph", ENGLISH, "--shapes-only", "model.vocabulary=100000000", "model.hidden=100000000")

    def test_layers_of_a_folder(self):
        (self.folder / "model").mkdir()
        (self.folder / "model/model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
        self.write("model/config.json", json.dumps({**LLAMA, "num_hidden_layers": HUGE}))
        self.write("text", "some text " * 100)
        for command in (("eval", "model", "--data", "text"), ("generate", "model"), ("train", ENGLISH, "model=model"),
                        ("graph", ENGLISH, "--shapes-only", "model=model"), ("compile", ENGLISH, "model=model", "-o", "out"),
                        ("profile", ENGLISH, "model=model", "-o", "out")):
            self.assertIn("model/config.json: num_hidden_layers is 1000000000; it must be at most", self.refuse(*command))

    def test_windows_of_eval(self):
        result = self.start("train", ENGLISH, "dim=16", "heads=2", "layers=4", "sequence=16", "batch=1", "steps=1", "microbatches=4",
                            "ranks=2", "sample=0", "name=run")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.run_ok("export", "runs/run", "-o", "exported")
        self.write("text", "short")
        line = self.refuse("eval", "exported", "--data", "text", "--sequence", HUGE)
        self.assertRegex(line, "memory .*activations.*: use .*shorter sequences")

    def test_errors_name_their_key(self):
        for key, words in (
                ("recompute.hold: ", ("recompute.hold=1B",)),
                ("recompute.hold_for_weight: ", ("recompute.hold_for_weight=1B",)),
                ("parallel.shard_vocabulary: ", ("parallel.shard_vocabulary=true", "schedule=dualpipev", "ranks=2", "layers=8")),
                ("parallel.shard_vocabulary: ", ("parallel.shard_vocabulary=true", "schedule=seq1f1b", "slices=2")),
                ("parallel.data: ", ("parallel.data=2", "schedule=pipedream", "optimizer.clip=0")),
                ("pipeline.schedule: ", ("schedule=pipedream", "optimizer.clip=1"))):
            self.assertIn(key, self.refuse("train", ENGLISH, *words), words)


if __name__ == "__main__":
    program.main()
