"""Batches of several shapes, and batches that fail, on several processes."""

from __future__ import annotations

import pytest
from forks import lines_of

_SCRIPT = """
import sys
import torch, penstock, penstock.torch as pt
from torch import nn

here, count = pt.place()

def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()

class Block(nn.Module):
    def __init__(self, stage):
        super().__init__()
        torch.manual_seed(stage)
        self.inner = nn.Sequential(nn.Linear(4, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, 4))
        self.stage = stage

    def forward(self, x):
        if x.shape[1] == 5 and self.stage == 1:
            raise KeyError("five tokens")
        # What is computed depends on the shape, so a wrong one gives other numbers.
        return self.inner(x) + x.mean(1, keepdim=True)

def loss(output, targets):
    if output.shape[1] == 7:
        raise ValueError("seven tokens")
    return nn.functional.mse_loss(output, targets)

def batch(samples, tokens, dtype=torch.float32):
    return torch.randn(samples, tokens, 4, dtype=dtype), torch.randn(samples, tokens, 4)

for name, stages in (("1f1b", 2), ("zbv", 4), ("dualpipe", 2)):
    schedule = penstock.schedule(name, ranks=2, microbatches=4)
    modules = [Block(stage) for stage in range(stages)]
    pipe = pt.Pipeline(modules, schedule, loss=loss, exact=True, timeout=60)
    torch.manual_seed(99)
    # A constant number of tokens: all messages have as many bytes.
    shapes = [(4, 5), (8, 6), (16, 3), (4, 5), (4, 12), (48, 1), (4, 7), (8, 6), (4, 5)]
    for samples, tokens in shapes:
        x, y = batch(samples, tokens)
        if count > 1 and here == 0 and name == "1f1b":
            y = torch.zeros(samples, 1)  # only the last stage reads targets
        try:
            value = repr(pipe.step(x, y))
        except pt.Error as error:
            refused = [text for text in ("five tokens", "seven tokens") if text in str(error)]
            value = refused[0] if refused else str(error)
        say("result", name, samples, tokens, value)
    for value in pipe.steps([batch(8, 6), batch(16, 3), batch(48, 1)]):
        say("result", name, repr(value))
    try:
        pipe.steps([batch(8, 6), batch(4, 5)])
    except pt.Error:
        say("result", name, "refused")
    say("result", name, repr(pipe.step(*batch(8, 6))))
"""


@pytest.mark.parametrize("launcher", ["torchrun", "mpirun"])
def test_processes_train_other_shapes_like_one_process(launcher: str) -> None:
    expected = sorted(set(lines_of(_SCRIPT, prefix="result")))
    assert sum("five" in line or "seven" in line for line in expected) == 6
    assert len(expected) == 3 * 12
    both = lines_of(_SCRIPT, prefix="result", processes=2, launcher=launcher)
    assert sorted(set(both)) == expected
