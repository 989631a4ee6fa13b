"""The playground in a browser: its figures, edits by pointer, keys and text, lessons, links and files."""
import json
import os
import pathlib
import subprocess
import time
import unittest

import browser
import program

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE = ROOT / "build" / "playground.html"
RELEASED = ROOT / "src" / "apps" / "playground" / "release" / "playground_module.wasm.gz"
MISSING = browser.MISSING or (None if PAGE.exists() else "needs build/playground.html: tools/playground builds it")
MUTATED = int(os.environ.get("PENSTOCK_MUTATED", "1000"))
LEFT, RIGHT, AXIS = 66, 108, 22  # view.js
# Each W follows its I.
POOR = """0F0,0F1,0F2,0I0,0W0,0F3,0I1,0W1,0I2,0W2,0I3,0W3
1F0,1F1,1I0,1W0,1F2,1I1,1W1,1F3,1I2,1W2,1I3,1W3
2F0,2I0,2W0,2F1,2I1,2W1,2F2,2I2,2W2,2F3,2I3,2W3
"""


@unittest.skipIf(MISSING, MISSING)
class PlaygroundTest(program.CommandTest):
    start_browser = browser.Browser

    @classmethod
    def setUpClass(cls):
        cls.browser = cls.start_browser()
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        super().setUp()
        self.open()

    def tearDown(self):
        self.assertEqual(self.browser.console, [])
        super().tearDown()

    def open(self, link="", page=PAGE, width=1400):
        self.browser.clear_console()
        self.browser.open(f"file://{page}{link}", width)
        self.wait("document.body.dataset.ready === 'true'")

    def wait(self, condition):
        """Waits until the page's condition holds."""
        end = time.monotonic() + 60
        while not self.browser.evaluate(f"Boolean({condition})"):
            self.assertLess(time.monotonic(), end, condition)
        self.browser.settle()

    def answer(self):
        return self.browser.evaluate("penstock.answer().exact")

    def after(self, act):
        """Does something that changes the schedule. Returns the new figures."""
        self.browser.evaluate("window.before = penstock.answer()")
        act()
        self.wait("penstock.answer() !== before")
        return self.answer()

    def said_after(self, act):
        """Does something after which the page says something else."""
        self.browser.evaluate("window.saidBefore = document.getElementById('said').textContent")
        act()
        self.wait("document.getElementById('said').textContent !== saidBefore")

    def set(self, **fields):
        self.browser.evaluate(f"""(() => {{ for (const [name, value] of Object.entries({json.dumps(fields)})) {{
            const input = document.querySelector(`[data-field="${{name}}"]`);
            input.value = value; input.dispatchEvent(new Event('input')); }} }})()""")

    def choose(self, name):
        self.browser.evaluate(f"""(() => {{ const box = document.getElementById('schedule'); box.value = '{name}';
                                  box.dispatchEvent(new Event('change')); }})()""")

    def type_csv(self, text):
        self.browser.evaluate(f"""(() => {{ const pane = document.getElementById('csv'); pane.value = {json.dumps(text)};
                                  pane.dispatchEvent(new Event('input')); }})()""")

    def text(self, name):
        return self.browser.evaluate(f"document.getElementById('{name}').textContent")

    def position(self, rank, time_, end, ranks):
        self.browser.evaluate("document.getElementById('run0').scrollIntoView({block: 'center'})")
        left, top, width, height = self.browser.evaluate("""(() => { const b = document.getElementById('run0').getBoundingClientRect();
            return [b.left, b.top, b.width, b.height]; })()""")
        return left + LEFT + time_ / end * (width - LEFT - RIGHT), top + AXIS + rank * (height - AXIS) / ranks + 8

    def test_figures_are_those_of_the_program(self):
        for fields in ({"ranks": "4", "microbatches": "8", "cost": "1,1.3,0.7"},
                       {"ranks": "4", "microbatches": "12", "cost": "0.1,0.2,0.3", "comm": "0.07", "memory_limit": "5"}):
            words = [f"--{name.replace('_', '-')}={value}" for name, value in fields.items()]
            for each in json.loads(self.start("schedules", "--json").stdout)["schedules"]:
                name = each["name"]
                with self.subTest(schedule=name, fields=fields):
                    ours = self.browser.evaluate(f"penstock.ask({json.dumps({'ask': 'show', 'schedule': name, 'fields': fields})})")
                    printed = self.start("simulate", name, *words, "--json")
                    if printed.returncode:
                        self.assertIn("error", ours)
                        continue
                    (theirs,) = json.loads(printed.stdout)["schedules"]
                    self.assertEqual({key: ours["exact"][key] for key in theirs if key in ours["exact"]},
                                     {key: theirs[key] for key in theirs if key in ours["exact"]})
                    # It refuses what the order does not depend on.
                    lanes = [self.start("schedule", name, *words[:count]).stdout for count in (5, 4, 3, 2)]
                    self.assertEqual(ours["csv"], next(filter(None, lanes)))

    def test_every_field_has_an_effect_at_once(self):
        first = self.answer()
        self.assertEqual(self.after(lambda: self.set(microbatches="12"))["microbatches"], 12)
        self.assertGreater(self.after(lambda: self.set(comm="0.5"))["makespan"], first["makespan"])
        self.assertEqual(self.after(lambda: self.choose("zbv"))["schedule"], "zbv")
        self.assertEqual(self.text("command"), "penstock simulate zbv --ranks=4 --microbatches=12 --cost=1,1,1 --comm=0.5\n".strip())
        kept = self.answer()
        self.set(ranks="0")
        self.wait("document.querySelector('[data-field=ranks]').getAttribute('aria-invalid') === 'true'")
        self.assertIn("ranks", self.text("error"))
        self.assertEqual(self.answer(), kept)
        self.after(lambda: self.set(ranks="2"))
        self.assertEqual(self.text("error"), "")

    def test_faults_are_marked_where_they_are(self):
        self.type_csv("0F0,0F1,0B0,0B1\n1F0,1B1,1F1,1B0\n")
        self.wait("document.querySelector('#marks mark')")
        self.assertEqual(self.browser.evaluate("document.querySelector('#marks mark').textContent"), "1B1")
        self.assertIn("rank 1, position 1", self.text("faults"))
        self.type_csv("0F0,0F1,0B0,0B1\n1F0,1X0,1F1,1B1\n")
        self.wait("document.querySelector('#marks mark')?.textContent === '1X0'")
        self.after(lambda: self.type_csv("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"))
        self.assertEqual(self.text("faults"), "")

    def test_an_action_is_moved_by_the_pointer(self):
        figures = self.after(lambda: self.type_csv(POOR))
        csv = self.browser.evaluate("penstock.answer().csv")
        end = figures["makespan"]
        steps = self.run_steps(csv)
        at = {step["action"]: (step["start"] + step["end"]) / 2 for step in steps[0]}
        # 0W0 may follow 0I1, because no action waits for a W.
        start, stop = (self.position(0, at[name], end, 3) for name in ("0W0", "0I1"))
        self.browser.evaluate("window.before = penstock.answer()")
        self.browser._pointer("mousePressed", *start, button="left", clickCount=1)
        self.browser._pointer("mouseMoved", stop[0] + 6, stop[1], button="left", buttons=1)
        self.wait("document.getElementById('tip').innerText.includes('peak memory')")
        preview = self.browser.evaluate("document.getElementById('tip').innerText")
        self.browser._pointer("mouseReleased", stop[0] + 6, stop[1], button="left", clickCount=1)
        self.wait("penstock.answer() !== before")
        moved = self.answer()
        self.assertIn(f"makespan {moved['makespan']:g}", preview)
        lane = self.browser.evaluate("penstock.answer().csv").split("\n")[0].split(",")
        self.assertEqual(lane.index("0W0"), lane.index("0I1") + 1)
        self.after(lambda: self.browser.press("#undo"))
        self.assertEqual(self.browser.evaluate("penstock.answer().csv"), csv)
        self.after(lambda: self.browser.press("#redo"))
        self.assertEqual(self.answer(), moved)

    def test_an_action_is_moved_by_a_finger(self):
        figures = self.after(lambda: self.type_csv(POOR))
        steps = self.run_steps(self.browser.evaluate("penstock.answer().csv"))
        at = {step["action"]: (step["start"] + step["end"]) / 2 for step in steps[0]}
        start, stop = (self.position(0, at[name], figures["makespan"], 3) for name in ("0W0", "0I1"))
        self.after(lambda: self.browser.touch(*start, stop[0] + 6, stop[1]))
        lane = self.browser.evaluate("penstock.answer().csv").split("\n")[0].split(",")
        self.assertEqual(lane.index("0W0"), lane.index("0I1") + 1)

    def test_an_illegal_place_says_why(self):
        figures = self.answer()
        start = self.position(3, 3.5, figures["makespan"], 4)
        self.browser._pointer("mousePressed", *start, button="left", clickCount=1)
        self.browser._pointer("mouseMoved", start[0] + 500, start[1], button="left", buttons=1)
        self.wait("document.getElementById('tip').innerText.includes('not here')")
        self.assertRegex(self.browser.evaluate("document.getElementById('tip').innerText"), "not here rank 3, position .*3B0")
        self.browser._pointer("mouseReleased", start[0] + 500, start[1], button="left", clickCount=1)
        self.browser.settle()
        self.assertEqual(self.answer(), figures)

    def test_keys_move_an_action_too(self):
        self.after(lambda: self.type_csv(POOR))
        self.wait("document.getElementById('said').textContent === penstock.answer().caption")
        self.browser.evaluate("document.getElementById('run0').focus()")
        self.said_after(lambda: self.browser.key("Enter"))
        for _ in range(20):
            if "weights" in self.text("said"):
                break
            self.said_after(lambda: self.browser.key("ArrowRight"))
        self.after(lambda: self.browser.key("ArrowRight", shift=True))
        lane = self.browser.evaluate("penstock.answer().csv").split("\n")[0].split(",")
        self.assertEqual(lane.index("0W0"), lane.index("0F3") + 1)

    def test_improve_and_compare_with_a_kept_version(self):
        before = self.after(lambda: self.type_csv(POOR))
        self.browser.press("#keep")
        after = self.after(lambda: self.browser.press("#improve"))
        self.assertLess(after["makespan"], before["makespan"])
        self.assertLessEqual(after["peak_memory"], before["peak_memory"])
        self.assertIn(f"makespan \u2212{before['makespan'] - after['makespan']:g}", self.text("difference"))
        self.wait("document.querySelectorAll('#compared tbody tr').length > 10")
        self.assertNotIn("v-auto", self.text("compared"))
        # The figures of the schedule's name and the table are asked for when these fields are shown: neither ends what is asked here.
        self.after(lambda: self.set(comm="0.5"))
        self.browser.press("#compare-all")
        self.wait("document.getElementById('compared').textContent.includes('v-auto')")
        self.wait("document.getElementById('compare-stop').hidden && document.querySelectorAll('#compared tbody tr').length > 10")
        self.assertEqual(self.after(lambda: self.browser.press("#compared tbody [data-choose=zbv]"))["schedule"], "zbv")

    def test_what_is_asked_at_once_is_all_answered(self):
        before = self.after(lambda: self.type_csv(POOR))
        self.browser.press("#compare-all")
        after = self.after(lambda: self.browser.press("#improve"))
        self.assertLess(after["makespan"], before["makespan"])
        self.wait("document.getElementById('compared').textContent.includes('v-auto')")
        self.wait("document.getElementById('compare-stop').hidden")

    def ask_all(self):
        """What the page's module answers about all schedules."""
        fields = {"ranks": "4", "microbatches": "8", "cost": "1,1.3,0.7", "comm": "0.1"}
        names = self.browser.evaluate("penstock.ask({ask: 'catalog'})")
        answers = [self.browser.evaluate(f"penstock.ask({json.dumps({'ask': ask, 'schedule': each['name'], 'fields': fields})})")
                   for each in names["schedules"] for ask in ("figures", "show")]
        return [names, *answers]

    def test_the_released_module_answers_as_its_sources(self):
        """Where this fails, `tools/playground --release` puts a newer module into the tree."""
        if not RELEASED.exists():
            self.skipTest("no module is released")
        ours = self.ask_all()
        assemble = ROOT / "src" / "apps" / "playground" / "page" / "assemble.py"
        subprocess.run(["python3", "-B", assemble, RELEASED, self.folder / "a.html"], check=True)
        self.open(page=self.folder / "a.html")
        self.assertEqual(self.ask_all(), ours)

    def test_no_bound_is_above_a_makespan_without_a_word(self):
        for limit in ("1", "2", "3", "4", "8"):
            for name in ("zb-h1", "1f1b", "gpipe", "zbv", "dualpipe"):
                self.set(memory_limit=limit)
                self.choose(name)
                self.wait("penstock.isShown() || document.getElementById('error').textContent")
                if self.text("error"):
                    continue
                bound, exact = self.browser.evaluate("penstock.answer().bound"), self.answer()
                if bound is not None and bound > exact["makespan"] * (1 + 1e-9):
                    self.assertIn("of schedules within the memory limit, which this one exceeds", self.text("figures"), (name, limit))

    def test_pairs_at_the_longer_of_two_times_are_marked(self):
        self.wait("document.querySelector('[data-choose=dualpipe]')")
        row = "[...document.querySelectorAll('#compared tr')].find((row) => row.cells[0].textContent === %s).cells"
        longer, both = (self.browser.evaluate(f"{row % json.dumps('dualpipe')}[{cell}].textContent") for cell in (1, 2))
        self.assertRegex(longer, r"^[\d.]+\*$")
        self.assertGreater(float(both), float(longer[:-1]))
        self.assertEqual(self.browser.evaluate(f"{row % json.dumps('1f1b')}[2].textContent"), "")
        self.assertIn("take the longer of the two times", self.text("compared"))

    def test_slow_schedules_leave_room_for_the_others(self):
        self.wait("document.querySelector('[data-choose=naive]') && document.querySelector('[data-choose=zb-h1]')")
        heights = self.browser.evaluate("""Object.fromEntries([...document.querySelectorAll('svg.all g[data-choose]')].map(
            (e) => [e.dataset.choose, e.querySelector('.dot').getBoundingClientRect().top]))""")
        ranked = sorted(heights, key=heights.get)
        self.assertEqual(ranked[0], "naive")
        self.assertGreater(max(heights.values()) - heights[ranked[1]], 100)

    def test_a_schedule_of_the_catalog_has_one_name(self):
        for name in ("1f1b", "gpipe", "interleaved", "zbv"):
            self.choose(name)
            self.wait("penstock.isShown()")
            csv = self.browser.evaluate("penstock.answer().csv")
            time.sleep(0.6)  # until it is named
            self.browser.evaluate("penstock.ask({ask: 'catalog'})")
            self.assertEqual(self.text("named"), "", name)
            if name == "zbv":  # a search, whose lanes may be those of another one
                continue
            self.after(lambda: self.type_csv(csv.replace(",", ", ", 1)))
            self.wait("document.getElementById('named').textContent")
            self.assertEqual(self.text("named"), f"These are the lanes of {name}.")

    def test_the_schedule_is_recognized(self):
        csv = self.start("schedule", "zb-h1", "-p", 4, "-m", 8).stdout
        self.after(lambda: self.type_csv(csv))
        self.wait("document.getElementById('named').textContent.includes('zb-h1')")

    def test_a_link_holds_everything(self):
        self.after(lambda: self.choose("zb-h1"))
        self.after(lambda: self.set(ranks="8", microbatches="32"))
        csv = self.browser.evaluate("penstock.answer().csv")
        cells = csv.split("\n")
        cells[0] = cells[0].replace("0F7,0F8", "0F8,0F7") if "0F7,0F8" in cells[0] else cells[0]
        self.after(lambda: self.type_csv("\n".join(cells)))
        self.after(lambda: self.set(comm="0.25"))
        figures = self.answer()
        self.browser.evaluate("penstock.link().then((link) => { window.link = link; })")
        self.wait("location.hash.slice(1) === window.link")
        link = self.browser.evaluate("location.hash")
        self.assertLessEqual(len(link), 8192)
        self.open(link)
        self.assertEqual(self.answer(), figures)
        for damaged in ("#s=", "#s=AAAA", link[:-20], "#s=" + "_" * 100):
            self.open(damaged)
            self.assertEqual(self.answer()["schedule"], "1f1b")

    def test_configurations_are_read_back(self):
        self.after(lambda: self.choose("zb-h1"))
        self.after(lambda: self.set(comm="0.25"))
        self.after(lambda: self.set(**{"pass": "optimizer"}))
        figures = self.answer()
        self.browser.evaluate("""(() => { window.URL.createObjectURL = (blob) => { window.blob = blob; return '#'; };
                                 window.HTMLAnchorElement.prototype.click = () => {}; })()""")
        self.browser.press("#save-yaml")
        yaml = self.browser.evaluate("blob.text()")
        (self.folder / "c.yaml").write_text(yaml)
        (theirs,) = self.run_json("simulate", "c.yaml")["schedules"]
        self.assertEqual(theirs["makespan"], figures["makespan"])
        self.open()
        self.after(lambda: self.drop("c.yaml", yaml))
        self.assertEqual(self.answer(), figures)
        self.after(lambda: self.drop("a.csv", POOR))
        self.assertEqual(self.answer()["ranks"], 3)
        self.drop("d.yaml", "no_such_key: 1\n")
        self.wait("document.getElementById('message').textContent.includes('line 1')")

    def drop(self, name, text):
        self.browser.evaluate(f"""(() => {{ const data = new DataTransfer();
            data.items.add(new File([{json.dumps(text)}], '{name}'));
            document.body.dispatchEvent(new DragEvent('drop', {{dataTransfer: data, bubbles: true, cancelable: true}})); }})()""")

    def test_every_lesson_can_be_done(self):
        solutions = [dict(microbatches="8"), "1f1b", ("interleaved", dict(chunks="2")), "#improve", "zb-h2", "zbv", "v-auto",
                     ("dualpipe", dict(overlap="sum"))]
        for number, solution in enumerate(solutions):
            with self.subTest(lesson=number + 1):
                self.open()
                self.browser.press(f"[data-lesson='{number}']")
                self.wait("!document.getElementById('lesson').hidden && penstock.isShown()")
                self.assertTrue(self.browser.evaluate("document.getElementById('learned').hidden"))
                if isinstance(solution, dict):
                    self.set(**solution)
                elif isinstance(solution, tuple):
                    self.choose(solution[0])
                    self.set(**solution[1])
                elif solution.startswith("#"):
                    self.browser.press(solution)
                else:
                    self.choose(solution)
                self.wait("!document.getElementById('learned').hidden")

    def test_playback_shows_the_timeline_step_by_step(self):
        self.browser.press("#forth")
        self.assertEqual(self.text("time"), "time 1")
        self.browser.press("#forth")
        self.assertEqual(self.text("time"), "time 2")
        self.browser.press("#back")
        self.assertEqual(self.text("time"), "time 1")
        self.browser.press("#stop")
        self.assertEqual(self.text("time"), "")

    def test_a_module_that_fails_is_started_anew(self):
        page = self.folder / "broken.html"
        text = PAGE.read_text()
        asked = "const answer = instance.exports.penstock_ask()"
        self.assertIn(asked, text)
        page.write_text(text.replace(asked, "if (question.includes('\"comm\":\"0.7\"')) throw new WebAssembly.RuntimeError('unreachable');\n" + asked))
        self.open(page=page)
        self.set(comm="0.7")
        self.wait("document.getElementById('error').textContent.includes('could not be computed')")
        self.assertEqual(self.browser.evaluate("document.querySelector('[data-field=comm]').value"), "0.7")
        self.after(lambda: self.set(comm="0.6"))
        self.assertEqual(self.text("error"), "")

    def test_mutated_texts_are_no_trap(self):
        texts = [self.start("schedule", name, "-p", 4, "-m", 8).stdout for name in ("1f1b", "zbv", "dualpipe", "interleaved")]
        failed = self.browser.evaluate(f"""(async () => {{
            const texts = {json.dumps(texts)}, letters = '0123456789FIWB,;()"\\n =_-{{}}[]:';
            let seed = 7;
            const below = (count) => (seed = (seed * 1103515245 + 12345) % 2147483648, seed % count);
            for (let i = 0; i < {MUTATED}; ++i) {{
              let text = texts[below(texts.length)];
              for (let changes = 1 + below(4); changes > 0; --changes) {{
                const at = below(text.length), kind = below(3);
                if (kind === 0) text = text.slice(0, at) + letters[below(letters.length)] + text.slice(at + 1);
                if (kind === 1) text = text.slice(0, at) + text.slice(at + 1 + below(12)) || '0';
                if (kind === 2) text = text.slice(0, at) + text.slice(below(text.length)).slice(0, 12) + text.slice(at);
              }}
              const answer = await penstock.ask({{ask: 'show', csv: text, fields: {{cost: '1,1,1'}}}});
              if (!answer) --i;  // the page has asked for something
              else if (!answer.exact && !answer.faults && !answer.error || /could not be computed/.test(answer.error?.line)) return text;
            }}
            return null; }})()""")
        self.assertIsNone(failed)

    def test_the_page_needs_no_network(self):
        loaded = self.browser.evaluate("performance.getEntriesByType('resource').map((each) => each.name)")
        self.assertEqual([name for name in loaded if not name.startswith(("blob:", "data:"))], [])
        self.assertNotIn("http://", PAGE.read_text().replace("http://www.w3.org", ""))
        self.assertLess(PAGE.stat().st_size, 1_100_000)

    def test_a_report_opens_it_with_its_own_costs(self):
        self.write("costs.yaml", "schedule: zb-h1\nranks: 2\nmicrobatches: 4\nstage_costs:\n"
                                 "  - {forward: 1, backward_input: 2, backward_weight: 1, activation: 1, activation_after_i: 0.5}\n"
                                 "  - {forward: 1.5, backward_input: 1, backward_weight: 1, activation: 2}\n")
        self.run_ok("schedule", "zbv", "-p", 4, "-m", 8, "-o", "mine.csv")
        for words in (("zbv", "-p", 4, "-m", 8, "--comm", 0.2), ("costs.yaml",), ("interleaved:v=3", "-p", 4, "-m", 8),
                      ("mine.csv", "--cost", "1,2,1"), ("1f1b", "-p", 4, "-m", 8, "--pass", "optimizer", "--price", "step=2"),
                      ("zbv", "--model", "llama-3-8b", "--device", "h100", "--nodes", "2x4", "-p", 8, "-m", 16)):
            with self.subTest(words=words):
                (theirs,) = self.run_json("report", *words, "--playground", "-o", "a.html")["schedules"]
                self.open(page=self.folder / "a.html")
                ours = self.answer()
                for figure in ("makespan", "bubble", "peak_memory"):
                    self.assertAlmostEqual(ours[figure], theirs[figure], delta=1e-9 * abs(theirs[figure]) + 1e-12)
        self.run_ok("report", "zbv", "1f1b", "-p", 4, "-m", 8, "--playground", "-o", "a.html")
        self.open(page=self.folder / "a.html")
        self.assertIn("Compared with 1f1b", self.text("difference"))
        self.assertIn("would show other figures", self.refuse(
            "report", "seq1f1b", "--slices", 4, "--model", "llama-3-8b", "--device", "h100", "-p", 8, "-m", 16,
            "--playground", "-o", "a.html"))
        self.assertIn("ends with .html", self.refuse("report", "1f1b", "--playground", "-o", "a.svg"))

    def run_steps(self, csv):
        (self.folder / "a.csv").write_text(csv)
        (shown,) = self.run_rows("show", "a.csv")
        return shown["time_steps"]


if __name__ == "__main__":
    program.main()
