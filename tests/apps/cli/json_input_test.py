"""JSON and YAML of users that is nested 100,000 levels deep or damaged: one short line from every command that reads it."""
import json
import pathlib

import program

ENGLISH = pathlib.Path(__file__).resolve().parents[3] / "examples" / "english.yaml"
DEPTH = 100_000
LONGEST = 500  # characters of an error
LLAMA = {"model_type": "llama", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
         "num_attention_heads": 2, "vocab_size": 256}
TEXTS = {
    "open": "[" * DEPTH,
    "list": "[" * DEPTH + "]" * DEPTH,
    "objects": '{"a":' * DEPTH + "1" + "}" * DEPTH,
    "member": json.dumps(LLAMA)[:-1] + ', "rope_scaling": ' + "[" * DEPTH + "]" * DEPTH + "}",
    "unknown": json.dumps(LLAMA)[:-1] + ', "other": ' + '{"a":' * DEPTH + "1" + "}" * DEPTH + "}",
    "token": '{"model_type": "' + "x" * DEPTH,
    "key": '{"' + "x" * DEPTH + '": 1, "' + "x" * DEPTH + '": 2}',
}
FEW = {kind: TEXTS[kind] for kind in ("list", "member", "token")}


class JsonInputTest(program.CommandTest):
    def setUp(self):
        super().setUp()
        self.write("text", "some text " * 100)
        (self.folder / "model").mkdir()
        (self.folder / "model/model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")

    def refuse_all(self, name, commands, texts):
        """Writes each text as the file `name`, and expects one short line that names it from each command."""
        path = self.folder / name
        before = path.read_text() if path.exists() else None
        for kind, text in texts.items():
            path.write_text(text)
            for command in commands:
                line = self.refuse(*command)
                self.assertIn(name, line, (kind, command))
                self.assertLess(len(line), LONGEST, (kind, command))
        if before is None:
            path.unlink()
        else:
            path.write_text(before)

    def test_configurations_of_models(self):
        commands = [("simulate", "1f1b", "--model", "model")]
        if self.has_engine:
            run = (ENGLISH, "model=model")
            commands += [("eval", "model", "--data", "text"), ("generate", "model"), ("train", *run),
                         ("graph", *run), ("compile", *run, "-o", "out"), ("profile", *run, "-o", "out")]
        self.refuse_all("model/config.json", commands, TEXTS)

    def test_files_next_to_a_model(self):
        if not self.has_engine:
            self.skipTest("a build without the engine")
        self.write("model/config.json", json.dumps(LLAMA))
        commands = (("eval", "model", "--data", "text"), ("generate", "model"))
        self.refuse_all("model/tokenizer.json", commands, FEW)
        self.write("model/tokenizer.json", '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}')
        for name in ("tokenizer_config.json", "generation_config.json"):
            self.refuse_all(f"model/{name}", commands, FEW)
        (self.folder / "model/model.safetensors").unlink()
        self.refuse_all("model/model.safetensors.index.json", commands, FEW)

    def test_token_folders_traces_and_dumps(self):
        self.run_ok("tokenize", "text", "text", "--tokenizer", "bytes", "-o", "tokens")
        if self.has_engine:
            self.refuse_all("tokens/index.json", [("train", ENGLISH, "data.path=tokens")], FEW)
        self.refuse_all("run.json", [("show", "run.json"), ("report", "run.json", "-o", "page.html")], TEXTS)
        (self.folder / "dump").mkdir()
        self.write("dump/pp_rank_0.json", "{}")
        for name in ("pp_rank_0.json", "config.json"):
            self.refuse_all(f"dump/{name}", [("simulate", "dump")], FEW)

    def test_yaml(self):
        texts = {kind: TEXTS[kind] for kind in ("open", "list", "objects", "token")}
        texts["lists"] = "- " * DEPTH + "a"
        commands = [("train", "deep.yaml")] if self.has_engine else []
        self.refuse_all("deep.yaml", [*commands, ("simulate", "1f1b", "--cost", "deep.yaml")], texts)


if __name__ == "__main__":
    program.main()
