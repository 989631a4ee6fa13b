"""The page of `plan --report` in a browser: every plan's figures and timeline, one click away."""
import json
import re
import shlex
import unittest
import urllib.parse

import browser
import program

MODEL = ("--model", "gpt2", "--device", "a100", "--nodes", "1x4", "--global-batch", 8)
COSTS = ("-p", 4, "-m", 8, "--cost", "1,1.2,0.8", "--comm", 0.2, "--memory-limit", 4)
NAMES = {"F": "forward", "I": "backward for input", "W": "backward for weights", "B": "backward"}
# The values that are shown.
VALUES = """[...document.querySelectorAll('section.plan:not([hidden]) tbody tr')].map(
            (row) => [row.cells[0].textContent, row.cells[1].textContent])"""


@unittest.skipIf(browser.MISSING, browser.MISSING)
class PlanPageTest(program.CommandTest):
    @classmethod
    def setUpClass(cls):
        cls.browser = browser.Browser()
        cls.addClassCleanup(cls.browser.close)

    def tearDown(self):
        self.assertEqual(self.browser.console, [])
        super().tearDown()

    def plan(self, *words):
        """Writes the page. Returns the plans that --json prints, in the order of the page, and all that it prints."""
        answer = self.run_json("plan", *words, "--report", "a.html")
        return answer["front"] + answer.get("runners_up", []), answer

    def open(self, link="", width=1400, height=1000):
        self.browser.console.clear()
        self.browser.open(f"file://{self.folder / 'a.html'}{link}", width, height)

    def shown(self):
        """The numbers of the plans that are shown: in the card, the timelines and the tables."""
        return self.browser.evaluate("[...new Set([...document.querySelectorAll('.plan:not([hidden])')].map((e) => e.dataset.plan))]")

    def current(self):
        """The numbers of the plans that links mark as shown."""
        return self.browser.evaluate("[...new Set([...document.querySelectorAll('a[aria-current=\"true\"]')].map("
                                     "(e) => e.getAttribute('href')))]")

    def front(self):
        """Returns the selector of the chart that has the size of its card."""
        return self.browser.evaluate("['svg.front.wide', 'svg.front:not(.wide)'].find((each) => document.querySelector(each).checkVisibility())")

    def check_shown(self, number, plan):
        self.assertEqual(self.shown(), [str(number)])
        self.assertEqual(self.current(), [f"#plan={number}"])
        values = dict(self.browser.evaluate(VALUES))
        self.assertEqual(set(values), set(plan) - {"command"})
        for key, text in values.items():
            self.assertEqual(text if isinstance(plan[key], str) else json.loads(text), plan[key], key)

    def text(self):
        """The timeline that is shown, as text: the actions of each rank."""
        self.browser.evaluate("document.querySelectorAll('.plan details').forEach((each) => { each.open = true; })")
        self.browser.settle()
        text = self.browser.evaluate("document.querySelector('.plan:not([hidden]) .run pre').textContent")
        self.assertNotIn("These are the first", text)
        lanes = []
        for line in text.splitlines():
            if line.startswith("rank"):
                lanes.append([])
            elif ": idle" not in line:
                lanes[-1].append(line.split(": ", 1)[1])
        return lanes

    def check_timeline(self, *words, slices=1):
        """What is shown is what the command simulates."""
        text_of = lambda row: str(row) if slices == 1 else f"{int(row) // slices}.{int(row) % slices}"
        (run,) = self.run_rows("show", *words)
        lanes = []
        for lane in run["time_steps"]:
            cells = [re.findall(r"(\d+)([FIWB])(\d+)", step["action"]) for step in lane]
            lanes.append([" with ".join(f"{NAMES[op]} stage {stage}, microbatch {text_of(row)}" for stage, op, row in cell)
                          for cell in cells if cell])
        self.assertEqual([[line for line in lane if line.startswith(("forward", "backward"))] for lane in self.text()], lanes)
        caption = self.browser.evaluate("document.querySelector('.plan:not([hidden]) canvas').getAttribute('aria-label')")
        self.assertIn(f"bubble {100 * run['bubble']:.1f}%", caption)
        return run

    def test_a_click_on_a_point_shows_the_plan(self):
        plans, answer = self.plan(*MODEL)
        self.assertEqual(len(answer["front"]) + len(answer["runners_up"]), len(plans))
        self.open()
        self.check_shown(1, answer["best"])
        for number, plan in reversed(list(enumerate(plans, 1))):
            point = f"{self.front()} a[href='#plan={number}']"
            # Another point may lie above its center.
            self.browser.press(point + " .dot")
            if self.shown() != [str(number)]:
                self.browser.evaluate(f"document.querySelector(\"{point}\").focus()")
                self.browser.key("Enter")
            self.check_shown(number, plan)
            label = self.browser.evaluate(f"document.querySelector(\"{point}\").getAttribute('aria-label')")
            self.assertEqual(plan.get("why_not", "") in label, True)
            heading = self.browser.evaluate("document.querySelector('section.plan:not([hidden])').innerText")
            self.assertIn(f"Plan {number}: {plan['schedule']}", heading)
            self.assertIn(plan["command"], heading)
            self.assertIn(plan.get("why_not", ""), heading)
            if number <= 3 or number == len(plans):
                run = self.check_timeline(*shlex.split(plan["command"])[2:], slices=plan["slices"])
                self.assertAlmostEqual(run["step_time"] / plan["step_time"], 1, places=9)
            tables = self.browser.evaluate("[...document.querySelectorAll('.plan:not([hidden]) h2')].map((e) => e.textContent)")
            self.assertTrue(any(title.startswith("Ranks, ") for title in tables), tables)

    def test_rows_and_keys_and_links_choose_plans(self):
        plans, _ = self.plan(*MODEL)
        self.open()
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('table a').length"), len(plans))
        self.browser.press("#path")
        self.browser.press("tr:has(a[href='#plan=2']) td:nth-child(5)")
        self.check_shown(2, plans[1])
        box = self.browser.evaluate("(() => { const b = document.querySelector('section.plan:not([hidden])')."
                                    "getBoundingClientRect(); return [b.top, b.bottom]; })()")
        self.assertTrue(0 <= box[0] < 1000 or 0 < box[1] <= 1000, box)
        self.browser.evaluate("document.querySelector(\"table a[href='#plan=3']\").focus()")
        self.browser.key("Enter")
        self.check_shown(3, plans[2])
        self.assertIn("Plan 3: ", self.browser.evaluate("document.getElementById('said').textContent"))
        # The view stays what it was otherwise, and a link shows the same.
        link = self.browser.evaluate("new Promise((done) => setTimeout(() => done(location.hash), 300))")
        self.assertEqual(link, "#plan=3&path")
        self.open(link)
        self.check_shown(3, plans[2])
        self.assertTrue(self.browser.evaluate("document.getElementById('path').checked"))
        self.browser.evaluate("location.hash = '#plan=2'")
        self.browser.settle()
        self.check_shown(2, plans[1])
        self.open("#plan=99")
        self.check_shown(1, plans[0])

    def test_a_plan_next_to_the_fastest_one(self):
        plans, _ = self.plan(*MODEL)
        self.open("#plan=2")
        self.browser.press("#compare")
        timelines = lambda: self.browser.evaluate("[...document.querySelectorAll('canvas')].filter((e) => e.clientHeight > 0).map("
                                                  "(e) => e.getAttribute('aria-label').split(':')[0])")
        self.assertEqual(timelines(), ["Plan 1", "Plan 2"])
        link = self.browser.evaluate("new Promise((done) => setTimeout(() => done(location.hash), 300))")
        self.assertEqual(link, "#plan=2&compare")
        self.browser.press("table a[href='#plan=3']")
        self.assertEqual(timelines(), ["Plan 1", "Plan 3"])
        self.browser.press("#compare")
        self.assertEqual(timelines(), ["Plan 3"])
        self.check_shown(3, plans[2])

    def test_the_chart_has_the_bound_and_the_limit(self):
        plans, answer = self.plan(*MODEL, "--memory-limit", "4GiB")
        self.open()
        at = self.browser.evaluate("""Object.fromEntries([...document.querySelectorAll('svg.front.wide a')].map((e) => [
            e.getAttribute('href').slice(6), [+e.querySelector('.dot').getAttribute('cx'), +e.querySelector('.dot').getAttribute('cy')]]))""")
        self.assertEqual(len(at), len(plans))
        fast, slow = plans[0], max(plans, key=lambda plan: plan["step_time"])
        (x0, y0), (x1, y1) = at["1"], at[str(plans.index(slow) + 1)]
        y_of = lambda time: y0 + (time - fast["step_time"]) / (slow["step_time"] - fast["step_time"]) * (y1 - y0)
        x_of = lambda size: x0 + (size - fast["peak_bytes"]) / (slow["peak_bytes"] - fast["peak_bytes"]) * (x1 - x0)
        for number, plan in enumerate(plans, 1):
            self.assertAlmostEqual(at[str(number)][1], y_of(plan["step_time"]), delta=0.5)
            self.assertAlmostEqual(at[str(number)][0], x_of(plan["peak_bytes"]), delta=0.5)
        bound = self.browser.evaluate("document.querySelector('svg.front .bound').getAttribute('d')")
        self.assertAlmostEqual(float(re.match(r"M[\d.]+ ([\d.]+)H", bound)[1]), y_of(answer["lower_bound"]), delta=1)
        limit = self.browser.evaluate("document.querySelector('svg.front .limit').getAttribute('x1')")
        self.assertAlmostEqual(float(limit), x_of(answer["memory_limit"]), delta=1)
        self.assertIn("memory limit 4.00 GiB", self.browser.evaluate("document.querySelector('svg.front').textContent"))
        self.browser.hover(*self.browser.center(f"{self.front()} a[href='#plan=1'] .dot"))
        tip = self.browser.evaluate("document.getElementById('tip').innerText")
        self.assertRegex(tip, r"Plan \d+: .*\nstep time .*\nmemory of the worst rank")

    def test_schedules_without_a_model(self):
        plans, answer = self.plan(*COSTS)
        self.open()
        self.check_shown(len(plans), plans[-1])  # the best within the limit
        self.assertEqual(plans[-1]["makespan"], answer["best"]["makespan"])
        for number, plan in enumerate(plans, 1):
            self.browser.press(f"table a[href='#plan={number}']")
            self.check_shown(number, plan)
            name, address = self.browser.evaluate("""(() => { const link = document.querySelector('.plan:not([hidden]) a[download]');
                                                  return [link.download, link.href]; })()""")
            text = self.browser.evaluate(f"fetch({json.dumps(address)}).then((file) => file.text())")
            self.assertEqual(text, urllib.parse.unquote(address.split(",", 1)[1]))
            self.write(name, text)
            command = self.browser.evaluate("document.querySelector('section.plan:not([hidden]) pre').textContent")
            words = shlex.split(command)
            self.assertEqual(words[:3], ["penstock", "simulate", name])
            (run,) = self.run_rows(*words[1:])
            self.assertAlmostEqual(run["makespan"], plan["makespan"], places=9)
            self.assertAlmostEqual(run["peak_memory"], plan["peak_memory"], places=9)
            self.check_timeline(*words[2:])
        text = self.browser.evaluate("document.body.innerText")
        self.assertIn("penstock plan --ranks 4 --microbatches 8", text)
        self.assertIn(f"lower bound {answer['best']['lower_bound']:g}"[:17], self.browser.evaluate(
            "document.querySelector('svg.front').textContent"))

    def test_large_timelines_are_left_out(self):
        plans, _ = self.plan("--model", "gpt2", "--device", "a100", "--nodes", "1x4", "-p", 4, "--micro-batch-size", 1,
                             "--schedule", "1f1b", "--chunks", 1, "--recompute", "none", "--global-batch", 40000)
        self.open()
        self.check_shown(1, plans[0])
        text = self.browser.evaluate("document.querySelector('div.plan:not([hidden])').innerText")
        self.assertIn("The timelines of a page take at most 11 MB; this one has no room with its 320", text)
        words = shlex.split(text[text.index("penstock report"):])
        self.assertEqual(words[2:-2], shlex.split(plans[0]["command"])[2:])
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('canvas').length"), 0)
        self.assertLess((self.folder / "a.html").stat().st_size, 200_000)

    def test_sizes_of_windows(self):
        for name, words in (("plan", MODEL), ("schedules", COSTS)):
            self.plan(*words)
            for theme, width in (("light", 1400), ("dark", 1400), ("light", 760), ("light", 390), ("dark", 390)):
                self.browser.theme(theme)
                self.open(width=width)
                self.browser.screenshot(self.screenshots / f"{name}_{theme}_{width}.png")
                self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), width)


if __name__ == "__main__":
    program.main()
