"""Batches of many shapes, and batches that fail: nothing is lost."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from reference import Around, batch, chain, distance, mlp, mlps, mse, pipeline, sgd, train_both
from torch import nn

import penstock.torch as pt


def _pipe(stages: list[nn.Module], schedule: str = "1f1b", **given: Any) -> pt.Pipeline:
    return pipeline(stages, schedule, **{"optimizer": sgd, "exact": True, **given})


@pytest.mark.parametrize("schedule", ["1f1b", "zbv", "interleaved", "dualpipe", "chimera"])
def test_every_schedule_trains_several_shapes(schedule: str) -> None:
    batches = [batch(samples) for samples in (8, 16, 8, 4, 16)]
    assert train_both(mlps(schedule), batches, schedule=schedule) < 1e-6


@pytest.mark.parametrize("together", [False, True])
def test_more_shapes_than_are_kept(together: bool) -> None:
    stages: list[nn.Module] = [nn.Linear(4, 4), nn.Linear(4, 4)]
    plain = copy.deepcopy(stages)
    pipe = _pipe(stages, microbatches=1, optimizer=None)
    batches = [batch(samples, 4) for samples in [*range(1, 71), 2, 70, 1]]
    losses = pipe.steps(batches) if together else [pipe.step(*each) for each in batches]
    assert losses == pytest.approx([mse(chain(plain)(x), y).item() for x, y in batches], rel=1e-5)


def test_constants_between_stages_may_depend_on_the_shape() -> None:
    stages = [Around(lambda inner, x: (inner(x), len(x))), Around(lambda inner, x, length: inner(x) / length)]
    batches = [batch(samples) for samples in (8, 16, 8)]
    assert train_both(stages, batches, optimizer=None) < 1e-5


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
    good = [batch(8), batch(16), batch(8)]
    if not first:
        assert pipe.step(*good[0]) == untouched.step(*good[0])
    before = _states(pipe, stages)
    for _ in range(2):
        with pytest.raises(pt.Error, match=rf"stage {place}") as raised:
            pipe.step(*batch(12))
        assert "\n" not in str(raised.value)
        with pytest.raises(pt.Error, match=rf"stage {place}"):
            pipe.steps([good[0], batch(12)])
    torch.testing.assert_close(_states(pipe, stages), before, rtol=0, atol=0)
    for each in good:
        assert pipe.step(*each) == untouched.step(*each)
    assert distance(stages, other) == 0


def test_a_loss_that_fails_for_a_shape_changes_nothing() -> None:
    def loss(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if len(output) == 3:
            raise ValueError("three")
        return mse(output, targets)

    pipe = _pipe([mlp(), mlp()], "dualpipe", loss=loss)
    pipe.step(*batch(8))
    with pytest.raises(pt.Error, match=r"stage 1, loss at .*: three"):
        pipe.step(*batch(12))
    pipe.step(*batch(16))
    pipe.step(*batch(8))


@pytest.mark.parametrize("schedule", ["1f1b", "zbv", "dualpipe"])
@pytest.mark.parametrize("is_last", [True, False])
def test_a_batch_that_fails_before_any_update_changes_nothing(schedule: str, is_last: bool) -> None:
    stages = mlps(schedule)
    # Fails while it runs, for numbers that it has no row for.
    stages[0] = Around(lambda table, x: table(x[:, 0]), nn.Embedding(5, 16))
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
