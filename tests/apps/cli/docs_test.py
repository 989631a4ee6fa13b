"""docs/schedules.md and its pictures equal the program's current output."""
import pathlib
import re
import xml.etree.ElementTree

import program

DOCS = pathlib.Path(__file__).resolve().parents[3] / "docs"
AGAIN = "docs/ is out of date: run 'penstock schedules --docs docs'"


class DocsTest(program.CommandTest):
    def test_committed_files_are_what_the_program_writes(self):
        self.run_ok("schedules", "--docs", ".")
        names = ["schedules.md"] + [f"pictures/{row['name']}.svg"
                                    for row in self.run_rows("schedules")]
        for name in names:
            written = (self.folder / name).read_text(encoding="utf-8")
            committed = DOCS / name
            self.assertTrue(committed.exists(), f"{AGAIN} (no {name})")
            self.assertTrue(committed.read_text(encoding="utf-8") == written, f"{AGAIN} ({name})")
            if name.endswith(".svg"):
                xml.etree.ElementTree.fromstring(written)
        self.assertEqual(sorted(path.name for path in (self.folder / "pictures").iterdir()),
                         sorted(name.partition("/")[2] for name in names[1:]))

    def test_every_schedule_has_a_section_with_its_picture_and_figures(self):
        page = (DOCS / "schedules.md").read_text(encoding="utf-8")
        rows = self.run_rows("schedules")
        names = ",".join(row["name"] for row in rows)
        for row, priced in zip(rows, self.run_rows("simulate", "-s", names, "-p", 8, "-m", 32), strict=True):
            section = page.partition(f"\n## {row['name']}\n")[2].partition("\n## ")[0]
            for text in (row["summary"][1:], row["when"], row["memory"], row["source"],
                         f"pictures/{row['name']}.svg"):
                self.assertIn(text, section)
            for key in ("summary", "when", "source"):
                self.assertGreater(len(row[key]), 10, row["name"])
            figures = re.search(rf"\n\| \[{row['name']}\]\(#.*?\)(?: `--overlap max`)? \| (.*) \|\n", page).group(1).split(" | ")
            self.assertAlmostEqual(float(figures[0]), priced["makespan"], places=3)
            self.assertAlmostEqual(float(figures[1].rstrip("%")), 100 * priced["bubble"], places=0)
            self.assertAlmostEqual(float(figures[3]), priced["peak_memory"], places=3)
            self.assertEqual(int(figures[4]), priced["messages"])

    def test_a_missing_folder_is_refused(self):
        self.assertIn("none", self.refuse("schedules", "--docs", "none"))
        self.assertEqual(self.files(), [])


if __name__ == "__main__":
    program.main()
