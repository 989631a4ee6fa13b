#!/usr/bin/env python3
"""Writes muon_fixture.json: weights that torch.optim.Muon computes from given gradients.

    build/peer-venv/bin/python tests/engine/train/optimizer/make_muon_fixture.py

PyTorch orthogonalizes in bf16. Each case also has the weights that its code computes in fp32 ("weights"), next to
the unchanged optimizer's ("bf16").
"""
import json
import pathlib
from unittest import mock

import torch

SHAPES = {"wide": (3, 8), "tall": (7, 2), "square": (4, 4)}
STEPS = 4
CASES = {
    "match_rms_adamw": {"lr": 0.02, "weight_decay": 0.1, "momentum": 0.95},
    "original": {"lr": 0.1, "weight_decay": 0.0, "momentum": 0.8},
}


def numbers(tensor):
    return [float(f"{value:.9g}") for value in tensor.detach().flatten().tolist()]


def train(name, case, start, gradients):
    weights = {key: torch.nn.Parameter(value.clone()) for key, value in start.items()}
    optimizer = torch.optim.Muon(weights.values(), nesterov=True, adjust_lr_fn=name, **case)
    steps = []
    for of_step in gradients:
        for key, weight in weights.items():
            weight.grad = of_step[key].clone()
        optimizer.step()
        steps.append({key: numbers(weight) for key, weight in weights.items()})
    return steps


def run(name, case, generator):
    def draw():
        return {key: torch.randn(shape, generator=generator) for key, shape in SHAPES.items()}

    start, gradients = draw(), [draw() for _ in range(STEPS)]
    bf16 = train(name, case, start, gradients)
    # A copy, because the optimizer changes the result in place.
    with mock.patch.object(torch.Tensor, "bfloat16", torch.Tensor.clone):
        fp32 = train(name, case, start, gradients)
    return {"optimizer": case, "start": {key: numbers(value) for key, value in start.items()},
            "steps": [{"gradients": {key: numbers(value) for key, value in of_step.items()},
                       "weights": fp32[step], "bf16": bf16[step]}
                      for step, of_step in enumerate(gradients)]}


def main():
    generator = torch.Generator().manual_seed(5)
    fixture = {"torch": torch.__version__, "shapes": SHAPES,
               "cases": {name: run(name, case, generator) for name, case in CASES.items()}}
    path = pathlib.Path(__file__).with_name("muon_fixture.json")
    path.write_text(json.dumps(fixture, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
