"""Symbolic links of users: Penstock writes through them, and neither removes nor replaces them."""
import pathlib

import program

ENGLISH = pathlib.Path(__file__).resolve().parents[3] / "examples" / "english.yaml"
SMALL = ("dim=16", "heads=2", "sequence=32", "batch=1", "steps=2", "microbatches=2", "sample=0", "ranks=2", "layers=4",
         "warmup=1", "data.path=text")
LOST = "/no/such/disk"


class LinksTest(program.CommandTest):
    def setUp(self):
        super().setUp()
        self.require_engine()
        self.write("text", "".join(f"line {i * i} of {i}\n" for i in range(600)))

    def link(self, name, target=LOST):
        (self.folder / name).symlink_to(target)

    def expect_named(self, name, *words, code=2):
        before = self.files()
        message = self.refuse(*words, code=code)
        self.assertIn(f"{name} is a link to {LOST}, which does not exist", message, words)
        self.assertTrue((self.folder / name).is_symlink(), words)
        self.assertEqual(self.files(), before, words)

    def test_a_dangling_link_in_place_of_a_folder_is_named(self):
        self.run_ok("train", ENGLISH, *SMALL, "folder=real")
        self.link("lost")
        for folder in ("lost", "lost/below", "./lost/", "lost/a/../b"):
            for words in (("train", ENGLISH, *SMALL, f"folder={folder}"),
                          ("export", "real/english", "-o", folder),
                          ("compile", ENGLISH, *SMALL, "-o", folder),
                          ("tokenize", "text", "--tokenizer", "bytes", "-o", folder)):
                with self.subTest(words[0], folder=folder):
                    self.expect_named("lost", *words)
        self.link("runs")
        self.expect_named("runs", "train", ENGLISH, *SMALL)

    def test_files_are_written_through_links(self):
        self.run_ok("train", ENGLISH, *SMALL, "checkpoint.every=1")
        disk = self.folder / "disk"
        disk.mkdir()
        self.link("lost.csv")
        self.link("lost.html")
        for name, words in (
                ("a.csv", ("schedule", "1f1b", "-o")), ("a.html", ("report", "1f1b", "-o")),
                ("b.html", ("simulate", "--sweep", "schedule=1f1b", "ranks=2,4", "-o")),
                ("c.html", ("watch", "english", "--once", "--page")), ("a.svg", ("report", "1f1b", "-o")),
                ("a.safetensors", ("checkpoint", "runs/english", "--merge"))):
            with self.subTest(words):
                self.link(name, f"disk/{name}")
                before = (disk / name).write_bytes(b"old")
                self.run_ok(*words, name)
                self.assertTrue((self.folder / name).is_symlink())
                self.assertGreater((disk / name).stat().st_size, before)
                lost = "lost" + pathlib.Path(name).suffix
                if not (self.folder / lost).is_symlink():
                    self.link(lost)
                self.expect_named(lost, *words, lost)

    def test_a_run_in_linked_folders(self):
        (self.folder / "disk" / "english").mkdir(parents=True)
        self.link("runs", "disk")
        self.run_ok("train", ENGLISH, *SMALL)
        self.assertTrue((self.folder / "disk" / "english" / "model.safetensors").exists())
        # A failed start removes neither the link nor the user's empty folder.
        (self.folder / "disk" / "other").mkdir()
        self.refuse("train", ENGLISH, *SMALL, "name=other", "data.path=none")
        self.refuse("train", ENGLISH, *SMALL, "name=new", "data.path=none")
        self.assertTrue((self.folder / "runs").is_symlink())
        self.assertEqual(sorted(path.name for path in (self.folder / "disk").iterdir()), ["english", "other"])

    def test_a_failed_start_removes_what_it_created(self):
        before = self.files()
        self.refuse("train", ENGLISH, *SMALL, "folder=a/b/c", "data.path=none")
        self.assertEqual(self.files(), before)

    def test_a_link_in_place_of_a_checkpoint_stays(self):
        checkpoints = self.folder / "runs" / "english" / "checkpoints"
        checkpoints.mkdir(parents=True)
        (checkpoints / "step-1").symlink_to(LOST)
        result = self.start("train", ENGLISH, *SMALL, "checkpoint.every=1")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("there is a link of this name", result.stderr)
        self.assertTrue((checkpoints / "step-1").is_symlink())


if __name__ == "__main__":
    program.main()
