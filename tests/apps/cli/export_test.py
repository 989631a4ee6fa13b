"""penstock export, and folders with a config.json."""
import json
import pathlib

import program

ENGLISH = pathlib.Path(__file__).resolve().parents[3] / "examples" / "english.yaml"
SMALL = ("dim=16", "heads=2", "sequence=32", "batch=1", "steps=1", "microbatches=2", "sample=0", "ranks=2", "layers=4")


class ExportTest(program.CommandTest):
    def setUp(self):
        super().setUp()
        self.require_engine()

    def train(self, *words):
        result = self.start("train", ENGLISH, *SMALL, "name=run", "model.name=qwen3_moe", "experts=4", *words)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_model_that_the_format_cannot_express_is_refused_before_anything_is_written(self):
        self.train("shared_experts=1", "router_scale=2.5")
        message = self.refuse("export", "runs/run", "-o", "exported")
        for part in ("Qwen3MoeConfig cannot express", "model.shared_experts=1", "model.router_scale=2.5"):
            self.assertIn(part, message)
        self.assertFalse((self.folder / "exported").exists())

    def test_keys_without_effect_are_named_and_quantized_weights_are_refused(self):
        self.train("dense_layers=1")
        self.run_ok("export", "runs/run", "-o", "exported")
        config = self.folder / "exported" / "config.json"
        keys = json.loads(config.read_text())
        self.assertEqual(keys["mlp_only_layers"], [0])
        self.write("text", "some text " * 40)
        loss = ("eval", "exported", "--data", "text", "--sequence", 16, "--json")
        expected = self.start(*loss)
        self.assertEqual((expected.returncode, expected.stderr), (0, ""))
        config.write_text(json.dumps({**keys, "num_hidden_layer": 3}))
        noted = self.start(*loss)
        self.assertEqual(noted.stdout, expected.stdout)
        self.assertIn("keys without effect: 'num_hidden_layer' (did you mean 'num_hidden_layers'?)", noted.stderr)
        config.write_text(json.dumps({**keys, "quantization_config": {"quant_method": "fp8"}}))
        self.assertIn("quantization_config: quantized weights are not supported", self.refuse(*loss))
        self.assertIn("quantization_config", self.refuse("train", ENGLISH, "model=exported"))
        config.write_text(json.dumps({**keys, "foo": 3}))
        priced = self.start("simulate", "1f1b", "--model", "exported", "-p", 2, "-m", 4)
        self.assertEqual(priced.stderr, "penstock: exported/config.json: keys without effect: 'foo'\n")


if __name__ == "__main__":
    program.main()
