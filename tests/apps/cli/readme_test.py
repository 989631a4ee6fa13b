"""README.md's commands run, docs/tour.md shows what its commands print, and docs/README.md leads to every page."""
import os
import pathlib
import re
import shlex
import subprocess

import program

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGES = sorted(ROOT.glob("docs/*.md"))
SHORT = ("steps=2", "sample=0", "model.dim=16", "model.heads=2")  # instead of the two minutes of examples/english.yaml


def commands(text):
    """Returns the indented lines that call a program, as words without the comment."""
    return [shlex.split(line, comments=True) for line in re.findall(r"^    ((?:penstock|\./run)\b.*)$", text, re.MULTILINE)]


class ReadmeTest(program.CommandTest):
    def test_its_commands_run(self):
        (self.folder / "docs").symlink_to(ROOT / "docs")
        ran = 0
        for name, *words in commands((ROOT / "README.md").read_text(encoding="utf-8")):
            is_train = name == "./run" and (not words or "=" in words[0])
            if name == "./run" and not self.has_engine:
                continue
            if is_train:
                words = ["train", ROOT / "examples/english.yaml", *SHORT, *words]
            self.run_ok(*words)
            ran += 1
        self.assertGreater(ran, 6)

    def test_the_commands_of_the_tour_print_what_it_shows(self):
        for name in ("examples", "LICENSE"):
            (self.folder / name).symlink_to(ROOT / name)
        steps = re.findall(r"^    \$ (.*)\n((?:\n*    (?!\$ ).*\n)*)", (ROOT / "docs/tour.md").read_text(encoding="utf-8"), re.MULTILINE)
        path = f"{pathlib.Path(program.PROGRAM).parent}:{os.environ['PATH']}"
        for command, shown in steps[1:]:
            if not self.has_engine and "penstock train" in command:
                break
            run = subprocess.run(["bash", "-c", command], cwd=self.folder, capture_output=True, text=True, check=False,
                                 env={**os.environ, "PATH": path})
            # The last digits of a loss depend on the processor.
            printed, shown = (re.sub(r"(\.\d{3})\d+", r"\1", text) for text in (run.stdout, re.sub("^    ", "", shown, flags=re.MULTILINE)))
            self.assertEqual((printed.replace(" \n", "\n"), run.stderr), (shown, ""), command)

    def test_links_lead_to_files(self):
        for page in [ROOT / "README.md", *PAGES]:
            for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
                self.assertTrue((page.parent / link).exists(), f"{page.name}: {link}")

    def test_every_page_is_listed_and_names_what_to_read_next(self):
        index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
        site = (ROOT / "docs/site/index.md").read_text(encoding="utf-8")
        for page in PAGES:
            self.assertIn(f"\ndocs/{page.stem}\n", site)
            if page.name != "README.md":
                self.assertIn(f"]({page.name}) | ", index)
            if page.name not in ("README.md", "schedules.md"):  # the program writes schedules.md
                self.assertRegex(page.read_text(encoding="utf-8"), r"\n\nNext: .*\.\n$", page.name)


if __name__ == "__main__":
    program.main()
