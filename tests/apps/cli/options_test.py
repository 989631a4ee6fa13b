"""Every option of every command has an effect or is refused with a line that says why."""
import ast
import json
import pathlib
import re

import program
from python_keywords import python_keywords

COMMANDS = ("schedules", "schedule", "validate", "simulate", "show", "diff", "report")
# A valid value for each option.
VALUES = {"--ranks": "4", "--chunks": "1", "--microbatches": "8", "--group": "2", "--slices": "2", "--waves": "2",
          "--steps": "2", "--split": None, "--objective": "span", "--replicas": "1", "--weight-policy": "flush", "--iteration": "0", "--trace-rule": "rule.yaml",
          "--cost": "1,2,3", "--comm": "0.5", "--bandwidth": "1048576", "--time-unit": "s", "--overlap": "sum", "--transfers": "batched", "--offload-sharing": "2", "--launch": "0.1", "--slow-rank": "1=1.5", "--microbatch-lengths": "1,2", "--jitter": "0.1", "--seed": "1", "--runs": "3",
          "--memory-limit": "3", "--activation-bytes": "1GiB",
          "--message-bytes": "1MiB", "--pass": "communication", "--price": "step=2", "--unit": "1ms",
          "--time-steps": None, "--memory": None, "--explain": None, "--moves": "3", "--repeat": "3", "--dump": "dumps", "--lower": None, "--torch": None, "--width": "300", "--paper": None, "--playground": None,
          "--color": "never", "--format": "csv", "--json": None, "--run": None, "--output": "out.csv",
          "--docs": ".", "--passes": None, "--max-faults": "3", "--schedule": "1f1b", "--csv": "a.csv",
          "--model": "llama-3-8b", "--sweep": "comm=0,1"}
LLAMA, DEEPSEEK = ("--model", "llama-3-8b"), ("--model", "deepseek-v2-lite")
MEGATRON, TE = ("--implementation", "megatron"), ("--implementation", "transformer-engine")
EXPERTS = (*DEEPSEEK, "--data-parallel", 2, "--expert", 2)
# Options that only --model reads: a value that changes the figures, and the options that it needs for that.
SITES = (*LLAMA, "--nodes", "4x2", "--sites", 2)
OF_MODELS = {
    "--sites": ("2", (*LLAMA, "--nodes", "4x2", "-p", 8)), "--across-sites": ("data", (*SITES, "--data-parallel", 2, "-p", 4)),
    "--site-bandwidth": ("1Gbit/s", (*SITES, "-p", 8)), "--site-latency": ("50ms", (*SITES, "-p", 8)),
    "--failures": ("1h", LLAMA), "--restart": ("1h", (*LLAMA, "--failures", "10h")),
    "--storage-bandwidth": ("1MB/s", (*LLAMA, "--failures", "10h")),
    "--device": ("h200", LLAMA), "--nodes": ("1x4", LLAMA), "--micro-batch-size": ("2", LLAMA), "--sequence": ("1024", LLAMA),
    "--precision": ("f32", LLAMA), "--tensor": ("2", LLAMA), "--data-parallel": ("2", LLAMA),
    "--expert": ("2", (*DEEPSEEK, "--data-parallel", 2)), "--expert-tensor": ("1", (*EXPERTS, "--tensor", 2, "-p", 2)),
    "--context": ("2", (*LLAMA, "-p", 4)), "--context-exchange": ("ulysses", (*LLAMA, "--context", 2, "-p", 4)),
    "--sequence-parallel": ("false", (*LLAMA, *MEGATRON, "--tensor", 2)), "--recompute": ("full", LLAMA),
    "--layout": ("9,8,8,7", (*LLAMA, "-p", 4)), "--zero-ranks": ("2", (*LLAMA, "-p", 2, "--data-parallel", 4, "--zero", 1)),
    "--zero": ("1", (*LLAMA, "--data-parallel", 2)), "--flops-efficiency": ("0.5", LLAMA),
    "--bandwidth-efficiency": ("0.5", LLAMA), "--link-efficiency": ("0.5", (*LLAMA, "--tensor", 2)),
    "--network-efficiency": ("0.5", (*LLAMA, "--nodes", "8x1", "-p", 8)),
    "--hidden-communication": ("0.5", (*LLAMA, "--tensor", 2)),
    "--hidden-gradients": ("0.5", (*LLAMA, "--data-parallel", 2)), "--device-launch": ("1ms", (*LLAMA, *MEGATRON)),
    "--host-launch": ("1ms", (*LLAMA, *MEGATRON)), "--time-factor": ("1.5", LLAMA),
    "--stage-tensor": ("2,2,2,2", (*LLAMA, "-p", 4)), "--stage-data": ("1,1,1,2", (*LLAMA, "--micro-batch-size", 2, "--nodes", "1x5", "-p", 4)),
    "--stage-recompute": ("full,full,none,none", (*LLAMA, "-p", 4)), "--machine": ("machine.yaml", LLAMA),
    "--layers": ("16", LLAMA), "--dim": ("2048", LLAMA), "--hidden": ("8192", LLAMA), "--vocabulary": ("32000", LLAMA),
    "--heads": ("16", (*LLAMA, "--head-dim", 128)), "--kv-heads": ("4", LLAMA), "--head-dim": ("64", LLAMA), "--latent": ("0,512,128,64,64", DEEPSEEK),
    "--window": ("512", LLAMA), "--experts": ("32", DEEPSEEK), "--top-k": ("4", DEEPSEEK), "--expert-hidden": ("1024", DEEPSEEK),
    "--shared-experts": ("1", DEEPSEEK), "--shared-hidden": ("1024", DEEPSEEK), "--dense-layers": ("2", DEEPSEEK),
    "--predictors": ("1", LLAMA), "--pattern": ("M-" * 16, (*LLAMA, "--mamba", "64,64,128,8")), "--mamba": ("32,64,128,8", ("--model", "nemotron-h-8b")),
    "--positions": ("4096", LLAMA), "--qk-norm": (None, LLAMA), "--tied": (None, (*LLAMA, "--nodes", "1x1", "-p", 1)), "--gated": ("false", LLAMA),
    "--implementation": ("megatron", LLAMA), "--attention": ("flash", (*LLAMA, *MEGATRON)), "--cuda-graphs": ("full", (*LLAMA, *TE, "--sequence", 64)),
    "--dispatcher": ("deepep", (*EXPERTS, *TE)), "--release": ("2021-01", (*LLAMA, *MEGATRON, "--tensor", 2)),
    "--expert-imbalance": ("1.5", (*EXPERTS,)), "--dropout": (None, (*LLAMA, *MEGATRON)), "--deterministic": (None, (*LLAMA, *MEGATRON, "--device", "a100")),
    "--fused-loss": (None, (*LLAMA, *TE)), "--fused-experts": (None, (*EXPERTS, *TE)),
    "--overlapped-experts": (None, (*DEEPSEEK, *TE, "--nodes", "2x8", "-p", 2, "--data-parallel", 8, "--expert", 8)), "--fp8-attention": (None, (*LLAMA, *TE, "--precision", "fp8")),
    "--linear-biases": (None, (*LLAMA, *MEGATRON)), "--grouped-experts": ("false", (*EXPERTS, *TE)),
    "--attention-mask": (None, (*LLAMA, *MEGATRON)), "--fragmentation": ("0.1", (*LLAMA, *MEGATRON)), "--deferred-head": ("2", (*LLAMA, *MEGATRON)),
    "--drops-tokens": (None, (*EXPERTS, *TE)), "--lora": (None, LLAMA), "--layers-at-end-in-bf16": ("2", (*LLAMA, *TE, "--precision", "fp8")),
    "--offload-modules": ("core_attn", (*LLAMA, *TE)), "--offloaded-layers": ("4", (*LLAMA, *TE))}
VALUES |= {option: value for option, (value, _) in OF_MODELS.items()}
# Those that only --jitter reads.
OF_JITTER = {"--seed", "--runs"}
# Options that select schedules or belong to one command. Other tests cover them.
OWN = {"--help", "--quiet", "--schedule", "--csv", "--format", "--json", "--time-steps", "--memory", "--explain", "--moves", "--dump", "--run", "--lower", "--torch",
       "--output", "--docs", "--max-faults", "--sweep", "--unit", "--width", "--paper", "--color", "--pass", "--passes", "--playground"}
BY_SCHEDULE = {"--group", "--waves", "--split", "--objective"}
OF_FILES = {"--replicas", "--weight-policy", "--iteration", "--trace-rule"}
PRICES = {"--cost", "--comm", "--bandwidth", "--overlap", "--transfers", "--offload-sharing", "--launch", "--slow-rank", "--microbatch-lengths", "--memory-limit", "--activation-bytes", "--message-bytes", "--price"}
# The options that no command reads for these sources.
UNREAD = {
    ("1f1b",): BY_SCHEDULE | OF_FILES | {"--slices", "--steps", "--overlap", "--price", "--offload-sharing"},
    ("gpipe", "1f1b"): BY_SCHEDULE | OF_FILES | {"--slices", "--steps", "--overlap", "--price", "--offload-sharing"},
    ("seq1f1b", "pipedream", "hanayo", "interleaved", "chimera", "dualpipev", "v-auto"): OF_FILES | {"--offload-sharing"},
    ("a.csv",): BY_SCHEDULE | {"--iteration", "--trace-rule", "--overlap", "--price", "--offload-sharing"},
    ("trace.json",): BY_SCHEDULE | {"--slices", "--steps", "--replicas", "--weight-policy", "--overlap", "--price", "--offload-sharing"},
    ("dumps/1f1b",): BY_SCHEDULE | {"--trace-rule", "--slices", "--steps", "--replicas", "--weight-policy", "--overlap", "--price", "--offload-sharing"},
    ("a.csv", "dumps/1f1b"): BY_SCHEDULE | {"--trace-rule", "--overlap", "--price", "--offload-sharing"},
}
# Options that are accepted, but not with their value in VALUES.
VALID_ELSEWHERE = {("a.csv",): {"--slices", "--steps"}, ("a.csv", "dumps/1f1b"): {"--slices", "--steps"},
                   # By default, a model has 8 ranks, for which dualpipev needs more microbatches.
                   ("seq1f1b", "pipedream", "hanayo", "interleaved", "chimera", "dualpipev", "v-auto"): {"--model", "--repeat"}}


def given(option):
    return (option,) if VALUES[option] is None else (f"{option}={VALUES[option]}",)


class OptionsTest(program.CommandTest):
    def setUp(self):
        super().setUp()
        self.run_ok("schedule", "1f1b", "-o", "a.csv")
        self.write("machine.yaml", "constants: [{flops_efficiency: 0.5}]\n")
        self.run_ok("simulate", "1f1b", "--dump", "dumps")
        # A trace of the same schedule: 4 ranks, 8 microbatches.
        (run,) = self.run_rows("show", "1f1b")
        self.write("trace.json", json.dumps([
            {"ph": "X", "name": "PP:" + step["action"], "ts": step["start"], "dur": step["end"] - step["start"],
             "pid": rank, "tid": 0} for rank, steps in enumerate(run["time_steps"]) for step in steps]))
        self.write("rule.yaml", "events:\n  - match: '^PP:(?<action>.*)$'\n")

    def options(self, command):
        found = re.findall(r"^\s+(?:-\w,\s*)?(--[a-z0-9-]+)", self.run_ok(command, "--help"), re.MULTILINE)
        self.assertIn("--json", found)
        return set(found)

    def refuse_unread(self, option, *words):
        message = self.refuse(*words, *given(option))
        self.assertTrue("no effect" in message or "takes no" in message or "of --cost" in message, message)
        self.assertIn(option, message)

    def test_every_option_is_covered(self):
        for command in COMMANDS:
            self.assertLessEqual(self.options(command), set(VALUES) | OWN, command)

    def test_options_that_a_source_does_not_read_are_refused(self):
        output = {"report": ("-o", "a.svg")}
        for command in ("simulate", "show", "report", "schedule", "validate"):
            offered = self.options(command) - OWN
            for sources, unread in UNREAD.items():
                if command in ("schedule", "validate") and len(sources) > 1:
                    continue
                if command in ("schedule", "validate"):
                    unread = unread | {"--message-bytes", "--memory-limit", "--activation-bytes", "--transfers", "--offload-sharing"}
                    unread = unread | (PRICES | {"--model"} if sources[0] != "1f1b" else set()) - {"--overlap"}
                for option in sorted(offered & (unread | set(OF_MODELS) | OF_JITTER)):
                    with self.subTest(command=command, sources=sources, option=option):
                        self.refuse_unread(option, command, *sources, *output.get(command, ()))

    def test_options_that_a_source_reads_are_accepted(self):
        for sources, unread in UNREAD.items():
            offered = self.options("simulate") - OWN - set(OF_MODELS) - OF_JITTER - unread - VALID_ELSEWHERE.get(sources, set())
            for option in sorted(offered - {"--bandwidth", "--price", "--iteration", "--trace-rule", "--weight-policy", "--replicas"}):
                with self.subTest(sources=sources, option=option):
                    self.run_ok("simulate", *sources, *given(option))
        for option in ("--replicas", "--weight-policy"):
            self.run_ok("simulate", "a.csv", *given(option))
        self.run_ok("simulate", "dumps/1f1b", "--iteration", 0)
        self.run_ok("simulate", "trace.json", "--iteration", 0)
        self.run_ok("simulate", "trace.json", "--trace-rule", "rule.yaml")
        self.run_ok("simulate", "1f1b", "--bandwidth", 1048576, "--message-bytes", "1MiB")
        self.assertIn("without a size", self.refuse("simulate", "1f1b", "--bandwidth", 1))
        self.run_ok("simulate", "pipedream", "--price", "step=2")
        self.run_ok("simulate", "1f1b", "--pass", "optimizer", "--price", "step=2")
        self.run_ok("simulate", "1f1b", "--pass", "overlap=all", "--overlap", "sum")

    def test_options_of_models_change_the_figures(self):
        figures = {}
        for option, (_, others) in OF_MODELS.items():
            with self.subTest(option=option):
                if others not in figures:
                    figures[others] = self.run_ok("simulate", "1f1b", *others, "--json", "--memory")
                self.assertNotEqual(self.run_ok("simulate", "1f1b", *others, *given(option), "--json", "--memory"), figures[others])

    def test_schedules_without_a_size_refuses_other_options(self):
        offered = self.options("schedules")
        for option in sorted(offered & set(VALUES) - OWN - {"--ranks", "--microbatches"}):
            with self.subTest(option=option):
                self.refuse_unread(option, "schedules")
                needed = OF_MODELS[option][1] if option in OF_MODELS else given("--message-bytes") if option == "--bandwidth" else ()
                self.run_ok("schedules", *(() if "-p" in needed else ("-p", 4)), *needed, *given(option))
        for option in sorted(offered & (set(VALUES) - OWN | {"--format", "--json"})):
            self.refuse_unread(option, "schedules", "--docs", ".")
        self.assertIn("no effect", self.refuse("schedules", "-p", 4, "--chunks", 100000))

    def test_options_of_one_command(self):
        self.assertIn("--run", self.refuse("simulate", "1f1b", "--unit", "1ms"))
        self.assertIn("--unit", self.refuse("simulate", "1f1b", "--unit", "x"))
        for words in (("--width", 60), ("--color", "never")):
            self.assertIn(words[0], self.refuse("show", "1f1b", "--json", *words))
        self.assertIn("--format table", self.refuse("schedule", "1f1b", "-o", "b.csv", "--format", "table"))
        self.assertIn("twice", self.refuse("simulate", "pipedream", "--price", "step=1", "--price", "step=2"))
        self.assertIn("called '1f1b'", self.refuse("simulate", "1f1b,1f1b", "--dump", "d"))

    def test_empty_values_are_refused(self):
        for command in COMMANDS:
            for option in sorted(self.options(command) - {"--help", "--quiet"}):
                if VALUES[option] is None or (command == "report" and option == "--output"):
                    continue
                words = ("-o", "a.svg") if command == "report" else ()
                with self.subTest(command=command, option=option):
                    source = () if option in ("--schedule", "--csv") or command == "schedules" else ("1f1b",)
                    self.refuse(command, *source, f"{option}=", *words)
        self.refuse("report", "1f1b", "--output=")
        self.assertIn("empty", self.refuse("simulate", "1f1b", "--pass", "offload="))

    def test_numbers_are_decimal_everywhere(self):
        for text in ("010", "0x10", "+4", "1e1", "4.0", " 4"):
            for option in ("--ranks", "--microbatches", "--chunks", "--steps", "--slices", "--waves", "--group"):
                self.assertIn(option, self.refuse("simulate", "interleaved", f"{option}={text}"))
                self.write("a.yaml", f"schedule: interleaved\n{option[2:]}: '{text}'\n")
                self.assertIn(f"a.yaml: line 2: {option[2:]}: ", self.refuse("simulate", "a.yaml"))
            self.refuse("show", "1f1b", f"--width={text}")
            self.refuse("validate", "a.csv", f"--max-faults={text}")
            self.write("a.yaml", f"microbatches: '{text}'\n")
            self.assertIn("a.yaml: line 1: microbatches: ", self.refuse("validate", "a.csv"))
            (self.folder / "a.yaml").unlink()

    def test_bounds_name_what_was_given(self):
        for option in ("--ranks", "--microbatches", "--chunks", "--steps", "--slices", "--waves", "--group"):
            for value in ("0", "-1"):
                self.assertIn(option, self.refuse("simulate", "1f1b,gpipe,interleaved,seq1f1b,pipedream,hanayo",
                                                  f"{option}={value}"))
        message = self.refuse("simulate", "hanayo", "--waves", 2000000000)
        self.assertIn("--waves 2000000000", message)
        self.assertNotIn("--chunks", message)
        for value in ("0", "-2", "99999999999"):
            message = self.refuse("validate", "a.csv", "--max-faults", value)
            self.assertIn("--max-faults", message)
            self.assertNotIn("e+308", message)
        message = self.refuse("simulate", "a.csv", "-m", 1073741823)
        self.assertNotIn(": :", message)

    def test_a_configuration_names_file_line_and_key(self):
        for text, words in (("comm: -1", "comm"), ("comm: x", "comm"), ("comm:", "comm"), ("comm: ''", "comm"),
                            ("ranks: 0", "ranks"), ("ranks: 1.5", "ranks"), ("cost: [1, -1, 1]", "cost"),
                            ("cost: 1,2", "cost"), ("overlap: most", "overlap"), ("memory_limit: 0", "memory_limit"),
                            ("memory_limit: 3GiB", "memory_limit"), ("activation_bytes: 0", "activation_bytes"),
                            ("message_bytes: x", "message_bytes"), ("price: step=-1", "price"),
                            ("price: stepp=1", "price"), ("weight_policy: x", "weight_policy"), ("replicas: 2", "replicas"),
                            ("iteration: -1", "iteration"), ("group: 2", "group"), ("split: maybe", "split"),
                            ("chunks: 7", "chunks"), ("stage_costs: 3", "stage_costs"), ("pass: []", "pass")):
            self.write("a.yaml", f"# a comment\nschedule: 1f1b\n{text}\n")
            message = self.refuse("simulate", "a.yaml")
            self.assertIn("a.yaml: line 3: ", message)
            self.assertIn(words, message)
            self.assertNotIn("--" + words.replace("_", "-"), message)
        # An error about a command-line option names the option, not the key.
        self.write("a.yaml", "schedule: 1f1b\n")
        self.assertIn("--comm -1", self.refuse("simulate", "a.yaml", "--comm=-1"))

    def test_keys_are_known_and_given_once(self):
        self.write("a.yaml", "schedule: 1f1b\nranks: 4\nmicrobatchs: 8\n")
        message = self.refuse("simulate", "a.yaml")
        self.assertIn("a.yaml: line 3: ", message)
        self.assertIn("did you mean 'microbatches'?", message)
        for text in ("ranks: 4\nschedule: 1f1b\nranks: 8\n",
                     "schedule: 1f1b\nstage_costs: [{forward: 1, forward: 2}]\n",
                     "schedule: 1f1b\ncost: 1\nstage_costs: [{forward: 1}]\n",
                     "schedule: 1f1b\n---\nschedule: gpipe\n", "schedule: []\n", "schedule: ''\n"):
            self.assertIn("a.yaml", self.refuse("simulate", self.write("a.yaml", text)))
        for text in ("slices: 2\nslices: 2\n", "slices: 2\ncuts: 2\n", "slices: 1\n---\nslices: 2\n", "slice: 1\n",
                     "slices:\n", "weights: x\n"):
            self.assertIn("a.yaml", self.refuse("validate", "a.csv", code=2) if self.write("a.yaml", text) else "")

    def test_former_names_keep_working(self):
        shape = ("--ranks", 4, "--microbatches", 8)
        expected = self.run_ok("schedule", "seq1f1b", "--slices", 2, *shape)
        for words in (("seq1f1b", "--cuts", 2), ("seq1f1b", "--cuts=2"), ("seq1f1b:cuts=2",)):
            self.assertEqual(self.run_ok("schedule", *words, *shape), expected)
        self.write("former.yaml", "schedule: seq1f1b\nranks: 4\nmicrobatches: 8\ncuts: 2\n")
        self.write("current.yaml", "schedule: seq1f1b\nranks: 4\nmicrobatches: 8\nslices: 2\n")
        self.assertEqual(self.run_ok("simulate", "former.yaml"), self.run_ok("simulate", "current.yaml"))
        self.assertNotIn("cuts", self.run_ok("simulate", "--help"))

    def test_former_names_of_fields_work_with_a_note(self):
        model = ("--model", "gpt2", "--nodes", "1x4", "-m", 4)
        self.write("former.yaml", "{schedule: 1f1b, model: gpt2, nodes: 1x4, microbatches: 4, data: 2}")
        self.write("current.yaml", "{schedule: 1f1b, model: gpt2, nodes: 1x4, microbatches: 4, data_parallel: 2}")
        self.write("sweep.yaml", "{schedule: 1f1b, model: gpt2, nodes: 1x4, microbatches: 4, sweep: {data: [1, 2]}}")
        sweep = ("1f1b", *model, "--sweep", "data_parallel=1,2")
        for former, current, name in (
                (("1f1b", *model, "--data", 2), ("1f1b", *model, "--data-parallel", 2), "data"),
                (("1f1b", *model, "--data=2"), ("1f1b", *model, "--data-parallel=2"), "data"),
                (("former.yaml",), ("current.yaml",), "data"), (("sweep.yaml",), sweep, "data"),
                (("1f1b", *model, "--sweep", "data=1,2"), sweep, "data"),
                (("a.csv", "--weights", "flush"), ("a.csv", "--weight-policy", "flush"), "weights")):
            result = self.start("simulate", *former)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(result.stdout, self.run_ok("simulate", *current))
            self.assertIn(f"penstock: note: '{name}' is called '", result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1)
        self.write("both.yaml", "schedule: 1f1b\nmodel: gpt2\ndata: 2\ndata_parallel: 2\n")
        self.assertIn("both.yaml: line 3: data: ", self.start("simulate", "both.yaml").stderr)
        twice = self.start("simulate", "1f1b:data=2:data_parallel=2", *model)
        self.assertIn("data_parallel is given twice", twice.stderr)
        for word in ("--data", "--weights"):
            self.assertIsNone(re.search(rf"{word}\b(?!-)", self.run_ok("simulate", "--help")))

    def test_python_takes_every_option_of_simulations(self):
        root = pathlib.Path(__file__).parents[3]
        functions = {node.name: node for node in ast.parse((root / "python/penstock/scenarios.py").read_text()).body
                     if isinstance(node, ast.FunctionDef)}
        taken = {argument.arg for argument in functions["simulate"].args.kwonlyargs}
        taken |= python_keywords("ScenarioFields")
        # The arguments of simulate, penstock.sweep, and forms of output, for which Python has objects.
        others = {"--help", "--quiet", "--schedule", "--csv", "--sweep", "--format", "--json", "--output", "--dump"}
        for option in self.options("simulate") - others:
            self.assertIn(option[2:].replace("-", "_"), taken)

    def test_primus_configurations_refuse_options(self):
        self.write("p.yaml", "fwd_time: 1\nbwd_time: 1\nwgrad_time: 1\nschedulers:\n"
                   "- {name: 1f1b, pp_size: 2, vpp_size: 1, micro_batches: 4}\n")
        self.run_ok("simulate", "p.yaml")
        for option in sorted(self.options("simulate") - OWN - {"--repeat"}):
            self.refuse_unread(option, "simulate", "p.yaml")
        self.assertIn("steady step", self.run_ok("simulate", "p.yaml", "--repeat", 2))
        for option in ("--schedule", "--sweep"):
            self.refuse_unread(option, "simulate", "p.yaml")


if __name__ == "__main__":
    program.main()
