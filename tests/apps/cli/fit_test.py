"""Pages fit their windows: no chart is cut at any width, pages do not scroll sideways, and tables of wide windows are whole."""
import re
import unittest

import browser
import playground_test
import program
import watch_test

WIDTHS = (1920, 1400, 768, 390)
WIDE = 1400  # from here on, tables fit, too
# What is cut or scrolls sideways: the elements of the selector whose content is wider than they are.
CUT = """((selector) => [...document.querySelectorAll(selector)].filter((e) => e.clientWidth && e.scrollWidth > e.clientWidth + 1)
          .map((e) => `${e.className || e.tagName} ${e.getAttribute('aria-label') || ''}: ${e.scrollWidth} in ${e.clientWidth}`))"""
# Letters of charts outside of their pictures, and names that lie on others.
TEXTS = """(() => { const found = [];
  for (const svg of document.querySelectorAll('svg:is(.plot, .front, .all)')) {
    const frame = svg.getBoundingClientRect(), boxes = [];
    if (!frame.width) continue;
    for (const text of svg.querySelectorAll('text')) {
      const box = text.getBoundingClientRect();
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        found.push(`outside: ${text.textContent}`);
      for (const [other, name] of boxes) {
        if (box.left < other.right - 1 && box.right > other.left + 1 && box.top < other.bottom - 3 && box.bottom > other.top + 3)
          found.push(`${text.textContent} on ${name}`);
      }
      boxes.push([box, text.textContent]);
    }
    const size = Math.min(...[...svg.querySelectorAll('text')].map((text) => parseFloat(getComputedStyle(text).fontSize))) * frame.width / svg.viewBox.baseVal.width;
    if (size < 10) found.push(`letters of ${size.toFixed(1)} px`);
  }
  return found; })()"""


@unittest.skipIf(browser.MISSING, browser.MISSING)
class FitTest(program.CommandTest):
    @classmethod
    def setUpClass(cls):
        cls.browser = browser.Browser()
        cls.addClassCleanup(cls.browser.close)

    def open(self, width, name="a.html", height=1000):
        self.browser.clear_console()
        self.browser.open(f"file://{self.folder / name}", width, height)

    def check(self, name, ready=None):
        for width in WIDTHS:
            with self.subTest(page=name, width=width):
                self.open(width)
                while ready and not self.browser.evaluate(ready):
                    self.browser.settle()
                self.browser.settle()
                self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), width)
                self.assertEqual(self.browser.evaluate(CUT + "('.sizes, .card, .figure, .toolbar, header')"), [])
                if width >= WIDE:
                    self.assertEqual(self.browser.evaluate(CUT + "('.scroll')"), [])
                self.assertEqual(self.browser.evaluate(TEXTS), [])
                self.assertEqual(self.browser.console, [])
                self.browser.screenshot(self.screenshots / f"{name}-{width}.png")

    def test_reports(self):
        for number, words in enumerate((
                ("zb-h1", "-p", 4, "-m", 8), ("1f1b", "zbv", "-p", 8, "-m", 32), ("1f1b", "zb-h1", "zbv", "-p", 8, "-m", 16),
                ("1f1b", "interleaved", "zbv", "zb-h1", "--model", "llama-3-8b", "--device", "h100", "-p", 8, "-m", 16))):
            self.run_ok("report", *words, "-o", "a.html")
            self.check(f"report{number}")

    def test_sweeps(self):
        for number, axes in enumerate((
                ("schedule=1f1b,zbv,interleaved,zb-h1", "ranks=4,8", "microbatches=8..64"),
                ("schedule=interleaved:chunks=2,interleaved:chunks=4,1f1b,zb-h1,zbv", "comm=0,0.125,0.25,0.375,0.5,0.625,0.75,0.875,1"))):
            self.run_ok("simulate", "--sweep", *axes, "-o", "a.html")
            self.check(f"sweep{number}")

    def test_plans(self):
        for number, words in enumerate((
                ("-p", 4, "-m", 8, "--memory-limit", 4), ("-p", 2, "-m", 4),
                ("--model", "llama-3-8b", "--device", "h100", "--nodes", "1x8", "--global-batch", 32))):
            self.run_ok("plan", *words, "--report", "a.html")
            self.check(f"plan{number}")

    def test_playground(self):
        if not playground_test.PAGE.exists():
            self.skipTest(playground_test.MISSING)
        (self.folder / "a.html").write_bytes(playground_test.PAGE.read_bytes())
        self.check("playground", ready="Boolean(document.querySelector('svg.all'))")

    def test_watch(self):
        run = self.folder / "runs" / "a"
        run.mkdir(parents=True)
        (run / "schedule.csv").write_text(watch_test.SCHEDULE)
        (run / "config.yaml").write_text(watch_test.CONFIG.format(steps=60))
        (run / "metrics.jsonl").write_text("".join(map(watch_test.line_of, range(60))))
        self.run_ok("watch", "a", "--once", "--page", "a.html")
        self.check("watch")

    def test_tiny_windows_and_hidden_frames(self):
        self.run_ok("report", "1f1b", "zbv", "-p", 4, "-m", 200, "-o", "a.html")
        for width in (30, 120, 160, 320):
            self.open(width, height=200)
            self.assertEqual(self.browser.console, [], width)
        self.write("frame.html", "<html><body><iframe id=f src=a.html style='display:none;width:900px;height:600px'></iframe></body></html>")
        self.open(1400, "frame.html")
        self.assertEqual(self.browser.console, [])
        self.browser.evaluate("document.getElementById('f').style.display = 'block'")
        self.browser.settle()
        self.assertEqual(self.browser.console, [])
        # The frame is of another origin where pages are files, so that only its picture shows that it is drawn.
        self.browser.screenshot(self.screenshots / "frame.png")

    def test_a_page_of_plans_is_small_enough_to_mail(self):
        self.run_ok("plan", "--model", "llama-3-70b", "--device", "h100", "--nodes", "8x8", "--global-batch", 512, "--report", "a.html")
        self.assertLess((self.folder / "a.html").stat().st_size, 12e6)

    def test_equal_values_are_drawn_from_zero(self):
        self.run_ok("report", "1f1b", "zb-h1", "-p", 4, "-m", 8, "-o", "a.html")  # both hold 4 activations
        self.open(1400)
        low, high = self.browser.evaluate("document.querySelector('svg.plot').dataset.scale.split(' ').slice(0, 2).map(Number)")
        self.assertLessEqual(low, 0)
        self.assertGreater(high, 4)

    def test_commands_can_be_copied(self):
        self.run_ok("plan", "-p", 4, "-m", 8, "--memory-limit", 4, "--report", "a.html")
        self.open(1400)
        self.browser.allow_clipboard()
        self.browser.press(".plan:not([hidden]) .copy")
        self.browser.settle()
        command = self.browser.evaluate("document.querySelector('.plan:not([hidden]) .command pre').textContent")
        self.assertEqual(self.browser.evaluate("navigator.clipboard.readText()"), command)

    def test_keys_are_listed_on_request(self):
        self.run_ok("report", "1f1b", "-p", 4, "-m", 8, "-o", "a.html")
        self.open(1400)
        self.assertEqual(self.browser.evaluate("document.getElementById('keys').matches(':popover-open')"), False)
        self.assertLess(self.browser.evaluate("document.querySelector('.toolbar').clientHeight"), 60)
        self.browser.press("[popovertarget=keys]")
        self.assertEqual(self.browser.evaluate("document.getElementById('keys').matches(':popover-open')"), True)


class WidthTest(program.CommandTest):
    """Tables in a terminal of 80 columns."""

    def test_tables_fit_a_terminal(self):
        for words in (("simulate", "1f1b", "zb-h1", "zbv", "--model", "llama-3-70b", "--device", "h100", "--nodes", "8x8", "--tensor", 8, "-m", 32),
                      ("simulate", "1f1b", "-p", 8, "-m", 32), ("schedules", "-p", 8, "-m", 32),
                      ("simulate", "zbv", "-p", 4, "--memory"), ("diff", "1f1b", "zb-h1", "-p", 4, "-m", 8),
                      ("simulate", "--sweep", "schedule=1f1b,zbv", "ranks=4,8", "microbatches=8,16")):
            for columns in (80, 120):
                text = self.on_terminal(*words, columns=columns, env={"NO_COLOR": "1"}).replace("\r", "")
                lines = text.splitlines()
                rules = [i for i, line in enumerate(lines) if line and set(line) <= {"-", " "}]
                self.assertTrue(rules, words)
                for rule in rules:  # the names above it, and the rows below
                    self.assertLessEqual(len(lines[rule]), columns, (words, lines[rule]))

    def test_parts_of_a_table_are_read_together(self):
        """The first cells of a part are those of the others, and say which row it is."""
        for words in (("plan", "--model", "gpt2", "--nodes", "1x8", "--global-batch", 32),
                      ("simulate", "--sweep", "schedule=1f1b,zbv", "ranks=4,8", "microbatches=8,16")):
            text = self.on_terminal(*words, columns=80, env={"NO_COLOR": "1"}).replace("\r", "")
            parts = re.findall(r"(?m)^(-+) [- ]+\n((?:.+\n)+)", text)
            cells = [[line[:len(rule)].strip() for line in part.splitlines()] for rule, part in parts]
            firsts = [[cell for cell in each if cell] for each in cells]
            self.assertGreater(len(firsts), 1, words)
            for each in firsts:
                self.assertEqual(len(set(each)), len(each), (words, each))

    def test_no_figure_is_lost(self):
        words = ("simulate", "1f1b", "zb-h1", "zbv", "--model", "llama-3-70b", "--device", "h100", "--nodes", "8x8", "--tensor", 8, "-m", 32)
        narrow = self.on_terminal(*words, columns=80, env={"NO_COLOR": "1"})
        for word in self.run_ok(*words).split():
            self.assertIn(word, narrow)


if __name__ == "__main__":
    program.main()
