"""Any optimizer of torch updates stages, and the native AdamW computes the same."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from reference import accumulate, chain, distance, mlp
from torch import nn

import penstock.torch as pt

_mse = nn.functional.mse_loss
_Make = Callable[[Any], torch.optim.Optimizer]


def _pair(ours: _Make, torchs: _Make, steps: int = 4, **arguments: Any) -> float:
    stages: list[nn.Module] = [mlp(), mlp()]
    plain = copy.deepcopy(stages)
    pipe = pt.Pipeline(stages, "1f1b", ranks=2, microbatches=4, loss=_mse, optimizer=ours, exact=True, **arguments)
    optimizers = [torchs(stage.parameters()) for stage in plain]
    for _ in range(steps):
        x, y = torch.randn(8, 16), torch.randn(8, 16)
        pipe.step(x, y)
        for optimizer in optimizers:
            optimizer.zero_grad()
        accumulate(chain(plain), _mse, x, y, 4)
        if arguments.get("clip_grad_norm"):
            every = [p for stage in plain for p in stage.parameters()]
            nn.utils.clip_grad_norm_(every, arguments["clip_grad_norm"])
        for optimizer in optimizers:
            optimizer.step()
    return distance(stages, plain)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.Adam(p, lr=1e-2),
        lambda p: torch.optim.Adagrad(p),
    ],
)
def test_optimizers_of_torch(make: _Make) -> None:
    assert _pair(make, make) == 0


def test_native_adamw_is_the_fused_one() -> None:
    assert _pair(lambda p: pt.AdamW(p, lr=1e-2), lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True)) == 0


def test_clipping_is_that_of_torch() -> None:
    def sgd(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.5)

    assert _pair(sgd, sgd, clip_grad_norm=0.01) < 1e-6


def test_schedulers_step_after_each_step() -> None:
    stages = [mlp(), mlp()]
    pipe = pt.Pipeline(
        stages, "1f1b", ranks=2, microbatches=4, loss=_mse,
        optimizer=lambda p: pt.AdamW(p, lr=1.0),
        lr_scheduler=lambda o: torch.optim.lr_scheduler.StepLR(o, 1, gamma=0.5),
    )
    for _ in range(3):
        pipe.step(torch.randn(8, 16), torch.randn(8, 16))
    assert [optimizer.param_groups[0]["lr"] for optimizer in pipe.optimizers] == [0.125, 0.125]


def test_the_state_of_native_adamw_is_saved_and_loaded() -> None:
    x, y = torch.randn(8, 16), torch.randn(8, 16)
    stages = [mlp(), mlp()]

    def pipeline(of: list[nn.Module]) -> pt.Pipeline:
        return pt.Pipeline(of, "1f1b", ranks=2, microbatches=4, loss=_mse, exact=True)

    pipe = pipeline(stages)
    pipe.step(x, y)
    weights = copy.deepcopy([stage.state_dict() for stage in stages])
    states = copy.deepcopy([optimizer.state_dict() for optimizer in pipe.optimizers])
    pipe.step(x, y)

    again = [mlp(), mlp()]
    other = pipeline(again)
    other.step(x, y)  # makes the optimizers
    for stage, weight in zip(again, weights, strict=True):
        stage.load_state_dict(weight)
    for optimizer, state in zip(other.optimizers, states, strict=True):
        optimizer.load_state_dict(state)
    other.step(x, y)
    assert distance(stages, again) == 0
