"""train, eval, generate and graph refuse invalid files, values and sizes with one line."""
import json
import os
import pathlib
import struct
import zlib

import program

ENGLISH = pathlib.Path(__file__).resolve().parents[3] / "examples" / "english.yaml"
SMALL = ("dim=16", "heads=2", "sequence=32", "batch=1", "steps=4", "microbatches=4", "sample=20",
         "warmup=1", "name=a")


def change_checkpoint(path, metadata=None, data=None):
    """Rewrites the file with other metadata and tensor bytes, and a checksum that matches."""
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + length])
    header["__metadata__"].update(metadata or {}, checksum="crc32:00000000")
    body = content[8 + length:] if data is None else data(content[8 + length:])
    text = json.dumps(header, separators=(",", ":")).encode()
    text = text.replace(b"crc32:00000000", b"crc32:%08x" % zlib.crc32(body, zlib.crc32(text)))
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


class TrainInputTest(program.CommandTest):
    def setUp(self):
        super().setUp()
        self.require_engine()
        self.write("text", "".join(f"line {i * i} of {i}\n" for i in range(3000)))

    def words(self, *words):
        return ("train", ENGLISH, *SMALL, "data.path=text", *words)

    def trained(self, *words):
        result = self.start(*self.words(*words))
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_pipes_and_devices_are_refused(self):
        self.trained()
        os.mkfifo(self.folder / "fifo")
        os.mkfifo(self.folder / "fifo.yaml")
        os.mkfifo(self.folder / "fifo.csv")
        for words in (self.words("data.path=fifo"), self.words("data.path=/dev/zero"),
                      self.words("--csv", "fifo.csv"), ("train", "fifo.yaml"),
                      self.words("resume=fifo"), ("eval", "fifo"), ("generate", "fifo"),
                      ("eval", "runs/a", "--data", "fifo")):
            self.assertIn("not a regular file", self.refuse(*words))

    def test_runs_that_exceed_the_memory_are_refused(self):
        for words, part in ((["layers=10000", "dim=4096"], "model.dim"),
                            (["dim=1000000000"], "model.dim"),
                            (["batch=1000000", "dim=1024"], "batch"),
                            (["memory_limit=100KiB"], "max_memory has 100.0 KiB")):
            message = self.refuse(*self.words(*words))
            self.assertRegex(message, "memory|bytes")
            self.assertIn(part, message)
        self.assertNotIn("runs", self.files())
        self.assertIn("memory: not checked", self.trained("memory_limit=none"))
        self.assertIn("memory: about", self.trained("max_memory=8GiB"))

    def test_values_that_cannot_work_are_refused_by_name(self):
        for word, part in (("watchdog=1e300", "watchdog"), ("epsilon=0", "optimizer.epsilon"),
                           ("trace_steps=4", "trace_steps: the run has no step 4"),
                           ("post_validation=true", "optimizer.clip"),
                           ("learning_rate=1", "'optimizer.lr'"),
                           ("batch_size=1", "'batch'"), ("max_steps=1", "'steps'"),
                           ("seq_len=1", "'model.sequence'")):
            self.assertIn(part, self.refuse(*self.words(word)))
        self.assertIn("below its peak", self.trained("warmup=9"))
        self.assertNotIn("below its peak", self.trained())

    def test_mistyped_names_get_the_nearest_name(self):
        for words, nearest in ((("graph", ENGLISH, "--after", "split_di_wd"), "split_di_dw"),
                               (("graph", ENGLISH, "--disable", "fusee"), "fuse"),
                               (self.words("model.name=lama"), "llama")):
            self.assertIn(f"did you mean '{nearest}'?", self.refuse(*words))

    def test_tampered_checkpoints_are_refused(self):
        self.trained()
        path = self.folder / "runs" / "a" / "model.safetensors"
        whole = path.read_bytes()
        change_checkpoint(path)
        self.run_ok("eval", "runs/a")  # rewriting alone keeps the file valid
        for step in ("-1", "1e5", "0x10", "", "9" * 30):
            change_checkpoint(path, {"step": step})
            self.assertIn(f"step '{step}'", self.refuse("eval", "runs/a"))
        path.write_bytes(whole)
        change_checkpoint(path, data=lambda data: b"\xff" * len(data))
        for command in ("eval", "generate"):
            self.assertIn("not finite (NaN or Inf)", self.refuse(command, "runs/a", code=1))

    def test_temperatures(self):
        self.trained()
        coldest = self.run_ok("generate", "runs/a", "--temperature", "0")
        self.assertEqual(self.run_ok("generate", "runs/a", "--temperature", "1e-300"), coldest)
        for temperature in ("-1", "nan", "inf"):
            self.assertIn("--temperature", self.refuse("generate", "runs/a", "--temperature",
                                                       temperature))
        for option, value in (("--top-p", "0"), ("--top-p", "1.5"), ("--top-p", "nan"), ("--top-k", "-1"),
                              ("--tokens", "-1")):
            self.assertIn(option, self.refuse("generate", "runs/a", option, value))


if __name__ == "__main__":
    program.main()
