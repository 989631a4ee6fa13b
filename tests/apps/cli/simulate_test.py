"""simulate: figures, output formats, refusals."""
import csv
import io

import program

KEYS = ["schedule", "ranks", "chunks", "microbatches", "actions", "time_unit", "memory_unit", "makespan", "bubble",
        "span_bubble", "peak_memory", "messages", "bytes_per_microbatch", "closed_form", "per_rank"]
FORM_KEYS = ["makespan", "bubble", "peak_memory", "messages", "bytes_per_microbatch"]
RANK_KEYS = ["busy", "first_start", "last_end", "peak_memory"]


class SimulateTest(program.CommandTest):
    def test_json_has_the_documented_keys(self):
        (row,) = self.run_rows("simulate", "--schedule", "1f1b", "-p", 8, "-m", 32)
        self.assertEqual(list(row), KEYS)
        self.assertEqual(len(row["per_rank"]), 8)
        for rank in row["per_rank"]:
            self.assertEqual(list(rank), RANK_KEYS)
        self.assertEqual([row[key] for key in (*KEYS[:5], "makespan")], ["1f1b", 8, 1, 32, 512, 117])
        self.assertAlmostEqual(row["bubble"], 1 - 96 / 117)
        self.assertEqual(row["peak_memory"], 8)
        self.assertEqual(row["messages"], 2 * 7 * 32)
        self.assertEqual(row["closed_form"],
                         {**{key: row[key] for key in FORM_KEYS}, "bytes_per_microbatch": None})

    def test_a_training_configuration_is_priced(self):
        self.write("run.yaml", "model: {dim: 1024, layers: 8, sequence: 512}\npipeline: {microbatches: 16}\n"
                               "batch: 2\noptimizer: {name: muon}\n")
        self.assertIn("device", self.refuse("simulate", "run.yaml"))
        (row,) = self.run_rows("simulate", "run.yaml", "--device", "h100")
        self.assertEqual([row[key] for key in ("schedule", "ranks", "microbatches", "time_unit")], ["1f1b", 4, 16, "s"])
        (other,) = self.run_rows("simulate", "run.yaml", "--device", "h100", "-m", 8)
        self.assertLess(other["makespan"], row["makespan"])
        self.assertIn("not priced: optimizer.name", self.run_ok("simulate", "run.yaml", "--device", "h100"))
        self.write("bad.yaml", "model: {layers: 2}\npipeline: {ranks: 4}\n")
        self.assertIn("bad.yaml: line 1: 2 layers cannot fill 4 stages",
                      self.refuse("simulate", "bad.yaml", "--device", "h100"))

    def test_reference_figures(self):
        rows = self.run_rows("simulate", "--schedule", "naive,gpipe,1f1b,interleaved", "-p", 8,
                             "-m", 32)
        self.assertEqual([row["makespan"] for row in rows], [768, 117, 117, 106.5])
        self.assertEqual([row["peak_memory"] for row in rows], [1, 32, 8, 11.5])

    def test_costs_are_per_rank_and_microbatch(self):
        for name in ("1f1b", "interleaved"):
            (row,) = self.run_rows("simulate", "--schedule", name, "-p", 4, "-m", 8, "--cost",
                                   "2,3,4", "--comm", 0)
            for rank in row["per_rank"]:
                self.assertAlmostEqual(rank["busy"], 8 * 9)

    def test_comm_delays(self):
        words = ("simulate", "--schedule", "gpipe", "-p", 3, "-m", 1)
        self.assertEqual(self.run_rows(*words)[0]["makespan"], 9)
        self.assertEqual(self.run_rows(*words, "--comm", 0.25)[0]["makespan"], 10)

    def test_time_steps(self):
        (row,) = self.run_rows("simulate", "--schedule", "gpipe", "-p", 2, "-m", 1, "--time-steps")
        self.assertEqual(row["time_steps"],
                         [[{"action": "0F0", "start": 0, "end": 1},
                           {"action": "0B0", "start": 4, "end": 6}],
                          [{"action": "1F0", "start": 1, "end": 2},
                           {"action": "1B0", "start": 2, "end": 4}]])
        self.assertIn("1B0", self.run_ok("simulate", "--schedule", "gpipe", "-p", 2, "-m", 1,
                                         "--time-steps"))

    def test_run_matches_the_prediction(self):
        names = "1f1b,zbv,dualpipe,seq1f1b,pipedream"
        for row in self.run_rows("simulate", "-s", names, "-p", 4, "-m", 8, "--slices", 2, "--steps",
                                 2, "--comm", 0.5, "--run", "--unit", "1ms"):
            run = row["measured"]
            self.assertEqual(run["messages"], row["messages"], row["schedule"])
            self.assertAlmostEqual(run["peak_memory"], row["peak_memory"])
            self.assertGreater(run["makespan"], 0.99 * row["makespan"])  # no sleep ends early
            self.assertEqual(run["unit_seconds"], 0.001)
            self.assertEqual([len(run["per_rank"]), list(run["per_rank"][0])], [4, RANK_KEYS])

    def test_run_prints_predicted_and_measured(self):
        words = ("simulate", "-s", "gpipe", "-p", 2, "-m", 2, "--run", "--unit")
        text = self.run_ok(*words, "2ms")
        for word in ("measured", "One unit is 2.0 ms"):
            self.assertIn(word, text)
        # On a loaded machine, all threads may start their actions late, which then look short.
        self.assertRegex(text, "gpipe: (furthest from the plan: |no action took longer than planned)")
        self.assertNotIn("too short", text)
        (row,) = csv.DictReader(io.StringIO(self.run_ok(*words, "2ms", "--format", "csv")))
        self.assertEqual(row["measured_messages"], row["messages"])
        self.assertIn("The shortest action takes 100.0 us, too short to emulate well: give a --unit "
                      "of at least 1.0 ms.", self.run_ok(*words, "100us"))
        for unit in ("5", "ms", "-1ms", "0s", "1h"):
            self.assertIn("--unit", self.refuse(*words, unit))

    def test_ctrl_c_ends_a_run_at_once(self):
        result = self.interrupt("simulate", "-s", "1f1b", "-p", 4, "--run", "--unit", "1000s",
                                thread="rank 3")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertEqual(result.stderr, "penstock: error: 1f1b: stopped on request\n")

    def test_file_has_the_figures_of_its_schedule(self):
        for name in ("1f1b", "interleaved"):
            for lower in ((), ("--lower",)):
                self.run_ok("schedule", name, "-p", 4, "-m", 8, "-o", "a.csv", *lower)
                (made,) = self.run_rows("simulate", "--schedule", name, "-p", 4, "-m", 8)
                (read,) = self.run_rows("simulate", "--csv", "a.csv")
                self.assertEqual(set(read["closed_form"].values()), {None})
                self.assertEqual({**read, "schedule": name, "closed_form": made["closed_form"]}, made)

    def test_comparison_lists_closed_forms(self):
        words = ("simulate", "--schedule", "gpipe,1f1b,interleaved", "-p", 8, "-m", 32)
        lines = self.run_ok(*words).splitlines()
        self.assertEqual(lines[6].split(), ["interleaved", "8", "2", "32", "1024", "106.5*", "0.91x", "9.9%*",
                                            "9.9%*", "11.5", "0.36x", "960", "30", "S"])
        self.assertEqual(lines[7].split(),
                         ["closed", "form", "106.5", "9.9%", "11.5", "960", "30", "S"])
        self.assertLessEqual(max(map(len, lines)), 145)
        sized = self.run_ok(*words, "--message-bytes", "16MiB").splitlines()
        self.assertEqual(sized[6].split()[-2:], ["480.0", "MiB"])
        self.assertEqual(sized[7].split()[-2:], ["480.0", "MiB"])

    def test_the_best_of_each_column_is_marked(self):
        words = ("simulate", "gpipe", "1f1b", "interleaved", "-p", 8, "-m", 32)
        text = self.run_ok(*words)
        self.assertNotIn("\x1b", text)
        cells = {line.split()[0]: line.split()[5:] for line in text.splitlines()[2:] if line[:1].isalnum()}
        self.assertEqual(cells["gpipe"], ["117", "1.00x", "17.9%", "17.9%", "32", "1.00x", "448*", "14", "S*"])
        self.assertEqual(cells["1f1b"], ["117", "1.00x", "17.9%", "17.9%", "8*", "0.25x", "448*", "14", "S*"])
        self.assertIn("* the best value; vs first: ratio to the first row.", text)
        self.assertEqual(self.on_terminal(*words).count("\x1b[1m"), 8)
        self.assertEqual(self.on_terminal(*words).replace("\x1b[1m", "").replace("\x1b[0m", ""), text)
        for refusal in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            self.assertEqual(self.on_terminal(*words, env=refusal), text)

    def test_nothing_is_marked_where_there_is_no_choice(self):
        for words in (("1f1b",), ("1f1b", "1f1b"), ("1f1b:m=16:activation-bytes=1GiB", "gpipe:p=2:m=8")):
            text = self.run_ok("simulate", *words)
            self.assertEqual("vs first" in text, len(words) > 1)
            peaks = [line for line in text.splitlines() if "GiB*" in line]
            self.assertEqual(peaks, [], "memory in different units")
        self.assertNotIn("*", self.run_ok("simulate", "1f1b", "1f1b"))

    def test_a_schedule_above_the_limit_is_never_the_best(self):
        words = ("simulate", "gpipe", "1f1b", "interleaved", "-p", 4, "-m", 8, "--memory-limit", 4)
        rows = [line for line in self.run_ok(*words).splitlines() if " > limit" in line]
        self.assertEqual(len(rows), 2)
        for row in rows:
            self.assertNotIn("*", row)

    def test_overlapped_pairs_are_priced_by_max_and_sum_side_by_side(self):
        for name in ("dualpipe", "dualpipev"):
            words = ("simulate", name, "-p", 8, "-m", 32, "--cost", "1,1.5,0.5")
            (longer,) = self.run_rows(*words)
            (added,) = self.run_rows(*words, "--overlap", "sum")
            both = longer["overlap_sum"]
            self.assertEqual(both, {key: added[key] for key in both})
            self.assertGreater(both["makespan"], longer["makespan"])
            self.assertNotIn("overlap_sum", added)
            lines = self.run_ok(*words).splitlines()
            self.assertEqual(lines[3].split()[:3], ["--overlap", "sum", f"{added['makespan']:g}"])
            (row,) = csv.DictReader(io.StringIO(self.run_ok(*words, "--format", "csv")))
            self.assertEqual(float(row["overlap_sum_makespan"]), added["makespan"])
            page = self.run_ok("schedules", name, "-p", 8, "-m", 32)
            self.assertIn("  --overlap sum", page)
        self.assertNotIn("overlap", self.run_ok("simulate", "1f1b", "zbv", "-p", 8, "-m", 32))

    def test_bytes_of_a_microbatch(self):
        for name, words, edges in (("1f1b", (), 3), ("interleaved", (), 7), ("zbv", (), 6),
                                   ("chimera", (), 3), ("hanayo", ("--waves", 2), 12),
                                   ("seq1f1b", ("--slices", 4), 3), ("pipedream", ("--steps", 3), 3)):
            (row,) = self.run_rows("simulate", "-s", name, "-p", 4, "-m", 8, *words,
                                   "--message-bytes", "1KiB")
            self.assertAlmostEqual(row["bytes_per_microbatch"], 2 * edges * 1024, msg=name)
            self.assertEqual(row["closed_form"]["bytes_per_microbatch"],
                             row["bytes_per_microbatch"])
            self.assertEqual(row["closed_form"]["messages"], row["messages"])

    def test_memory_in_bytes(self):
        words = ("simulate", "-s", "1f1b", "-p", 4, "-m", 8, "--activation-bytes", "1.5GiB")
        (row,) = self.run_rows(*words)
        self.assertEqual(row["peak_memory"], 6 * 2**30)
        self.assertEqual(row["closed_form"]["peak_memory"], 6 * 2**30)
        self.assertIn("6.00 GiB", self.run_ok(*words))
        self.assertIn("6.00 GiB", self.run_ok("show", *words[1:]))
        for size in ("activation-bytes=0", "message-bytes=-1GiB", "activation-bytes=1 parsec",
                     "message-bytes=GiB", "activation-bytes="):
            self.refuse("simulate", "-s", "1f1b", f"--{size}")

    def test_memory_limit_in_activations_or_bytes(self):
        words = ("simulate", "-s", "v-auto", "-p", 4, "-m", 8)
        (by_count,) = self.run_rows(*words, "--memory-limit", 3)
        (by_size,) = self.run_rows(*words, "--memory-limit", "6GiB", "--activation-bytes", "2GiB")
        self.assertEqual(by_count["makespan"], by_size["makespan"])
        self.assertEqual(by_count["peak_memory"] * 2**31, by_size["peak_memory"])
        self.assertLessEqual(by_size["peak_memory"], 6 * 2**30)
        self.assertIn("--activation-bytes", self.refuse(*words, "--memory-limit", "6GiB"))
        for limit in ("0", "-1", "0GiB", "six", "6 apples"):
            self.refuse(*words, f"--memory-limit={limit}")

    def test_memory_limit_of_stages_in_bytes(self):
        stages = "".join(f"- {{activation: {size}}}\n" for size in ("1GiB", "2GiB", "1GiB"))
        self.write("a.yaml", f"schedule: zb-auto\nranks: 3\nstage_costs:\n{stages}")
        (row,) = self.run_rows("simulate", "a.yaml", "--memory-limit", "4GiB")
        self.assertLessEqual(row["peak_memory"], 4 * 2**30)
        self.assertGreaterEqual(row["peak_memory"], 2 * 2**30)
        self.assertIn("unit", self.refuse("simulate", "a.yaml", "--memory-limit", 4))
        self.refuse("simulate", "a.yaml", "--activation-bytes", "1GiB")
        self.write("b.yaml", f"schedule: zb-auto\nranks: 3\nstage_costs:\n"
                             f"{stages.replace('2GiB', '2')}")
        self.assertIn("unit", self.refuse("simulate", "b.yaml"))
        self.write("c.yaml", "schedule: zb-auto\nranks: 1\n"
                             "stage_costs: [{activation: 1GiB, activation_after_i: 0.5}]\n")
        self.assertIn("unit", self.refuse("simulate", "c.yaml"))

    def test_memory_limit_counts_what_stages_hold(self):
        stages = "stage_costs: [{activation: 1}, {activation: 1}, {activation: 1}, {activation: 1}]\n"
        self.write("a.yaml", f"schedule: hanayo\nranks: 2\nmicrobatches: 6\n{stages}")
        (row,) = self.run_rows("simulate", "a.yaml", "--memory-limit", 3)
        self.assertLessEqual(row["peak_memory"], 3)
        self.assertIn("at least 2", self.refuse("simulate", "a.yaml", "--memory-limit", 1.5))
        self.write("b.yaml", (self.folder / "a.yaml").read_text().replace(": 1}", ": 2GB}"))
        (row,) = self.run_rows("simulate", "b.yaml", "--memory-limit", "9GB")
        self.assertLessEqual(row["peak_memory"], 9e9)
        message = self.refuse("simulate", "b.yaml", "--memory-limit", "3GB")
        self.assertIn("--memory-limit 3GB", message)
        self.assertIn("must be at least 4GB", message)
        by_size = ("simulate", "-s", "hanayo", "-p", 4, "--activation-bytes", "2GiB")
        self.assertIn("must be at least 2GiB", self.refuse(*by_size, "--memory-limit", "1.5GiB"))
        (row,) = self.run_rows(*by_size, "--memory-limit", "100GiB")
        self.assertLessEqual(row["peak_memory"], 100 * 2**30)

    def test_csv_output(self):
        text = self.run_ok("simulate", "--schedule", "gpipe,1f1b", "--format", "csv")
        rows = list(csv.DictReader(io.StringIO(text)))
        self.assertEqual(list(rows[0]), KEYS[:-2] + [f"closed_form_{key}" for key in FORM_KEYS])
        self.assertEqual([row["schedule"] for row in rows], ["gpipe", "1f1b"])

    def test_invalid_schedules_are_refused(self):
        for text in ("0B0,0F0\n", "0F0\n", "0F0,0F0,0B0\n", "0F0,0B0\n1B0,1F0\n",
                     "0F0,0B0\n1RECV_F0,1F0,1B0\n"):
            self.write("a.csv", text)
            for command in (("simulate",), ("show",), ("report", "-o", "a.html")):
                self.assertIn("a.csv", self.refuse(*command, "--csv", "a.csv"))
        self.assertEqual(self.files(), ["a.csv"])
        self.refuse("simulate", "--csv", "none.csv")
        self.refuse("simulate", "--schedule", "1f1b", "--format", "xml")

    def test_memory_that_w_keeps(self):
        last = {kept: self.run_rows("simulate", "zb-h2", "-p", 4, "-m", 16, "--cost", f"1,1,1,{kept}")[0]["per_rank"][-1]
                for kept in (1, 0.5, 0)}
        self.assertLess(last[0.5]["peak_memory"], last[1]["peak_memory"])  # the last rank delays most W
        self.assertEqual(last[0]["peak_memory"], 1)

    def test_a_whole_backward_costs_less_than_its_parts(self):
        stage = "{forward: 1, backward_input: 1, backward_weight: 1, backward: 1.6}"
        self.write("config.yaml", f"schedule: [1f1b, zb-h1]\nranks: 2\nmicrobatches: 8\nstage_costs: [{stage}, {stage}]\n")
        whole, split = self.run_rows("simulate", "config.yaml")
        self.assertAlmostEqual(whole["makespan"], 9 * 2.6)
        self.assertAlmostEqual(split["makespan"], 25)
        self.run_ok("simulate", "config.yaml", "--dump", "dumps")
        self.assertEqual(self.run_rows("simulate", "dumps/1f1b")[0]["makespan"], whole["makespan"])
        ran = self.run_rows("simulate", "config.yaml", "--run", "--unit", "10ms")[0]["measured"]
        self.assertGreater(ran["makespan"], 0.9 * whole["makespan"])
        self.write("config.yaml", "schedule: 1f1b\nlayer_costs: [{layers: 4, backward: 2.1}]\n")
        self.assertIn("line 2", self.refuse("simulate", "config.yaml"))

    def test_repeat(self):
        words = ("-p", 4, "-m", 16, "--repeat", 4)
        steady = [row["steady_step"] for row in self.run_rows("simulate", "1f1b", "zb-h2", "pipedream:steps=4", *words)]
        self.assertEqual(steady, [57, 48, 48])
        self.assertIn("steady step", self.run_ok("simulate", "zb-h2", *words))
        barrier = self.run_rows("simulate", "zb-h2", *words, "--pass", "optimizer", "--price", "step=1")[0]
        self.assertEqual(barrier["steady_step"], 52)
        self.assertIn("2 to 1000", self.refuse("simulate", "1f1b", "--repeat", 1))
        self.assertIn("--steps", self.refuse("simulate", "pipedream", "--repeat", 3))

    def test_objective(self):
        words = ("-p", 8, "-m", 24, "--cost", "18.522,18.086,9.337,.367", "--comm", 0.601, "--memory-limit", 16)
        makespan, span = self.run_rows("simulate", "zb-auto", "zb-auto:objective=span", *words)
        self.assertLess(span["span_bubble"], makespan["span_bubble"])
        self.assertLessEqual(makespan["makespan"], span["makespan"])
        self.write("config.yaml", "schedule: zb-auto\nobjective: span\nranks: 8\nmicrobatches: 24\nmemory_limit: 16\n"
                   "comm: 0.601\ncost: [18.522, 18.086, 9.337, 0.367]\n")
        self.assertEqual(self.run_rows("simulate", "config.yaml")[0]["span_bubble"], span["span_bubble"])
        self.assertIn("did you mean 'span'", self.refuse("simulate", "zb-auto", "--objective", "spam"))


if __name__ == "__main__":
    program.main()
