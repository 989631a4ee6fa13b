"""Too large numbers, names and files are refused with one line that names them."""
import json

import program

HUGE = ("1e308", "1e300", "2e15")
NAME = "a" * 100_000


class LimitsTest(program.CommandTest):
    def figures(self, *words):
        """Checks that every figure of a run is a finite number, and that no printed one is too long."""
        for row in self.run_rows(*words):
            for value in (row["makespan"], row["bubble"], row["span_bubble"], row["peak_memory"]):
                self.assertIsInstance(value, (int, float), row)
        self.assertLess(max(map(len, self.run_ok(*words).split())), 40)

    def test_costs_whose_sums_cannot_be_represented(self):
        for value in HUGE:
            for option in ("cost", "comm", "overlap"):
                self.refuse("simulate", "dualpipev", f"--{option}={value}")
            for price in ("step", "recompute", "offload", "reload", "unshard", "reduce"):
                self.assertIn("--price", self.refuse("simulate", "1f1b", "--price", f"{price}={value}"))
            self.write("d.yaml", f"schedule: 1f1b\nstage_costs: [{{forward: {value}}}]\nranks: 1\n")
            message = self.refuse("simulate", "d.yaml")
            for word in ("d.yaml", "line 2", "forward"):
                self.assertIn(word, message)
            for key in ("fwd_time", "bwd_time", "wgrad_time"):
                config = {"fwd_time": 1, "bwd_time": 1, "wgrad_time": 1, key: float(value), "schedulers": [
                    {"name": "1f1b", "pp_size": 2, "vpp_size": 1, "micro_batches": 4}]}
                self.assertIn(key, self.refuse("simulate", self.write("p.yaml", json.dumps(config))))
        for value in ("1e308", "2e18", "9999999999TiB"):
            for option in ("activation-bytes", "message-bytes", "memory-limit"):
                self.assertIn(option, self.refuse("simulate", "v-auto", f"--{option}={value}"))
            self.write("d.yaml", f"schedule: 1f1b\nstage_costs: [{{activation: {value}}}]\nranks: 1\n")
            self.assertIn("activation", self.refuse("simulate", "d.yaml"))

    def test_the_largest_costs_give_finite_figures(self):
        for words in (("--cost", "1e15"), ("--cost", "0"), ("--cost", "5e-324"), ("--comm", "1e15"),
                      ("--activation-bytes", "1e18"), ("--message-bytes", "1e18")):
            self.figures("simulate", "gpipe,1f1b,interleaved,zbv", "-p", 4, "-m", 64, *words)

    def test_times_of_dumps(self):
        self.run_ok("simulate", "1f1b", "-p", 1, "-m", 1, "--dump", ".")
        path = self.folder / "1f1b/pp_rank_0.json"
        dump = json.loads(path.read_text())
        dump["0"]["bwd_end"] = [1e308]
        path.write_text(json.dumps(dump))
        self.assertIn("bwd_end", self.refuse("simulate", "./1f1b"))

    def test_counts_do_not_overflow(self):
        most = 2**31 - 1
        for words in (("-m", most), ("-m", most, "-p", 65536), ("-p", most), ("-p", most, "-v", most)):
            self.refuse("simulate", "interleaved", *words)
        self.refuse("simulate", "pipedream", "-m", most, "--steps", most)
        self.refuse("simulate", "seq1f1b", "-m", most, "--slices", most)
        self.write("a.csv", "0F0,0B0\n")
        for words in (("--steps", most), ("--slices", most), ("--steps", most, "--slices", most, "-m", most),
                      ("--replicas", most), ("-m", most)):
            message = self.refuse("simulate", "a.csv", *words)
            self.assertNotIn(": :", message)
        self.refuse("simulate", "1f1b", "-p", 2, "-m", 2, "--run", "--unit", "1e300s")
        self.refuse("simulate", "1f1b", "-p", 2, "-m", 2, "--run", "--unit", "100s", "--cost", "1e12")

    def test_names_are_quoted_and_truncated(self):
        self.write("name.yaml", f"schedule: {NAME}\n")
        self.write("key.yaml", f"schedule: 1f1b\n{NAME}: 1\n")
        self.write("value.yaml", f"schedule: 1f1b\ncost: {NAME}\n")
        self.write("control.yaml", 'schedule: "\\e[2J1f1b\\n\\a"\n')
        for words in ((NAME[:10_000],), ("-s", NAME[:10_000]), ("name.yaml",), ("key.yaml",), ("value.yaml",),
                      ("1f1b", "--pass", NAME[:10_000]), ("1f1b", "--price", NAME[:10_000]),
                      ("1f1b", "--cost", NAME[:10_000]), ("1f1b", "--ranks", "1" * 10_000),
                      ("1f1b", "--format", NAME[:10_000]), ("1f1b", "--memory-limit", NAME[:10_000])):
            self.assertLess(len(self.refuse("simulate", *words)), 1000, [word[:40] for word in words])
        for words in (("control.yaml",), ("\x1b[2J",), ("1f1b", "--pass", "\x1b\n"), ("1f1b", "--cost", "\x9b\r"),
                      ("1f1b", "--overlap", "\x07"), ("--csv", "\x1b[31m.csv"), ("1f1b", "\x1b.yaml")):
            message = self.refuse("simulate", *words)
            self.assertTrue(message[:-1].isprintable(), repr(message))

    def test_files_are_bounded(self):
        (self.folder / "a.yaml").write_bytes(b"a" * (2 << 20))
        self.assertIn("a.yaml is too large", self.refuse("simulate", "a.yaml"))
        self.write("b.csv", "0F0,0B0\n")
        (self.folder / "b.yaml").write_bytes(b"a" * (2 << 20))
        self.assertIn("b.yaml is too large", self.refuse("simulate", "b.csv"))

    def test_blank_lines_take_no_memory(self):
        self.write("a.csv", "0F0,0B0\n" + "\n" * 20_000_000)
        self.run_ok("validate", "a.csv")
        self.write("a.csv", "\n" * 20_000_000 + "0F0,0B0\n")
        self.assertIn("line 20000001", self.refuse("validate", "a.csv"))
        self.write("a.csv", "\n" * 20_000_000)
        self.assertIn("no action", self.refuse("validate", "a.csv"))
        self.write("a.csv", "," * 20_000_000 + "0F0,0B0\n")
        self.run_ok("validate", "a.csv")


if __name__ == "__main__":
    program.main()
