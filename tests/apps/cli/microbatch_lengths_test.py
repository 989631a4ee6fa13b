"""simulate --microbatch-lengths: from every source of costs, in a configuration, in sweeps."""
import program

SHAPE = ("-p", 4, "-m", 8)


class MicrobatchLengthsTest(program.CommandTest):
    def makespan(self, *words):
        return self.run_rows("simulate", *words)[0]["makespan"]

    def test_every_source_of_costs(self):
        self.run_ok("schedule", "1f1b", *SHAPE, "-o", "a.csv")
        self.run_ok("simulate", "1f1b", *SHAPE, "--dump", "dumps")
        self.write("stages.yaml", "schedule: 1f1b\nstage_costs: [{}, {}, {}, {}]\n")
        self.write("layers.yaml", "schedule: 1f1b\nlayer_costs: [{layers: 4}]\n")
        lengths = ("--microbatch-lengths", "0.5,1")
        expected = self.makespan("1f1b", *SHAPE, *lengths)
        for words in (("a.csv",), ("dumps/1f1b",), ("stages.yaml",), ("layers.yaml",), ("1f1b", "--cost", "1,1,1")):
            self.assertAlmostEqual(self.makespan(*words, "--microbatch-lengths", "0.5"), 16.5, msg=words)
            self.assertAlmostEqual(self.makespan(*words, *lengths), expected, msg=words)
        model = ("1f1b", "--model", "llama-3-8b")
        self.assertAlmostEqual(self.makespan(*model, "--microbatch-lengths", "2", "--comm", 0),
                               2 * self.makespan(*model, "--comm", 0))

    def test_times_memory_and_messages_scale(self):
        words = ("1f1b", "-p", 2, "-m", 4, "--message-bytes", "1MiB")
        (row,) = self.run_rows("simulate", *words, "--microbatch-lengths", "1,0.5,2,0.5")
        self.assertEqual([rank["busy"] for rank in row["per_rank"]], [12, 12])
        self.assertEqual([rank["peak_memory"] for rank in row["per_rank"]], [2.5, 2])
        self.assertEqual(row["bytes_per_microbatch"], 2 * 2**20)
        self.assertIsNone(row["closed_form"]["makespan"])

    def test_lengths_repeat(self):
        self.assertEqual(self.makespan("1f1b", *SHAPE, "--microbatch-lengths", "1,0.5,2,0.5"),
                         self.makespan("1f1b", *SHAPE, "--microbatch-lengths", "1,0.5,2,0.5,1,0.5,2,0.5"))
        # Over the batches of a schedule without a flush, each batch begins with the first length.
        self.assertEqual(self.makespan("pipedream", "-p", 1, "-m", 3, "--steps", 2, "--microbatch-lengths", "1,3"),
                         2 * 3 * (1 + 3 + 1))

    def test_launches_and_prices(self):
        single = ("1f1b", "-p", 1, "-m", 2, "--microbatch-lengths", "1,3")
        self.assertEqual(self.makespan(*single, "--launch", 0.5), 3 * (1 + 3) + 4 * 0.5)
        self.assertEqual(self.makespan(*single, "--launch", 0.5, "--slow-rank", "0=2"), 2 * (3 * (1 + 3) + 4 * 0.5))

        def busy(*words):
            return self.run_rows("simulate", "1f1b", "-p", 2, "-m", 4, "--pass", "recompute", *words)[0]["per_rank"][0]["busy"]

        count = busy("--price", "recompute=1") - 4 * 3
        self.assertGreater(count, 0)
        self.assertEqual(busy("--price", "recompute=1", "--microbatch-lengths", 2), 2 * (4 * 3 + count))

    def test_searches_keep_to_their_limit(self):
        for name in ("zb-auto", "v-auto"):
            (row,) = self.run_rows("simulate", name, *SHAPE, "--microbatch-lengths", "1,0.5,2", "--memory-limit", 5)
            self.assertLessEqual(row["peak_memory"], 5)
        self.assertIn("limit", self.refuse("simulate", "zb-auto", *SHAPE, "--microbatch-lengths", "1,7", "--memory-limit", 5))

    def test_neutral_values_change_no_figure(self):
        names = ("1f1b", "zb-auto", "zbv", "interleaved", "dualpipe")
        plain = self.run_ok("simulate", *names, *SHAPE)
        self.assertEqual(self.run_ok("simulate", *names, *SHAPE, "--microbatch-lengths", "1,1", "--launch", 0), plain)

    def test_a_dump_keeps_the_costs(self):
        words = ("--launch", 0.25, "--slow-rank", "1=2", "--microbatch-lengths", "1,2,0.5", "--message-bytes", "1KiB")
        (made,) = self.run_rows("simulate", "1f1b", *SHAPE, *words, "--dump", "dumps")
        (read,) = self.run_rows("simulate", "dumps/1f1b")
        for key in ("makespan", "bubble", "peak_memory", "bytes_per_microbatch", "per_rank"):
            self.assertEqual(read[key], made[key], key)

    def test_configurations(self):
        self.write("a.yaml", "schedule: [1f1b, {schedule: zb-h1, microbatch_lengths: [2, 1]}]\n"
                   "microbatch_lengths: [1, 0.5, 2, 0.5]\n")
        self.assertEqual([row["makespan"] for row in self.run_rows("simulate", "a.yaml")],
                         [self.makespan("1f1b", "--microbatch-lengths", "1,0.5,2,0.5"),
                          self.makespan("zb-h1", "--microbatch-lengths", "2,1")])
        for text, words in (("[1, -2]", "microbatch_lengths -2"), ("[1, x]", "microbatch_lengths 'x'"), ("[]", "empty"),
                            ("[1, 1, 1, 1, 1, 1, 1, 1, 2]", "9 lengths for 8 microbatches")):
            self.write("b.yaml", f"schedule: 1f1b\nmicrobatch_lengths: {text}\n")
            message = self.refuse("simulate", "b.yaml")
            self.assertIn("b.yaml: line 2: ", message)
            self.assertIn(words, message)
        self.write("b.yaml", "schedule: 1f1b\nmicrobatch_length: [1]\n")
        self.assertIn("did you mean 'microbatch_lengths'?", self.refuse("simulate", "b.yaml"))
        self.assertIn("--microbatch-lengths 1,2: 2 lengths for 1",
                      self.refuse("simulate", "1f1b", "-m", 1, "--microbatch-lengths", "1,2"))

    def test_sweeps(self):
        result = self.run_json("simulate", "1f1b", "--sweep", "m=2,8", "microbatch-lengths=1,0.5,2", "microbatch-lengths=2")
        self.assertEqual([row["makespan"] for row in result["schedules"]],
                         [self.makespan("1f1b", "-m", m, "--microbatch-lengths", lengths)
                          for m, lengths in ((2, "2"), (8, "1,0.5,2"), (8, "2"))])
        self.assertIn("3 lengths for 2", result["skipped"][0]["reason"])
        self.assertIn("--microbatch-lengths", self.refuse("simulate", "1f1b", "--sweep", "microbatch-lengths=1,-1"))


if __name__ == "__main__":
    program.main()
