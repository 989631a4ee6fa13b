"""Random numbers are a function of seed, step, microbatch and position in the model."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from reference import distance
from torch import nn

import penstock.torch as pt


class _Block(nn.Module):
    """A block with several random ops, among them one that draws noise of its own."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 24), nn.Linear(24, width)
        self.drop = nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.drop(self.up(x + 0.1 * torch.randn_like(x)).relu())
        return x + nn.functional.alpha_dropout(self.down(h), 0.2, True)


class _Model(nn.Module):
    """Layers between an embedding and a head; each draws random numbers, too."""

    def __init__(self, layers: int = 4, skips: bool = False) -> None:
        super().__init__()
        self.embedding, self.head = nn.Linear(16, 16), nn.Linear(16, 16)
        self.layers = nn.ModuleList(_Block() for _ in range(layers))
        self.drop = nn.Dropout(0.2)
        self.skips = skips

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = first = self.drop(self.embedding(x))
        for layer in self.layers:
            h = layer(h)
        return self.head(self.drop(h + first if self.skips else h))  # type: ignore[no-any-return]


def _loss(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(nn.functional.dropout(output, 0.1), targets)


def _train(stages: Sequence[nn.Module], schedule: str, ranks: int, microbatches: int = 4, **more: Any) -> list[float]:
    pipe = pt.Pipeline(
        list(stages), schedule, ranks=ranks, microbatches=microbatches, loss=_loss, exact=True, seed=5, threads=1, **more
    )
    torch.manual_seed(7)
    return [pipe.step(torch.randn(8, 16), torch.randn(8, 16)) for _ in range(3)]


def _groups(blocks: Sequence[nn.Module], stages: int) -> list[nn.Module]:
    size = len(blocks) // stages
    return [nn.Sequential(*blocks[i * size : (i + 1) * size]) for i in range(stages)]


@pytest.mark.parametrize(
    ("schedule", "ranks", "stages", "in_order"),
    [
        ("1f1b", 2, 2, True),
        ("1f1b", 4, 4, True),
        ("interleaved", 2, 4, True),
        ("gpipe", 4, 4, False),
        ("zb-h1", 2, 2, False),
        ("zbv", 2, 4, False),
        ("dualpipe", 4, 4, False),
    ],
)
def test_any_stages_and_schedule_draw_the_same_numbers(schedule: str, ranks: int, stages: int, in_order: bool) -> None:
    torch.manual_seed(0)
    whole = [_Block() for _ in range(8)]
    parts = copy.deepcopy(whole)
    microbatches = 8 if schedule == "dualpipe" else 4
    expected = _train(_groups(whole, 1), "1f1b", 1, microbatches)
    losses = _train(_groups(parts, stages), schedule, ranks, microbatches)
    assert losses[0] == expected[0]
    assert losses == (expected if in_order else pytest.approx(expected, rel=1e-4))
    assert distance(parts, whole) <= (0 if in_order else 2e-3)


@pytest.mark.parametrize("skips", [False, True], ids=["by layers", "by the graph"])
@pytest.mark.parametrize("stages", [2, 4])
def test_split_models_draw_the_numbers_of_the_whole_model(skips: bool, stages: int) -> None:
    torch.manual_seed(0)
    model = _Model(skips=skips)
    expected = _train([copy.deepcopy(model)], "1f1b", 1)
    parts = pt.split(model, torch.randn(2, 16), stages)
    assert _train(parts, "1f1b", stages) == expected


def test_other_shapes_draw_the_same_numbers_in_any_stages() -> None:
    torch.manual_seed(0)
    whole = [_Block() for _ in range(4)]
    losses = []
    for stages in (1, 2, 4):
        pipe = pt.Pipeline(
            _groups(copy.deepcopy(whole), stages), ranks=stages, microbatches=4, loss=_loss, exact=True, seed=5, threads=1
        )
        torch.manual_seed(7)
        sizes = (8, 16, 8)
        losses.append([pipe.step(torch.randn(n, 16), torch.randn(n, 16)) for n in sizes])
    assert losses[0] == losses[1] == losses[2]


def test_each_position_step_and_microbatch_draws_other_numbers() -> None:
    """The gradient of a weight is the mask of the dropout after it."""
    torch.manual_seed(0)

    class Mask(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + nn.functional.dropout(self.weight.expand(2, 64), 0.5)

    stages: list[nn.Module] = [Mask(), nn.Sequential(Mask(), Mask())]
    masks = set()
    pipe = pt.Pipeline(stages, ranks=2, microbatches=2, loss=lambda y: y.sum(), optimizer=None)
    weights = [parameter for stage in stages for parameter in stage.parameters()]
    for _ in range(3):
        for weight in weights:
            weight.grad = None
        pipe.step(torch.zeros(4, 64))
        for weight in weights:
            assert weight.grad is not None
            masks.add(tuple(weight.grad.tolist()))
    assert len(masks) == 9
