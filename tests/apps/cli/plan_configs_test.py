"""penstock plan --configs: what runs the fastest plan has every dimension of it, or is refused with a reason."""
import argparse
import csv
import dataclasses
import json
import pathlib
import random
import re
import subprocess
import sys
import types
import unittest.mock

import converted_tables
import program

PEERS = json.loads((pathlib.Path(__file__).parent / "peer_options.json").read_text())
FILES = {"schedule": "schedule.csv", "penstock": "train.yaml", "megatron": "megatron.sh", "megatron-bridge": "megatron_bridge.sh",
         "torchtitan": "torchtitan_plan.py"}
SIZES = ("--layers", 8, "--dim", 64, "--heads", 4, "--hidden", 128, "--vocabulary", 1024)
# A model, and whether it has experts.
MODELS = [(("llama-3-8b",), False), (("qwen3-0.6b",), False), (("gpt2",), False), (("qwen3-30b-a3b", "--layers", 8), True),
          (("deepseek-v2-lite",), True), (("deepseek-v3", "--layers", 16, "--predictors", 1), True), (("decoder", *SIZES), False)]
CHECKED = ("micro_batch", "tensor", "pipeline", "context")


def layers_of(layout):
    """Returns the layers of each stage of Megatron-LM's layout, expanded as its parse_str_to_list does."""
    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        layout = re.sub(pattern, lambda found: found[1] * int(found[2]), layout.replace(",", ""))
    stages = layout.split("|")
    assert re.fullmatch("Et*m*L", "".join(stages)), layout
    assert stages[0][0] == "E" and stages[-1][-1] == "L", layout
    return [stage.count("t") for stage in stages]


def array_of(path, name):
    """Returns an array of a file for bash, as bash reads it."""
    script = f'. "$1"; printf "%s\\0" "${{{name}[@]}}"'
    return subprocess.run(["bash", "-euc", script, "bash", path], check=True, capture_output=True, text=True).stdout.split("\0")[:-1]


def megatron_parser():
    """Returns a parser with the types that Megatron-LM's own gives its options."""
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    for name, kind in PEERS["megatron"]["options"].items():
        kind, _, choices = kind.partition(": ")
        if kind == "flag":
            parser.add_argument(f"--{name}", action="store_true")
            continue
        word, *several = kind.split()
        parser.add_argument(f"--{name}", type={"int": int, "float": float, "str": str}[word], nargs=several[0] if several else None,
                            choices=choices.split() or None)
    return parser


def has_kind(value, kind):
    kind, _, choices = kind.partition(": ")
    return type(value).__name__ == kind and (not choices or value in choices.split())


def given(config):
    """Returns the fields that a plan has set."""
    return {name: value for name, value in vars(config).items() if value is not None}


def torchtitan_config(text, options):
    """Runs a plan for a version of torchtitan, whose classes have these options and do nothing."""
    kinds = {section: dataclasses.make_dataclass(section, [(name, object, None) for name in names]) for section, names in options.items()}

    def base():
        return types.SimpleNamespace(training=kinds["training"](), compile=None)

    registry = types.SimpleNamespace(llama3_8b=base, qwen3_0_6b=base, deepseek_v3_16b=base)
    anything = types.SimpleNamespace(Config=lambda **_: None)
    modules = {"components.loss": {"ChunkedLossWrapper": anything, "CrossEntropyLoss": anything},
               "config": {"CompileConfig": lambda enable: enable, "ParallelismConfig": kinds["parallelism"]},
               "distributed.activation_checkpoint": {"FullAC": types.SimpleNamespace(Config=lambda: "full")},
               "models.common.config_utils": {"decoder_vocab_size": lambda spec: 1}, "trainer": {"Trainer": anything}}
    for model in ("llama3", "qwen3", "deepseek_v3"):
        modules[f"models.{model}"] = {"config_registry": registry, "model_registry": lambda flavor, attn_backend: flavor}
    made = {}
    for name, members in modules.items():
        path = ["torchtitan", *name.split(".")]
        made.update({".".join(path[:end]): types.ModuleType(path[end - 1]) for end in range(1, len(path)) if ".".join(path[:end]) not in made})
        made[".".join(path)] = types.SimpleNamespace(**members)
    with unittest.mock.patch.dict(sys.modules, made):
        names = {}
        exec(compile(text, "torchtitan_plan.py", "exec"), names)
        return names["plan"]()


def bridge_value(text, kind):
    """Reads a value of Hydra's override grammar."""
    if text == "null":
        return None
    if kind in ("int", "bool"):
        return json.loads(text)
    if kind == "list":
        return text.removeprefix("[").removesuffix("]").split(",")
    return json.loads(text) if text.startswith('"') else text


class PlanConfigsTest(program.CommandTest):
    def plan(self, *words):
        """Returns the fastest plan, and what the folder has by framework, with reasons in place of files."""
        answer = json.loads(self.run_ok("plan", *words, "--configs", "out", "--json"))
        configs = {each["framework"]: each for each in answer["configs"]}
        self.assertEqual(set(configs), set(FILES))
        for framework, each in configs.items():
            path = self.folder / "out" / FILES[framework]
            self.assertEqual(path.exists(), "reason" not in each, each)
            if "reason" in each:
                self.assertNotIn("\n", each["reason"])
                self.assertIsNone(each["file"])
            else:
                self.assertEqual(each["file"], f"out/{FILES[framework]}")
        return answer["best"], {framework: each.get("reason") for framework, each in configs.items()}

    def small(self, *words):
        return self.plan("--model", "decoder", *SIZES, "--sequence", 64, "--device", "a100", "--nodes", "1x4", "--global-batch", 16, *words)

    def random_plan(self, rng):
        model, has_experts = rng.choice(MODELS)
        tensor, pipeline, context, data = rng.choice([(1, 4, 1, 2), (2, 2, 1, 2), (1, 2, 2, 2), (2, 4, 1, 1), (1, 1, 1, 8), (2, 1, 2, 2), (8, 1, 1, 1)])
        schedule, chunks = rng.choice([("1f1b", 1), ("interleaved", 2), ("gpipe", 1), ("zbv", 2), ("interleaved-zb", 2), ("dualpipev", 2),
                                       ("zb-h1", 1), ("seq1f1b", 1), ("hanayo", 2)])
        implementation = rng.choice(["transformer-engine", "torch", "penstock"])
        forms = ["none", "full"] if implementation == "torch" else ["none", "full", "block:1", "selective:core_attn", "selective:norm,act"]
        zero = (1 if pipeline > 1 else 3) if implementation == "torch" else rng.choice([0, 1])
        words = ["--model", *model, "--device", "b200", "--nodes", "1x8", "--sequence", 1024, "--global-batch", 32, "--tensor", tensor,
                 "-p", pipeline, "--context", context, "--data-parallel", data, "--micro-batch-size", rng.choice([1, 2]),
                 "--zero", zero, "--recompute", rng.choice(forms),
                 "--schedule", "1f1b" if pipeline == 1 else schedule, "--implementation", implementation,
                 "--precision", rng.choice(["bf16", "bf16", "f32"])]
        words += rng.choice([[], ["--fp32-gradients"]]) if implementation == "transformer-engine" else []
        if has_experts:
            words += ["--expert", rng.choice([1, 2, 4]), "--expert-tensor", rng.choice([1, tensor])]
        return words + (["--chunks", chunks] if pipeline > 1 else [])

    def test_every_dimension_is_expressed_or_refused(self):
        rng = random.Random(39)
        written = dict.fromkeys(FILES, 0)
        plans = 0
        for _ in range(220):  # most are refused: their framework lacks the schedule
            words = self.random_plan(rng)
            if self.start("plan", *words).returncode:
                continue
            plans += 1
            with self.subTest(words=words):
                best, reasons = self.plan(*words)
                layers = self.stage_layers(best)
                for framework, check in (("megatron", self.check_megatron), ("megatron-bridge", self.check_bridge),
                                         ("torchtitan", self.check_torchtitan), ("penstock", self.check_train)):
                    if reasons[framework] is None:
                        written[framework] += 1
                        check(best, layers, self.folder / "out" / FILES[framework])
                    else:
                        self.assertRegex(reasons[framework], r"^--[a-z0-9-]+( \S+)?(: | does not divide )|^torch ")
        self.assertGreater(plans, 40)
        self.assertTrue(all(written[framework] > 2 for framework in FILES if framework != "schedule"), written)

    def test_sites_divide_what_a_framework_puts_outermost(self):
        sites = ("--model", "llama-3-8b", "--nodes", "2x8", "--global-batch", 64, "--sequence", 1024, "--sites", 2, "--tensor", 2, "-p", 2,
                 "--data-parallel", 4, "--recompute", "none", "--zero", 1, "--precision", "bf16", "--offloaded-layers", 0)
        megatron = (*sites, "--for", "megatron", "--fp32-gradients", "--schedule", "1f1b")
        for across in ("pipeline", "data"):
            _, reasons = self.plan(*megatron, "--across-sites", across)
            self.assertIsNone(reasons["megatron"])
            self.assertIsNone(reasons["megatron-bridge"])
            words = " ".join(array_of(self.folder / "out" / FILES["megatron"], "MEGATRON_ARGS"))
            bridge = " ".join(array_of(self.folder / "out" / FILES["megatron-bridge"], "BRIDGE_ARGS"))
            self.assertEqual("--use-tp-pp-dp-mapping" in words, across == "data")
            self.assertEqual("dist.use_tp_pp_dp_mapping=true" in bridge, across == "data")
        _, reasons = self.plan(*sites, "--for", "torchtitan", "--across-sites", "data")
        self.assertIn("--across-sites data: torchtitan gives consecutive devices to the replicas of a stage", reasons["torchtitan"])
        engine = ("--model", "decoder", *SIZES, "--sequence", 64, "--device", "a100", "--nodes", "2x2", "--global-batch", 16, "--sites", 2,
                  "-p", 2, "--data-parallel", 2, "--schedule", "1f1b", "--implementation", "penstock", "--recompute", "none", "--offloaded-layers", 0)
        _, reasons = self.plan(*engine, "--across-sites", "data")
        self.assertIsNone(reasons["penstock"])
        line = self.refuse("plan", *engine, "--across-sites", "pipeline")
        self.assertIn("--across-sites pipeline: the engine gives consecutive devices to the ranks of a pipeline", line)

    def stage_layers(self, best):
        """Returns the layers of each stage; None without a pipeline."""
        return [int(count) for count in best["layout"].split(",")] if best["layout"] else None

    def check_megatron(self, best, layers, path):
        words = array_of(path, "MEGATRON_ARGS")
        known = vars(megatron_parser().parse_args(words))
        self.assertEqual((known["micro_batch_size"], known["tensor_model_parallel_size"], known["pipeline_model_parallel_size"],
                          known["context_parallel_size"]), tuple(best[key] for key in CHECKED))
        self.assertEqual(known["global_batch_size"], best["data"] * best["micro_batch"] * best["microbatches"])
        self.assertEqual(known["seq_length"], 1024)
        self.assertEqual(known["sequence_parallel"], best["tensor"] > 1)
        # What the price assumes is set.
        prices_engine = known["transformer_impl"] == "transformer_engine"
        self.assertEqual(known["tp_comm_overlap"], prices_engine and best["tensor"] > 1)
        self.assertEqual(known["grad_reduce_in_bf16"], prices_engine and "--fp32-gradients" not in best["command"] and best["precision"] == "bf16")
        launched = re.search(r"-m penstock[.]megatron (\S+) pretrain_gpt", path.read_text())
        if best["schedule"] == "1f1b" or (best["schedule"] == "interleaved" and best["microbatches"] % best["pipeline"] == 0):
            self.assertIsNone(launched)
        else:
            self.assertIn(launched[1], (best["schedule"], "out/schedule.csv"))
        if best["pipeline"] > 1:
            self.assertEqual(layers_of(known["pipeline_model_parallel_layout"]), layers)
            self.assertEqual(len(layers), best["pipeline"] * best["chunks"])
        copies = best["data"] * best["context"]
        self.assertEqual(known["use_distributed_optimizer"], (best["zero"] == 1 and copies > 1) or "-states=" in best["command"])
        if known["num_experts"]:
            self.assertEqual((known["expert_model_parallel_size"], known["expert_tensor_parallel_size"]), (best["expert"], best["expert_tensor"]))
        self.check_recompute(best["recompute"], known["recompute_granularity"], known["recompute_method"], known["recompute_num_layers"],
                             known["recompute_modules"])

    def check_recompute(self, plan, granularity, method, layers, modules):
        expected = {"none": (None, None, None, None), "full": ("full", "uniform", 1, None), "block:1": ("full", "block", 1, None),
                    "selective:core_attn": ("selective", None, None, ["core_attn"]),
                    "selective:norm,act": ("selective", None, None, ["layernorm", "moe_act"])}
        self.assertEqual((granularity, method, layers, modules), expected[plan])

    def check_bridge(self, best, layers, path):
        words = array_of(path, "BRIDGE_ARGS")
        self.assertEqual((words[0], words[2:4]), ("--recipe", ["--mode", "pretrain"]))
        values = {}
        for word in words[4:]:
            key, value = word.split("=", 1)
            kind = PEERS["megatron-bridge"]["options"][key]
            values[key] = bridge_value(value, kind)
            self.assertTrue(values[key] is None or has_kind(values[key], kind), word)
        model = {key.removeprefix("model."): value for key, value in values.items()}
        self.assertEqual((values["train.micro_batch_size"], model["tensor_model_parallel_size"], model["pipeline_model_parallel_size"],
                          model["context_parallel_size"]), tuple(best[key] for key in CHECKED))
        self.assertEqual(values["train.global_batch_size"], best["data"] * best["micro_batch"] * best["microbatches"])
        self.assertEqual(model["virtual_pipeline_model_parallel_size"], best["chunks"] if best["chunks"] > 1 else None)
        if best["pipeline"] > 1:
            self.assertEqual(layers_of(model["pipeline_model_parallel_layout"]), layers)
        else:
            self.assertIsNone(model["pipeline_model_parallel_layout"])
        self.check_recompute(best["recompute"], model["recompute_granularity"], model["recompute_method"], model["recompute_num_layers"],
                             model["recompute_modules"])
        self.assertEqual(values["optimizer.use_distributed_optimizer"], best["zero"] == 1)

    def check_torchtitan(self, best, layers, path):
        microbatches = best["microbatches"] if best["pipeline"] > 1 else 1
        for version, options in PEERS["torchtitan"]["options"].items():
            config = torchtitan_config(path.read_text(), options)
            parallel, training = given(config.parallelism), given(config.training)
            for section, values in (("parallelism", parallel), ("training", training)):
                for key, value in values.items():
                    self.assertTrue(has_kind(value, options[section][key]), (version, key, value))
            self.assertEqual(parallel["tensor_parallel_degree"], best["tensor"])
            self.assertEqual(parallel["context_parallel_degree"], best["context"])
            self.assertEqual(parallel["pipeline_parallel_degree"], best["pipeline"])
            self.assertEqual(parallel["expert_parallel_degree"], best["expert"])
            self.assertEqual(parallel["data_parallel_replicate_degree"] * parallel["data_parallel_shard_degree"], best["data"])
            self.assertEqual(config.activation_checkpoint, "full" if best["recompute"] == "full" else None)
            batch = best["data"] * best["micro_batch"] * best["microbatches"]
            if version == "main":
                self.assertEqual(training["num_tokens_per_train_step"], batch * training["max_context_length"])
                self.assertEqual(training["num_tokens_per_microbatch_per_dp_rank"], best["micro_batch"] * training["max_context_length"])
                self.assertEqual(parallel.get("num_pp_microbatches", 1), microbatches)
            else:
                self.assertEqual(training["global_batch_size"], batch)
                self.assertEqual(training["local_batch_size"], best["micro_batch"] * microbatches)
                self.assertEqual(parallel.get("pipeline_parallel_microbatch_size"), best["micro_batch"] if best["pipeline"] > 1 else None)
            if best["pipeline"] == 1:
                self.assertNotIn("pipeline_parallel_schedule", parallel)
                continue
            self.assertEqual(parallel["pipeline_parallel_schedule_csv"], "out/schedule.csv")
            modules = parallel["module_fqns_per_model_part"]
            self.assertEqual([sum(name.startswith("layers.") for name in stage) for stage in modules], layers)
            names = [name for stage in modules for name in stage]
            self.assertEqual(names, ["tok_embeddings", *(f"layers.{layer}" for layer in range(sum(layers))), "norm", "lm_head"])

    def check_train(self, best, layers, path):
        self.assertEqual(best["recompute"], "none")
        text = path.read_text()
        for dimension in ("tensor", "context"):
            self.assertIn(f"  {dimension}: {best[dimension]}\n", text + f"  {dimension}: 1\n")
        self.assertIn(f"batch: {best['micro_batch']}\n", text + "batch: 4\n")
        if layers:
            self.assertIn(f"stage_layers: {layers}\n", text)
        # The price of the configuration equals the plan's.
        (run,) = json.loads(self.start("simulate", path, "--device", "b200", "--json").stdout)["schedules"]
        self.assertEqual((run["ranks"], run["microbatches"]), (best["pipeline"], best["microbatches"]))

    def test_the_table_of_calibrate_reads_megatrons_arguments_back(self):
        sizes = ("--layers", 16, "--dim", 1024, "--heads", 16, "--kv-heads", 4, "--hidden", 4096, "--vocabulary", 65536)
        experts = ("--experts", 16, "--top-k", 2, "--expert-hidden", 1024, "--shared-experts", 1, "--expert-imbalance", 1.1)
        for words in (("--tensor", 2, "-p", 2, "--schedule", "interleaved", "--chunks", 4, "--recompute", "block:1"),
                      ("--tensor", 1, "-p", 4, "--schedule", "1f1b", "--recompute", "selective:norm"),
                      ("--tensor", 2, "-p", 2, "--context", 2, "--recompute", "full", "--tied", "--schedule", "1f1b"),
                      ("--latent", "512,256,64,32,64", *experts, "--dense-layers", 1, "--tensor", 2, "-p", 2, "--expert", 2, "--expert-tensor", 1,
                       "--recompute", "none", "--schedule", "1f1b,interleaved")):
            with self.subTest(words=words):
                best, _ = self.plan("--model", "decoder", *sizes, "--sequence", 2048, "--device", "h100", "--nodes", "1x8", "--global-batch", 64,
                                    "--for", "megatron", *words)
                row = {"test": "own", "platform": "dgx_h100", "iter_s_median": best["step_time"], "mem_max_bytes": best["peak_bytes"]}
                for name, value in vars(megatron_parser().parse_args(array_of(self.folder / "out" / "megatron.sh", "MEGATRON_ARGS"))).items():
                    if value is not None and value is not False:
                        value = "true" if value is True else " ".join(value) if isinstance(value, list) and isinstance(value[0], str) else value
                        row[name.replace("_", "-")] = value
                with (self.folder / "runs.csv").open("w", newline="") as file:
                    csv.writer(file).writerows([row.keys(), row.values()])
                converted_tables.convert([self.folder / "runs.csv"], self.folder / "converted")
                scores = self.run_json("calibrate", "converted/runs.csv")
                self.assertEqual(scores["priced"], 1, scores)
                self.assertLess(scores["time"]["mape"], 1e-9)

    def test_train_runs_the_plan(self):
        self.require_engine()
        for schedule, words in (("interleaved", ("--chunks", 2, "-p", 2)), ("zbv", ("-p", 4)), ("1f1b", ("-p", 2, "--data-parallel", 2, "--zero", 1))):
            with self.subTest(schedule=schedule):
                best, reasons = self.small("--schedule", schedule, "--recompute", "none", "--tensor", 1, "--context", 1, "--micro-batch-size", 2, *words)
                self.assertIsNone(reasons["penstock"])
                self.write("text", "some words of text, " * 400)
                name = f"of-{schedule}"
                result = self.start("train", "out/train.yaml", f"name={name}", "steps=2", "sample=0", "data.path=text", "data.tokenizer=bytes", "precision=f32")
                self.assertEqual(result.returncode, 0, result.stderr)
                if best["data"] == 1:  # the run's file has all replicas
                    self.assertEqual((self.folder / "runs" / name / "schedule.csv").read_text(), (self.folder / "out" / "schedule.csv").read_text())
                (run,) = json.loads(self.start("simulate", "out/train.yaml", "--device", "a100", "--json").stdout)["schedules"]
                self.assertAlmostEqual(run["step_time"] / best["step_time"], 1, places=9)
                self.assertAlmostEqual(run["device_bytes"] / best["peak_bytes"], 1, places=9)


if __name__ == "__main__":
    program.main()
