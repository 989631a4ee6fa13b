"""Small stages, Pipelines of them, and plain PyTorch on the same data."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

import penstock.torch as pt
from penstock.torch import slices

mse = nn.functional.mse_loss


def sgd(parameters: Any, lr: float = 0.1) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=lr)


def batch(samples: int = 8, width: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(samples, width), torch.randn(samples, width)


def token_loss(output: Any, targets: torch.Tensor) -> torch.Tensor:
    logits = getattr(output, "logits", output)
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def mlp(width: int = 16) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, width))


def mlps(schedule: str = "1f1b") -> list[nn.Module]:
    """Returns as many stages as the schedule has on two ranks."""
    return [mlp() for _ in range({"zbv": 4, "interleaved": 4, "dualpipev": 4}.get(schedule, 2))]


class Around(nn.Module):
    """What a function computes with modules, an mlp by default, and the stage's inputs."""

    def __init__(self, function: Callable[..., Any], *modules: nn.Module) -> None:
        super().__init__()
        self.function, self.inner = function, nn.ModuleList(modules or [mlp()])

    def forward(self, *arguments: Any, **named: Any) -> Any:
        return self.function(*self.inner, *arguments, **named)


def pipeline(stages: Sequence[nn.Module], schedule: str = "1f1b", **options: Any) -> pt.Pipeline:
    """Returns a Pipeline of two ranks, or of one for one stage, and four microbatches."""
    given = {"ranks": min(2, len(stages)), "microbatches": 4, "loss": mse, **options}
    return pt.Pipeline(stages, schedule, **given)


def train_both(
    stages: Sequence[nn.Module],
    batches: Iterable[Any] | None = None,
    *,
    optimizer: Callable[[Any], torch.optim.Optimizer] | None = sgd,
    plain_optimizer: Callable[[Any], torch.optim.Optimizer] | None = None,
    loss: Callable[..., Any] = mse,
    rel: float = 1e-6,
    **options: Any,
) -> float:
    """Trains stages, and a copy in plain PyTorch, by default on three batches of eight samples.

    Expects equal losses. Returns the largest difference of weights and buffers at the end; without
    an optimizer, that of the sums of gradients.
    """
    plain = copy.deepcopy(nn.ModuleList(stages))
    pipe = pipeline(stages, optimizer=optimizer, loss=loss, **{"exact": True, **options})
    make = plain_optimizer or optimizer
    trainer = make(list(plain.parameters())) if make else None
    for x, y in [batch() for _ in range(3)] if batches is None else batches:
        if trainer:
            trainer.zero_grad()
        expected = accumulate(chain(plain), loss, x, y, pipe.schedule.microbatches)
        if options.get("clip_grad_norm"):
            nn.utils.clip_grad_norm_(plain.parameters(), options["clip_grad_norm"])
        if trainer:
            trainer.step()
        assert pipe.step(x, y) == pytest.approx(expected, rel=rel)
    return distance(stages, plain) if trainer else distance_of_gradients(stages, plain)


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


def chain(stages: Iterable[nn.Module]) -> Callable[..., Any]:
    """Returns the function that applies the stages in order."""

    def run(*arguments: Any, **named: Any) -> Any:
        for stage in stages:
            result = stage(*arguments, **named)
            named = result if type(result) is dict else {}
            arguments = result if isinstance(result, tuple) else () if named else (result,)
        return result

    return run


def distance(one: Iterable[nn.Module], other: Iterable[nn.Module]) -> float:
    """Returns the largest difference of two models' parameters and buffers."""
    largest = 0.0
    for a, b in zip(one, other, strict=True):
        for left, right in zip([*a.parameters(), *a.buffers()], [*b.parameters(), *b.buffers()], strict=True):
            assert torch.isfinite(left).all() and torch.isfinite(right).all()
            largest = max(largest, (left.double() - right.double()).abs().max().item())
    return largest


def distance_of_gradients(one: Iterable[nn.Module], other: Iterable[nn.Module]) -> float:
    """Returns the largest difference of two models' gradients, which all exist."""
    largest = 0.0
    for a, b in zip(one, other, strict=True):
        for left, right in zip(a.parameters(), b.parameters(), strict=True):
            assert left.grad is not None and right.grad is not None
            largest = max(largest, (left.grad - right.grad).abs().max().item())
    return largest


def gradients(stages: list[nn.Module]) -> list[torch.Tensor]:
    found = [p.grad.clone() for stage in stages for p in stage.parameters() if p.grad is not None]
    for parameter in (p for stage in stages for p in stage.parameters()):
        parameter.grad = None
    return found


def assert_equal(pipe: pt.Pipeline, stages: list[nn.Module], loss: Any, x: torch.Tensor, y: torch.Tensor) -> None:
    """Compares a step with plain PyTorch on the same modules, in the state of now."""
    value = pipe.step(x, y)
    found = gradients(stages)
    expected = 0.0
    for xs, ys in zip(x.chunk(4), y.chunk(4), strict=True):
        for stage in stages:
            xs = stage(xs)
        part = loss(xs, ys) / 4
        part.backward()
        expected += part.item()
    wanted = gradients(stages)
    assert value == pytest.approx(expected, rel=1e-5)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
