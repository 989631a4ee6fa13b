"""show and report."""
import html
import json
import re
import shlex
import shutil
import struct
import unittest
import xml.etree.ElementTree

import program

ESCAPE = re.compile("\x1b\\[[0-9;]*m")


class ShowTest(program.CommandTest):
    def rows(self, *words):
        text = self.run_ok("show", *words)
        return text, [line for line in text.splitlines() if line.startswith("rank ")]

    def test_no_color_without_a_terminal(self):
        text, rows = self.rows("--schedule", "1f1b", "-p", 2, "-m", 2, "--width", 48)
        self.assertNotIn("\x1b", text)
        self.assertEqual(len(rows), 2)
        self.assertRegex(rows[0], r"^rank 0 F0=F1=\.+B0====\.")
        self.assertRegex(rows[1], r"^rank 1 \.+F0=B0====F1=B1====\.+ ")

    def test_fits_the_width(self):
        for width in (20, 47, 80, 133, 400):
            for name in ("1f1b", "interleaved"):
                for color in ("never", "always"):
                    _, rows = self.rows("--schedule", name, "-p", 12, "-m", 33, "--width", width,
                                        "--color", color)
                    self.assertEqual(len(rows), 12)
                    for row in rows:
                        self.assertLessEqual(len(ESCAPE.sub("", row)), max(width, 25))

    def test_colors_on_demand(self):
        text, _ = self.rows("--schedule", "interleaved", "--color", "always")
        self.assertIn("\x1b[", text)
        self.assertEqual(len(ESCAPE.findall(text)), 2 * text.count("\x1b[0m"))

    def test_json_has_the_times(self):
        (row,) = self.run_rows("show", "--schedule", "1f1b", "-p", 3, "-m", 4)
        self.assertEqual([len(lane) for lane in row["time_steps"]], [8, 8, 8])

    def test_misuse_is_refused(self):
        self.refuse("show", "--schedule", "1f1b", "--width", "0")
        self.refuse("show", "--schedule", "1f1b", "--color", "blue")


class ReportTest(program.CommandTest):
    def report(self, name, *words):
        self.run_ok("report", "--schedule", "interleaved", "-p", 3, "-m", 5, "-o", name, *words)
        self.assertEqual(self.files(), [name])
        return (self.folder / name).read_text(encoding="utf-8")

    def test_page_is_whole_and_self_contained(self):
        page = self.report("a.html")
        self.assertTrue(page.startswith("<!DOCTYPE html>") and page.endswith("</html>\n"))
        outside = page.replace("http://www.w3.org/2000/svg", "").replace("url(#", "")
        for mark in ("http:", "https:", "src=", "@import", "url("):
            self.assertNotIn(mark, outside)
        data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL).group(1))
        self.assertEqual(len(data["runs"][0]["lanes"]), 3)
        self.assertLess(len(page) - len(json.dumps(data)), 300_000)
        (kind,) = data["runs"][0]["memory"]
        self.assertEqual((kind["name"], len(kind["curves"])), ("activations", 3))

    def test_page_explains_idle_time(self):
        page = self.report("a.html", "--comm", 0.25)
        run = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL).group(1))["runs"][0]
        for flat, idle in zip(run["bubbles"], run["idle"]):
            total, at = 0, 0
            while at < len(flat):
                total += flat[at + 1] - flat[at]
                at += 4 if flat[at + 3] < 0 else 7
            self.assertEqual(idle, f"{100 * total / run['end']:.1f}%")
        ranks, positions = run["path"][::2], run["path"][1::2]
        self.assertEqual(positions[0], 0)
        self.assertTrue(all(rank < 3 for rank in ranks))
        self.assertIn("idle: communication", page)
        self.assertIn("critical path", page)

    def test_several_schedules_share_a_page(self):
        self.run_ok("report", "--schedule", "gpipe,interleaved", "-p", 3, "-m", 4, "-o", "a.html")
        page = (self.folder / "a.html").read_text(encoding="utf-8")
        data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL).group(1))
        self.assertEqual([run["label"] for run in data["runs"]], ["gpipe", "interleaved"])
        self.assertEqual([max(run["chunkOf"]) for run in data["runs"]], [0, 1])
        self.assertIn("closed form", page)
        self.assertNotIn("Predicted and measured", page)

    def test_page_has_the_command_as_a_shell_reads_it(self):
        self.run_ok("report", "interleaved:v=2", "--ranks=3", "-m", 6, "--comm", 0.5, "-o", "it's a.html")
        page = (self.folder / "it's a.html").read_text(encoding="utf-8")
        command = html.unescape(re.search(r"<h2>Command</h2><pre[^>]*>(.*?)</pre>", page).group(1))
        words = shlex.split(command)
        self.assertEqual(words[:3], ["penstock", "report", "interleaved:v=2"])
        self.assertEqual(dict(zip(words[3::2], words[4::2])),
                         {"--ranks": "3", "--microbatches": "6", "--comm": "0.5", "--output": "it's a.html"})

    def test_page_says_where_the_time_goes(self):
        result = self.run_json("report", "1f1b", "zb-h1", "-p", 4, "-m", 8, "--comm", 0.5, "-o", "a.html")
        page = (self.folder / "a.html").read_text(encoding="utf-8")
        table = re.search(r"<h2>Time of a rank, on average</h2>(.*?)</table>", page, re.DOTALL).group(1)
        rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)]
        rows = [[float(cell) for cell in row] for row in rows if row]
        for run, schedule in enumerate(result["schedules"]):
            self.assertAlmostEqual(sum(row[run] for row in rows), schedule["makespan"], places=3)
        for first, second, difference in rows:
            self.assertAlmostEqual(second - first, difference, places=3)

    def test_json_names_the_file(self):
        result = self.run_json("report", "--schedule", "1f1b", "-o", "a.svg")
        self.assertEqual(result["files"], ["a.svg"])
        self.assertEqual(result["schedules"][0]["makespan"], 33)

    def test_picture_is_well_formed(self):
        root = xml.etree.ElementTree.fromstring(self.report("a.svg"))
        self.assertTrue(root.tag.endswith("svg"))
        texts = [node.text for node in root.iter() if node.tag.endswith("text")]
        for rank in range(3):
            self.assertIn(f"rank {rank}", texts)
        # Every block is wide enough to show its microbatch: 3 ranks x 2 chunks x F and B.
        self.assertGreaterEqual(texts.count("4"), 12)

    def test_picture_for_a_column_of_a_paper(self):
        root = xml.etree.ElementTree.fromstring(self.report("a.svg", "--width", 345, "--paper"))
        self.assertEqual(root.get("width"), "345")
        for node in root.iter():
            if node.tag.endswith("rect"):
                self.assertLessEqual(float(node.get("x", 0)) + float(node.get("width")), 345)
        texts = [node.text for node in root.iter() if node.tag.endswith("text")]
        self.assertIn("rank 2", texts)
        self.assertFalse(any("idle" in text for text in texts if text and "%" in text))

    @unittest.skipUnless(shutil.which("rsvg-convert"), "apt-get install librsvg2-bin")
    def test_png_has_twice_the_resolution_of_the_svg(self):
        svg = xml.etree.ElementTree.fromstring(self.report("a.svg"))
        self.run_ok("report", "--schedule", "interleaved", "-p", 3, "-m", 5, "-o", "a.png")
        png = (self.folder / "a.png").read_bytes()
        self.assertEqual(png[:8], b"\x89PNG\r\n\x1a\n")
        width, height = struct.unpack(">II", png[16:24])
        self.assertEqual((width, height), (2 * int(svg.get("width")), 2 * int(svg.get("height"))))

    def test_trace_holds_every_action(self):
        events = json.loads(self.report("a.trace.json"))["traceEvents"]
        actions = [event for event in events if event["ph"] == "X"]
        self.assertEqual(len(actions), 3 * 2 * 5 * 2)
        self.assertEqual({event["tid"] for event in actions}, {0, 1, 2})
        self.assertTrue(all(event["dur"] > 0 for event in actions))
        first = next(event for event in actions if event["name"] == "0F0")
        self.assertEqual((first["ts"], first["dur"]), (0, 500))

    def test_trace_has_a_flow_for_every_message(self):
        events = json.loads(self.report("a.trace.json", "--comm", 0.25))["traceEvents"]
        slices = [event for event in events if event["ph"] == "X"]
        by_phase = {phase: {event["id"]: event for event in events if event["ph"] == phase} for phase in "sfbe"}
        (result,) = self.run_rows("simulate", "interleaved", "-p", 3, "-m", 5)
        for phase in "sfbe":
            self.assertEqual(len(by_phase[phase]), result["messages"])
        for number, start in by_phase["s"].items():
            finish = by_phase["f"][number]
            self.assertNotEqual(start["tid"], finish["tid"])
            for flow in (start, finish):  # Perfetto attaches a flow to the slice around it
                self.assertTrue(any(s["tid"] == flow["tid"] and s["ts"] <= flow["ts"] < s["ts"] + s["dur"]
                                    for s in slices), flow)
            sent, arrived = by_phase["b"][number], by_phase["e"][number]
            self.assertAlmostEqual(arrived["ts"] - sent["ts"], 250)
            self.assertLessEqual(arrived["ts"], finish["ts"] + 1e-6)

    @unittest.skipUnless(shutil.which("rsvg-convert"), "apt-get install librsvg2-bin")
    def test_pdf(self):
        self.run_ok("report", "1f1b", "-o", "a.pdf")
        self.assertEqual((self.folder / "a.pdf").read_bytes()[:5], b"%PDF-")

    def test_misuse_is_refused_and_leaves_nothing(self):
        words = ("report", "--schedule", "1f1b")
        self.refuse(*words)
        self.assertIn(".html", self.refuse(*words, "-o", "a.gif"))
        self.refuse(*words, "-o", "none/a.html")
        self.refuse(*words, "-o", "a.svg", "--width", 100)
        self.assertIn("--width", self.refuse(*words, "-o", "a.html", "--width", 400))
        self.assertIn("--paper", self.refuse(*words, "-o", "a.trace.json", "--paper"))
        self.refuse("report", "--schedule", "1f1b,no-such", "-o", "a.html")
        message = self.refuse(*words, "-o", "a.png", code=1, env={"PATH": "/nonexistent"})
        self.assertIn("apt-get install librsvg2-bin", message)
        self.assertEqual(self.files(), [])


if __name__ == "__main__":
    program.main()
