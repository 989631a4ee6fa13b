"""The weights of microbatches, with which their mean loss equals the whole batch's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from penstock import Error
from penstock.torch.arguments import in_code_of, shown

#: Of the targets (or inputs) of a microbatch: the number of terms that its loss is the mean of.
LossWeight = Callable[[Any], Any]


def sizes(samples: int, microbatches: int) -> list[int]:
    """Returns the samples of each microbatch. If they differ, the first ones have one more."""
    size, larger = divmod(samples, microbatches)
    return [size + (index < larger) for index in range(microbatches)]


def by_samples(samples: int, microbatches: int) -> torch.Tensor:
    """Returns the weights of microbatches whose losses are means over their samples."""
    return torch.tensor(sizes(samples, microbatches), dtype=torch.float64)


def by_terms(weigh: LossWeight, parts: Sequence[Any]) -> torch.Tensor:
    """Returns the weights that the caller's function computes of each microbatch.

    Raises:
        Error: the function fails, or a weight is no finite number of at least 0, or all are 0.
    """
    weights = []
    for index, part in enumerate(parts):
        with in_code_of("loss_weight"), torch.no_grad():
            weight = weigh(part)
            try:
                weights.append(float(weight))
            except (TypeError, ValueError, RuntimeError):
                weights.append(-1.0)
        if not 0 <= weights[-1] < float("inf"):
            raise Error(
                f"loss_weight returned {shown(weight)} for microbatch {index}: return the number "
                "of terms that its loss is the mean of, such as (targets != -100).sum()"
            )
    if not any(weights):
        raise Error("loss_weight is 0 for every microbatch, so the batch has no mean loss: leave it out")
    return torch.tensor(weights, dtype=torch.float64)


def factors(weights: torch.Tensor) -> torch.Tensor:
    """Returns what losses are multiplied by, so that their plain mean is the weighted one."""
    return (weights * (len(weights) / weights.sum())).float()


def weighted_mean(values: Sequence[float], weights: torch.Tensor | None) -> float:
    """Returns the mean of values by microbatch. Those without weight may be NaN."""
    if weights is None:
        return sum(values) / len(values)
    pairs = [(w, value) for w, value in zip(weights.tolist(), values, strict=True) if w > 0]
    total: float = sum(w * value for w, value in pairs)
    return total / float(sum(w for w, _ in pairs))


class _BlockUnweighted(torch.autograd.Function):
    """The identity. Its backward is 0 where the weight is, also for gradients that are NaN.

    The mean of no term is 0/0, and so is its gradient.
    """

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(factor)
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        (factor,) = ctx.saved_tensors
        return torch.where(factor > 0, gradient, 0.0).to(gradient.dtype), None


def block_unweighted(outputs: list[torch.Tensor], factor: torch.Tensor) -> list[torch.Tensor]:
    """Returns a last stage's outputs, which get no gradient from a loss with factor 0."""
    block: Any = _BlockUnweighted.apply
    return [block(each, factor) if each.requires_grad else each for each in outputs]


def weigh(loss: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Returns the loss times its factor; 0 if that is 0, also for the mean of no term."""
    return torch.where(factor > 0, loss * factor, 0.0)
