"""The sentences above comparisons: each figure in them is the one that --json prints, and each advice holds."""
import re
import shlex
import statistics

import program

NUMBER = r"(\d+(?:\.\d+)?)"


class ConclusionsTest(program.CommandTest):
    def sentences(self, *words):
        """The lines before the first table or picture."""
        return self.run_ok(*words).split("\n\n")[0].splitlines()

    def test_slow_ranks_are_named(self):
        for factor in (1.2, 1.5, 2, 3):
            for ranks in (2, 4, 5, 8):
                words = ("1f1b", "-p", ranks, "-m", 8, "--slow-rank", f"1={factor}")
                line, = [each for each in self.sentences("show", *words, "--explain") if "median" in each]
                rank, busy, times, median = re.match(rf"Rank (\d+) computes for {NUMBER}, {NUMBER} times as long as the median rank \({NUMBER}\)", line).groups()
                (result,) = self.run_rows("simulate", *words)
                all_busy = [each["busy"] for each in result["per_rank"]]
                self.assertEqual(int(rank), 1)
                self.assertAlmostEqual(float(busy), max(all_busy))
                self.assertAlmostEqual(float(times), factor, places=2)
                self.assertAlmostEqual(float(median), statistics.median_low(all_busy))
        for words in (("1f1b", "-p", 4, "-m", 8), ("zbv", "-p", 4, "-m", 8, "--comm", 1), ("1f1b", "-p", 1, "-m", 8)):
            self.assertNotIn("median", "\n".join(self.sentences("show", *words, "--explain")))

    def test_what_vanishes_between_two_schedules(self):
        for words in (("1f1b", "zb-h1", "-p", 4, "-m", 8), ("zb-h1", "1f1b", "-p", 4, "-m", 8), ("gpipe", "zbv", "-p", 4, "-m", 8, "--comm", 0.25),
                      ("1f1b", "interleaved", "-p", 8, "-m", 32, "--comm", 0.1), ("1f1b", "1f1b:comm=0.5", "-p", 4, "-m", 8),
                      ("1f1b", "naive", "-p", 4, "-m", 4)):
            with self.subTest(words=words):
                first, second = self.run_json("diff", *words)["schedules"]
                text = self.sentences("diff", *words)[0]
                a, b = first["makespan"], second["makespan"]
                name, longer = second["schedule"], max(a, b)
                self.assertTrue(text.startswith(f"{name} takes "), text)
                if abs(a - b) > 0.001 * a:
                    self.assertIn(f"{abs(b / a - 1):.1%} {'less' if b < a else 'more'} than {first['schedule']} with", text)
                for cause in first["time_per_rank"]["idle"]:
                    before, after = (each["time_per_rank"]["idle"][cause] for each in (first, second))
                    changes = abs(after - before) >= 0.01 * longer
                    said = re.search(rf"{cause} (vanishes, which saves|appears, which costs|is) {NUMBER}(?: (shorter|longer))?", text)
                    self.assertEqual(said is not None, changes, (cause, text))
                    if not changes:
                        continue
                    how, amount, way = said.groups()
                    self.assertEqual(how.split(",")[0], "vanishes" if after < 1e-9 * longer else "appears" if before < 1e-9 * longer else "is")
                    self.assertEqual(way, None if how != "is" else "shorter" if after < before else "longer")
                    self.assertAlmostEqual(float(amount), abs(after - before), delta=1e-3 * longer)

    def test_assumptions_are_said(self):
        """A schedule of pairs is priced at the longer of two times, and two chains hold the weights twice."""
        pairs, chains = "if overlapped pairs of {} take the longer of their two times", "ranks of {} hold the weights of 2 chains"
        for name, has_pairs, has_chains in (("dualpipe", True, True), ("dualpipev", True, False), ("chimera", False, True), ("zbv", False, False)):
            for words in (("diff", "1f1b", name), ("simulate", "1f1b", name, "zb-h1"), ("show", "1f1b", name, "--explain")):
                text = self.sentences(*words, "-p", 4, "-m", 8, "--comm", 0.1)[0]
                if name in text:
                    self.assertEqual((pairs.format(name) in text, chains.format(name) in text), (has_pairs, has_chains), text)
            if has_pairs:
                self.assertNotIn(pairs.format(name), self.run_ok("diff", "1f1b", name, "--overlap", "sum"))

    def test_advice_holds(self):
        for words in (("1f1b", "-p", 4, "-m", 8), ("gpipe", "-p", 8, "-m", 16, "--comm", 0.1), ("zbv", "-p", 4, "-m", 8), ("1f1b", "gpipe", "-p", 4, "-m", 8),
                      ("interleaved:chunks=2", "-p", 4, "-m", 8), ("1f1b", "--model", "llama-3-8b", "--device", "h100", "-p", 4, "-m", 16)):
            with self.subTest(words=words):
                lines = self.sentences("show", *words, "--explain")
                commands = [line.strip() for line in lines if line.startswith("  penstock")]
                if not commands:
                    continue
                tried = self.run_rows(*shlex.split(commands[0])[1:])
                advice = lines[lines.index("  " + commands[0]) - 1]
                if advice.startswith("Within the"):
                    before, after = tried
                    share, = re.findall(r"([\d.]+)% less", advice)
                    self.assertIn(f"{after['schedule']} takes", advice)
                    self.assertAlmostEqual(float(share) / 100, 1 - after["makespan"] / before["makespan"], delta=6e-4)
                    if "same memory" in advice:
                        self.assertLessEqual(after["peak_memory"], before["peak_memory"] * (1 + 1e-9))
                else:
                    self.assertIn(f"the bubble is {tried[0]['bubble']:.1%}", advice)

    def test_several_schedules_have_causes_and_figures_of_each_rank(self):
        words = ("1f1b", "zb-h1", "zbv", "-p", 3, "-m", 6)
        text = self.run_ok("simulate", *words)
        self.assertTrue(text.startswith("The shortest is zbv. zbv takes "), text)
        self.assertIn("idle: warm-up", text)
        results = self.run_rows("simulate", *words)
        for rank in range(3):
            row = next(line.split() for line in text.splitlines() if re.match(rf" *{rank} +\d+\.\d%", line))
            self.assertEqual(row[1::2], [f"{1 - each['per_rank'][rank]['busy'] / each['makespan']:.1%}" for each in results])

    def test_pages_begin_with_the_same_sentences(self):
        for words in (("1f1b", "zb-h1", "-p", 4, "-m", 8), ("1f1b", "-p", 4, "-m", 8, "--slow-rank", "2=1.5")):
            self.run_ok("report", *words, "-o", "a.html")
            page = (self.folder / "a.html").read_text(encoding="utf-8")
            for line in self.sentences(*(("diff",) if len(words) == 6 else ("show", "--explain")), *words):
                self.assertIn(line.strip().rstrip(":"), page)


if __name__ == "__main__":
    program.main()
