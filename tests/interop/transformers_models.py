"""Models of the transformers package and ours are the same: configurations, weights, losses, trained weights.

Usage: transformers_models.py PENSTOCK PYTHON. PYTHON has torch and transformers; exit code 77 if it has not.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(__file__).resolve()
SEQUENCE = 48
SIZES = {"vocab_size": 256, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4, "num_attention_heads": 6,
         "max_position_embeddings": 256, "rms_norm_eps": 1e-5}
LLAMA3_ROPE = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 32, "rope_theta": 1000.0}
MODELS = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", {**SIZES, "num_key_value_heads": 6}),
    "llama_tied_grouped_scaled": ("LlamaForCausalLM", "LlamaConfig", {**SIZES, "num_key_value_heads": 2, "head_dim": 12,
                                                                      "tie_word_embeddings": True,
                                                                      "rope_parameters": LLAMA3_ROPE}),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {**SIZES, "num_key_value_heads": 3, "head_dim": 16}),
}


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
                for parameter in model.parameters():  # norms of 1 would hide that they are swapped
                    parameter.normal_(1.0 if parameter.dim() == 1 else 0.0, 0.1)
            model.save_pretrained(here / "saved", max_shard_size="60KB" if name == "qwen3" else "1GB")
            (here / "loss").write_text(str(loss_of(model)))
            continue
        saved = getattr(transformers, model_class).from_pretrained(here / "saved").eval()
        trained = getattr(transformers, model_class).from_pretrained(exported).eval()
        # A step of AdamW changes every parameter by about the learning rate, if names and layouts are the same.
        changes = {}
        for (key, before), (other, after) in zip(saved.named_parameters(), trained.named_parameters()):
            assert key == other and before.shape == after.shape, (key, other)
            changes[key] = (after - before).abs().max().item()
        assert max(changes.values()) < 2e-3, changes
        assert min(changes.values()) > 0, changes
        (here / "trained_loss").write_text(str(loss_of(trained)))


def main():
    program, python = sys.argv[1:]
    check = subprocess.run([python, "-c", "import torch, transformers"], capture_output=True, check=False)
    if check.returncode != 0:
        print("skipped: there is no transformers")
        sys.exit(77)

    def run(*words):
        result = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
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
        (folder / "config.yaml").write_text("steps: 1\nsample: 0\n")
        run(python, SCRIPT, "--peer", folder)
        for name in MODELS:
            here = folder / name
            expect_loss(here / "saved", "loss", text)
            run(program, "train", folder / "config.yaml", f"model={here / 'saved'}", f"sequence={SEQUENCE}", "ranks=2",
                "microbatches=4", "batch=4", f"data.path={text}", f"folder={here}", "name=run", "optimizer.lr=1e-3",
                "parallel.data=2", "parallel.zero=3")
            run(program, "export", here / "run", "-o", here / "exported")
        run(python, SCRIPT, "--peer", folder)
        for name in MODELS:
            here = folder / name
            loss = expect_loss(here / "exported", "trained_loss", text)
            print(f"{name}: loss {(here / 'loss').read_text()}, after a step {loss}")


if __name__ == "__main__":
    if sys.argv[1] == "--peer":
        peer(sys.argv[2])
    else:
        main()
