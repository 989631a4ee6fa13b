"""Inputs that share memory, copies of weights, and constants that the caller changes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from reference import Around, accumulate, batch, chain, distance, mlp, mse, pipeline, sgd
from torch import nn

import penstock.torch as pt


_VIEWS: dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]] = {
    "the same": lambda z: (z, z),
    "the same memory": lambda z: (z, z.view(16, 16)),
    "overlapping rows": lambda z: (z[:8], z[4:12]),
    "overlapping columns": lambda z: (z[:, :8], z[:, 4:12]),
    "transposed": lambda z: (z, z.t()),
    "flipped": lambda z: (z, z.flip(0)),
    "expanded": lambda z: (z[:1].expand(16, 16), z[:1].expand(16, 16)),
    "real and imaginary": lambda z: (torch.view_as_complex(z.view(16, 8, 2)).real, z[:, ::2]),
}


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("kind", list(_VIEWS))
def test_inputs_and_targets_may_share_memory(kind: str, stages: int) -> None:
    z = torch.randn(16, 16)
    x, y = _VIEWS[kind](z)
    width = x.shape[1]
    modules: list[nn.Module] = [mlp(width) for _ in range(stages)]
    plain = copy.deepcopy(modules)
    pipe = pipeline(modules, microbatches=2, optimizer=sgd, exact=True)
    optimizer = sgd([p for stage in plain for p in stage.parameters()])
    for _ in range(2):
        optimizer.zero_grad()
        expected = accumulate(chain(plain), mse, x, y, 2)
        optimizer.step()
        assert pipe.step(x, y) == pytest.approx(expected, rel=1e-6)
    assert distance(modules, plain) == 0
    separate = torch.randn(x.shape), torch.randn(y.shape)  # compiled for views, run without
    assert pipe.step(*separate) == pytest.approx(accumulate(chain(plain), mse, *separate, 2), rel=1e-6)


def test_arguments_may_share_memory_with_each_other_and_a_weight() -> None:
    stage = Around(lambda inner, a, b: inner(a) * b)
    z = torch.randn(8, 16)
    pipe = pipeline([stage], microbatches=2, optimizer=None)
    assert pipe.step({"a": z, "b": z}, z) == pytest.approx(mse(stage(z, z), z).item(), rel=1e-5)
    weight = stage.inner[0][0].weight.detach()[:, :16]  # type: ignore[index]
    expected = mse(stage(weight, weight), weight).item()
    assert pipe.step({"a": weight, "b": weight}, weight) == pytest.approx(expected, rel=1e-5)


class Tied(nn.Module):
    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ self.weight)


def _fused(parameters: list[nn.Parameter]) -> Callable[[], None]:
    return torch.optim.AdamW(parameters, lr=0.05, fused=True).step


def _numpy(parameters: list[nn.Parameter]) -> Callable[[], None]:
    views = [(p.detach().numpy(), p) for p in parameters]

    def step() -> None:
        for view, p in views:
            assert p.grad is not None
            view -= 0.1 * p.grad.numpy()

    return step


def _data(parameters: list[nn.Parameter]) -> Callable[[], None]:
    def step() -> None:
        for p in parameters:
            assert p.grad is not None
            p.data.copy_(p.data - 0.1 * p.grad)

    return step


@pytest.mark.parametrize("schedule", ["1f1b", "dualpipe", "chimera"])
@pytest.mark.parametrize("make_step", [_fused, _numpy, _data])
@pytest.mark.parametrize("is_tied", [True, False])
def test_the_callers_updates_reach_all_stages(
    make_step: Callable[[list[nn.Parameter]], Callable[[], None]], schedule: str, is_tied: bool
) -> None:
    if not is_tied and schedule == "1f1b":
        pytest.skip("no copies")
    first = nn.Parameter(torch.randn(8, 8) / 3)
    stages: list[nn.Module] = [Tied(first), Tied(first if is_tied else nn.Parameter(torch.randn(8, 8)))]
    plain = copy.deepcopy(stages)
    pipe = pipeline(stages, schedule, optimizer=None)
    own, other = (list(nn.ModuleList(each).parameters()) for each in (stages, plain))
    steps = make_step(own), make_step(other)
    for _ in range(3):
        x, y = torch.randn(8, 8), torch.randn(8, 8)
        for p in (*own, *other):
            p.grad = None
        expected = accumulate(chain(plain), mse, x, y, 4)
        assert pipe.step(x, y) == pytest.approx(expected, rel=1e-5)
        for step in steps:
            step()
    assert distance(stages, plain) < 1e-5


@pytest.mark.parametrize("schedule", ["1f1b", "dualpipe"])
@pytest.mark.parametrize("change", ["data", "numpy", "fused"])
def test_changes_between_steps_reach_all_stages_also_with_an_optimizer(schedule: str, change: str) -> None:
    weight = nn.Parameter(torch.randn(8, 8) / 3)
    stages: list[nn.Module] = [Tied(weight), Tied(weight)]
    plain = copy.deepcopy(stages)
    pipe = pipeline(stages, schedule, optimizer=sgd)
    optimizer = sgd(plain[0].parameters())
    for _ in range(3):
        x, y = torch.randn(8, 8), torch.randn(8, 8)
        optimizer.zero_grad()
        expected = accumulate(chain(plain), mse, x, y, 4)
        optimizer.step()
        assert pipe.step(x, y) == pytest.approx(expected, rel=1e-5)
        for each in (stages[0], plain[0]):
            parameter = next(each.parameters())
            if change == "data":
                parameter.data.mul_(0.5)
            elif change == "numpy":
                parameter.detach().numpy()[:] *= 0.5
            else:
                parameter.grad = torch.ones_like(parameter)
                torch.optim.SGD([parameter], lr=0.01, fused=True).step()
                parameter.grad = None
    assert distance(stages, plain) < 1e-5


class HasConstant(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.inner = mlp()
        scale = torch.ones(16)
        if kind == "buffer":
            self.register_buffer("scale", scale, persistent=False)
        else:
            self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * self.scale


_CHANGES: dict[str, Callable[[torch.Tensor, float], Any]] = {
    "in place": lambda tensor, value: tensor.fill_(value),
    "data": lambda tensor, value: tensor.data.fill_(value),
    "numpy": lambda tensor, value: tensor.numpy().fill(value),
}


@pytest.mark.parametrize("kind", ["buffer", "attribute"])
@pytest.mark.parametrize("change", _CHANGES)
def test_tensors_of_modules_follow_however_they_change(kind: str, change: str) -> None:
    stage = HasConstant(kind)
    x, y = batch()
    pipe = pipeline([stage], microbatches=2, optimizer=None)
    for value in (1.0, 2.0, 3.0):
        _CHANGES[change](stage.scale, value)  # type: ignore[arg-type]
        assert pipe.step(x, y) == pytest.approx(accumulate(stage, mse, x, y, 2), rel=1e-5)
    assert pipe.changes == []


@pytest.mark.parametrize("change", _CHANGES)
def test_a_learning_rate_in_a_tensor_is_read_however_it_changes(change: str) -> None:
    lr = torch.tensor(0.1)
    stage = nn.Linear(4, 4)
    pipe = pipeline([stage], microbatches=1, optimizer=lambda p: pt.AdamW(p, lr=lr))  # type: ignore[arg-type]
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    pipe.step(x, y)
    _CHANGES[change](lr, 0)
    before = stage.weight.detach().clone()
    pipe.step(x, y)
    assert torch.equal(stage.weight, before)
