#!/usr/bin/env python3
"""Writes adamw_fixture.json: weights that PyTorch's own optimizer computes from given gradients.

    build/peer-venv/bin/python tests/engine/train/optimizer/make_adamw_fixture.py

Uses torch.optim.AdamW in fp64 with weight decay for matrices only, torch.nn.utils.clip_grad_norm_, and
torch.optim.lr_scheduler (a linear warm-up, then a cosine). Each case covers one group of settings.
"""
import json
import pathlib

import torch

SHAPES = {"projection": (2, 3), "norm": (3,), "stack": (2, 1, 2)}
STEPS = 10
CASES = {
    "decay_and_schedule": {"lr": 0.01, "lr_end": 0.1, "warmup": 4, "beta1": 0.9, "beta2": 0.95,
                           "weight_decay": 0.2, "epsilon": 1e-8, "clip": 0.0},
    "clipping": {"lr": 0.02, "lr_end": 0.0, "warmup": 1, "beta1": 0.8, "beta2": 0.99,
                 "weight_decay": 0.0, "epsilon": 1e-5, "clip": 1.5},
    "all": {"lr": 0.05, "lr_end": 0.05, "warmup": 3, "beta1": 0.9, "beta2": 0.999,
            "weight_decay": 0.1, "epsilon": 1e-6, "clip": 2.0},
}


def rounded(tensor):
    """Rounds to values that fp32 represents exactly, so that both sides start from the same."""
    return tensor.to(torch.float32).to(torch.float64)


def numbers(tensor):
    """Rounds to nine digits, which distinguish all fp32 values."""
    return [float(f"{value:.9g}") for value in tensor.detach().flatten().tolist()]


def schedule(optimizer, case):
    # Step s of the warm-up takes (s + 1) / warmup of the peak; the cosine begins at the peak.
    last_of_warmup = case["warmup"] - 1
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, T_max=STEPS - case["warmup"], eta_min=case["lr"] * case["lr_end"])
    if last_of_warmup == 0:
        return cosine
    linear = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1 / case["warmup"],
                                               total_iters=last_of_warmup)
    return torch.optim.lr_scheduler.SequentialLR(optimizer, [linear, cosine], [last_of_warmup])


def run(case, generator):
    def draw(shape, scale):
        return rounded(scale * torch.randn(shape, generator=generator, dtype=torch.float64))

    weights = {name: torch.nn.Parameter(draw(shape, 1)) for name, shape in SHAPES.items()}
    start = {name: numbers(weight) for name, weight in weights.items()}
    optimizer = torch.optim.AdamW(
        [{"params": [w for w in weights.values() if w.dim() >= 2],
          "weight_decay": case["weight_decay"]},
         {"params": [w for w in weights.values() if w.dim() < 2], "weight_decay": 0.0}],
        lr=case["lr"], betas=(case["beta1"], case["beta2"]), eps=case["epsilon"])
    rates = schedule(optimizer, case)
    steps = []
    for step in range(STEPS):
        gradients = {name: draw(shape, 0.1 * (step + 1)) for name, shape in SHAPES.items()}
        for name, weight in weights.items():
            weight.grad = gradients[name].clone()
        norm = torch.nn.utils.clip_grad_norm_(weights.values(), case["clip"] or float("inf"))
        lr = optimizer.param_groups[0]["lr"]
        optimizer.step()
        rates.step()
        steps.append({"lr": lr, "norm": norm.item(),
                      "gradients": {name: numbers(g) for name, g in gradients.items()},
                      "weights": {name: numbers(w) for name, w in weights.items()}})
    return {"optimizer": case, "start": start, "steps": steps}


def main():
    generator = torch.Generator().manual_seed(11)
    fixture = {"torch": torch.__version__, "shapes": SHAPES,
               "cases": {name: run(case, generator) for name, case in CASES.items()}}
    path = pathlib.Path(__file__).with_name("adamw_fixture.json")
    path.write_text(json.dumps(fixture, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
