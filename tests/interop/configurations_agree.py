"""Our reader of config.json and the configuration classes of transformers agree: keys, defaults, and what files mean.

Usage: configurations_agree.py READ_CONFIGS PYTHON. PYTHON has transformers; exit code 77 if it has not.
"""
import dataclasses
import json
import math
import pathlib
import random
import subprocess
import sys
import typing

SCRIPT = pathlib.Path(__file__).resolve()
ROPE = [
    {"rope_type": "linear", "factor": 2.0}, {"type": "linear", "factor": 3}, {"rope_type": "default"}, {},
    {"rope_theta": 5e5, "rope_type": "default"}, {"type": "yarn", "factor": 4.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 16, "beta_slow": 2},
    {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.25},
    {"rope_type": "yarn", "factor": 4.0, "mscale": 0.7, "mscale_all_dim": 1.0, "truncate": True},
    {"rope_type": "yarn", "factor": 4.0, "mscale": 0.7, "beta_fast": None, "beta_slow": None, "attention_factor": None},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    {"type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 500.0,
     "original_max_position_embeddings": 32},
    {"rope_type": "default", "factor": 2.0}, {"factor": 2.0}, {"rope_type": "linear", "factor": 2.0, "beta_fast": 3},
    # Without what the type needs, of another type, or of parts of a head.
    {"rope_type": "yarn"}, {"rope_type": "linear"}, {"rope_type": "linear", "factor": None}, {"rope_type": "yarn", "factor": None},
    {"rope_type": "llama3", "factor": 8.0}, {"rope_type": "dynamic", "factor": 2.0}, {"rope_type": None}, {"rope_type": 3}, "linear", 7,
    {"rope_type": "default", "partial_rotary_factor": 0.5}, {"rope_type": "yarn", "factor": 4.0, "truncate": False},
    {"rope_type": "yarn", "factor": "4"}, {"rope_type": "linear", "factor": [2]}, {"rope_type": "linear", "factor": 1e400}]
HOSTILE = [0, -1, 2**63, 2**70, 1e30, "8", "", True, [], [1], {}, {"a": [{}]}, None]


def fields_of(config_class):
    """The fields of a class that PreTrainedConfig does not have."""
    import transformers
    common = {field.name for field in dataclasses.fields(transformers.PreTrainedConfig)}
    return {field.name: field for field in dataclasses.fields(config_class) if field.name not in common}


def check_table(model_type, ours, common):
    """Our keys equal their class's, with its defaults."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    config_class = CONFIG_MAPPING[model_type]
    fields = fields_of(config_class)
    assert ours["name"] == config_class.__name__, ours["name"]
    unknown = set(fields) - set(ours["keys"]) - set(ours["without_effect"]) - set(common)
    assert not unknown, (model_type, unknown)
    for name, key in ours["keys"].items():
        assert key["in_class"] == (name in fields), (model_type, name)
        if key["in_class"]:
            assert key["default"] == fields[name].default, (model_type, name, key["default"], fields[name].default)
            assert not key["may_be_null"] or type(None) in typing.get_args(fields[name].type), (model_type, name)
    aliases = {}
    for alias, name in config_class.attribute_map.items():
        aliases.update({alias: name} if name in fields else {name: alias})
    without_effect = {"num_mtp_layers", "num_nextn_predict_layers"}
    assert ours["aliases"] == {alias: name for alias, name in aliases.items() if alias not in without_effect}, model_type
    assert ours["rope_theta"] == (config_class.default_theta if "rope_parameters" in fields else 0), model_type


def draw_files(classes, draw):
    """Yields files: some keys that are missing, some with other values, some with values of no sense."""
    sizes = {"hidden_size": 48, "n_embd": 48, "num_attention_heads": 6, "n_head": 6, "num_hidden_layers": 3, "n_layer": 3}
    for model_type, ours in classes.items():
        for number in range(200):
            file = {"model_type": model_type, **{key: sizes[key] for key in sizes if key in ours["keys"]}}
            if model_type.startswith("deepseek"):
                file.update(num_key_value_heads=6, num_experts_per_tok=2)
            for name, key in ours["keys"].items():
                if name in file or key["only"] or draw.random() < 0.5:
                    continue
                if isinstance(key["default"], bool):
                    file[name] = draw.random() < 0.5
                elif isinstance(key["default"], float):
                    file[name] = draw.choice([0.5, 1e-3, 2.0])
                elif isinstance(key["default"], int):
                    file[name] = draw.choice([2, 6, 24])
            if ours["rope_theta"] and draw.random() < 0.5:
                file[draw.choice(["rope_scaling", "rope_parameters"])] = draw.choice(ROPE)
            if draw.random() < 0.3:
                file["rope_theta"] = draw.choice([1e5, 7])
            if draw.random() < 0.1:
                file["original_max_position_embeddings"] = 16
            if draw.random() < 0.2:
                file["layer_types"] = ["full_attention"] * draw.choice([2, 3])
            if number % 2:
                others = ["rope_scaling", "rope_theta", "layer_types"] if ours["rope_theta"] else ["layer_types"]
                file[draw.choice([*ours["keys"], *others])] = draw.choice(HOSTILE)
                yield file
                continue
            for alias in ours["aliases"]:
                if draw.random() < 0.2:
                    file[alias] = 6
            yield file


def their_rope(config):
    """What the model computes with: rope_parameters, after the completion at its start."""
    config.standardize_rope_params()
    rope = {key: value for key, value in config.rope_parameters.items() if value is not None}
    if rope["rope_type"] == "yarn":
        rope = {"beta_fast": 32, "beta_slow": 1, "mscale": 0, "mscale_all_dim": 0, "attention_factor": 0, **rope}
        rope["beta_fast"], rope["beta_slow"] = rope["beta_fast"] or 32, rope["beta_slow"] or 1
    return rope


def check_file(file, keys, ours):
    """A file that we accept means the same there. Returns whether we do."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    if "error" in ours:
        assert "\n" not in ours["error"] and len(ours["error"]) < 400, ours
        return False
    # Their classes declare some keys as real ones and refuse whole numbers, which we take.
    real = [name for name, key in keys.items() if isinstance(key["default"], float) and isinstance(file.get(name), int)]
    file = json.loads(json.dumps({**file, **{name: float(file[name]) for name in real}}))  # they change it
    theirs = CONFIG_MAPPING[file["model_type"]].from_dict(file)
    for name, value in ours["values"].items():
        if name in ("rope_scaling", "rope_parameters", "rope_theta") or not hasattr(theirs, name):
            continue
        expected = getattr(theirs, name)
        # What their class computes from other keys.
        computed = value is None or (name == "head_dim" and file["model_type"] == "deepseek_v2")
        assert computed or value == expected, (file, name, value, expected)
    if ours["rope"] is not None:
        rope = their_rope(theirs)
        for key, value in ours["rope"].items():
            assert value == rope[key] or math.isclose(value, rope[key]), (file, key, value, rope[key])
    return True


def peer():
    """Runs in the other Python: compares the answers of READ_CONFIGS, the program given, on random files."""
    import transformers
    transformers.utils.logging.set_verbosity_error()
    program = sys.argv[2]
    table = json.loads(subprocess.run([program], input="", capture_output=True, text=True, check=True).stdout)
    for model_type, ours in table["classes"].items():
        check_table(model_type, ours, table["common"])
    base = {field.name for field in dataclasses.fields(transformers.PreTrainedConfig)}
    generation = set(transformers.GenerationConfig._get_default_generation_params())  # pylint: disable=protected-access
    assert base | generation <= set(table["common"]), (base | generation) - set(table["common"])
    files = list(draw_files(table["classes"], random.Random(1)))
    lines = "".join(json.dumps(file) + "\n" for file in files)
    answers = subprocess.run([program], input=lines, capture_output=True, text=True, check=True).stdout.splitlines()[1:]
    assert len(answers) == len(files)
    accepted = sum(check_file(file, table["classes"][file["model_type"]]["keys"], json.loads(answer))
                   for file, answer in zip(files, answers))
    assert accepted > len(files) / 4, (accepted, len(files))
    print(f"{len(table['classes'])} classes agree; {accepted} of {len(files)} files are accepted, and mean the same")


if __name__ == "__main__":
    if sys.argv[1] == "--peer":
        peer()
    elif subprocess.run([sys.argv[2], "-c", "import torch, transformers"], capture_output=True, check=False).returncode:
        print("skipped: there is no transformers")
        sys.exit(77)
    else:
        sys.exit(subprocess.run([sys.argv[2], SCRIPT, "--peer", sys.argv[1]], check=False).returncode)
