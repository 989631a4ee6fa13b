"""Mistakes of a kind get one line that says what to do: names of other frameworks, full disks, files that are no text, fields' limits."""
import gzip
import json
import pathlib
import re
import shutil
import subprocess

import program

ROOT = pathlib.Path(__file__).resolve().parents[3]
TRACES = ROOT / "tests/interop/data/torch_1f1b"
# A command of each kind of output.
PRINTING = ("--help", "--version", "help simulate", "simulate -h", "schedules", "schedules --format csv", "schedules --json", "schedules --passes", "schedule 1f1b",
            "simulate 1f1b", "simulate 1f1b zb-h1 --json", "simulate --sweep schedule=1f1b ranks=2,4", "validate 1f1b", "validate 1f1b --json", "show 1f1b",
            "show 1f1b --explain", "diff 1f1b zb-h1", "plan -p 2 -m 4", "plan -p 2 -m 4 --json", "man", "completion bash", "completion words -- simulate --pri",
            "report 1f1b -o a.html")


def other_names():
    """Returns the names that the program knows from other frameworks."""
    table = (ROOT / "src/specs/config/other_names.cpp").read_text().partition("kOtherNames[] = {")[2].partition("\n};")[0]
    rows = re.findall(r'\{\{"[^"]*", "[^"]*"\},\s*((?:"[^"]*"\s*)+)\}', table)
    return sorted({name for row in rows for part in re.findall(r'"([^"]*)"', row) for name in part.split()})


class MessagesTest(program.CommandTest):
    def error_of(self, *words):
        """Returns the one line of a command that fails."""
        done = self.start(*words)
        lines = done.stderr.splitlines()
        self.assertEqual((len(lines), done.stdout), (1, ""), (words, done.stderr))
        self.assertNotIn(done.returncode, (0, -6, -11), words)
        self.assertNotIn("internal", lines[0])
        return lines[0].removeprefix("penstock: error: ")

    def test_names_of_others_lead_to_options_of_the_same_command(self):
        names = other_names()
        self.assertGreater(len(names), 200)
        suggested = {}
        for command in ("plan", "simulate", "show", "schedule", "calibrate"):
            options = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", self.run_ok(command, "--help")))
            for name in names:
                error = self.error_of(command, f"--{name}", "4")
                meant = re.search(r"did you mean '(--[\w-]+)", error)
                if f"--{name}" in options:
                    continue
                self.assertIn(f"there is no option '--{name}'", error)
                if meant:
                    self.assertIn(meant.group(1), options, error)
                    suggested[command] = suggested.get(command, 0) + 1
        self.assertGreater(suggested["plan"], 60)
        self.assertGreater(suggested["simulate"], 80)

    def test_the_best_option_of_a_command_is_named(self):
        cases = {("plan", "global-batch-size"): "--global-batch", ("plan", "train_batch_size"): "--global-batch", ("plan", "micro-batch-size"): None,
                 ("plan", "mbs"): "--micro-batch-size", ("plan", "pipeline-model-parallel-size"): "--ranks", ("plan", "tp"): "--tensor",
                 ("plan", "context-parallel-size"): "--context", ("plan", "recompute-granularity"): "--recompute", ("plan", "framework"): "--for",
                 ("simulate", "global-batch-size"): "--microbatches", ("simulate", "num-layers"): "--layers", ("simulate", "recompute-granularity"): "--recompute",
                 ("simulate", "transformer-impl"): "--implementation", ("simulate", "cp"): "--context", ("simulate", "global-batch"): "--microbatches",
                 ("plan", "model-parallel"): "--tensor"}
        for (command, name), option in cases.items():
            if option:
                self.assertIn(f"did you mean '{option}'?", self.error_of(command, f"--{name}", "4"))

    def test_names_of_others_as_keys(self):
        """In a configuration, after a schedule's name and in a sweep they lead to the same options as on the command line."""
        for name, option in {"tp": "tensor", "pp": "ranks", "vpp": "chunks", "num_layers": "layers", "gbs": "microbatches", "mbs": "micro_batch_size"}.items():
            (self.folder / "a.yaml").write_text(f"schedule: 1f1b\n{name}: 4\n")
            for words in (("a.yaml",), (f"1f1b:{name}=4",), ("1f1b", "--sweep", f"{name}=2,4")):
                self.assertIn(f"did you mean '{option}'?", self.error_of("simulate", *words))
        for words in (("1f1b:hovercraft=4",), ("1f1b", "--sweep", "hovercraft=2,4")):
            self.assertIn("'penstock simulate --help' lists the options", self.error_of("simulate", *words))

    def test_long_options_after_one_dash(self):
        for words, option in {"simulate 1f1b -model gpt2": "--model", "simulate 1f1b -pp 4": "--ranks", "plan -microbatches=4": "--microbatches",
                              "show 1f1b -ranks 4": "--ranks", "schedule 1f1b -output=a.csv": "--output"}.items():
            self.assertIn(f"did you mean '{option}'?", self.error_of(*words.split()))
        self.run_ok("schedule", "-s1f1b", "-p4", "-m8", "-oa.csv")

    def test_errors_are_in_our_words(self):
        """Options of each kind, given twice or with a word for a number."""
        for words, text in {"simulate 1f1b -p 4 -p 5": "--ranks is given more than once", "plan --tokens 1T --tokens 2T": "--tokens is given more than once",
                            "plan --price-per-hour $2": "--price-per-hour: '$2' is not a number", "show 1f1b --width x": "--width: 'x' is not a whole number",
                            "plan llama-3-8b": "unexpected argument 'llama-3-8b'; is it of an option, as --model llama-3-8b?",
                            "simulate 1f1b --model gpt2 --implementation nemo": "--implementation: no implementation is called 'nemo'; there are ",
                            "simulate zbw": "no schedule is called 'zbw'; did you mean 'zbv'?"}.items():
            self.assertIn(text, self.error_of(*words.split()))
        for separator in " \t;|":
            (self.folder / "a.csv").write_text(f"0F0{separator}0B0\n")
            self.assertIn("commas separate actions", self.error_of("validate", "a.csv"))

    def test_devices_with_their_memory(self):
        for name in ("A100 80GB", "a100-80gb", "H100-80GB", "a100 40GB", "h200_141gb"):
            self.run_ok("simulate", "1f1b", "--model", "gpt2", "--device", name)

    def test_full_disks(self):
        for words in PRINTING:
            with open("/dev/full", "w") as full:
                done = subprocess.run([program.PROGRAM, *words.split()], cwd=self.folder, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (1, "penstock: error: cannot write to stdout: No space left on device\n"), words)
        for name in ("full.csv", "full.html", "full.svg"):
            (self.folder / name).symlink_to("/dev/full")
        for words in ("schedule 1f1b -o full.csv", "plan -p 2 -m 2 -o full.csv", "report 1f1b -o full.html", "report 1f1b -o full.svg",
                      "plan -p 2 -m 2 --report full.html", "simulate --sweep schedule=1f1b ranks=2,4 -o full.html"):
            self.assertRegex(self.error_of(*words.split()), r"^cannot write full\.\w+: No space left on device$", words)
        self.assertTrue(pathlib.Path("/dev/full").is_char_device())

    def test_values_of_flags_follow_an_equals_sign(self):
        for words in ("simulate 1f1b --model llama-3-8b --gated false", "plan -p 2 -m 2 --json true", "show 1f1b --explain false", "schedule 1f1b --lower false"):
            *_, option, value = words.split()
            self.assertIn(f"{option} {value}: write {option}={value}", self.error_of(*words.split()))
        self.run_ok("schedule", "1f1b", "--lower=false")

    def test_a_limit_is_said_once(self):
        for command in ("simulate 1f1b", "plan", "schedule 1f1b", "schedules"):
            for option in ("-p", "-m"):
                errors = {self.error_of(*command.split(), option, value).replace(value, "V", 1) for value in ("-4", "0")}
                self.assertEqual(len(errors), 1, errors)
                self.assertIn("at least 1", self.error_of(*command.split(), option, "-4"))

    def test_files_that_are_no_text(self):
        for ending, commands in (("csv", ("validate", "simulate", "show", "calibrate")), ("yaml", ("validate", "simulate", "show"))):
            (self.folder / f"utf16.{ending}").write_text("0F0,0B0\n", encoding="utf-16")
            (self.folder / f"binary.{ending}").write_bytes(bytes(range(256)))
            for command in commands:
                self.assertEqual(self.error_of(command, f"utf16.{ending}"), f"utf16.{ending} is UTF-16; save it as UTF-8")
                self.assertIn(f"binary.{ending} is not a text file", self.error_of(command, f"binary.{ending}"))

    def test_what_is_no_schedule_is_named(self):
        (self.folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}))
        (self.folder / "llama").mkdir()
        shutil.copy(self.folder / "config.json", self.folder / "llama")
        self.assertEqual(self.error_of("simulate", "config.json"), "config.json is the configuration of a model, not a schedule; give it as --model config.json")
        self.assertIn("give it as --model llama/config.json", self.error_of("simulate", "llama"))
        (self.folder / "empty").mkdir()
        self.assertIn("empty is a folder without traces", self.error_of("show", "empty"))

    def test_folders_of_folders_of_traces(self):
        for name in ("b/step2", "a"):
            shutil.copytree(TRACES, self.folder / "traces" / name)
        self.assertEqual(self.error_of("show", "traces"),
                         "traces has no traces (.json, .json.gz) itself; its subfolders have: give traces/a or traces/b/step2")
        for name in ("c", "d"):
            shutil.copytree(TRACES, self.folder / "traces" / name)
        self.assertIn("give traces/a or traces/b/step2 or traces/c or one of 1 others", self.error_of("show", "traces"))

    def test_traces_as_other_programs_write_them(self):
        """Event arrays without their end, trailing commas, and times as texts, as the format allows or Ascend's profiler writes them."""
        def figures(path, name, *options):
            return re.sub(r"[ -]+", " ", self.run_ok("simulate", path, *options).replace(name, "a"))

        whole = figures(str(TRACES), str(TRACES))

        def with_texts(trace):
            for event in trace["traceEvents"]:
                event.update({key: str(event[key]) for key in ("ts", "dur") if key in event})
            return json.dumps(trace)

        def with_commas(trace):
            text = json.dumps(trace, separators=(",", ":"))
            return text.replace("]", ",]").replace("[,]", "[]").replace("}", ",}").replace("{,}", "{}")

        for name, form in {"texts": with_texts, "commas": with_commas}.items():
            folder = self.folder / name
            folder.mkdir()
            for path in sorted(TRACES.iterdir()):
                text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
                (folder / path.name.removesuffix(".gz")).write_text(form(json.loads(text)))
            self.assertEqual(figures(name, name), whole)
        events = [{"ph": "X", "name": f"stage0 {what} {i}", "ts": str(10 * i + at), "dur": 4, "pid": rank, "tid": 0}
                  for rank in range(2) for i in range(3) for at, what in ((0, "fwd"), (5, "bwd"))]
        for event in events:
            event["name"] = event["name"].replace("stage0", f"stage{event['pid']}")
        (self.folder / "rule.yaml").write_text("events:\n  - {match: 'stage(?<stage>\\d+) fwd (?<microbatch>\\d+)', action: F}\n"
                                               "  - {match: 'stage(?<stage>\\d+) bwd (?<microbatch>\\d+)', action: B}\nrank: process\n")
        array, texts = json.dumps(events), set()
        for name, text in {"closed": array, "open": array[:-1], "comma": array[:-1] + ",", "lines": array[:-1] + ",\n"}.items():
            (self.folder / f"{name}.json").write_text(text)
            texts.add(figures(f"{name}.json", name, "--trace-rule", "rule.yaml"))
        self.assertEqual(len(texts), 1, texts)
        for cut in (array[:-3], array[:60]):
            (self.folder / "cut.json").write_text(cut)
            self.assertIn(f"cut.json: the JSON ends too early, after {len(cut)} bytes", self.error_of("simulate", "cut.json", "--trace-rule", "rule.yaml"))

    def test_options_are_spelled_as_options(self):
        (self.folder / "a.json").write_text('{"traceEvents": [{"ph": "X", "name": "x", "ts": 1, "dur": 1, "pid": 1, "tid": 1}]}')
        self.assertIn("give a rule (--trace-rule)", self.error_of("show", "a.json"))

    def test_dimensions_that_do_not_divide_the_devices(self):
        model = ("plan", "--model", "llama-3-8b", "--global-batch", 64)
        self.assertEqual(self.error_of(*model, "--nodes", "8x8", "--tensor", 8, "-p", 7), "--ranks 7: does not divide the 8 devices left of 64 by --tensor 8")
        self.assertEqual(self.error_of(*model, "--nodes", "1x8", "-p", 3), "--ranks 3: does not divide the 8 devices")
        self.assertEqual(self.error_of(*model, "--nodes", "3x8", "--data-parallel", 24), "--data-parallel 24: does not divide the 64 samples of a step (--global-batch)")

    def test_keys_of_the_configuration(self):
        """The commands of the engine, which is not needed to refuse their arguments."""
        self.require_engine()
        (self.folder / "a.yaml").write_text("name: a\n")
        for words, text in {("train", "steps=3"): "'steps=3' is KEY=VALUE; the first argument is the file of the training configuration",
                            ("train", "a.yaml", "--tp", "2"): "did you mean 'parallel.tensor='?",
                            ("train", "a.yaml", "--weight-decay", "2"): "did you mean 'optimizer.weight_decay='?",
                            ("train", "a.yaml", "--fp16"): "it trains in f32 or bf16 (precision)",
                            ("train", "a.yaml", "lora_rank=8"): "it trains all weights, without adapters",
                            ("train", "a.yaml", "parallel.tensors=2"): "did you mean 'parallel.tensor'?"}.items():
            self.assertIn(text, self.error_of(*words))


if __name__ == "__main__":
    program.main()
