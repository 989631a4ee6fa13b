"""Options of one candidate, costs of layers, memory limits in a comparison, and round trips of dumps."""
import csv
import io

import program

SHAPE = ("-p", 4, "-m", 8)


class CandidatesTest(program.CommandTest):
    def figures(self, *words):
        return [{**row, "schedule": None} for row in self.run_rows("simulate", *words)]

    def same(self, words, *expected):
        """Checks that a comparison has the figures of each candidate simulated alone."""
        self.assertEqual(self.figures(*words), [self.figures(*alone)[0] for alone in expected])

    def test_options_of_a_candidate_win_over_those_of_the_command(self):
        self.same(("interleaved:v=2", "interleaved:v=4:m=64", "1f1b", *SHAPE),
                  ("interleaved", *SHAPE, "-v", 2), ("interleaved", "-p", 4, "-m", 64, "-v", 4), ("1f1b", *SHAPE))
        self.same(("interleaved,interleaved:chunks=4,chimera:split", *SHAPE, "-v", 3, "--comm", 0.1),
                  ("interleaved", *SHAPE, "-v", 3, "--comm", 0.1), ("interleaved", *SHAPE, "-v", 4, "--comm", 0.1),
                  ("chimera", *SHAPE, "--split", "--comm", 0.1))
        self.same(("v-auto:memory-limit=3", "v-auto:memory_limit=4", *SHAPE),
                  ("v-auto", *SHAPE, "--memory-limit", 3), ("v-auto", *SHAPE, "--memory-limit", 4))
        self.same(("1f1b:pass=recompute", *SHAPE), ("1f1b", *SHAPE, "--pass", "recompute"))
        self.assertEqual([row["schedule"] for row in self.run_rows("simulate", "interleaved:v=4", "1f1b")],
                         ["interleaved:v=4", "1f1b"])
        self.assertEqual(self.run_ok("schedule", "interleaved:p=2:m=4"),
                         self.run_ok("schedule", "interleaved", "-p", 2, "-m", 4))
        for command in (("show",), ("report", "-o", "a.svg")):
            self.run_ok(*command, "interleaved:v=4", "1f1b", *SHAPE)

    def test_files_take_options_too(self):
        self.run_ok("schedule", "seq1f1b", *SHAPE, "--slices", 2, "-o", "a.csv")
        self.same(("a.csv:slices=2", "seq1f1b:slices=4", *SHAPE), ("a.csv", "--slices", 2, *SHAPE),
                  ("seq1f1b", "--slices", 4, *SHAPE))
        self.run_ok("validate", "a.csv:slices=2")

    def test_maps_in_a_configuration(self):
        self.write("a.yaml", """ranks: 4
schedule:
  - 1f1b
  - interleaved:v=2
  - {schedule: interleaved, chunks: 4, microbatches: 16}
  - {schedule: zb-h1, cost: [1, 1, 0.5], pass: "sharding=1:keep"}
""")
        self.same(("a.yaml",), ("1f1b", *SHAPE), ("interleaved", *SHAPE, "-v", 2),
                  ("interleaved", "-p", 4, "-m", 16, "-v", 4),
                  ("zb-h1", *SHAPE, "--cost", "1,1,0.5", "--pass", "sharding=1:keep"))
        self.write("b.yaml", "schedule: {schedule: interleaved, v: 4}\n")
        self.same(("b.yaml", *SHAPE), ("interleaved", *SHAPE, "-v", 4))

    def test_refusals_name_the_candidate(self):
        for word, why in (("interleaved:", "not an option"), ("interleaved:v", "no value"), ("interleaved:v=", "no value"),
                          ("interleaved:v=x", "'x'"), ("interleaved:v=04", "'04'"), ("interleaved:v=2:v=4", "twice"),
                          ("interleaved:chunk=4", "did you mean 'chunks'?"), ("interleaved:v=0", "at least 1"),
                          ("1f1b:group=2", "group"), ("1f1b:v=2", "chunks"), ("1f1b:replicas=2", "no effect"),
                          ("1f1b:iteration=0", "no effect"), ("interleaved:comm=-1", "comm"),
                          ("interleaved:split=maybe", "true or false")):
            for words in ((word,), ("gpipe", word)):
                message = self.refuse("simulate", *words)
                self.assertIn(why, message)
                self.assertIn(word.split(":")[0], message)
        self.assertIn("sets chunks itself", self.refuse("simulate", "interleaved:v=2", "interleaved:v=4", "-v", 3))
        self.write("a.yaml", "schedule:\n- 1f1b\n- {schedule: interleaved, chunk: 2}\n")
        self.assertIn("line 3: chunk: ", self.refuse("simulate", "a.yaml"))
        for text in ("[{ranks: 2}]", "[[1f1b]]", "[{schedule: 1f1b, csv: a.csv}]", "[{schedule: none}]",
                     "[{schedule: 1f1b, ranks: [2, 3]}]", "[{schedule: 1f1b, ranks: 2, ranks: 3}]"):
            self.assertIn("a.yaml: line 1", self.refuse("simulate", self.write("a.yaml", f"schedule: {text}\n")))

    def test_layer_costs_fit_any_number_of_stages(self):
        self.write("layers.yaml", "ranks: 4\nmicrobatches: 8\nlayer_costs:\n- {layers: 1, forward: 3}\n"
                   "- {layers: 9, backward_input: 2, activation: 0.5, activation_after_i: 0.25}\n")
        rows = self.run_rows("simulate", "layers.yaml", "1f1b", "zb-auto", "v-auto", "dualpipe", "interleaved:v=2")
        self.assertEqual(len(rows), 5)
        # 10 layers over 4 stages are 3, 3, 2, 2, as `penstock train` divides them; each forward and backward takes 3 or more.
        self.write("stages.yaml", """ranks: 4
microbatches: 8
stage_costs:
- {forward: 5, backward_input: 5, backward_weight: 3, activation: 2, activation_after_i: 1.5}
- {forward: 3, backward_input: 6, backward_weight: 3, activation: 1.5, activation_after_i: 0.75}
- {forward: 2, backward_input: 4, backward_weight: 2, activation: 1, activation_after_i: 0.5}
- {forward: 2, backward_input: 4, backward_weight: 2, activation: 1, activation_after_i: 0.5}
""")
        for name in ("1f1b", "zb-auto"):
            self.same(("layers.yaml", name), ("stages.yaml", name))
        self.assertIn("layer_costs", self.refuse("simulate", "stages.yaml", "1f1b", "v-auto"))
        # A slice takes its share of a microbatch's time. The busy times of all ranks add up to those of all layers.
        for row in self.run_rows("simulate", "layers.yaml", "seq1f1b:slices=2", "interleaved", "dualpipe", "zbv",
                                  "--overlap", "sum"):
            self.assertAlmostEqual(sum(rank["busy"] for rank in row["per_rank"]), 8 * (12 + 19 + 10), msg=row)
        self.assertEqual(self.figures("layers.yaml", "1f1b", "--cost", "1"), self.figures("1f1b", *SHAPE))
        self.assertIn("10 layers cannot fill 12 stages", self.refuse("simulate", "layers.yaml", "interleaved:v=3"))
        for text in ("layer_costs: []", "layer_costs: [{layers: 0}]", "layer_costs: [{layers: 9999999}]",
                     "layer_costs: [{forward: -1}]", "layer_costs: 3", "layer_costs: [{layer: 3}]",
                     "layer_costs: [{layers: 4}]\ncost: 1", "layer_costs: [{layers: 4}]\nstage_costs: [{forward: 1}]",
                     "layer_costs: [{layers: 4, activation: 1GiB}, {layers: 4}]"):
            self.assertIn("a.yaml: ", self.refuse("simulate", self.write("a.yaml", f"{text}\n"), "1f1b"))

    def test_rows_above_the_memory_limit_are_marked(self):
        words = ("simulate", "gpipe", "1f1b", "v-auto", *SHAPE, "--memory-limit", 3)
        rows = self.run_rows(*words)
        self.assertEqual([row["above_memory_limit"] for row in rows], [True, True, False])
        self.assertEqual([row["memory_limit"] for row in rows], [3, 3, 3])
        lines = [line for line in self.run_ok(*words).splitlines() if "> limit" in line]
        self.assertEqual([line.split()[0] for line in lines], ["gpipe", "1f1b"])
        table = list(csv.DictReader(io.StringIO(self.run_ok(*words, "--format", "csv"))))
        self.assertEqual([row["above_memory_limit"] for row in table], ["true", "true", "false"])
        self.assertIn("above the limit", self.run_ok("show", *words[1:]))
        sized = ("--activation-bytes", "2GiB", "--memory-limit", "6GiB")
        rows = self.run_rows("simulate", "gpipe", "v-auto", *SHAPE, *sized)
        self.assertEqual([(row["above_memory_limit"], row["memory_limit"]) for row in rows],
                         [(True, 6 * 2**30), (False, 6 * 2**30)])
        rows = self.run_rows("simulate", "gpipe", "1f1b", *SHAPE)
        self.assertNotIn("memory_limit", rows[0])
        for name in ("1f1b", "gpipe", "zbv"):
            (alone,) = self.run_rows("simulate", name, *SHAPE, "--memory-limit", 3)
            self.assertTrue(alone["above_memory_limit"])
            self.assertIn("> limit", self.run_ok("simulate", name, *SHAPE, "--memory-limit", 3))
            self.assertFalse(self.run_rows("simulate", name, *SHAPE, "--memory-limit", 9)[0]["above_memory_limit"])
        # One candidate with its own limit.
        table = list(csv.DictReader(io.StringIO(self.run_ok("simulate", "gpipe", "1f1b:memory_limit=3", *SHAPE,
                                                            "--format", "csv"))))
        self.assertEqual([row["above_memory_limit"] for row in table], ["null", "true"])

    def test_passes_take_sizes_as_the_memory_limit_does(self):
        for pass_name in ("offload", "recompute"):
            (count,) = self.run_rows("simulate", "gpipe", *SHAPE, "--activation-bytes", "1GiB",
                                     "--pass", f"{pass_name}=6", "--price", "offload=0.1"
                                     if pass_name == "offload" else "recompute=1")
            (size,) = self.run_rows("simulate", "gpipe", *SHAPE, "--activation-bytes", "1GiB",
                                    "--pass", f"{pass_name}=6GiB", "--price", "offload=0.1"
                                    if pass_name == "offload" else "recompute=1")
            self.assertEqual(count, size)
            self.assertLessEqual(size["peak_memory"], 6 * 2**30)
            self.assertIn("--activation-bytes", self.refuse("simulate", "gpipe", "--pass", f"{pass_name}=6GiB"))
            for limit in ("0", "-1", "six", "1e300"):
                self.assertIn(pass_name, self.refuse("simulate", "gpipe", "--pass", f"{pass_name}={limit}"))

    def test_dumps_round_trip_with_latency_and_unit(self):
        self.write("layers.yaml", "layer_costs:\n- {layers: 9, backward_input: 1.3, activation: 512MiB, "
                   "activation_after_i: 100MiB}\n- {layers: 2, forward: 3, activation: 1GiB}\n")
        for words in ((*SHAPE, "--comm", 0.3, "--activation-bytes", "1.5GiB", "--message-bytes", "1MiB"),
                      (*SHAPE, "layers.yaml", "--comm", 0.7, "--message-bytes", "4MiB"), SHAPE):
            for name in ("1f1b", "zb-auto", "interleaved", "dualpipev"):
                overlap = ("--overlap", "0.6") if name == "dualpipev" else ()
                (made,) = self.run_rows("simulate", name, *words, *overlap, "--dump", "dumps")
                (read,) = self.run_rows("simulate", f"dumps/{name}")
                for key in ("makespan", "bubble", "peak_memory", "messages", "bytes_per_microbatch", "per_rank"):
                    self.assertEqual(read[key], made[key], (name, words, key))
                unit = words != SHAPE
                self.assertEqual("memory in activations" in self.run_ok("simulate", f"dumps/{name}"), not unit)
                (slower,) = self.run_rows("simulate", f"dumps/{name}", "--comm", 2)
                self.assertGreater(slower["makespan"], made["makespan"])
        self.run_ok("simulate", "1f1b", *SHAPE, "--activation-bytes", "1GiB", "--dump", "dumps")
        self.refuse("simulate", "dumps/1f1b", "--activation-bytes", "1GiB")
        (row,) = self.run_rows("simulate", "dumps/1f1b", "--memory-limit", "3GiB")
        self.assertTrue(row["above_memory_limit"])
        self.assertIn("unit", self.refuse("simulate", "dumps/1f1b", "--memory-limit", 3))
        config = self.folder / "dumps/1f1b/penstock.json"
        for broken in ('"comm": 1e300', '"comm": "x"', '"memory_unit": "GB"', '"overlap": -1', '"stage_costs": []'):
            key = broken.split(":")[0]
            text = config.read_text()
            config.write_text(text.replace(f"{key}:", '"unused":', 1).replace("{", "{" + broken + ",", 1))
            self.assertIn("penstock.json: ", self.refuse("simulate", "dumps/1f1b"))
            config.write_text(text)
        # Replaces the files of the ranks by those of another run.
        self.run_ok("simulate", "1f1b", *SHAPE, "--cost", 2, "--dump", "others")
        for rank in range(4):
            (self.folder / f"others/1f1b/pp_rank_{rank}.json").rename(self.folder / f"dumps/1f1b/pp_rank_{rank}.json")
        (row,) = self.run_rows("simulate", "dumps/1f1b")
        self.assertEqual(row["makespan"], 2 * 33)


if __name__ == "__main__":
    program.main()
