"""Plain PyTorch on the same data, and small stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from penstock.torch import slices


def mlp(width: int = 16) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, width))


class CausalMean(nn.Module):
    """A layer whose tokens attend to all earlier tokens alike, also in earlier slices."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.inner = mlp(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values = self.inner(x).unsqueeze(1)  # [batch, heads, tokens, width]
        of_slice = slices.current()
        begin = 0 if of_slice is None else of_slice.start
        if of_slice is not None:
            _, values = of_slice.extend(values, values)
        count = values.shape[2]
        weights = torch.ones(count, count).tril()[begin:]
        return (weights / weights.sum(1, keepdim=True) @ values).squeeze(1)


def accumulate(
    model: Callable[..., Any],
    loss: Callable[..., torch.Tensor],
    inputs: torch.Tensor | dict[str, torch.Tensor],
    targets: torch.Tensor,
    microbatches: int,
) -> float:
    """Adds the gradients of the mean loss, microbatch by microbatch, and returns that loss."""
    total = 0.0
    for index, y in enumerate(targets.chunk(microbatches)):
        if isinstance(inputs, dict):
            part = {name: x.chunk(microbatches)[index] for name, x in inputs.items()}
            value = loss(model(**part), y)
        else:
            value = loss(model(inputs.chunk(microbatches)[index]), y)
        (value / microbatches).backward()
        total += value.item()
    return total / microbatches


def chain(stages: Sequence[nn.Module]) -> Callable[[Any], Any]:
    """Returns the function that applies the stages in order."""

    def run(value: Any) -> Any:
        for stage in stages:
            value = stage(value)
        return value

    return run


def distance(one: Sequence[nn.Module], other: Sequence[nn.Module]) -> float:
    """Returns the largest difference of two models' parameters and buffers."""
    largest = 0.0
    for a, b in zip(one, other, strict=True):
        for left, right in zip(
            [*a.parameters(), *a.buffers()], [*b.parameters(), *b.buffers()], strict=True
        ):
            assert torch.isfinite(left).all() and torch.isfinite(right).all()
            largest = max(largest, (left.double() - right.double()).abs().max().item())
    return largest
