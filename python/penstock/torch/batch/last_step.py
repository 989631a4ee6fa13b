"""What a Pipeline reports of its last step."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from penstock import Error
from penstock.torch.batch.weighting import weighted_mean


@dataclasses.dataclass(frozen=True)
class LastStep:
    """What the last ``step``, ``steps`` (its last one) or ``eval_step`` of a Pipeline computed.

    The same on every process, except outputs.
    """

    #: The mean loss of the batch; None for an ``eval_step`` without a loss.
    loss: float | None
    #: The loss of each microbatch. NaN for one without weight.
    losses: list[float]
    #: The norm of all gradients before clipping. None without ``clip_grad_norm`` and
    #: ``skip_nonfinite``, and of an ``eval_step``. ``clip_grad_norm=math.inf`` only measures it.
    grad_norm: float | None
    #: The means of the metrics that the loss returned, weighted as the losses.
    metrics: dict[str, float]
    #: What the last stage returned for the whole batch, with ``outputs=True``. None without, and on
    #: processes that do not run the last stage.
    outputs: Any = dataclasses.field(default=None, repr=False)


def of_figures(
    loss: float,
    figures: Sequence[float],
    factors: torch.Tensor | None,
    microbatches: int,
    slices: int,
    names: Sequence[str],
    has_norm: bool,
    outputs: Any,
) -> LastStep:
    """Returns the report of a step that the engine ran.

    Args:
        figures: the norm of the gradients; the loss times its factor of each microbatch (or
            slice); and by microbatch its metrics.
        factors: of the losses, see `batches.factors`.
    """
    indices = microbatches * slices
    by_index = [1.0] * indices
    if factors is not None:
        by_index = factors.reshape(indices, -1)[:, 0].tolist()
    losses, weights = [], []
    for begin in range(0, indices, slices):
        weights.append(sum(by_index[begin : begin + slices]))
        total = sum(figures[1 + begin : 1 + begin + slices])
        losses.append(total / weights[-1] if weights[-1] else math.nan)
    of_metrics = figures[1 + indices :]
    metrics = {
        name: weighted_mean(
            of_metrics[number :: len(names)], None if factors is None else torch.tensor(weights, dtype=torch.float64)
        )
        for number, name in enumerate(names)
    }
    return LastStep(loss, losses, figures[0] if has_norm else None, metrics, outputs)


def merge(values: Sequence[Any], samples: Sequence[int]) -> Any:
    """Returns the output of a batch: tensors concatenated, scalars averaged by samples.

    What is the same in all microbatches, such as constants, is taken over; other objects are None.

    Raises:
        Error: the outputs have different structures, or a tensor is not divided by samples.
    """
    flat = [pytree.tree_flatten(value) for value in values]
    spec = flat[0][1]
    if any(other != spec for _, other in flat):
        raise Error("the last stage returns other containers for some microbatches")
    columns = zip(*(leaves for leaves, _ in flat), strict=True)
    return pytree.tree_unflatten([_merge_leaves(list(each), samples) for each in columns], spec)


def _merge_leaves(leaves: list[Any], samples: Sequence[int]) -> Any:
    first = leaves[0]
    if not isinstance(first, torch.Tensor):
        is_plain = isinstance(first, (int, float, str, bool, type(None)))
        return first if is_plain and all(each == first for each in leaves) else None
    if first.dim() == 0:
        if not first.is_floating_point():
            return torch.stack(leaves)
        weights = torch.tensor(samples, dtype=torch.float64, device=first.device) / sum(samples)
        return (torch.stack(leaves).double() * weights).sum().to(first.dtype)
    rows = [int(leaf.shape[0]) for leaf in leaves]
    per_sample = rows[0] // samples[0]
    if not per_sample or rows != [per_sample * count for count in samples]:
        if all(torch.equal(each, first) for each in leaves):
            return first
        raise Error(
            f"the last stage returns a tensor of shape {tuple(first.shape)} for {samples[0]} "
            "samples: dimension 0 of its outputs must be the samples of the microbatch"
        )
    return torch.cat(leaves)
