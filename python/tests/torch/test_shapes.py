"""Batches of many shapes, and batches that fail: nothing is lost."""

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


def _batch(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(samples, 16), torch.randn(samples, 16)


def _stage_count(schedule: str) -> int:
    return {"1f1b": 2, "zbv": 4, "dualpipe": 2, "chimera": 2, "interleaved": 4}[schedule]


def _pipe(stages: list[nn.Module], schedule: str = "1f1b", **given: Any) -> pt.Pipeline:
    arguments = {"loss": _mse, "optimizer": _sgd, "exact": True, "microbatches": 4, **given}
    return pt.Pipeline(stages, schedule, ranks=2, **arguments)


@pytest.mark.parametrize("schedule", ["1f1b", "zbv", "interleaved", "dualpipe", "chimera"])
def test_every_schedule_trains_several_shapes(schedule: str) -> None:
    stages: list[nn.Module] = [mlp() for _ in range(_stage_count(schedule))]
    plain = copy.deepcopy(stages)
    pipe = _pipe(stages, schedule)
    optimizer = _sgd([p for stage in plain for p in stage.parameters()])
    for samples in (8, 16, 8, 4, 16):
        x, y = _batch(samples)
        optimizer.zero_grad()
        expected = accumulate(chain(plain), _mse, x, y, 4)
        optimizer.step()
        assert pipe.step(x, y) == pytest.approx(expected, rel=1e-6)
    assert distance(stages, plain) < 1e-6


def test_more_shapes_than_are_kept() -> None:
    stages: list[nn.Module] = [nn.Linear(4, 4), nn.Linear(4, 4)]
    plain = copy.deepcopy(stages)
    pipe = _pipe(stages, microbatches=1, optimizer=None)
    for samples in [*range(1, 71), 2, 70, 1]:
        x, y = torch.randn(samples, 4), torch.randn(samples, 4)
        assert pipe.step(x, y) == pytest.approx(_mse(chain(plain)(x), y).item(), rel=1e-5)


def test_steps_of_more_shapes_than_are_kept() -> None:
    stages: list[nn.Module] = [nn.Linear(4, 4), nn.Linear(4, 4)]
    plain = copy.deepcopy(stages)
    pipe = _pipe(stages, microbatches=1, optimizer=None)
    given = [(torch.randn(n, 4), torch.randn(n, 4)) for n in range(1, 68)]
    for loss, (x, y) in zip(pipe.steps(given), given, strict=True):
        assert loss == pytest.approx(_mse(chain(plain)(x), y).item(), rel=1e-5)


class ReturnsItsLength(nn.Module):
    """Returns constants that depend on the shape, which the next stage reads."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(x), len(x)


class DividesByLength(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, x: torch.Tensor, length: int) -> torch.Tensor:
        return self.inner(x) / length


def test_constants_between_stages_may_depend_on_the_shape() -> None:
    stages: list[nn.Module] = [ReturnsItsLength(), DividesByLength()]
    plain = copy.deepcopy(stages)
    pipe = _pipe(stages, optimizer=None)
    for samples in (8, 16, 8):
        x, y = _batch(samples)
        expected = accumulate(lambda part: plain[1](*plain[0](part)), _mse, x, y, 4)
        assert pipe.step(x, y) == pytest.approx(expected, rel=1e-6)


class Fails(nn.Module):
    """Fails for some shapes: before it computes, in its middle, or in backward."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.inner, self.norm, self.how = mlp(), nn.BatchNorm1d(16), how
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.inner(x))
        if len(x) == 3:
            if self.how == "replaces a buffer":
                self.seen = self.seen + 1
            if self.how == "reads a value" and x.sum() > 0:
                x = x * 2
            if self.how != "replaces a buffer":
                raise KeyError("three")
        return x


def _states(pipe: pt.Pipeline, stages: list[nn.Module]) -> list[Any]:
    states = [each.state_dict() for each in stages]
    return copy.deepcopy([states, pipe.state_dict()])


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("how", ["raises", "reads a value", "replaces a buffer"])
def test_a_batch_that_is_not_captured_changes_nothing(place: int, first: bool, how: str) -> None:
    torch.manual_seed(3)
    stages: list[nn.Module] = [mlp(), mlp()]
    stages[place] = Fails(how)
    other = copy.deepcopy(stages)
    pipe = _pipe(stages, optimizer=pt.AdamW, seed=5)
    untouched = _pipe(other, optimizer=pt.AdamW, seed=5)
    good = [_batch(8), _batch(16), _batch(8)]
    if not first:
        assert pipe.step(*good[0]) == untouched.step(*good[0])
    before = _states(pipe, stages)
    for _ in range(2):
        with pytest.raises(pt.Error, match=rf"stage {place}") as raised:
            pipe.step(*_batch(12))
        assert "\n" not in str(raised.value)
        with pytest.raises(pt.Error, match=rf"stage {place}"):
            pipe.steps([good[0], _batch(12)])
    torch.testing.assert_close(_states(pipe, stages), before, rtol=0, atol=0)
    for batch in good:
        assert pipe.step(*batch) == untouched.step(*batch)
    assert distance(stages, other) == 0


def test_a_loss_that_fails_for_a_shape_changes_nothing() -> None:
    def loss(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if len(output) == 3:
            raise ValueError("three")
        return _mse(output, targets)

    pipe = _pipe([mlp(), mlp()], "dualpipe", loss=loss)
    pipe.step(*_batch(8))
    with pytest.raises(pt.Error, match=r"stage 1, loss at .*: three"):
        pipe.step(*_batch(12))
    pipe.step(*_batch(16))
    pipe.step(*_batch(8))


class Looks(nn.Module):
    """Fails while it runs, for numbers that it has no row for."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.table(x[:, 0])
        return y


@pytest.mark.parametrize("schedule", ["1f1b", "zbv", "dualpipe"])
@pytest.mark.parametrize("is_last", [True, False])
def test_a_batch_that_fails_before_any_update_changes_nothing(schedule: str, is_last: bool) -> None:
    stages: list[nn.Module] = [mlp() for _ in range(_stage_count(schedule))]
    stages[0] = Looks()
    other = copy.deepcopy(stages)
    loss = nn.functional.cross_entropy
    pipe = _pipe(stages, schedule, optimizer=pt.AdamW, seed=5, loss=loss)
    untouched = _pipe(other, schedule, optimizer=pt.AdamW, seed=5, loss=loss)
    x, y = torch.randint(0, 5, (8, 1)), torch.randint(0, 16, (8,))
    bad = x.clone(), y.clone()
    bad[is_last][5] = 77
    assert pipe.step(x, y) == untouched.step(x, y)
    for _ in range(2):
        with pytest.raises(pt.Error, match="out of (range|bounds)"):
            pipe.step(*bad)
        assert pipe.step(x, y) == untouched.step(x, y)
    assert pipe.steps([(x, y)] * 2) == untouched.steps([(x, y)] * 2)
    assert distance(stages, other) == 0
