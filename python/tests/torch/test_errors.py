"""Errors are one line that names what the user wrote."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from typing import Any

import pytest
import torch
from reference import mlp
from torch import nn

import penstock.torch as pt

_mse = nn.functional.mse_loss


def _step(stages: list[nn.Module], **arguments: Any) -> str:
    """Returns the one-line error of a step."""
    given = {"ranks": 2, "microbatches": 4, "loss": _mse, **arguments}
    with pytest.raises(pt.Error) as raised:
        pt.Pipeline(stages, "1f1b", **given).step(torch.randn(8, 16), torch.randn(8, 16))
    text = str(raised.value)
    assert "\n" not in text
    return text


class ReadsValue(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x.sum().item()


class DependsOnData(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[x > 0]


class Fails(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("the user's own error\nwith a second line")


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (ReadsValue(), r"stage 1, forward at .*test_errors\.py:\d+ in forward: .*reads a value"),
        (DependsOnData(), r"stage 1, forward at .*test_errors\.py:\d+ in forward: .*depends on data"),
        (Fails(), r"stage 1, forward at .*test_errors\.py:\d+ in forward: the user's own error$"),
    ],
)
def test_the_line_of_the_model_is_named(module: nn.Module, text: str) -> None:
    assert re.search(text, _step([mlp(), module]))


def test_hooks_are_refused_by_name() -> None:
    def print_norm(*_: object) -> None: ...

    module = mlp()
    module[0].register_forward_hook(print_norm)
    assert re.search("stage 0: module '0' has the hook .*print_norm", _step([module, mlp()]))
    module = mlp()
    module[0].weight.register_hook(print_norm)
    assert "parameter '0.weight'" in _step([module, mlp()])


def test_a_loss_must_be_a_scalar() -> None:
    assert "no scalar" in _step([mlp(), mlp()], loss=lambda a, b: a - b)


def test_batches_must_divide() -> None:
    pipe = pt.Pipeline([mlp(), mlp()], "1f1b", ranks=2, microbatches=3, loss=_mse)
    with pytest.raises(pt.Error, match="8 samples, which 3 microbatches do not divide"):
        pipe.step(torch.randn(8, 16), torch.randn(8, 16))


def test_the_number_of_stages_must_fit() -> None:
    with pytest.raises(pt.Error, match="3 modules"):
        pt.Pipeline([mlp(), mlp(), mlp()], "1f1b", ranks=2, microbatches=4, loss=_mse)


def test_a_failed_step_ends_the_pipeline() -> None:
    def fail(parameters: Any) -> torch.optim.Optimizer:
        class Broken(torch.optim.SGD):
            def step(self, closure: Any = None) -> None:
                raise RuntimeError("disk full")

        return Broken(parameters, lr=0.1)

    pipe = pt.Pipeline([mlp(), mlp()], "1f1b", ranks=2, microbatches=4, loss=_mse, optimizer=fail)
    x = torch.randn(8, 16)
    with pytest.raises(pt.Error, match="disk full"):
        pipe.step(x, x)
    with pytest.raises(pt.Error, match="an earlier step failed: make a new Pipeline"):
        pipe.step(x, x)


def test_ctrl_c_ends_a_step() -> None:
    script = textwrap.dedent(
        """
        import signal, torch, penstock.torch as pt
        from torch import nn
        pipe = pt.Pipeline([nn.Linear(64, 64), nn.Linear(64, 64)], "1f1b", ranks=2, microbatches=4,
                           loss=nn.functional.mse_loss)
        x = torch.randn(8, 64)
        pipe.step(x, x)
        print("ready", flush=True)
        while True:
            pipe.step(x, x)
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
