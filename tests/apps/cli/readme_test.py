"""README.md's commands run, and docs/README.md leads to every page."""
import pathlib
import re
import shlex

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
