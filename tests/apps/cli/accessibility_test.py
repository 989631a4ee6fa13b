"""axe-core finds nothing to object to on the pages of report, simulate --sweep, plan and watch, in both themes."""
import pathlib
import unittest

import browser
import playground_test
import program
import watch_test

ROOT = pathlib.Path(__file__).resolve().parents[3]
AXE = next(ROOT.glob("build/readers-venv/lib/python3*/site-packages/axe_playwright_python/axe.min.js"), None)
MISSING = browser.MISSING or (None if AXE else "needs axe-core: ./test installs it into build/readers-venv")


@unittest.skipIf(MISSING, MISSING)
class AccessibilityTest(program.CommandTest):
    @classmethod
    def setUpClass(cls):
        cls.browser = browser.Browser()
        cls.addClassCleanup(cls.browser.close)
        cls.axe = AXE.read_text(encoding="utf-8")

    def violations(self):
        self.browser.evaluate(f"(() => {{ {self.axe}; return 0; }})()")
        return self.browser.evaluate("""axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations.map(
            (each) => `${each.impact}: ${each.id}: ${each.nodes.length} times: ${each.nodes[0].html.slice(0, 200)} ` +
                      each.nodes[0].failureSummary))""")

    def audit(self, name, unfolded=False):
        for theme, width in (("light", 1400), ("dark", 1400), ("light", 390)):
            with self.subTest(page=name, theme=theme, width=width):
                self.browser.theme(theme)
                self.browser.open(f"file://{self.folder / name}", width)
                if unfolded:
                    self.browser.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
                    self.browser.settle()
                self.assertEqual(self.violations(), [])
                self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), width)

    def test_reports(self):
        self.write("c.yaml", "ranks: 2\nmicrobatches: 4\nschedule: zb-h1\n")
        for words in (("1f1b",), ("c.yaml",), ("zbv", "1f1b", "chimera", "-p", 4),
                      ("interleaved", "zbv", "--model", "llama-3-8b", "--device", "h100", "-p", 8, "-m", 16)):
            self.run_ok("report", *words, "-o", "a.html")
            self.audit("a.html", unfolded=True)

    def test_sweep(self):
        self.run_ok("simulate", "--sweep", "schedule=1f1b,zbv,chimera", "ranks=3,4", "microbatches=8..32", "-o", "a.html")
        self.audit("a.html")

    def test_plans(self):
        for words in (("-p", 4, "-m", 8, "--memory-limit", 4),
                      ("--model", "gpt2", "--device", "a100", "--nodes", "1x4", "--global-batch", 8)):
            self.run_ok("plan", *words, "--report", "a.html")
            self.audit("a.html")
            self.audit("a.html#plan=2", unfolded=True)

    def test_playground(self):
        if not playground_test.PAGE.exists():
            self.skipTest(playground_test.MISSING)
        (self.folder / "a.html").write_bytes(playground_test.PAGE.read_bytes())
        self.audit("a.html", unfolded=True)

    def test_watch(self):
        run = self.folder / "runs" / "a"
        run.mkdir(parents=True)
        (run / "schedule.csv").write_text(watch_test.SCHEDULE)
        (run / "config.yaml").write_text(watch_test.CONFIG.format(steps=60))
        for steps in (0, 60):
            (run / "metrics.jsonl").write_text("".join(map(watch_test.line_of, range(steps))))
            self.run_ok("watch", "a", "--once", "--page", "a.html")
            self.audit("a.html")

    def test_axe_finds_what_is_wrong(self):
        self.write("a.html", "<html><body><img src='a.png'></body></html>")
        self.browser.open(f"file://{self.folder / 'a.html'}")
        self.assertIn("image-alt", " ".join(self.violations()))


if __name__ == "__main__":
    program.main()
