"""The page of `report` in a browser. Screenshots are in the folder `screenshots` next to the program."""
import re
import unittest
import xml.etree.ElementTree

import browser
import program

LEFT, RIGHT, AXIS = 66, 108, 22  # view.js
# PIXELS(x, y, width, height): the colors in a part of the first timeline, as red, green, blue, opacity, ...
PIXELS = """((x, y, w, h) => { const copy = document.createElement('canvas'), c = document.getElementById('run0');
             copy.width = c.width; copy.height = c.height;
             const pen = copy.getContext('2d', {willReadFrequently: true});
             pen.drawImage(c, 0, 0); return [...pen.getImageData(x, y, w, h).data]; })"""
NAMES = {"F": "forward", "I": "backward for input", "W": "backward for weights", "B": "backward"}


@unittest.skipIf(browser.MISSING, browser.MISSING)
class PageTest(program.CommandTest):
    @classmethod
    def setUpClass(cls):
        cls.browser = browser.Browser()
        cls.addClassCleanup(cls.browser.close)

    def open(self, *words, link="", width=1400, height=1000):
        """Opens the report of these schedules. Returns their simulated figures."""
        result = self.run_json("report", *words, "-o", "a.html")
        self.browser.console.clear()
        self.browser.open(f"file://{self.folder / 'a.html'}{link}", width, height)
        return result["schedules"]

    def tearDown(self):
        self.assertEqual(self.browser.console, [])
        super().tearDown()

    def canvas(self, run=0):
        self.browser.evaluate(f"document.getElementById('run{run}').scrollIntoView({{block: 'center'}})")
        box = self.browser.evaluate(f"""(() => {{ const b = document.getElementById('run{run}').getBoundingClientRect();
                                        return [b.left, b.top, b.width, b.height]; }})()""")
        self.browser.settle()
        return box

    def position(self, box, ranks, rank, time, end):
        """Returns the place of a time in the row of a rank."""
        left, top, width, height = box
        pitch = (height - AXIS) / ranks
        return left + LEFT + time / end * (width - LEFT - RIGHT), top + AXIS + rank * pitch + 8

    def tip(self):
        return self.browser.evaluate("document.getElementById('tip').innerText")

    def hash(self):
        """Returns the fragment of the address, once the page has set it."""
        return self.browser.evaluate("new Promise((done) => setTimeout(() => done(location.hash), 300))")

    def range(self):
        match = re.search(r"t=([\d.e+-]+?)\.\.([\d.e+-]+)", self.hash())
        return (float(match[1]), float(match[2])) if match else None

    def test_hovering_tells_every_action_as_simulated(self):
        for words in (("zb-h1", "-p", 3, "-m", 4, "--comm", 0.25), ("zbv", "-p", 2, "-m", 3)):
            (simulated,) = self.open(*words)
            (with_steps,) = self.run_rows("show", *words)
            lanes, box = with_steps["time_steps"], self.canvas()
            for rank, lane in enumerate(lanes):
                for step in lane:
                    stage, op, microbatch = re.fullmatch(r"(\d+)([FIWB])(\d+)", step["action"]).groups()
                    middle = (step["start"] + step["end"]) / 2
                    self.browser.hover(*self.position(box, len(lanes), rank, middle, simulated["makespan"]))
                    tip = self.tip()
                    self.assertIn(f"{NAMES[op]} stage {stage}, microbatch {microbatch}\n", tip)
                    self.assertIn(f"rank {rank}, {step['start']:g} to {step['end']:g}\n", tip)
                    self.assertIn(f"takes {step['end'] - step['start']:g}\n", tip)

    def test_hovering_says_what_an_action_waited_for(self):
        (simulated,) = self.open("1f1b", "-p", 3, "-m", 4, "--comm", 0.25, "--message-bytes", 2**20)
        box, end = self.canvas(), simulated["makespan"]
        self.browser.hover(*self.position(box, 3, 1, 1.5, end))
        self.assertIn("waited for forward stage 0, microbatch 0 on rank 0\ncomputed by 1, here 0.25 later", self.tip())
        self.assertIn("sends 1 MiB", self.tip())
        self.assertIn("activations +1", self.tip())
        self.browser.hover(*self.position(box, 3, 0, 1.5, end))
        self.assertIn("waited for the rank, which ran forward stage 0, microbatch 0", self.tip())
        self.browser.hover(*self.position(box, 3, 1, 0.5, end))
        self.assertRegex(self.tip(), r"rank 1 at 0\.5\s+idle for 1: warm-up\s+waits for forward stage 0")

    def test_zooming_and_moving(self):
        (simulated,) = self.open("1f1b", "-p", 2, "-m", 8)
        box, end = self.canvas(), simulated["makespan"]
        middle = self.position(box, 2, 0, end / 2, end)
        self.assertIsNone(self.range())
        self.browser.click(*middle)
        self.browser.key("Escape")
        self.browser.wheel(*middle, -400)
        start, stop = self.range()
        self.assertLess(stop - start, 0.6 * end)
        self.assertAlmostEqual((start + stop) / 2, end / 2, delta=0.1)
        self.browser.drag(*middle, middle[0] - 200, middle[1])
        moved, _ = self.range()
        self.assertAlmostEqual(moved - start, 200 / (box[2] - LEFT - RIGHT) * (stop - start), delta=0.01 * end)
        self.browser.key("ArrowLeft")
        self.assertLess(self.range()[0], moved)
        self.browser.key("+")
        self.assertLess(self.range()[1] - self.range()[0], stop - start)
        self.browser.key("0")
        self.assertIsNone(self.range())
        self.browser.press("#in")
        self.assertIsNotNone(self.range())
        self.browser.press("#fit")
        self.assertIsNone(self.range())

    def test_keys_reach_every_action_and_gap(self):
        for words in (("1f1b", "-p", 3, "-m", 4, "--comm", 0.25), ("zb-h1", "-p", 2, "-m", 3, "--cost", "1,1,0")):
            self.open(*words)
            (run,) = self.run_json("show", *words)["schedules"]
            self.canvas()
            self.browser.evaluate("document.getElementById('run0').focus()")
            self.browser.key("Enter")
            for rank, lane in enumerate(run["time_steps"]):
                said = []
                while True:  # to the left end, then to the right end
                    before = self.said()
                    self.browser.key("ArrowLeft")
                    if self.said() == before:
                        break
                while not said or self.said() != said[-1]:
                    said.append(self.said())
                    self.browser.key("ArrowRight")
                actions = [text for text in said if "idle for" not in text]
                self.assertEqual(len(actions), len(lane))
                for text, step in zip(actions, lane):
                    stage, op, microbatch = re.fullmatch(r"(\d+)([FIWB])(\d+)", step["action"]).groups()
                    self.assertIn(f"{NAMES[op]} stage {stage}, microbatch {microbatch}", text)
                    self.assertIn(f"rank {rank}, {step['start']:g} to {step['end']:g}", text)
                gaps = 1 + sum(a["end"] < b["start"] - 1e-9 for a, b in zip(lane, lane[1:]))
                self.assertGreaterEqual(len(said) - len(actions), gaps - 1)
                self.browser.key("ArrowDown")
            self.assertIn(f"rank {len(run['time_steps']) - 1}", self.said())
            self.browser.key("ArrowLeft")
            self.browser.key("Enter")
            self.browser.key("Escape")
            self.assertEqual(self.hash()[:8], "#follow=")
            self.browser.key("Escape")
            self.assertEqual(self.hash(), "")
            self.browser.key("+")
            self.assertIsNotNone(self.range())

    def said(self):
        """What a screen reader says of the selected action."""
        return self.browser.evaluate("document.getElementById('said').textContent")

    def test_the_timeline_as_text(self):
        (simulated,) = self.open("zbv", "-p", 2, "-m", 3)
        self.browser.press("summary")
        self.browser.settle()
        text = self.browser.evaluate("document.querySelector('#text0 pre').textContent")
        (run,) = self.run_json("show", "zbv", "-p", 2, "-m", 3)["schedules"]
        for lane in run["time_steps"]:
            for step in lane:
                stage, op, microbatch = re.fullmatch(r"(\d+)([FIWB])(\d+)", step["action"]).groups()
                self.assertIn(f"  {step['start']:g} to {step['end']:g}: {NAMES[op]} stage {stage}, microbatch {microbatch}\n",
                              text + "\n")
        self.assertIn(": idle, warm-up", text)
        self.browser.press("#in")
        self.browser.settle()
        self.assertNotIn("  0 to", self.browser.evaluate("document.querySelector('#text0 pre').textContent"))
        label = self.browser.evaluate("document.getElementById('run0').getAttribute('aria-label')")
        self.assertIn(f"makespan {simulated['makespan']:g}, bubble", label)

    def test_legends_say_what_is_shown(self):
        self.open("chimera", "-p", 4)
        self.assertIn("lighter: stages of other replicas", self.legend())
        self.open("interleaved", "-p", 4)
        self.assertIn("lighter: later chunks of a rank", self.legend())
        self.open("chimera", "interleaved", "-p", 4)
        self.assertIn("lighter: later chunks, or stages of other replicas", self.legend())
        self.open("1f1b", "zb-h1", "-p", 4)
        self.assertNotIn("lighter", self.legend())
        # Each run has its own parts of idle time.
        self.assertNotIn("%", self.legend())
        captions = self.browser.evaluate("[...document.querySelectorAll('.run .caption')].map((each) => each.innerText)")
        for caption, schedule in zip(captions, ("1f1b", "zb-h1")):
            found = self.run_json("diff", schedule, "gpipe", "-p", 4)["schedules"][0]
            for cause, time in found["time_per_rank"]["idle"].items():
                if time:
                    self.assertIn(f"{cause} {100 * time / found['makespan']:.1f}%", caption)

    def legend(self):
        return self.browser.evaluate("document.querySelector('.legend').innerText")

    def test_the_memory_tile_shows_all_memory(self):
        self.open("1f1b", "--model", "llama-3-8b", "--device", "h100", "-p", 8)
        tile = self.browser.evaluate("[...document.querySelectorAll('.figure')].map((each) => each.innerText)"
                                     ".find((text) => text.includes('peak memory'))")
        (run,) = self.run_json("simulate", "1f1b", "--model", "llama-3-8b", "--device", "h100", "-p", 8, "--memory")["schedules"]
        peak = max(rank["peak"]["amount"] for rank in run["memory"])
        self.assertIn(f"{peak / 2**30:.1f} GiB", tile)
        self.assertIn(f"activations {run['peak_memory'] / 2**30:.1f} GiB", tile)

    def test_times_and_sizes_have_their_unit(self):
        self.run_ok("report", "1f1b", "--model", "llama-3-8b", "--device", "h100", "-p", 4, "-o", "a.html")
        page = self.folder / "a.html"
        inside = "globalThis.timeText = timeText; globalThis.bytesText = bytesText;\n})();\n</script>"
        page.write_text(page.read_text().replace("})();\n</script>", inside))
        self.browser.open(f"file://{page}")
        for value, text in ((0, "0 s"), (-1.392216597, "-1.392 s"), (-0.0124, "-12.4 ms"), (1e-6, "1 us"), (-2e-9, "-2 ns"),
                            (0.99996, "1 s"), (9.9996e-4, "1 ms"), (70, "70 s")):
            self.assertEqual(self.browser.evaluate(f"timeText({value})"), text)
        for value, text in ((0, "0 B"), (-1, "-1 B"), (1023 * 2**20, "1023 MiB"), (-3 * 2**30, "-3 GiB"),
                            (2**40, "1 TiB"), (2**30 - 1, "1 GiB")):
            self.assertEqual(self.browser.evaluate(f"bytesText({value})"), text)

    def test_switches(self):
        self.open("zb-h1", "-p", 2, "-m", 4)
        tall = self.canvas()[3]
        pixel = PIXELS + "(80, 30, 1, 1)"
        screen = self.browser.evaluate(pixel)
        self.browser.press("#memory")
        self.assertLess(self.canvas()[3], tall)
        self.browser.press("#path")
        self.browser.press("#paper")
        self.assertNotEqual(self.browser.evaluate(pixel), screen)
        self.assertEqual(self.hash(), "#path&paper&no-memory")
        for switch in ("#memory", "#path", "#paper"):
            self.browser.press(switch)
        self.assertEqual((self.browser.evaluate(pixel), self.canvas()[3], self.hash()), (screen, tall, ""))

    def test_a_link_shows_the_same(self):
        link = "#t=5..10&follow=2,0&path&paper&no-memory"
        self.open("1f1b", "-p", 2, "-m", 8, link=link)
        self.assertEqual(self.hash(), link)
        self.assertTrue(self.browser.evaluate("document.getElementById('path').checked"))
        self.browser.evaluate("location.hash = '#t=1..2'")
        self.browser.settle()
        self.assertEqual(self.range(), (1, 2))
        for nonsense in ("#t=x..y&follow=a", "#t=9..3", "#follow=99,7", "#%%%"):
            self.open("1f1b", "-p", 2, "-m", 8, link=nonsense)
            self.assertIsNone(self.range())

    def test_a_followed_microbatch_is_visible_among_many(self):
        self.open("1f1b", "-p", 3, "-m", 3000, link="#follow=1500,0")
        _, _, width, height = self.canvas()
        for rank in range(3):
            row = self.browser.evaluate(
                f"{PIXELS}({LEFT}, {AXIS + rank * (height - AXIS) / 3 + 3}, {width - LEFT - RIGHT}, 1)")
            dark = [i for i in range(0, len(row), 4) if min(row[i:i + 3]) < 80]
            self.assertGreaterEqual(len(dark), 2)

    def test_copying_as_svg(self):
        self.browser.allow_clipboard()
        self.open("zbv", "1f1b", "-p", 2, "-m", 4, link="#follow=1,0&path")
        self.browser.press("#svg")
        self.browser.settle()
        self.assertEqual(self.browser.evaluate("document.getElementById('svg').textContent"), "Copied")
        root = xml.etree.ElementTree.fromstring(self.browser.evaluate("navigator.clipboard.readText()"))
        texts = [node.text for node in root.iter() if node.tag.endswith("text")]
        for text in ("zbv", "1f1b", "rank 0", "rank 1", "3"):
            self.assertIn(text, texts)

    def test_printing(self):
        self.open("1f1b", "-p", 2, "-m", 4)
        self.assertEqual(self.browser.pdf()[:5], b"%PDF-")

    def test_says_how_it_was_made(self):
        self.write("c.yaml", "ranks: 2\nmicrobatches: 4\nschedule: zb-h1\n")
        self.open("c.yaml", "--comm", 0.5)
        text = self.browser.evaluate("document.body.innerText")
        self.assertIn("penstock report c.yaml --comm 0.5 --output a.html", text)
        self.assertIn("microbatches: 4", text)

    def test_sizes_of_schedules_and_windows(self):
        sizes = {"small": ("zbv", "1f1b", "-p", 4, "-m", 8, "--comm", 0.2),
                 "model": ("interleaved", "zbv", "--model", "llama-3-8b", "--device", "h100", "-p", 8, "-m", 16),
                 "large": ("zb-h1", "-p", 16, "-m", 256, "--comm", 0.1)}
        for name, words in sizes.items():
            for width in (1400, 760, 390):
                simulated = self.open(*words, width=width)
                self.browser.screenshot(self.screenshots / f"{name}_{width}.png")
                self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), width)
                text = self.browser.evaluate("document.body.innerText")
                for schedule in simulated:
                    self.assertIn(f"bubble {100 * schedule['bubble']:.1f}%", text)


if __name__ == "__main__":
    program.main()
