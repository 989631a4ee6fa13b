"""Every schedule trains like one process under plain autograd."""

from __future__ import annotations

import pathlib
import random

import pytest
import torch
from reference import batch, mlp, pipeline, train_both
from torch import nn

import penstock


def _train(
    schedule: penstock.Schedule | str | pathlib.Path, stages: int | list[nn.Module], steps: int = 3, samples: int = 2
) -> float:
    """Trains stages and a copy of them in plain PyTorch, and returns how far they are apart."""
    modules = [mlp() for _ in range(stages)] if isinstance(stages, int) else stages
    microbatches = schedule.microbatches if isinstance(schedule, penstock.Schedule) else 4
    batches = [batch(samples * microbatches) for _ in range(steps)]
    return train_both(modules, batches, schedule=schedule, ranks=None, microbatches=None)


# They accumulate gradients in another order than the microbatches', or in two replicas.
_ROUNDS = {"gpipe", "looped-bfs", "dualpipe", "chimera"}
# Asynchronous ones, which do not compute what one process does, and one for sequence slices.
_OTHER = {"pipedream", "pipedream-2bw", "seq1f1b"}
_SYNCHRONOUS = [each.name for each in penstock.schedules() if each.name not in _OTHER]


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", _SYNCHRONOUS)
def test_gradients_are_those_of_autograd(name: str, ranks: int) -> None:
    schedule = penstock.schedule(name, ranks=ranks, microbatches=8)
    assert schedule.weight_policy == "flush"
    difference = _train(schedule, schedule.stages // schedule.replicas)
    assert difference < 1e-6 if name in _ROUNDS else difference == 0


@pytest.mark.parametrize("seed", range(8))
def test_random_schedules_and_sizes(seed: int) -> None:
    draw = random.Random(seed)
    name = draw.choice(["1f1b", "zb-h1", "zb-h2", "interleaved", "interleaved-zb", "zbv", "v-half"])
    ranks = draw.randint(2, 4)
    chunks = draw.randint(2, 3) if name.startswith("interleaved") else None
    microbatches = ranks * draw.randint(1, 3)
    schedule = penstock.schedule(name, ranks=ranks, microbatches=microbatches, chunks=chunks)
    widths = [16, *(draw.randint(1, 40) for _ in range(schedule.stages - 1)), 16]
    modules = [nn.Sequential(nn.Linear(before, after), nn.Tanh()) for before, after in zip(widths, widths[1:], strict=False)]
    assert _train(schedule, modules, steps=2) == 0, (name, ranks, chunks, microbatches, widths)


def test_gradients_are_exact_with_several_threads() -> None:
    """The sums of a normalization's gradient are divided among the threads."""
    torch.set_num_threads(2)
    modules = [nn.Sequential(nn.Linear(16, 256), nn.LayerNorm(256), nn.GELU(), nn.Linear(256, 16)) for _ in range(2)]
    assert _train("1f1b", modules, steps=2, samples=512) == 0


def test_a_schedule_is_read_from_a_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "own.csv"
    penstock.schedule("zb-h1", ranks=2, microbatches=4).to_csv(path)
    assert _train(path, 2) == 0
    assert _train(str(path), 2) == 0


def test_an_edited_schedule_trains() -> None:
    schedule = penstock.schedule("1f1b", ranks=2, microbatches=2)
    schedule.lanes[0] = ["0F0", "0F1", "0B1", "0B0"]
    schedule.lanes[1] = ["1F0", "1F1", "1B1", "1B0"]
    assert _train(schedule, 2) < 1e-6


def test_the_timeline_of_a_step_is_reported() -> None:
    pipe = pipeline([mlp(), mlp()])
    pipe.step(*batch())
    timeline = pipe.timeline()
    assert timeline.makespan > 0
    assert len(timeline.times(0)) == len(pipe.schedule.lanes[0])
    assert all(size > 0 for size in pipe.saved_bytes)
