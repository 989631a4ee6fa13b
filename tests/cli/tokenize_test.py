"""penstock tokenize: documents of files, and their tokens in a folder."""
import json
import struct

import program

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


if __name__ == "__main__":
    program.main()
