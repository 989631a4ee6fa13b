"""Folders with models in Hugging Face's format: their tokenizers, heads, tensors, positions and ends of text."""
import json
import pathlib
import re
import shutil

import program
import tensor_file

ENGLISH = pathlib.Path(__file__).resolve().parents[3] / "examples" / "english.yaml"
TRAIN = ("train", ENGLISH, "batch=1", "steps=1", "microbatches=2", "sample=4", "warmup=1", "ranks=2", "stages=2",
         "memory_limit=none", "fuse=false")
SMALL = ("dim=16", "heads=2", "layers=2", "sequence=32")
WORDS = {"a": 0, "b": 1, "ab": 2, " ": 3, "?": 4}
TOKENIZER = json.dumps({
    "added_tokens": [{"id": 5, "content": "</s>", "special": True}],
    "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\s+"}, "behavior": "MergedWithPrevious", "invert": False},
    "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "vocab": WORDS, "merges": ["a b"], "unk_token": "?"}})
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


class ModelFolderTest(program.CommandTest):
    def setUp(self):
        super().setUp()
        self.require_engine()
        self.write("text", "\n%\n".join("ab a b " * (9 + i % 5) for i in range(40)))

    def train(self, *words):
        result = self.start(*TRAIN, *words)
        self.assertEqual(result.returncode, 0, f"{words}: {result.stderr}")
        return result.stdout

    def exported(self, name, *words):
        """Trains a small model for a step and exports it to a folder. Returns the folder."""
        self.train(*SMALL, "data.path=text", f"name={name}-run", *words)
        self.run_ok("export", f"runs/{name}-run", "-o", name)
        return self.folder / name

    def change(self, folder, tensors=None, **keys):
        """Changes the tensors and the keys of config.json."""
        if tensors:
            tensor_file.change(folder / "model.safetensors", tensors)
        config = json.loads((folder / "config.json").read_text())
        config.update(keys)
        (folder / "config.json").write_text(json.dumps(config))

    def loss(self, folder, *words, note=""):
        """The loss of a folder, whose notes must match."""
        result = self.start("eval", folder, "--data", "text", "--json", *words)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, note or "^$")
        return json.loads(result.stdout)["held_out_loss"]


class TokenizerTest(ModelFolderTest):
    def setUp(self):
        super().setUp()
        (self.folder / "words").mkdir()
        (self.folder / "words/tokenizer.json").write_text(TOKENIZER)
        self.model = self.exported("model", "data.tokenizer=words")

    def tokenizer_of(self, run):
        """The kind of tokenizer that eval, generate and export use for a run."""
        evaluated = self.run_json("eval", run)
        generated = self.run_json("generate", run, "--prompt", "ab", "--tokens", 3)
        self.assertEqual(evaluated["tokenizer"], generated["tokenizer"])
        self.run_ok("export", run, "-o", f"{run}-exported")
        exported = self.run_json("eval", f"{run}-exported", "--data", "text")
        is_file = [each["tokenizer"].endswith("tokenizer.json") for each in (evaluated, exported)]
        self.assertEqual(is_file[0], is_file[1])
        self.assertEqual("tokens" in evaluated, is_file[0])
        return "words" if is_file[0] else evaluated["tokenizer"]

    def test_it_is_used_unless_another_is_named(self):
        sizes = json.loads((self.model / "config.json").read_text())
        without = self.folder / "without"
        without.mkdir()
        shutil.copy(self.model / "config.json", without)
        for words, kind in (
                (["model=model"], "words"), (["model=model", "weights="], "words"),
                ([*SMALL, f"hidden={sizes['intermediate_size']}", "weights=model"], "words"),
                (["model=without", "data.tokenizer=words"], "words"), (["model=without"], "bytes"),
                # The run's folder is in the model's, whose tokenizer is not the run's.
                (["model=model", "data.tokenizer=bytes", "folder=model"], "bytes")):
            folder = "model" if "folder=model" in words else "runs"
            shown = self.train(*words, "sequence=32", "data.path=text", "name=a")
            self.assertIn("nats per token" if kind == "words" else "nats per byte", shown)
            self.assertRegex(shown, "\ntokenizer: (model/+|words/)tokenizer.json, 6 tokens\n" if kind == "words" else
                             "\ntokenizer: bytes, 256 tokens\n")
            self.assertEqual(self.tokenizer_of(f"{folder}/a"), kind, words)
            shutil.rmtree(self.folder / folder / "a")
            shutil.rmtree(self.folder / folder / "a-exported")

    def test_what_cannot_be_used_is_refused_by_name(self):
        run = (*TRAIN, "model=model", "sequence=32", "data.path=text", "name=b")
        everywhere = (run, ("eval", "model", "--data", "text"), ("generate", "model"))

        def refused(*parts, commands=everywhere):
            for command in commands:
                message = self.refuse(*command)
                for part in parts:
                    self.assertIn(part, message)

        for content, part in (('{"model": {"type": "WordPiece", "vocab": {}}}', "WordPiece"), ("{", "parse error")):
            (self.model / "tokenizer.json").write_text(content)
            refused("model/tokenizer.json: ", part)
        (self.model / "tokenizer.json").unlink()
        (self.model / "tokenizer.model").write_text("none")
        refused("model/tokenizer.model: ")
        (self.model / "tokenizer.model").unlink()
        for name in ("vocab.json", "merges.txt", "vocab.txt", "spiece.model", "tekken.json", "qwen.tiktoken",
                     "tokenizer_config.json"):
            (self.model / name).write_text("{}")
            refused("model has a tokenizer that is not read", name)
            (self.model / name).unlink()
        # A vocabulary that is larger than the model's.
        (self.model / "tokenizer.json").write_text(TOKENIZER.replace('"?": 4', '"?": 4, "x": 256'))
        refused("256", "257", "model/tokenizer.json")
        self.assertNotIn("b", [path.name for path in (self.folder / "runs").iterdir()])

    def test_tokenized_data_and_checkpoints_have_the_same_tokenizer(self):
        run = (*TRAIN, "model=model", "sequence=32", "every=1")
        for name, tokenizer in (("same", "words"), ("other", "bytes")):
            self.run_ok("tokenize", "text", "--document-separator=%", "--tokenizer", tokenizer, "-o", name)
        self.assertIn("tokenized already, with another one", self.refuse(*run, "data.path=other"))
        self.assertIn("another tokenizer", self.refuse("eval", "model", "--data", "other"))
        self.assertIn("tokenized already", self.refuse("eval", "runs/model-run", "--data", "other"))
        self.assertEqual(self.run_json("eval", "model", "--data", "same")["tokenizer"], "model/tokenizer.json")
        self.assertEqual(self.start(*run, "data.path=same", "name=a").returncode, 0)
        self.assertEqual(self.start(*run, "data.path=other", "data.tokenizer=bytes", "name=b").returncode, 0)
        for words in (("name=a", "data.tokenizer=bytes", "resume=runs/a"), ("name=c", "resume=runs/b")):
            refused = self.start(*run, "data.path=text", "steps=2", *words)
            self.assertEqual(refused.returncode, 2, refused.stdout)
            self.assertIn("was trained with the tokenizer", refused.stderr)
        again = self.start(*run, "data.path=text", "name=c", "steps=2", "resume=runs/a")
        self.assertEqual(again.returncode, 0, again.stderr)

    def test_a_list_of_ends_of_text_is_used(self):
        greedy = ("--prompt", "ab", "--temperature", 0, "--tokens", 12)
        self.change(self.model, eos_token_id=None)
        (self.model / "tokenizer.json").write_text(TOKENIZER.replace("</s>", "<x>"))  # no end of its own
        whole = self.run_json("generate", "model", *greedy)["text"]
        last = {"a": [0, 2], "b": [1, 2], " ": [3], "?": [4]}[whole[0]]
        for where, content in (("config.json", None), ("generation_config.json", {"eos_token_id": [200, *last]})):
            if content:
                (self.model / where).write_text(json.dumps(content))
            else:
                self.change(self.model, eos_token_id=[200, *last])
            self.assertEqual(self.run_json("generate", "model", *greedy)["text"], "")
            self.change(self.model, eos_token_id=200)
        self.train("model=model", "data.path=text", "sequence=32", "name=a", "lr=1e-9")
        self.assertEqual(self.run_json("generate", "runs/a", *greedy)["text"], "")
        self.run_ok("export", "runs/a", "-o", "again")
        self.assertEqual(json.loads((self.folder / "again/config.json").read_text())["eos_token_id"], [200, *last])
        self.assertEqual(self.run_json("generate", "again", *greedy)["text"], "")
        (self.model / "generation_config.json").write_text('{"eos_token_id": ["x"]}')
        self.assertIn("generation_config.json: eos_token_id", self.refuse("generate", "model"))


class WeightsTest(ModelFolderTest):
    def test_a_head_in_the_file_is_kept(self):
        for name, embedding in (("llama", EMBEDDING), ("gpt2", "transformer.wte.weight")):
            folder = self.exported(name, f"model.name={name}", "model.tied=false")
            expected = self.loss(name)
            self.change(folder, tie_word_embeddings=True)
            if name == "gpt2":  # ties by default
                config = json.loads((folder / "config.json").read_text())
                del config["tie_word_embeddings"]
                (folder / "config.json").write_text(json.dumps(config))
            self.assertEqual(self.loss(name, note="head that differs from the embedding"), expected)
            shown = self.train(f"model={name}", "sequence=32", "data.path=text", "name=a", "lr=1e-9")
            self.assertIn("head that differs from the embedding", shown)
            self.run_ok("export", "runs/a", "-o", "again")
            self.assertIn(HEAD, tensor_file.read(self.folder / "again/model.safetensors"))
            self.assertAlmostEqual(self.loss("again"), expected, 4)
            shutil.rmtree(self.folder / "again")
            shutil.rmtree(self.folder / "runs/a")
            # Equal ones are tied, as is a file that has only one of the two.
            self.change(folder, lambda tensors: tensors.update({HEAD: tensors[embedding]}))  # pylint: disable=cell-var-from-loop
            tied = self.loss(name)
            self.assertNotEqual(tied, expected)
            for lost in (HEAD, embedding):
                one = shutil.copytree(folder, self.folder / f"{name}-one")
                self.change(one, lambda tensors: tensors.pop(lost))  # pylint: disable=cell-var-from-loop
                self.assertEqual(self.loss(one.name), tied)
                shutil.rmtree(one)

    def test_tensors_that_are_not_read_are_named(self):
        folder = self.exported("model")
        expected = self.loss("model")

        def add(tensors):
            tensors["model.layers.0.self_attn.q_proj.bias"] = [16], [0.5] * 16
            tensors["model.layers.2.input_layernorm.weight"] = [16], [1.0] * 16
            tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = [4], [1.0] * 4  # computed

        self.change(folder, add)
        note = r"no place for 2 tensors of model: model\.layers\.0\.self_attn\.q_proj\.bias, " \
               r"model\.layers\.2\.input_layernorm\.weight\n$"
        self.assertEqual(self.loss("model", note=note), expected)
        self.assertRegex(self.start("generate", "model", "--tokens", 1).stderr, note)
        self.assertIn("no place for 2 tensors", self.train("model=model", "sequence=32", "data.path=text", "name=a"))

    def test_results_that_are_not_finite_are_failures(self):
        folder = self.exported("model")
        whole = (folder / "model.safetensors").read_bytes()
        for name, value in ((EMBEDDING, float("nan")), ("model.layers.1.mlp.up_proj.weight", float("inf")),
                            (HEAD, 3e38)):

            def fill(tensors):
                tensors[name][1][:] = type(tensors[name][1])("f", [value] * len(tensors[name][1]))  # pylint: disable=cell-var-from-loop

            (folder / "model.safetensors").write_bytes(whole)
            self.change(folder, fill)
            for words in (("eval", "model", "--data", "text"), ("eval", "model", "--data", "text", "--json"),
                          ("generate", "model", "--prompt", "ab"), ("generate", "model", "--temperature", 0)):
                self.assertRegex(self.refuse(*words, code=1), "not finite|inf|nan")
            result = self.start(*TRAIN, "model=model", "sequence=32", "data.path=text", "name=a", "lr=1e-9")
            # Weights that are not finite are refused; others fail in the step.
            self.assertEqual(result.returncode, 1 if name == HEAD else 2, result.stdout)

    def test_positions_are_those_of_the_file(self):
        self.exported("model", "model.name=gpt2")  # with 32 positions
        for prompt, tokens in (("", 300), ("x" * 31, 1), ("x" * 20, 300), ("é" * 15, 5)):
            self.run_ok("generate", "model", "--prompt", prompt, "--tokens", tokens)
        self.assertIn("has only 32 positions", self.refuse("generate", "model", "--prompt", "x" * 40))
        self.assertEqual(self.loss("model"), self.loss("model", "--sequence", 32))
        self.assertIn("has only 32 positions", self.refuse("eval", "model", "--data", "text", "--sequence", 33))
        self.loss("model", "--sequence", 16)
        self.assertIn("has only 32 positions", self.refuse(*TRAIN, "model=model", "sequence=64", "data.path=text"))

    def test_texts_of_a_folder_are_evaluated(self):
        self.exported("model")
        whole = (self.folder / "text").read_text()
        for name, text in (("texts/b", whole[500:]), ("texts/a/a", whole[:500])):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)
        (self.folder / "texts/binary").write_bytes(b"\0" * 5000)
        of_folder = self.run_json("eval", "model", "--data", "texts")
        self.assertEqual(of_folder, self.run_json("eval", "model", "--data", "text"))
        self.assertTrue(re.search("bytes$", of_folder["tokenizer"]))
        self.assertIn("nowhere", self.refuse("eval", "model", "--data", "nowhere"))


if __name__ == "__main__":
    program.main()
