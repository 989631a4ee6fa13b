"""Every schedule trains like one process under plain autograd."""

from __future__ import annotations

import copy
import random

import pytest
import torch
from reference import accumulate, chain, distance, mlp
from torch import nn

import penstock
import penstock.torch as pt

_mse = nn.functional.mse_loss


def _train(schedule: penstock.Schedule | str, stages: int, steps: int = 3, **arguments: int) -> float:
    """Trains stages and a copy of them in plain PyTorch, and returns how far they are apart."""
    modules = [mlp() for _ in range(stages)]
    plain = copy.deepcopy(modules)

    def sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1)

    pipe = pt.Pipeline(modules, schedule, loss=_mse, optimizer=sgd, exact=True, **arguments)
    optimizer = sgd([p for module in plain for p in module.parameters()])
    microbatches = pipe.schedule.microbatches
    for _ in range(steps):
        x, y = torch.randn(2 * microbatches, 16), torch.randn(2 * microbatches, 16)
        loss = pipe.step(x, y)
        optimizer.zero_grad()
        expected = accumulate(chain(plain), _mse, x, y, microbatches)
        optimizer.step()
        assert loss == pytest.approx(expected, rel=1e-6)
    return distance(modules, plain)


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "zb-h2"])
def test_gradients_are_bitwise_those_of_autograd(name: str) -> None:
    assert _train(name, 2, ranks=2, microbatches=4) == 0


def test_another_order_of_microbatches_rounds_differently() -> None:
    assert _train("gpipe", 2, ranks=2, microbatches=4) < 1e-6


@pytest.mark.parametrize("name", ["interleaved", "zbv", "v-half", "dualpipev", "hanayo"])
def test_also_with_several_stages_per_rank(name: str) -> None:
    assert _train(name, 4, ranks=2, microbatches=8) == 0


@pytest.mark.parametrize("name", ["dualpipe", "chimera"])
def test_replicas_of_bidirectional_schedules_add_their_gradients(name: str) -> None:
    schedule = penstock.schedule(name, ranks=4, microbatches=8)
    assert _train(schedule, schedule.stages // schedule.replicas) < 1e-6


def test_random_sizes() -> None:
    draw = random.Random(1)
    for _ in range(6):
        name = draw.choice(["1f1b", "zb-h1", "interleaved"])
        ranks = draw.randint(1, 4) if name != "interleaved" else draw.randint(2, 3)
        chunks = draw.randint(2, 3) if name == "interleaved" else 1
        microbatches = ranks * draw.randint(1, 3)
        schedule = penstock.schedule(name, ranks=ranks, microbatches=microbatches, chunks=chunks)
        assert _train(schedule, ranks * chunks, steps=2) == 0, (name, ranks, chunks, microbatches)


def test_an_edited_schedule_trains() -> None:
    schedule = penstock.schedule("1f1b", ranks=2, microbatches=2)
    schedule.lanes[0] = ["0F0", "0F1", "0B1", "0B0"]
    schedule.lanes[1] = ["1F0", "1F1", "1B1", "1B0"]
    assert _train(schedule, 2) < 1e-6


def test_the_timeline_of_a_step_is_reported() -> None:
    pipe = pt.Pipeline([mlp(), mlp()], "1f1b", ranks=2, microbatches=4, loss=_mse)
    pipe.step(torch.randn(8, 16), torch.randn(8, 16))
    timeline = pipe.timeline()
    assert timeline.makespan > 0
    assert len(timeline.times(0)) == len(pipe.schedule.lanes[0])
    assert all(size > 0 for size in pipe.saved_bytes)
