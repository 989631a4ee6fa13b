"""Models of the transformers package and ours are the same: configurations, weights, losses, gradients, trained weights, and
the text that they write.

Usage: transformers_models.py PENSTOCK PYTHON. PYTHON has torch and transformers; exit code 77 if it has not.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(__file__).resolve()
SEQUENCE = 48
END_OF_DOCUMENT = 0
PROMPT, NEW_TOKENS = "line 25 of", 24
WINDOWS = ["".join(chr(48 + number * number % base) for number in range(SEQUENCE)) for base in (43, 61)]
SIZES = {"vocab_size": 256, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4, "num_attention_heads": 6,
         "max_position_embeddings": 256, "rms_norm_eps": 1e-5}
LLAMA3_ROPE = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 32, "rope_theta": 1000.0}
YARN_ROPE = {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 32,
             "rope_theta": 1000.0}
LATENT = {"kv_lora_rank": 24, "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "v_head_dim": 12, "n_routed_experts": 8,
          "moe_intermediate_size": 24, "n_shared_experts": 2, "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2,
          "num_key_value_heads": 6}
MODELS = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", {**SIZES, "num_key_value_heads": 6}),
    "llama_tied_grouped_scaled": ("LlamaForCausalLM", "LlamaConfig", {**SIZES, "num_key_value_heads": 2, "head_dim": 12,
                                                                      "tie_word_embeddings": True,
                                                                      "rope_parameters": LLAMA3_ROPE}),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {**SIZES, "num_key_value_heads": 3, "head_dim": 16}),
    "qwen3_yarn": ("Qwen3ForCausalLM", "Qwen3Config", {**SIZES, "num_key_value_heads": 3, "head_dim": 16,
                                                       "rope_parameters": {**YARN_ROPE, "mscale": 0.7, "mscale_all_dim": 1.3}}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"vocab_size": 256, "n_embd": 48, "n_layer": 4, "n_head": 6, "n_positions": 64,
                                               "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", {**SIZES, "num_key_value_heads": 2, "num_local_experts": 4}),
    "qwen3_moe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", {**SIZES, "num_key_value_heads": 3, "head_dim": 16,
                                                            "num_experts": 6, "num_experts_per_tok": 3,
                                                            "moe_intermediate_size": 24, "norm_topk_prob": True,
                                                            "mlp_only_layers": [0]}),
    "deepseek_v2": ("DeepseekV2ForCausalLM", "DeepseekV2Config",
                    {**SIZES, **LATENT, "q_lora_rank": None, "topk_method": "group_limited_greedy",
                     "rope_parameters": {**YARN_ROPE, "mscale": 0.707, "mscale_all_dim": 0.707},
                     "num_experts_per_tok": 2, "routed_scaling_factor": 1.5}),
    "deepseek_v2_linear": ("DeepseekV2ForCausalLM", "DeepseekV2Config",
                           {**SIZES, **LATENT, "q_lora_rank": None, "n_group": None, "num_experts_per_tok": 2,
                            "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1000.0}}),
    "deepseek_v3": ("DeepseekV3ForCausalLM", "DeepseekV3Config",
                    {**SIZES, **LATENT, "q_lora_rank": 20, "rope_parameters": {**YARN_ROPE, "mscale": 1.0,
                                                                               "mscale_all_dim": 1.0},
                     "num_experts_per_tok": 3, "norm_topk_prob": True, "routed_scaling_factor": 2.5}),
}
LOSS_BALANCED = ("mixtral", "qwen3_moe", "deepseek_v2", "deepseek_v2_linear")  # their package leaves out the term of the loss
# Our names of parameters (N is the layer, E the expert) and theirs, where both have the same layout.
BLOCK = "model.layers.N."
DECODER_NAMES = {
    "embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head", "attention_norm": BLOCK + "input_layernorm",
    "ffn_norm": BLOCK + "post_attention_layernorm", "wq": BLOCK + "self_attn.q_proj", "wk": BLOCK + "self_attn.k_proj",
    "wv": BLOCK + "self_attn.v_proj", "wo": BLOCK + "self_attn.o_proj", "q_norm": BLOCK + "self_attn.q_norm",
    "k_norm": BLOCK + "self_attn.k_norm", "w1": BLOCK + "mlp.gate_proj", "w2": BLOCK + "mlp.down_proj",
    "w3": BLOCK + "mlp.up_proj", "router": BLOCK + "mlp.gate", "shared.w1": BLOCK + "mlp.shared_experts.gate_proj",
    "shared.w2": BLOCK + "mlp.shared_experts.down_proj", "shared.w3": BLOCK + "mlp.shared_experts.up_proj",
    "wq_a": BLOCK + "self_attn.q_a_proj", "wq_b": BLOCK + "self_attn.q_b_proj",
    "wkv_a": BLOCK + "self_attn.kv_a_proj_with_mqa", "wkv_b": BLOCK + "self_attn.kv_b_proj",
    "kv_norm": BLOCK + "self_attn.kv_a_layernorm"}
GPT2_NAMES = {
    "embedding": "transformer.wte", "positions": "transformer.wpe", "norm": "transformer.ln_f",
    "attention_norm": "transformer.h.N.ln_1", "ffn_norm": "transformer.h.N.ln_2", "wqkv": "transformer.h.N.attn.c_attn",
    "wo": "transformer.h.N.attn.c_proj", "w1": "transformer.h.N.mlp.c_fc", "w2": "transformer.h.N.mlp.c_proj"}


def their_gradient(name, gradients):
    """The gradient of our parameter among theirs."""
    import torch
    ours, kind = re.sub(r"^layers\.\d+\.", "", name).rsplit(".", 1)
    layer = re.match(r"layers\.(\d+)\.", name)
    number = layer.group(1) if layer else ""
    if "transformer.wte.weight" in gradients:
        value = gradients[f"{GPT2_NAMES[ours].replace('N', number)}.{kind}"]
        return value.t() if ours in ("wqkv", "wo", "w1", "w2") and kind == "weight" else value
    experts = f"model.layers.{number}.mlp.experts."
    if ours == "experts.w2":
        return gradients[experts + "down_proj"]
    if ours in ("experts.w1", "experts.w3"):
        both = gradients[experts + "gate_up_proj"]
        return torch.chunk(both, 2, dim=1)[ours == "experts.w3"]
    latent = f"model.layers.{number}.self_attn.q_a_layernorm.weight"
    if ours == "q_norm" and latent in gradients:
        return gradients[latent]
    return gradients[f"{DECODER_NAMES[ours].replace('N', number)}.{kind}"]


def printable(text):
    """The text with a question mark for every byte that is not printable ASCII."""
    return bytes(byte if 32 <= byte < 127 or byte == 10 else ord("?") for byte in text)


def gradient_distance(name, model, window, run):
    """The largest relative distance of our gradients of the first step from theirs on the window.

    Ours are the first moments of AdamW, divided by 1 - beta1.
    """
    import safetensors.torch
    import torch
    model.zero_grad()
    torch.nn.functional.cross_entropy(model(window[None, :-1]).logits[0], window[1:]).backward()
    gradients = {key: parameter.grad for key, parameter in model.named_parameters()}
    checkpoint, = (run / "checkpoints").iterdir()
    pieces = {}
    for file in sorted(checkpoint.glob("*.safetensors")):
        pieces.update(safetensors.torch.load_file(file))
    prefix, worst = "optimizer.first_moment.", 0.0
    for key, moment in pieces.items():
        if not key.startswith(prefix) or key.endswith("router.bias"):
            continue
        expected = their_gradient(key.removeprefix(prefix), gradients)
        actual = (moment / 0.1).view(-1, *moment.shape[1:])
        if "positions" in key:
            expected = expected[:SEQUENCE]
        assert actual.shape == expected.shape, (name, key, actual.shape, expected.shape)
        worst = max(worst, ((actual - expected).norm() / expected.norm()).item())
    return worst


def peer(folder):
    """Runs in the other Python. Saves each model, or with their exports, compares these."""
    import torch
    import transformers
    torch.manual_seed(1)
    transformers.utils.logging.set_verbosity_error()
    folder = pathlib.Path(folder)
    text = torch.tensor(list((folder / "text").read_bytes()))
    windows = (len(text) - 1) // SEQUENCE
    inputs = text[:windows * SEQUENCE].view(windows, SEQUENCE)
    targets = text[1:windows * SEQUENCE + 1].view(windows, SEQUENCE)

    def loss_of(model):
        with torch.no_grad():
            logits = model(inputs).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).item()

    for name, (model_class, config_class, sizes) in MODELS.items():
        here = folder / name
        exported = here / "exported"
        if not exported.exists():
            model = getattr(transformers, model_class)(getattr(transformers, config_class)(**sizes)).eval()
            with torch.no_grad():
                for key, value in [*model.named_parameters(), *model.named_buffers()]:
                    if isinstance(value, torch.nn.Parameter):  # norms of 1 would hide that they are swapped
                        value.normal_(1.0 if key.endswith("weight") and value.dim() == 1 else 0.0, 0.1)
                    elif key.endswith("e_score_correction_bias"):
                        value.normal_(0.0, 0.1)
            model.save_pretrained(here / "saved", max_shard_size="60KB" if name == "qwen3" else "1GB")
            (here / "loss").write_text(str(loss_of(model)))
            continue
        saved = getattr(transformers, model_class).from_pretrained(here / "saved").eval()
        trained = getattr(transformers, model_class).from_pretrained(exported).eval()
        worst = min(gradient_distance(name, saved, torch.tensor([*window.encode(), END_OF_DOCUMENT]), here / "one_window")
                    for window in WINDOWS)
        assert worst < 1e-5, (name, worst)
        (here / "gradients").write_text(str(worst))
        # A step of AdamW changes every parameter by about the learning rate, if names and layouts are the same.
        changes = {}
        for (key, before), (other, after) in zip(saved.named_parameters(), trained.named_parameters()):
            before = before[:len(after)]  # we keep only the positions of our sequence
            assert key == other and before.shape == after.shape, (key, other)
            changes[key] = (after - before).abs().max().item()
        assert max(changes.values()) < 2e-3, changes
        assert min(changes.values()) > 0, changes
        (here / "trained_loss").write_text(str(loss_of(trained)))
        trained.generation_config.eos_token_id = None
        prompt = torch.tensor([[END_OF_DOCUMENT, *PROMPT.encode()]])
        written = trained.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=NEW_TOKENS, do_sample=False,
                                   pad_token_id=0)[0, 1:].tolist()
        ours = (here / "text").read_bytes()  # in which a byte of no character is a question mark
        assert printable(written) == printable(ours), (name, written, ours)


def main():
    program, python = sys.argv[1:]
    check = subprocess.run([python, "-c", "import torch, transformers"], capture_output=True, check=False)
    if check.returncode != 0:
        print("skipped: there is no transformers")
        sys.exit(77)

    def run(*words, text=True):
        result = subprocess.run([str(word) for word in words], capture_output=True, text=text, check=False)
        if result.returncode:
            raise SystemExit(f"{words}\n{result.stdout}{result.stderr}")
        return result.stdout

    def loss_of(folder, text):
        return json.loads(run(program, "eval", folder, "--data", text, "--sequence", SEQUENCE, "--json"))["held_out_loss"]

    def expect_loss(model, file, text):
        """Our loss of a folder is theirs, which is in a file. Returns it."""
        expected = float((model.parent / file).read_text())
        loss = loss_of(model, text)
        assert abs(loss - expected) < 2e-5 * expected, (model, loss, expected)
        return loss

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        text = folder / "text"
        text.write_text("".join(f"line {number * number} of {number}\n" for number in range(120)))
        (folder / "windows").write_text("\n%\n".join(WINDOWS))
        (folder / "config.yaml").write_text("steps: 1\nsample: 0\n")
        run(python, SCRIPT, "--peer", folder)
        for name in MODELS:
            here = folder / name
            expect_loss(here / "saved", "loss", text)
            run(program, "train", folder / "config.yaml", f"model={here / 'saved'}", f"sequence={SEQUENCE}", "ranks=2",
                "microbatches=4", "batch=4", f"data.path={text}", f"folder={here}", "name=run", "optimizer.lr=1e-3",
                "parallel.data=2", "parallel.zero=3")
            run(program, "export", here / "run", "-o", here / "exported")
            written = run(program, "generate", here / "run", "--prompt", PROMPT, "--bytes", NEW_TOKENS, "--temperature", 0,
                          text=False)
            (here / "text").write_bytes(written.removesuffix(b"\n"))
            # One window is held out, so all samples are the other one.
            run(program, "train", folder / "config.yaml", f"model={here / 'saved'}", f"sequence={SEQUENCE}", "ranks=2",
                "microbatches=2", "batch=1", f"data.path={folder / 'windows'}", "data.held_out=0.5", f"folder={here}",
                "name=one_window", "checkpoint.every=1", *(["model.balance=none"] if name in LOSS_BALANCED else []))
        run(python, SCRIPT, "--peer", folder)
        for name in MODELS:
            here = folder / name
            loss = expect_loss(here / "exported", "trained_loss", text)
            print(f"{name}: loss {(here / 'loss').read_text()}, after a step {loss}; largest relative distance of a "
                  f"gradient {(here / 'gradients').read_text()}")


if __name__ == "__main__":
    if sys.argv[1] == "--peer":
        peer(sys.argv[2])
    else:
        main()
