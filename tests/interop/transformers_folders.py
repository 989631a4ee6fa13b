"""Folders that the transformers package wrote or reads mean the same there and here: the balance of experts, tied heads, and
ends of text.

Usage: transformers_folders.py PENSTOCK PYTHON. PYTHON has torch and transformers; exit code 77 if it has not.
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(__file__).resolve()
sys.path.insert(0, str(SCRIPT.parents[1] / "apps/cli"))
import tensor_file  # noqa: E402  from a folder of the path above

SEQUENCE = 32
WINDOWS = ["".join(chr(48 + number * number % base) for number in range(SEQUENCE)) for base in (43, 61)]
SIZES = {"vocab_size": 256, "hidden_size": 24, "intermediate_size": 40, "num_attention_heads": 2, "num_key_value_heads": 2,
         "max_position_embeddings": 64}
QWEN3 = {**SIZES, "head_dim": 12, "num_experts": 6, "moe_intermediate_size": 16, "norm_topk_prob": True}
# Layers whose attention and experts return 0 have the same input, so that their loads are equal.
BALANCED = {
    "mixtral_1": ("Mixtral", {**SIZES, "num_hidden_layers": 1, "num_local_experts": 4}, 0.5),
    "mixtral_3": ("Mixtral", {**SIZES, "num_hidden_layers": 3, "num_local_experts": 4}, 0.5),
    "qwen3_moe_1": ("Qwen3Moe", {**QWEN3, "num_hidden_layers": 1, "num_experts_per_tok": 3}, 0.5),
    "qwen3_moe_2": ("Qwen3Moe", {**QWEN3, "num_hidden_layers": 2, "num_experts_per_tok": 5}, 0.25)}
FUSED = "mixtral_3", "qwen3_moe_2"  # saved with transformers 5's own names, and a tensor for the experts of a layer
PROMPT = "ab"


def save_balanced(folder):
    """Saves the models, and the gradients of their routers on each window."""
    import torch
    import transformers
    for name, (kind, sizes, coefficient) in BALANCED.items():
        config = getattr(transformers, f"{kind}Config")(**sizes, router_aux_loss_coef=coefficient, output_router_logits=True)
        model = getattr(transformers, f"{kind}ForCausalLM")(config).train()
        routers = {key: parameter for key, parameter in model.named_parameters() if key.endswith("gate.weight")}
        first = next(iter(routers.values()))
        with torch.no_grad():
            first.normal_(0, 0.5)
            for key, parameter in model.named_parameters():
                if key in routers:
                    parameter.copy_(first)
                elif len(routers) > 1 and ("o_proj" in key or "down_proj" in key or key.endswith(".w2.weight")):
                    parameter.zero_()
        model.save_pretrained(folder / name, save_original_format=name not in FUSED)
        expected = []
        for window in WINDOWS:
            tokens = torch.tensor([[*window.encode(), 0]])
            model.zero_grad()
            model(tokens[:, :-1], labels=tokens[:, :-1], shift_labels=tokens[:, 1:]).loss.backward()
            expected.append([routers[key].grad.flatten().tolist() for key in routers])
        (folder / f"{name}.json").write_text(json.dumps(expected))


def save_heads(folder):
    """Saves models whose configuration ties a head that the file has, and their losses."""
    import safetensors.torch
    import torch
    import transformers
    tokens = torch.tensor([*(folder / "text").read_bytes()])
    windows = (len(tokens) - 1) // SEQUENCE
    inputs = tokens[:windows * SEQUENCE].view(windows, SEQUENCE)
    targets = tokens[1:windows * SEQUENCE + 1]
    gpt2 = {"vocab_size": 256, "n_embd": 24, "n_layer": 1, "n_head": 2, "n_positions": 64}
    for name, kind, sizes in (("head_llama", "Llama", {**SIZES, "num_hidden_layers": 1}),
                              ("head_qwen3", "Qwen3", {**SIZES, "head_dim": 12, "num_hidden_layers": 1}),
                              ("head_gpt2", "GPT2", gpt2)):
        config = getattr(transformers, f"{kind}Config")(**sizes, tie_word_embeddings=False)
        class_ = getattr(transformers, "GPT2LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM")
        class_(config).save_pretrained(folder / name)
        config_file = folder / name / "config.json"
        root = json.loads(config_file.read_text())
        root["tie_word_embeddings"] = True
        config_file.write_text(json.dumps(root))
        for part in ("both", "head", "embedding"):
            here = folder / f"{name}_{part}"
            here.mkdir()
            (here / "config.json").write_text(json.dumps(root))
            tensors = safetensors.torch.load_file(folder / name / "model.safetensors")
            lost = {"head": ("embed_tokens", "wte"), "embedding": ("lm_head",)}.get(part, ())
            safetensors.torch.save_file({key: value for key, value in tensors.items() if not any(each in key for each in lost)},
                                        here / "model.safetensors", metadata={"format": "pt"})
            with torch.no_grad():
                logits = class_.from_pretrained(here).eval()(inputs).logits
            (folder / f"{name}_{part}.json").write_text(
                str(torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets).item()))


def save_ends(folder):
    """Adds lists of ends of text, and writes the texts that they end."""
    import torch
    import transformers
    here = folder / "head_llama_both"
    config = json.loads((here / "config.json").read_text())
    prompt = torch.tensor([[0, *PROMPT.encode()]])
    texts = []
    free = transformers.LlamaForCausalLM.from_pretrained(here)
    free.generation_config.eos_token_id = None
    whole = free.generate(prompt, max_new_tokens=12, do_sample=False, pad_token_id=0)[0, 3:].tolist()
    for number, ends in enumerate(([250, whole[3]], whole[2], [whole[5], whole[4]])):
        (here / "config.json").write_text(json.dumps({**config, "eos_token_id": 9 if number == 1 else ends}))
        (here / "generation_config.json").unlink(missing_ok=True)
        if number == 1:
            (here / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
        model = transformers.LlamaForCausalLM.from_pretrained(here)
        written = model.generate(prompt, max_new_tokens=12, do_sample=False, pad_token_id=0)[0, 3:].tolist()
        given = ends if isinstance(ends, list) else [ends]
        texts.append([number, ends, [token for token in written if token not in given]])
    (folder / "ends.json").write_text(json.dumps(texts))
    (here / "generation_config.json").unlink(missing_ok=True)


def peer(folder):
    import torch
    import transformers
    torch.manual_seed(1)
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    save_balanced(folder)
    save_heads(folder)
    save_ends(folder)


def relative(actual, expected):
    distance = math.sqrt(sum((one - other) ** 2 for one, other in zip(actual, expected)))
    return distance / math.sqrt(sum(value * value for value in expected))


def check_balanced(run, folder):
    (folder / "windows").write_text("\n%\n".join(WINDOWS))
    (folder / "config.yaml").write_text("steps: 1\nsample: 0\nfuse: false\n")
    for name, (_, _, coefficient) in BALANCED.items():
        run("train", folder / "config.yaml", f"model={folder / name}", f"sequence={SEQUENCE}", "ranks=1", "stages=1",
            "microbatches=2", "batch=1", f"data.path={folder / 'windows'}", "data.held_out=0.5", f"folder={folder}",
            f"name={name}_run", "checkpoint.every=1")
        pieces = {}
        for file in (folder / f"{name}_run/checkpoints/step-1").glob("*.safetensors"):
            pieces.update(tensor_file.read(file))
        moments = [[value / 0.1 for value in pieces[key][1]] for key in sorted(pieces)
                   if key.startswith("optimizer.first_moment.") and key.endswith("router.weight")]
        expected = json.loads((folder / f"{name}.json").read_text())
        # One of the windows is held out.
        worst = min(max(relative(*pair) for pair in zip(moments, window, strict=True)) for window in expected)
        assert worst < 2e-5, (name, worst)
        run("export", folder / f"{name}_run", "-o", folder / f"{name}_exported")
        exported = json.loads((folder / f"{name}_exported/config.json").read_text())
        assert exported["router_aux_loss_coef"] == coefficient, exported
        print(f"{name}: largest relative distance of a router's gradient {worst}")


def check_heads(run, folder):
    for file in sorted(folder.glob("head_*.json")):
        expected = float(file.read_text())
        evaluated = json.loads(run("eval", folder / file.stem, "--data", folder / "text", "--sequence", SEQUENCE, "--json"))
        loss = evaluated["held_out_loss"]
        assert abs(loss - expected) < 2e-5 * expected, (file.stem, loss, expected)
        print(f"{file.stem}: loss {loss}")


def check_ends(run, folder):
    here = folder / "head_llama_both"
    config = json.loads((here / "config.json").read_text())
    for number, ends, expected in json.loads((folder / "ends.json").read_text()):
        (here / "config.json").write_text(json.dumps({**config, "eos_token_id": 9 if number == 1 else ends}))
        (here / "generation_config.json").unlink(missing_ok=True)
        if number == 1:
            (here / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
        text = run("generate", here, "--prompt", PROMPT, "--temperature", 0, "--tokens", 12, "--json")
        written = json.loads(text)["text"].replace("\n%\n", "\0")
        assert len(written) == len(expected), (ends, written, expected)


def main():
    program, python = sys.argv[1:]
    check = subprocess.run([python, "-c", "import torch, transformers"], capture_output=True, check=False)
    if check.returncode != 0:
        print("skipped: there is no transformers")
        sys.exit(77)

    def start(*words):
        result = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
        if result.returncode:
            raise SystemExit(f"{words}\n{result.stdout}{result.stderr}")
        return result.stdout

    def run(*words):
        return start(program, *words)

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "text").write_text("".join(f"line {number * number} of {number}\n" for number in range(120)))
        start(python, SCRIPT, "--peer", folder)
        check_balanced(run, folder)
        check_heads(run, folder)
        check_ends(run, folder)


if __name__ == "__main__":
    if sys.argv[1] == "--peer":
        peer(pathlib.Path(sys.argv[2]))
    else:
        main()
