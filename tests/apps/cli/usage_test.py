"""Common to all commands: help, version, refusals."""
import json
import random
import re

import program

COMMANDS = ("schedules", "schedule", "validate", "simulate", "show", "diff", "report", "calibrate", "watch",
            "checkpoint", "launch", "completion", "man")
# Their output is no table.
WITHOUT_JSON = ("launch", "completion", "man")


class UsageTest(program.CommandTest):
    def test_version(self):
        for word in ("version", "--version", "-V"):
            self.assertRegex(self.run_ok(word), r"^penstock \d+\.\d+\.\d+\n$")

    def test_help_of_the_program(self):
        listing = self.run_ok("--help")
        for command in COMMANDS:
            self.assertIn(f"  {command} ", listing)
        for words in ((), ("help",), ("-h",)):
            self.assertEqual(self.run_ok(*words), listing, words)

    def test_help_of_a_command(self):
        for command in COMMANDS:
            text = self.run_ok(command, "--help")
            self.assertIn(f"Usage: penstock {command} ", text)
            if command not in WITHOUT_JSON:
                self.assertIn("--json", text)
            self.assertEqual(self.run_ok("help", command), text)
            self.assertEqual(self.run_ok("--help", command), text)

    def test_help_fits_a_terminal_and_says_the_exit_codes(self):
        commands = re.findall(r"^  ([\w-]+)  ", self.run_ok("--help"), re.MULTILINE)
        self.assertLessEqual(set(COMMANDS), set(commands))
        for command in ["", *sorted(set(commands) - {"help", "version"})]:
            text = self.run_ok("help", *command.split())
            self.assertLessEqual(max(map(len, text.splitlines())), 80, command)
            self.assertRegex(text, r"(?s)\nExit codes: 0 .*;\s2\s", command)
            self.assertNotRegex(text, r"\b(INT|UINT|FLOAT|TEXT:|REQUIRED)\b", command)

    def test_help_is_as_wide_as_the_terminal(self):
        for columns, most in ((70, 70), (90, 90), (300, 100)):
            text = self.on_terminal("simulate", "--help", columns=columns)
            longest = max(map(len, text.splitlines()))
            self.assertTrue(most - 5 <= longest <= most, (columns, longest))

    def test_short_help_names_every_option(self):
        for command in (*COMMANDS, "train", "graph", "generate"):
            text, brief = self.run_ok(command, "--help"), self.run_ok(command, "-h")
            self.assertLess(len(brief), len(text), command)
            self.assertLessEqual(max(map(len, brief.splitlines())), 80, command)
            self.assertIn(f"'penstock {command} --help' says more.", brief)
            for option in re.findall(r"(?m)^  (?:-., )?(--[a-z0-9-]+)", text):
                self.assertIn(option, brief, command)

    def test_every_command_has_examples(self):
        self.write("mine.csv", self.run_ok("schedule", "1f1b"))
        commands = re.findall(r"^  ([\w-]+)  ", self.run_ok("--help"), re.MULTILINE)
        for command in sorted(set(commands) - {"help", "version"}):
            text = self.run_ok("help", command)
            examples = re.search(r"\nExamples:\n(.*?)\n\n", text, re.DOTALL)[1]
            lines = re.findall(r"(?m)^  (\S.*)$", examples)
            self.assertTrue(lines, command)
            page = self.run_ok("man", command)
            self.assertIn(".SH EXAMPLES", page)
            for line in lines:
                self.assertIn(f"penstock {command}", line)
                for option in re.findall(r" (--?[a-z][a-z0-9-]*)", line.partition(" -- ")[0].partition(" | ")[0]):
                    self.assertIn(option, text, line)
                words = line.split()[1:]
                if command in ("schedules", "schedule", "validate", "simulate", "show", "diff", "report"):
                    self.run_ok(*words)
        self.assertIn("\nExamples:\n", self.run_ok("help"))

    def test_quiet_prints_only_errors(self):
        for words in (("simulate", "1f1b"), ("schedules",), ("schedule", "1f1b", "-o", "a.csv"), ("validate", "a.csv")):
            self.assertNotEqual(self.run_ok(*words), "")
            for quiet in ("-q", "--quiet"):
                self.assertEqual(self.run_ok(*words, quiet), "", words)
        self.assertIn("a.csv", self.files())
        self.refuse("simulate", "1f2b", "-q")

    def test_help_groups_the_shared_options(self):
        for command in ("schedule", "show", "simulate", "report"):
            text = self.run_ok(command, "--help")
            groups = [re.search(rf"(?m)^{group}:$", text).start() for group in
                      ("Arguments", "Schedules", "Shape", "Costs", "Passes", "Output")]
            self.assertEqual(groups, sorted(groups), command)
            self.assertLess(text.index("Shape:"), text.index("--ranks N"))
            self.assertLess(text.index("--ranks N"), text.index("Costs:"))

    def test_schedules_lists_the_passes_and_chosen_names(self):
        listed = self.run_json("schedules", "--passes")
        self.assertIn("recompute", [entry["name"] for entry in listed["passes"]])
        self.assertIn("offload", [entry["key"] for entry in listed["prices"]])
        self.assertIn("recompute", self.run_ok("schedules", "--passes"))
        rows = self.run_rows("schedules", "zbv", "1F1B", "-p", 4)
        self.assertEqual([row["name"] for row in rows], ["zbv", "1f1b"])
        self.refuse("schedules", "1f1b", "--passes")

    def test_mistyped_words_get_the_nearest_name(self):
        self.write("a.csv", "0F0,0B0\n")
        for words, meant in (
                (["sho"], "show"), (["simulat"], "simulate"), (["reprot", "1f1b"], "report"),
                (["tarin"], "train"), (["hepl"], "help"), (["versio"], "version"),
                (["help", "sho"], "show"), (["--versio"], "--version"), (["--hlep"], "--help"),
                (["show", "1f1b", "--rank", "4"], "--ranks"),
                (["show", "1f1b", "--microbatch=4"], "--microbatches"),
                (["show", "1f1b", "-ranks", "4"], "--ranks"),
                (["simulate", "1f1b", "--memroy-limit", "4"], "--memory-limit"),
                (["simulate", "1f1b", "--time-step"], "--time-steps"),
                (["validate", "a.csv", "--max-fault", "1"], "--max-faults"),
                (["report", "1f1b", "--ouput", "a.svg"], "--output"),
                (["schedules", "--fromat", "json"], "--format"),
                (["schedule", "1f1b", "--lowr"], "--lower"),
                (["simulate", "1f2b"], "1f1b"), (["show", "interlaeved"], "interleaved"),
                (["schedule", "zb-h3"], "zb-h1"), (["report", "GPip", "-o", "a.svg"], "gpipe"),
                (["simulate", "1f1b", "--pass", "recompte"], "recompute"),
                (["simulate", "1f1b", "--pass", "recompute,ofload=2"], "offload"),
                (["simulate", "1f1b", "--format", "jsn"], "json"),
                (["simulate", "1f1b", "--price", "offlaod=1"], "offload"),
                (["simulate", "1f1b", "--model", "llama-3-8"], "llama-3-8b"),
                (["simulate", "1f1b", "--model", "llama-3-8b", "--device", "h10"], "h100"),
                (["simulate", "1f1b", "--model", "llama-3-8b", "--precision", "bf61"], "bf16"),
                (["simulate", "1f1b", "--overlap", "sun"], "sum"),
                (["simulate", "1f1b", "--transfers", "bloking"], "blocking"),
                (["simulate", "interleaved", "--objective", "spn"], "span"),
                (["simulate", "a.csv", "--weight-policy", "stash"], "stashed"),
                (["simulate", "--sweep", "rank=4,8"], "ranks"), (["simulate", "1f1b:rank=4"], "ranks"),
                (["show", "1f1b", "--color", "alway"], "always"),
                (["launch", "--restart", "3", "--", "true"], "--restarts"),
                (["report", "1f1b", "-o", "a.htm"], ".html"), (["show", "a.ymal"], ".yaml")):
            self.assertIn(f"; did you mean '{meant}'?", self.refuse(*words), words)

    def test_names_of_other_frameworks_get_our_names(self):
        self.write("a.yaml", "name: a\n")
        simulate, train, compiled = ("simulate", "1f1b"), ("train", "a.yaml"), ("compile", "a.yaml", "-o", "b")
        for command, name, meant in (
                (simulate, "--pp", "--ranks"), (simulate, "--PP", "--ranks"),
                (simulate, "--pipeline-model-parallel-size", "--ranks"),
                (simulate, "--parallelism.pipeline_parallel_degree=4", "--ranks"),
                (simulate, "--gpus", "--ranks"), (simulate, "--vpp", "--chunks"),
                (simulate, "--virtual_pipeline_model_parallel_size", "--chunks"),
                (simulate, "--tp", "--tensor"), (simulate, "--tensor-model-parallel-size", "--tensor"),
                (simulate, "--dp", "--data-parallel"), (simulate, "--data-parallel-size", "--data-parallel"),
                (simulate, "--ep", "--expert"), (simulate, "--seq-length", "--sequence"),
                (simulate, "--global-batch-size", "--microbatches"),
                (simulate, "--num-microbatches", "--microbatches"),
                (simulate, "--gradient_accumulation_steps", "--microbatches"),
                (simulate, "--train_micro_batch_size_per_gpu", "--micro-batch-size"),
                (simulate, "--hardware", "--device"), (simulate, "--nnodes", "--nodes"),
                (simulate, "--recompute-granularity", "--pass recompute"), (simulate, "--fp8", "--precision fp8"),
                (simulate, "--use-distributed-optimizer", "--zero 1"), (simulate, "--zero-stage", "--zero"),
                (train, "--pp", "--ranks"), (train, "--vpp", "--chunks"), (train, "--dp", "parallel.data="),
                (train, "--train-iters", "--steps"), (train, "--lr", "optimizer.lr="),
                (train, "--fsdp", "parallel.zero=3"), (compiled, "--pp", "pipeline.ranks=")):
            self.assertIn(f"there is no option '{name.partition('=')[0]}'; did you mean '{meant}'?",
                          self.refuse(*command, name, "4"), (command, name))
        # Nothing of this command means the same, so nothing is suggested.
        for words in ((*train, "--tp", "4"), ("eval", "a", "--dp", "4"), ("diff", "1f1b", "--lr", "1")):
            self.assertNotIn("did you mean", self.refuse(*words))

    def test_models_and_devices_ignore_case(self):
        words = ("simulate", "1f1b", "-m", 8)
        self.assertEqual(self.run_ok(*words, "--model", "llama-3-70b", "--device", "h100"),
                         self.run_ok(*words, "--model", "Llama_3-70B", "--device", "H100"))
        self.assertIn("did you mean 'llama-3-70b'?", self.refuse(*words, "--model", "meta-llama/Meta-Llama-3-70B"))

    def test_json_is_one_object_with_units(self):
        self.run_ok("schedule", "1f1b", "-o", "a.csv")
        for words in (["simulate", "1f1b"], ["show", "1f1b"], ["schedules"], ["schedules", "-p", 4],
                      ["schedules", "--passes"], ["validate", "a.csv"], ["diff", "1f1b", "gpipe"],
                      ["schedule", "1f1b"], ["report", "1f1b", "-o", "a.svg"],
                      ["simulate", "1f1b", "--sweep", "ranks=2,4"]):
            found = self.run_json(*words)
            self.assertIsInstance(found, dict, words)
            for row in found.get("schedules", []):
                if words != ["schedules"]:  # nothing is priced
                    self.assertEqual(row["time_unit"], "unit of --cost", words)
                    self.assertEqual(row["memory_unit"], "activations of one rank's share of one microbatch")
        (row,) = self.run_rows("simulate", "1f1b", "--model", "llama-3-8b", "-m", 8)
        self.assertEqual((row["time_unit"], row["memory_unit"]), ("s", "B"))
        self.write("b.csv", "0F0\n")
        (fault, *_) = json.loads(self.start("validate", "b.csv", "--json").stdout)["faults"]
        self.assertIsNone(fault["position"])

    def test_unrelated_words_get_no_suggestion(self):
        for words in (["banana"], ["--banana"], [""], ["-"], ["x" * 100_000], ["show", "banana"],
                      ["show", "1f1b", "--banana"], ["report", "1f1b", "-o", "banana"]):
            self.assertNotIn("did you mean", self.refuse(*words), words[0][:20])
        self.assertIn("interleaved", self.refuse("show", "banana"))  # the error lists all names

    def test_unknown_words_are_refused(self):
        self.refuse("simulate", "--schedule", "1f1b", "--no-such-option")
        self.refuse("simulate", "--schedule", "1f1b", "--ranks", "four")
        self.assertIn("--ranks needs a value", self.refuse("simulate", "1f1b", "--ranks"))

    def test_an_option_takes_one_word(self):
        for option in ("--schedule", "--pass", "--price", "--csv"):
            value = {"--schedule": "1f1b", "--pass": "recompute", "--price": "step=1",
                     "--csv": self.write("a.csv", "0F0,0B0\n")}[option]
            self.assertIn("there is no file or folder 'none/1'",
                          self.refuse("simulate", option, value, "none/1"))

    def test_sizes_out_of_range_are_refused(self):
        for option in ("--ranks", "--chunks", "--microbatches"):
            for value in ("0", "-3", "99999999999999999999", "1.5", ""):
                self.refuse("simulate", "--schedule", "interleaved", f"{option}={value}")
        self.refuse("simulate", "--schedule", "interleaved", "-p", "60000", "-v", "60000")

    def test_invalid_costs_are_refused(self):
        for cost in ("1,2", "a", "1,-1,1", "nan", "inf,1,1", "1,1,1,2", "1,1,1,-1", "1,1,1,1,1", ""):
            self.refuse("simulate", "--schedule", "1f1b", f"--cost={cost}")
        for comm in ("-1", "nan", "x"):
            self.refuse("simulate", "--schedule", "1f1b", f"--comm={comm}")

    def test_random_words_never_crash(self):
        draw = random.Random(4)
        words = ["--schedule", "1f1b", "interleaved", "--ranks", "3", "-m", "--cost", "1,2,3", "-v",
                 "--json", "--csv", "none.csv", "--comm", "0.5", "--format", "csv", "-1", "", "=",
                 "--width", "7", "-o", "x.html", "--time-steps", "\x01", "--", "--memory-limit"]
        for _ in range(60):
            command = [draw.choice(COMMANDS)] + draw.choices(words, k=draw.randint(0, 6))
            if command[0] == "watch":
                command.append("--once")  # otherwise it waits for the run
            result = self.start(*command)
            self.assertIn(result.returncode, (0, 1, 2), command)
            self.assertLessEqual(result.stderr.count("\n"), 1, f"{command}: {result.stderr}")
            self.assertNotIn("internal error", result.stderr, command)
            if result.returncode == 2:
                self.assertEqual(result.stdout, "", command)


if __name__ == "__main__":
    program.main()
