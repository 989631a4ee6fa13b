"""What models do besides matrix products: dropout, masks, shared and frozen weights, new shapes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from reference import accumulate, chain, distance, mlp
from torch import nn

import penstock.torch as pt

_mse = nn.functional.mse_loss


def _sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def _pipe(stages: list[nn.Module], **arguments: Any) -> pt.Pipeline:
    given = {"loss": _mse, "optimizer": _sgd, "exact": True, **arguments}
    return pt.Pipeline(stages, "1f1b", ranks=2, microbatches=4, **given)


def _same_as_plain(stages: list[nn.Module], x: Any, y: torch.Tensor, steps: int = 3) -> None:
    plain = copy.deepcopy(stages)
    pipe = _pipe(stages)
    optimizer = _sgd([p for stage in plain for p in stage.parameters()])
    for _ in range(steps):
        loss = pipe.step(x, y)
        optimizer.zero_grad()
        assert loss == pytest.approx(accumulate(chain(plain), _mse, x, y, 4), rel=1e-6)
        optimizer.step()
    assert distance(stages, plain) == 0


def test_dropout_differs_by_microbatch_and_repeats_with_the_seed() -> None:
    losses = []
    for seed in (1, 1, 2):
        torch.manual_seed(0)
        stages: list[nn.Module] = [nn.Sequential(mlp(), nn.Dropout(0.5)), mlp()]
        x, y = torch.randn(8, 16), torch.randn(8, 16)
        losses.append(_pipe(stages, seed=seed).step(x, y))
    assert losses[0] == losses[1] != losses[2]


class TwoTensors(nn.Module):
    """Sends a tensor and an integer mask, in a dict with a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> dict[str, Any]:
        return {"hidden": self.inner(x) * mask, "mask": mask, "scale": 2.0}


class FromDict(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
        return self.inner(hidden) * mask * scale


def test_several_inputs_masks_and_constants() -> None:
    stages: list[nn.Module] = [TwoTensors(), FromDict()]
    plain = copy.deepcopy(stages)
    x, mask, y = torch.randn(8, 16), torch.randint(2, (8, 16)), torch.randn(8, 16)
    loss = _pipe(stages).step({"x": x, "mask": mask}, y)
    expected = [
        _mse(plain[1](**plain[0](x=a, mask=b)), c).item()
        for a, b, c in zip(x.chunk(4), mask.chunk(4), y.chunk(4), strict=True)
    ]
    assert loss == pytest.approx(sum(expected) / 4, rel=1e-6)


def test_weights_that_stages_share_stay_equal() -> None:
    first, last = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)
    last.weight = first.weight
    plain = copy.deepcopy(nn.ModuleList([first, last]))
    pipe = _pipe([first, last])
    optimizer = _sgd(plain.parameters())
    for _ in range(3):
        x, y = torch.randn(8, 16), torch.randn(8, 16)
        pipe.step(x, y)
        optimizer.zero_grad()
        accumulate(chain(list(plain)), _mse, x, y, 4)
        optimizer.step()
    assert last.weight is first.weight
    torch.testing.assert_close(first.weight, plain[0].weight, rtol=0, atol=1e-6)


def test_loaded_weights_are_used_also_by_stages_that_share_them() -> None:
    first, last = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)
    last.weight = first.weight
    pipe = _pipe([first, last], optimizer=None)
    x, y = torch.randn(8, 16), torch.randn(8, 16)
    pipe.step(x, y)
    first.load_state_dict({"weight": torch.eye(16)})
    assert pipe.step(x, y) == pytest.approx(float(_mse(x, y)), rel=1e-5)


def test_frozen_weights_do_not_change_and_are_read_anew() -> None:
    frozen = nn.Linear(16, 16).requires_grad_(False)
    stages: list[nn.Module] = [nn.Sequential(frozen, mlp()), mlp()]
    before = frozen.weight.clone()
    pipe = _pipe(stages)
    x, y = torch.randn(8, 16), torch.randn(8, 16)
    pipe.step(x, y)
    assert torch.equal(frozen.weight, before)
    with torch.no_grad():
        frozen.weight.zero_()
    expected = accumulate(chain(copy.deepcopy(stages)), _mse, x, y, 4)
    assert pipe.step(x, y) == pytest.approx(expected, rel=1e-6)


def test_running_statistics() -> None:
    stages: list[nn.Module] = [nn.Sequential(mlp(), nn.BatchNorm1d(16)), mlp()]
    _same_as_plain(stages, torch.randn(16, 16), torch.randn(16, 16))


def test_other_shapes_in_later_steps() -> None:
    stages: list[nn.Module] = [mlp(), mlp()]
    plain = copy.deepcopy(stages)
    pipe = _pipe(stages, optimizer=None)
    for samples in (8, 16, 4):
        x, y = torch.randn(samples, 16), torch.randn(samples, 16)
        assert pipe.step(x, y) == pytest.approx(accumulate(chain(plain), _mse, x, y, 4), rel=1e-6)


class Doubled(torch.autograd.Function):
    """The identity, with twice the gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


class UsesDoubled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Doubled.apply(self.inner(x))


def test_custom_autograd_functions() -> None:
    _same_as_plain([UsesDoubled(), mlp()], torch.randn(8, 16), torch.randn(8, 16))


def test_autocast() -> None:
    stages: list[nn.Module] = [mlp(), mlp()]
    plain = copy.deepcopy(stages)
    x, y = torch.randn(8, 16), torch.randn(8, 16)
    pipe = _pipe(stages, optimizer=None)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = pipe.step(x, y)
        expected = accumulate(chain(plain), _mse, x, y, 4)
    assert loss == pytest.approx(expected, rel=1e-2)


def test_without_an_optimizer_gradients_are_left_and_added() -> None:
    stages: list[nn.Module] = [mlp(), mlp()]
    plain = copy.deepcopy(stages)
    pipe = _pipe(stages, optimizer=None)
    for _ in range(2):
        x, y = torch.randn(8, 16), torch.randn(8, 16)
        pipe.step(x, y)
        accumulate(chain(plain), _mse, x, y, 4)
    for stage, other in zip(stages, plain, strict=True):
        for left, right in zip(stage.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(left.grad, right.grad, rtol=1e-5, atol=1e-7)
