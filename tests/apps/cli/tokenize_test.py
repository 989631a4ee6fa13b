"""penstock tokenize, and training, evaluation and export with its folders."""
import json
import pathlib
import struct

import program

ENGLISH = pathlib.Path(__file__).resolve().parents[3] / "examples" / "english.yaml"
SMALL = ("dim=16", "heads=2", "sequence=32", "batch=1", "steps=6", "microbatches=4", "sample=10", "warmup=2", "ranks=2")
# Words of letters; the end of text is 5.
TOKENIZER = json.dumps({
    "added_tokens": [{"id": 5, "content": "</s>", "special": True}],
    "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\s+"}, "behavior": "MergedWithPrevious", "invert": False},
    "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, " ": 3, "?": 4}, "merges": ["a b"], "unk_token": "?"}})


def tokens_of(folder):
    index = json.loads((folder / "index.json").read_text())
    code = {"u16": "H", "u32": "I"}[index["dtype"]]
    raw = b"".join((folder / shard["file"]).read_bytes() for shard in index["shards"])
    ends = (folder / "documents.bin").read_bytes()
    return list(struct.unpack(f"={len(raw) // struct.calcsize(code)}{code}", raw)), list(struct.unpack(f"={len(ends) // 8}Q", ends))


class TokenizeTest(program.CommandTest):
    def test_documents_of_files_lines_and_separators(self):
        self.write("tokenizer.json", TOKENIZER)
        self.write("one", "ab a")
        self.write("lines.jsonl", '{"text": "b"}\n\n{"text": "ab", "other": 1}\n')
        self.run_ok("tokenize", "one", "lines.jsonl", "--tokenizer", "tokenizer.json", "-o", "out", "--shard-tokens", 2)
        self.assertEqual(tokens_of(self.folder / "out"), ([2, 3, 0, 5, 1, 5, 2, 5], [4, 6, 8]))
        self.write("two", "a\n--\nb\n")
        self.run_ok("tokenize", "two", "--tokenizer", "bytes", "-o", "bytes", "--document-separator=--")
        self.assertEqual(tokens_of(self.folder / "bytes"), ([97, 10, 0, 98, 10, 0], [3, 6]))
        self.assertEqual(json.loads(self.run_ok("tokenize", "one", "--tokenizer", ".", "-o", "third/x", "--json"))["tokens"], 4)

    def test_threads_do_not_change_the_result(self):
        self.write("tokenizer.json", TOKENIZER)
        self.write("lines.jsonl", "".join(json.dumps({"text": "ab" * (i % 50) + " a" * 2000}) + "\n" for i in range(1500)))
        for threads in (1, 3):
            self.run_ok("tokenize", "lines.jsonl", "--tokenizer", ".", "-o", f"t{threads}", "--threads", threads)
        self.assertEqual(tokens_of(self.folder / "t1"), tokens_of(self.folder / "t3"))

    def test_bad_input_is_refused_and_leaves_no_folder(self):
        self.write("tokenizer.json", TOKENIZER)
        self.write("bad.jsonl", '{"text": "a"}\n{"text": 3}\n')
        self.write("text", "a")
        self.assertIn("bad.jsonl:2", self.refuse("tokenize", "bad.jsonl", "--tokenizer", ".", "-o", "out"))
        self.assertIn("none", self.refuse("tokenize", "none", "--tokenizer", ".", "-o", "out"))
        self.assertIn("no tokenizer at nowhere", self.refuse("tokenize", "text", "--tokenizer", "nowhere", "-o", "out"))
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["bad.jsonl", "text", "tokenizer.json"])
        (self.folder / "out").mkdir()
        self.assertIn("exists already", self.refuse("tokenize", "text", "--tokenizer", ".", "-o", "out"))


class TrainOnTokensTest(program.CommandTest):
    def setUp(self):
        super().setUp()
        self.require_engine()
        self.write("tokenizer.json", TOKENIZER)
        for name, text in (("web", "ab a"), ("code", "b b ab")):
            self.write(f"{name}.jsonl", "".join(json.dumps({"text": text * (3 + i % 7)}) + "\n" for i in range(60)))
            self.run_ok("tokenize", f"{name}.jsonl", "--tokenizer", ".", "-o", name)

    def test_a_run_keeps_its_tokenizer_for_eval_generate_and_export(self):
        result = self.start("train", ENGLISH, *SMALL, "data.blend=0.7 web, 0.3 code", "name=run")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("nats per token", result.stdout)
        self.assertEqual((self.folder / "runs/run/tokenizer.json").read_text(), TOKENIZER)
        self.write("text", "ab a b " * 400)
        self.assertIn("tokens", json.loads(self.run_ok("eval", "runs/run", "--data", "text", "--json")))
        text = self.run_ok("generate", "runs/run", "--prompt", "ab", "--bytes", 20)
        self.assertLessEqual(set(text), set("ab ?\n"))
        self.run_ok("export", "runs/run", "-o", "exported")
        whole = json.loads(self.run_ok("eval", "exported", "--data", "text", "--sequence", 32, "--json"))
        self.assertEqual(whole["tokens"] % 32, 0)
        self.assertLess(whole["tokens"], 7 * 400)
        greedy = ("--prompt", "ab", "--tokens", 20, "--temperature", 0)
        self.assertEqual(self.run_ok("generate", "exported", *greedy), self.run_ok("generate", "runs/run", *greedy))
        self.assertIn("no moving averages", self.refuse("generate", "exported", *greedy, "--ema"))

    def test_the_moving_average_of_the_weights_can_be_used(self):
        run = ("train", ENGLISH, *SMALL, "data.path=web")
        self.assertEqual(self.start(*run, "name=run", "optimizer.ema=0.5").returncode, 0)
        self.write("text", "ab a b " * 400)
        losses = [json.loads(self.run_ok(*words, "--data", "text", "--json"))["held_out_loss"] for words in (
            ("eval", "runs/run"), ("eval", "runs/run", "--ema"))]
        self.run_ok("export", "runs/run", "-o", "averaged", "--ema")
        exported = self.run_ok("eval", "averaged", "--data", "text", "--sequence", 32, "--json")
        self.assertNotEqual(losses[0], losses[1])
        self.assertNotEqual(json.loads(exported)["held_out_loss"], losses[0])
        self.run_ok("generate", "runs/run", "--ema", "--tokens", 5)
        self.assertEqual(self.start(*run, "name=none").returncode, 0)
        self.assertIn("ema", self.refuse("eval", "runs/none", "--ema"))

    def test_resumed_runs_see_the_same_samples(self):
        words = ("train", ENGLISH, *SMALL, "data.path=web", "every=3")
        whole = self.start(*words, "name=whole")
        self.assertEqual(whole.returncode, 0, whole.stderr)
        again = self.start(*words, "name=again", "resume=runs/whole/checkpoints/step-3")
        self.assertEqual(again.returncode, 0, again.stderr)
        weights = [(self.folder / "runs" / name / "model.safetensors").read_bytes() for name in ("whole", "again")]
        tail = [each[-4096:] for each in weights]
        self.assertEqual(tail[0], tail[1])

    def test_text_is_tokenized_directly(self):
        self.write("text", "\n%\n".join("ab a b " * (3 + i % 5) for i in range(80)))
        result = self.start("train", ENGLISH, *SMALL, "data.path=text", "data.tokenizer=tokenizer.json")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_damaged_tokens_are_refused_with_their_file(self):
        train = ("train", ENGLISH, *SMALL, "data.path=web", "name=run")
        index = json.loads((self.folder / "web/index.json").read_text())
        shard = self.folder / "web/tokens-0.bin"
        whole = shard.read_bytes()
        for changed, reason in ((b"\x01\0", "digest"), (b"\x63\0", "token 5 has the id 99")):
            shard.write_bytes(whole[:10] + changed + whole[12:])
            for command in (train, (*train, "data.blend=1 code, 1 web")):
                line = self.refuse(*command)
                self.assertIn("web/tokens-0.bin", line)
                self.assertIn(reason, line)
        shard.write_bytes(whole)
        # A folder of an earlier version has no digests.
        for entry in (index, *index["shards"]):
            entry.pop("digest", None)
            entry.pop("documents_digest", None)
        self.write("web/index.json", json.dumps(index))
        result = self.start(*train)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("\nweb was written by an earlier version and has no digests", result.stdout)
        evaluated = self.start("eval", "runs/run")
        self.assertIn("penstock: web was written by an earlier version", evaluated.stderr)
        self.write("web/tokenizer.json", TOKENIZER.replace('"b": 1', '"c": 1').replace("a b", "a c").replace('"ab"', '"ac"'))
        self.assertIn("web/tokenizer.json is not the tokenizer of the tokens", self.refuse(*train))

    def test_what_does_not_fit_is_refused(self):
        train = ("train", ENGLISH, *SMALL)
        self.assertIn("tokenized already", self.refuse(*train, "data.path=web", "data.tokenizer=bytes"))
        self.assertIn("data.blend", self.refuse(*train, "data.blend=web"))
        self.assertIn("too short", self.refuse(*train, "data.path=web", "sequence=100000"))
        self.run_ok("tokenize", "web.jsonl", "--tokenizer", "bytes", "-o", "bytes")
        self.assertIn("different tokenizers", self.refuse(*train, "data.blend=1 web, 1 bytes"))


if __name__ == "__main__":
    program.main()
