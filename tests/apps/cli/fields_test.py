"""The table of fields: each option of a simulation has one effect on the command line, in files and as NAME:option=value, or is refused by name."""
import ast
import json
import pathlib
import re

import program
from python_keywords import python_keywords

# A valid value of each option that has no need of --model; None: a flag.
VALUES = {"--ranks": "4", "--chunks": "1", "--microbatches": "8", "--group": "2", "--slices": "2", "--waves": "2", "--steps": "2", "--split": None,
          "--frozen": "0", "--adapters": "1", "--objective": "span", "--replicas": "1", "--weight-policy": "flush", "--iteration": "0", "--trace-rule": "rule.yaml", "--cost": "1,2,3",
          "--comm": "0.5", "--bandwidth": "1048576", "--overlap": "sum", "--transfers": "batched", "--offload-sharing": "2", "--launch": "0.1",
          "--slow-rank": "1=1.5", "--microbatch-lengths": "1,2", "--jitter": "0.1", "--seed": "1", "--runs": "3", "--memory-limit": "3",
          "--activation-bytes": "1GiB", "--message-bytes": "1MiB", "--price": "step=2", "--repeat": "3", "--time-unit": "s",
          "--model": "llama-3-8b"}
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
    "--sequence-parallel": ("false", (*LLAMA, *MEGATRON, "--tensor", 2)), "--gather-again": (None, (*LLAMA, "--tensor", 2)), "--recompute": ("full", LLAMA),
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
    "--shared-experts": ("1", DEEPSEEK), "--shared-hidden": ("1024", DEEPSEEK), "--dense-layers": ("2", DEEPSEEK), "--experts-every": ("2", DEEPSEEK),
    "--predictors": ("1", LLAMA), "--pattern": ("M-" * 16, (*LLAMA, "--mamba", "64,64,128,8")), "--mamba": ("32,64,128,8", ("--model", "nemotron-h-8b")),
    "--positions": ("4096", LLAMA), "--qk-norm": (None, LLAMA), "--tied": (None, (*LLAMA, "--nodes", "1x1", "-p", 1)), "--gated": ("false", LLAMA),
    "--implementation": ("megatron", LLAMA), "--attention": ("flash", (*LLAMA, *MEGATRON)), "--cuda-graphs": ("full", (*LLAMA, *TE, "--sequence", 64)),
    "--dispatcher": ("deepep", (*EXPERTS, *TE)), "--release": ("2021-01", (*LLAMA, *MEGATRON, "--tensor", 2)),
    "--expert-imbalance": ("1.5", (*EXPERTS,)), "--dropout": (None, (*LLAMA, *MEGATRON)), "--deterministic": (None, (*LLAMA, *MEGATRON, "--device", "a100")),
    "--fused-loss": (None, (*LLAMA, *TE)), "--fused-experts": (None, (*EXPERTS, *TE)),
    "--overlapped-experts": (None, (*DEEPSEEK, *TE, "--cuda-graphs", "full", "--nodes", "2x8", "-p", 2, "--data-parallel", 8, "--expert", 8)), "--fp8-attention": (None, (*LLAMA, *TE, "--precision", "fp8")),
    "--linear-biases": (None, (*LLAMA, *MEGATRON)), "--grouped-experts": ("false", (*EXPERTS, *TE)),
    "--attention-mask": (None, (*LLAMA, *MEGATRON)), "--fragmentation": ("0.1", (*LLAMA, *MEGATRON)), "--deferred-head": ("2", (*LLAMA, *MEGATRON)),
    "--drops-tokens": (None, (*EXPERTS, *TE)), "--lora": (None, LLAMA),
    "--qkv-adapters": (None, (*LLAMA, *TE, "--lora")), "--consecutive-experts": (None, (*EXPERTS, *TE, "--dispatcher", "deepep", "--cuda-graphs", "full")),
    "--async-tensor": (None, (*LLAMA, "--implementation", "torch-compile", "--tensor", 2)), "--fp32-gradients": ("true", (*LLAMA, *TE)),
    "--layers-at-end-in-bf16": ("2", (*LLAMA, *TE, "--precision", "fp8")),
    "--offload-modules": ("core_attn", (*LLAMA, *TE)), "--offloaded-layers": ("4", (*LLAMA, *TE)),
    "--optimizer-states": ("bf16", (*LLAMA, *TE)), "--offloaded-states": ("0.5", (*LLAMA, *TE))}
VALUES |= {option: value for option, (value, _) in OF_MODELS.items()}
OF_JITTER = {"--seed", "--runs"}
# Options that are no fields, and what a command prints or writes.
OWN = {"--help", "--quiet", "--schedule", "--csv", "--format", "--json", "--time-steps", "--memory", "--explain", "--moves", "--dump", "--run", "--lower",
       "--torch", "--output", "--docs", "--max-faults", "--sweep", "--unit", "--width", "--paper", "--color", "--pass", "--passes", "--playground"}
BY_SCHEDULE = {"--group", "--waves", "--split", "--objective"}
OF_FILES = {"--replicas", "--weight-policy", "--iteration", "--trace-rule"}
PRICES = {"--cost", "--comm", "--bandwidth", "--overlap", "--transfers", "--offload-sharing", "--launch", "--slow-rank", "--microbatch-lengths",
          "--memory-limit", "--activation-bytes", "--message-bytes", "--price"}
ADDED = {"--overlap", "--price", "--offload-sharing"}  # read after some pass only
OF_RUNS = {"--slices", "--steps", "--replicas", "--weight-policy", "--frozen", "--adapters"}
MANY = ("seq1f1b", "pipedream", "hanayo", "interleaved", "chimera", "dualpipev", "v-auto")
# The options that no command reads for these sources.
UNREAD = {
    ("1f1b",): BY_SCHEDULE | OF_FILES | ADDED | {"--slices", "--steps"},
    ("gpipe", "1f1b"): BY_SCHEDULE | OF_FILES | ADDED | {"--slices", "--steps"},
    MANY: OF_FILES | {"--offload-sharing"},
    ("a.csv",): BY_SCHEDULE | ADDED | {"--iteration", "--trace-rule"},
    ("trace.json",): BY_SCHEDULE | ADDED | OF_RUNS,
    ("dumps/1f1b",): BY_SCHEDULE | ADDED | OF_RUNS | {"--trace-rule"},
    ("a.csv", "dumps/1f1b"): BY_SCHEDULE | ADDED | {"--trace-rule"},
}
# Options that are read, but not with the value above or not without others.
VALID_ELSEWHERE = {"--bandwidth", "--price", *OF_FILES}
VALID_ELSEWHERE_FOR = {("a.csv",): {"--slices", "--steps"}, ("a.csv", "dumps/1f1b"): {"--slices", "--steps"},
                       MANY: {"--model", "--repeat"}}  # by default, a model has 8 ranks, for which dualpipev needs more microbatches
# Forms of numbers that are refused (values_test.py has more, for options).
NOT_WHOLE, NOT_NUMBERS = ("010", "4.0", " 4"), ("nan", "1x")


def given(option):
    return (option,) if VALUES[option] is None else (f"{option}={VALUES[option]}",)


def reason(message):
    """Returns an error without its place, and with keys in the form of options."""
    message = re.sub(r"^penstock: error: (a\.yaml: line \d+: |'1f1b:[^']*': )?", "", message)
    return re.sub(r"--([a-z-]+)", lambda found: found[1].replace("-", "_"), message).removesuffix(" (see 'penstock simulate __help')\n").strip()


class FieldsTest(program.CommandTest):
    def setUp(self):
        super().setUp()
        self.run_ok("schedule", "1f1b", "-o", "a.csv")
        self.write("machine.yaml", "constants: [{flops_efficiency: 0.5}]\n")
        self.run_ok("simulate", "1f1b", "--dump", "dumps")
        (run,) = self.run_rows("show", "1f1b")
        self.write("trace.json", json.dumps([
            {"ph": "X", "name": "PP:" + step["action"], "ts": step["start"], "dur": step["end"] - step["start"], "pid": rank, "tid": 0}
            for rank, steps in enumerate(run["time_steps"]) for step in steps]))
        self.write("rule.yaml", "events:\n  - match: '^PP:(?<action>.*)$'\n")

    def options(self, command):
        """Returns the options of a command with the kinds of their values."""
        found = dict(re.findall(r"^\s+(?:-\w,\s*)?(--[a-z0-9-]+) ?([A-Z]*)", self.run_ok(command, "--help"), re.MULTILINE))
        self.assertIn("--json", found)
        return found

    def refuse_unread(self, option, *words):
        message = self.refuse(*words, *given(option))
        self.assertRegex(message, "no effect|takes no|of --cost")
        self.assertIn(option, message)

    def test_every_option_is_covered(self):
        for command in ("schedules", "schedule", "validate", "simulate", "show", "diff", "report"):
            self.assertLessEqual(set(self.options(command)), set(VALUES) | OWN, command)

    def test_options_that_a_source_does_not_read_are_refused(self):
        for command in ("simulate", "show", "report", "schedule", "validate"):
            offered = set(self.options(command)) - OWN
            for sources, unread in UNREAD.items():
                if command in ("schedule", "validate"):
                    if len(sources) > 1:
                        continue
                    unread = unread | {"--message-bytes", "--memory-limit", "--activation-bytes", "--transfers", "--offload-sharing"}
                    unread = unread | (PRICES | {"--model"} if sources[0] != "1f1b" else set()) - {"--overlap"}
                of_models = set(OF_MODELS) if command == "simulate" or sources == ("1f1b",) else set()
                for option in sorted(offered & (unread | of_models | OF_JITTER)):
                    with self.subTest(command=command, sources=sources, option=option):
                        self.refuse_unread(option, command, *sources, *(("-o", "a.svg") if command == "report" else ()))

    def test_options_that_a_source_reads_are_accepted(self):
        offered = set(self.options("simulate")) - OWN - set(OF_MODELS) - OF_JITTER - VALID_ELSEWHERE
        for sources, unread in UNREAD.items():
            for option in sorted(offered - unread - VALID_ELSEWHERE_FOR.get(sources, set())):
                with self.subTest(sources=sources, option=option):
                    self.run_ok("simulate", *sources, *given(option))
        for words in ("a.csv --replicas 1", "a.csv --weight-policy flush", "dumps/1f1b --iteration 0", "trace.json --iteration 0",
                      "trace.json --trace-rule rule.yaml", "1f1b --bandwidth 1048576 --message-bytes 1MiB", "pipedream --price step=2",
                      "1f1b --pass optimizer --price step=2", "1f1b --pass overlap=all --overlap sum"):
            self.run_ok("simulate", *words.split())
        self.assertIn("without a size", self.refuse("simulate", "1f1b", "--bandwidth", 1))

    def test_options_of_models_change_the_figures(self):
        figures = {}
        for option, (_, others) in OF_MODELS.items():
            with self.subTest(option=option):
                if others not in figures:
                    figures[others] = self.run_ok("simulate", "1f1b", *others, "--json", "--memory")
                self.assertNotEqual(self.run_ok("simulate", "1f1b", *others, *given(option), "--json", "--memory"), figures[others])

    def ask(self, *words):
        """Returns the figures of a simulation, or why it is refused."""
        result = self.start("simulate", *words, "--json", "--memory")
        if result.returncode == 0:
            return [{**row, "schedule": ""} for row in json.loads(result.stdout)["schedules"]]
        self.assertEqual((result.returncode, result.stdout, result.stderr.count("\n")), (2, "", 1), words)
        return result.stderr

    def faces(self, option, value):
        """Yields the words that give a value to an option in each of the three ways."""
        key = option[2:].replace("-", "_")
        yield "1f1b", *((option,) if value is None else (f"{option}={value}",))
        text = "true" if value is None else value
        self.write("a.yaml", "schedule: 1f1b\n{}: '{}'\n".format(key, text) if text not in ("true", "false") else f"schedule: 1f1b\n{key}: {text}\n")
        yield ("a.yaml",)
        if "," not in text and ":" not in text and key != "time_unit":  # costs of all candidates have one unit
            yield (f"1f1b:{key}={text}",)

    def test_fields_mean_the_same_on_the_command_line_in_files_and_of_a_candidate(self):
        for option in sorted(set(self.options("simulate")) - OWN):
            others = OF_MODELS.get(option, (None, ()))[1]
            with self.subTest(option=option):
                first, *more = (self.ask(*words, *others) for words in self.faces(option, VALUES[option]))
                for other in more:
                    if isinstance(first, str) and isinstance(other, list):  # a file may serve several commands and schedules
                        self.assertIn("has no effect", first)
                    elif isinstance(first, str):
                        self.assertEqual(reason(other), reason(first))
                    else:
                        self.assertEqual(other, first)

    def test_wrong_values_are_refused_by_name_and_place(self):
        for option, kind in sorted(self.options("simulate").items()):
            for value in () if option in OWN else NOT_WHOLE if kind == "N" else NOT_NUMBERS if kind == "X" else ("",) if kind else ():
                key = option[2:].replace("-", "_")
                for words, places in zip(self.faces(option, value), ((option,), ("a.yaml: line 2: ", key), (f"'1f1b:{key}=", key))):
                    message = self.refuse("simulate", *words)
                    for place in places:
                        self.assertIn(place, message, words)

    def test_schedules_without_a_size_refuses_other_options(self):
        offered = set(self.options("schedules"))
        for option in sorted(offered & set(VALUES) - OWN - {"--ranks", "--microbatches"}):
            with self.subTest(option=option):
                self.refuse_unread(option, "schedules")
                needed = OF_MODELS[option][1] if option in OF_MODELS else given("--message-bytes") if option == "--bandwidth" else ()
                self.run_ok("schedules", *(() if "-p" in needed else ("-p", 4)), *needed, *given(option))
        for option in sorted(offered & set(VALUES) - OWN):
            self.refuse_unread(option, "schedules", "--docs", ".")

    def test_python_takes_every_option_of_simulations(self):
        scenarios = (pathlib.Path(__file__).parents[3] / "python/penstock/scenarios.py").read_text()
        (simulate,) = (node for node in ast.parse(scenarios).body if isinstance(node, ast.FunctionDef) and node.name == "simulate")
        taken = {argument.arg for argument in simulate.args.kwonlyargs} | python_keywords("ScenarioFields")
        # The arguments of simulate, penstock.sweep, and forms of output, for which Python has objects.
        others = {"--help", "--quiet", "--schedule", "--csv", "--sweep", "--format", "--json", "--output", "--dump"}
        self.assertLessEqual({option[2:].replace("-", "_") for option in set(self.options("simulate")) - others}, taken)

    def test_primus_configurations_refuse_options(self):
        self.write("p.yaml", "fwd_time: 1\nbwd_time: 1\nwgrad_time: 1\nschedulers:\n"
                             "- {name: 1f1b, pp_size: 2, vpp_size: 1, micro_batches: 4}\n")
        for option in sorted(set(self.options("simulate")) - OWN - {"--repeat"}):
            self.refuse_unread(option, "simulate", "p.yaml")
        for words in (("--schedule", "1f1b"), ("--sweep", "comm=0,1")):
            self.assertRegex(self.refuse("simulate", "p.yaml", *words), f"{words[0]}.*no effect")


if __name__ == "__main__":
    program.main()
