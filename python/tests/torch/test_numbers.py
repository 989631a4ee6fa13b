"""Numbers that change often become inputs of the graphs, where code cannot tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from forks import run_all
from reference import Around, assert_equal, mlp, mse, pipeline
from torch import nn

HELD = "text"


def test_numbers_that_change_often_become_inputs() -> None:
    settings = {"beta": 0.0}
    stages: list[nn.Module] = [mlp(), mlp()]

    def loss(output: torch.Tensor, targets: torch.Tensor) -> Any:
        return mse(output, targets) + settings["beta"] * output.abs().mean()

    pipe = pipeline(stages, loss=loss, optimizer=None)
    for number in range(8):
        settings["beta"] = number / 4
        assert_equal(pipe, stages, loss, torch.randn(8, 16), torch.randn(8, 16))
    assert len(pipe.changes) == 2
    settings["beta"] = 1  # an int, which no tensor stands for
    assert_equal(pipe, stages, loss, torch.randn(8, 16), torch.randn(8, 16))


# What code computes with a number for which no tensor can stand, or only in Python's precision.
_USES: dict[str, Callable[[float, torch.Tensor], Any]] = {
    "a key": lambda number, x: x * {0.0: 1.0, 0.5: 2.0}.get(number, 3.0),
    "an element": lambda number, x: x * torch.tensor([number, 1.0] * 8),
    "its type": lambda number, x: x * (2 if torch.is_tensor(number) else 3),
    "its methods": lambda number, x: x * (2 if hasattr(number, "shape") else 3),
    "its identity": lambda number, x: x * (2 if number is HELD else 3),
    "its value": lambda number, x: x * 2 if number > 1 else x,
    "its digits": lambda number, x: x * ((number + 1e8) - 1e8),
    "more than float32 has": lambda number, x: x * (number * 1e300 / 1e300),
}


@pytest.mark.parametrize("use", _USES)
def test_numbers_that_change_often_are_what_code_takes_them_for(use: str) -> None:
    settings = {"number": 0.0}
    stages: list[nn.Module] = [Around(lambda inner, x: _USES[use](settings["number"], inner(x))), mlp()]
    pipe = pipeline(stages, optimizer=None)
    for number in range(7):
        settings["number"] = number / 4
        assert_equal(pipe, stages, mse, torch.randn(8, 16), torch.randn(8, 16))


_ON_PROCESSES = """
import os, sys
import torch, penstock.torch as pt
from torch import nn

here = int(os.environ["RANK"])
settings = {"number": 1.0, "value": 1.0}

class Scaled(nn.Linear):
    def forward(self, x):
        return super().forward(x) * settings["number"] * (2 if settings["value"] > 1 else 1)

torch.manual_seed(0)
stages = [Scaled(4, 4), Scaled(4, 4)]
pipe = pt.Pipeline(stages, "1f1b", ranks=2, microbatches=2, loss=nn.functional.mse_loss, optimizer=None, timeout=60)
x, y = torch.randn(4, 4), torch.randn(4, 4)
errors = []
for step in range(10):
    if here == 0:
        settings["number"] = 1 + step / 4
        settings["value"] = 1.0 if step < 7 else 2.0
    first = stages[0](x).detach() if here == 0 else nn.functional.linear(x, stages[0].weight, stages[0].bias).detach()
    factor = (1 + step / 4) * (1 if step < 7 else 2) / (settings["number"] * (1 if settings["value"] == 1 else 2))
    second = nn.functional.linear(first * factor, stages[1].weight, stages[1].bias).detach()
    errors.append(abs(pipe.step(x, y) / nn.functional.mse_loss(second, y).item() - 1))
sys.stdout.write(f"{max(errors) < 1e-5} {len(pipe.changes)}\\n")
"""


def test_changes_on_one_process_count_on_all_and_numbers_become_inputs_there() -> None:
    ended = run_all(_ON_PROCESSES, processes=2)
    assert [(code, out) for code, out, _ in ended] == [(0, "True 3\n")] * 2, ended
