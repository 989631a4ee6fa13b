"""penstock checkpoint: lists, verifies and merges the checkpoints of a run."""
import json
import pathlib

import program

ENGLISH = pathlib.Path(__file__).resolve().parents[3] / "examples" / "english.yaml"
SMALL = ("dim=16", "heads=2", "sequence=32", "batch=1", "steps=50", "microbatches=4", "sample=10",
         "warmup=5", "ranks=2", "every=20", "keep=0", "name=run")
RUN = pathlib.Path("runs") / "run"


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


class CheckpointRefusalTest(program.CommandTest):
    def test_paths_without_a_checkpoint_are_refused(self):
        self.assertIn("there is no file, folder or run 'none'", self.refuse("checkpoint", "none"))
        (self.folder / "empty").mkdir()
        self.assertIn("empty has no checkpoint", self.refuse("checkpoint", "empty"))
        self.refuse("checkpoint")
        self.refuse("checkpoint", "empty", "--verfy")

    def test_files_of_other_formats_are_damaged(self):
        self.write("text", "no such thing")
        result = self.start("checkpoint", "text")
        self.assertEqual((result.returncode, result.stderr), (1, ""))
        self.assertIn("text is not a safetensors file", result.stdout)
        (self.folder / "step-3").mkdir()
        self.write("step-3/manifest.json", "{}")
        result = self.start("checkpoint", "step-3", "--json")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(json.loads(result.stdout)["checkpoints"][0]["state"], "damaged")


class CheckpointTest(program.CommandTest):
    def setUp(self):
        super().setUp()
        self.require_engine()
        self.write("text", "".join(f"line {i * i} of {i}\n" for i in range(600)))
        result = self.start("train", ENGLISH, *SMALL, "--data", "text")
        self.assertEqual(result.returncode, 0, result.stderr)

    def at(self, step):
        return self.folder / RUN / "checkpoints" / f"step-{step}"

    def states(self, *words, code=0):
        result = self.start("checkpoint", *words, "--json")
        self.assertEqual((result.returncode, result.stderr), (code, ""), words)
        return {entry["step"]: entry for entry in json.loads(result.stdout)["checkpoints"]}

    def test_lists_and_verifies_a_run(self):
        for path in (RUN, RUN / "checkpoints"):
            listed = self.states(path, "--verify")
            self.assertEqual(list(listed), [50, 40, 20])
            for step, entry in listed.items():
                self.assertEqual((entry["state"], entry["verified"]), ("complete", True))
                self.assertEqual(entry["files"], 2)
                self.assertEqual(entry["bytes"], sum(file.stat().st_size
                                                     for file in self.at(step).iterdir()))
        self.assertEqual(list(self.states(self.at(40))), [40])
        self.assertEqual(list(self.states(RUN / "model.safetensors", "--verify")), [50])
        text = self.run_ok("checkpoint", RUN)
        self.assertRegex(text, r"(?m)^ *50 +complete +[\d.]+ KiB +2 +\d+ s +runs/run/checkpoints/")

    def test_finds_damage(self):
        flip(self.at(50) / "shard-1-of-1.safetensors", -1)
        shard = self.at(40) / "shard-1-of-1.safetensors"
        shard.write_bytes(shard.read_bytes()[:-1])
        (self.at(20) / "manifest.json").unlink()
        listed = self.states(RUN, code=1)
        self.assertEqual([entry["state"] for entry in listed.values()],
                         ["complete", "damaged", "unfinished"])
        self.assertIn("step-40/shard-1-of-1.safetensors has ", listed[40]["reason"])
        listed = self.states(RUN, "--verify", code=1)
        self.assertEqual(listed[50]["state"], "damaged")
        self.assertIn("step-50/shard-1-of-1.safetensors is damaged: ", listed[50]["reason"])
        self.states(self.at(20), code=1)  # nothing of it is complete
        result = self.start("checkpoint", RUN)
        self.assertEqual(result.returncode, 1)
        self.assertIn("unfinished: runs/run/checkpoints/step-20 has no manifest.json",
                      result.stdout)

    def test_merges_the_weights_of_the_run(self):
        self.assertIn("wrote merged.safetensors: ",
                      self.run_ok("checkpoint", RUN, "--merge", "merged.safetensors"))
        merged = (self.folder / "merged.safetensors").read_bytes()
        self.assertEqual(merged, (self.folder / RUN / "model.safetensors").read_bytes())
        header = json.loads(merged[8:8 + int.from_bytes(merged[:8], "little")])
        self.assertNotIn("optimizer", " ".join(header))
        self.assertEqual(self.run_json("eval", "merged.safetensors")["step"], 50)
        older = self.run_json("checkpoint", self.at(20), "--merge", "older.safetensors")
        self.assertEqual(older["merged"]["from"], str(self.at(20)))
        self.assertEqual(self.run_json("eval", "older.safetensors")["step"], 20)

    def test_does_not_merge_what_is_damaged(self):
        shard = self.at(50) / "shard-1-of-1.safetensors"
        header = shard.read_bytes()
        weight = json.loads(header[8:8 + int.from_bytes(header[:8], "little")])["norm.weight"]
        flip(shard, 8 + int.from_bytes(header[:8], "little") + weight["data_offsets"][0])
        message = self.refuse("checkpoint", self.at(50), "--merge", "merged", code=1)
        self.assertIn("shard-1-of-1.safetensors is damaged: 'norm.weight' has a block", message)
        self.assertEqual(self.files(), ["runs", "text"])
        # If it is verified first, the one before is merged.
        result = self.start("checkpoint", RUN, "--verify", "--merge", "merged", "--json")
        self.assertEqual(result.returncode, 1)
        self.assertTrue(json.loads(result.stdout)["merged"]["from"].endswith("step-40"))
        self.refuse("checkpoint", self.at(20), "--merge", "no/folder/merged")


if __name__ == "__main__":
    program.main()
