"""Properties of what report writes: figures of pages, pictures, and traces."""
import json
import re
import shutil
import struct
import unittest
import xml.etree.ElementTree

import program


class ReportTest(program.CommandTest):
    def report(self, name, *words):
        self.run_ok("report", "--schedule", "interleaved", "-p", 3, "-m", 5, "-o", name, *words)
        return (self.folder / name).read_text(encoding="utf-8")

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
        self.assertLess(max(ranks), 3)

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

    def test_pictures_are_well_formed_and_fit(self):
        for words in ((), ("--width", 345, "--paper")):
            root = xml.etree.ElementTree.fromstring(self.report("a.svg", *words))
            self.assertTrue(root.tag.endswith("svg"))
            texts = [node.text for node in root.iter() if node.tag.endswith("text")]
            self.assertLessEqual({"rank 0", "rank 1", "rank 2"}, set(texts))
            for node in root.iter():
                if node.tag.endswith("rect"):
                    self.assertLessEqual(float(node.get("x", 0)) + float(node.get("width")), float(root.get("width")))
            if words:
                self.assertFalse(any("idle" in text for text in texts if text and "%" in text))
            else:  # each block is wide enough to show its microbatch: 3 ranks x 2 chunks x F and B
                self.assertGreaterEqual(texts.count("4"), 12)

    @unittest.skipUnless(shutil.which("rsvg-convert"), "apt-get install librsvg2-bin")
    def test_png_has_twice_the_resolution_of_the_svg_and_a_pdf_is_one(self):
        svg = xml.etree.ElementTree.fromstring(self.report("a.svg"))
        for name in ("a.png", "a.pdf"):
            self.run_ok("report", "interleaved", "-p", 3, "-m", 5, "-o", name)
        png = (self.folder / "a.png").read_bytes()
        self.assertEqual(png[:8], b"\x89PNG\r\n\x1a\n")
        self.assertEqual(struct.unpack(">II", png[16:24]), (2 * int(svg.get("width")), 2 * int(svg.get("height"))))
        self.assertEqual((self.folder / "a.pdf").read_bytes()[:5], b"%PDF-")

    def test_trace_holds_every_action_and_a_flow_for_every_message(self):
        events = json.loads(self.report("a.trace.json"))["traceEvents"]
        actions = [event for event in events if event["ph"] == "X"]
        self.assertEqual((len(actions), {event["tid"] for event in actions}), (3 * 2 * 5 * 2, {0, 1, 2}))
        self.assertTrue(all(event["dur"] > 0 for event in actions))
        first = next(event for event in actions if event["name"] == "0F0")
        self.assertEqual((first["ts"], first["dur"]), (0, 500))

        events = json.loads(self.report("a.trace.json", "--comm", 0.25))["traceEvents"]
        slices = [event for event in events if event["ph"] == "X"]
        by_phase = {phase: {event["id"]: event for event in events if event["ph"] == phase} for phase in "sfbe"}
        (result,) = self.run_rows("simulate", "interleaved", "-p", 3, "-m", 5)
        self.assertEqual({len(events) for events in by_phase.values()}, {result["messages"]})
        for number, start in by_phase["s"].items():
            finish, sent, arrived = (by_phase[phase][number] for phase in "fbe")
            self.assertNotEqual(start["tid"], finish["tid"])
            for flow in (start, finish):  # Perfetto attaches a flow to the slice around it
                self.assertTrue(any(s["tid"] == flow["tid"] and s["ts"] <= flow["ts"] < s["ts"] + s["dur"] for s in slices), flow)
            self.assertAlmostEqual(arrived["ts"] - sent["ts"], 250)
            self.assertLessEqual(arrived["ts"], finish["ts"] + 1e-6)


if __name__ == "__main__":
    program.main()
