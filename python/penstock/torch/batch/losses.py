"""What a loss function may return: a scalar, alone or with metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from penstock import Error
from penstock.torch.arguments import shown

#: Returns a scalar tensor, or a pair of it and a dict of metrics by name.
Loss = Callable[..., Any]


def evaluate(loss: Loss | None, output: Any, targets: tuple[Any] | None) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Returns the loss of a last stage's output, and its metrics, as fp32 scalars.

    Args:
        loss: None if the output is the loss, or has it as the attribute ``loss``.
        targets: in a tuple, or None without any.

    Raises:
        Error: the loss or a metric is no scalar.
    """
    if loss is None:
        result = getattr(output, "loss", output)
    else:
        result = loss(output, *(targets or ()))
    metrics: Any = {}
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
        result, metrics = result
    if not isinstance(result, torch.Tensor) or result.numel() != 1:
        shape = tuple(result.shape) if isinstance(result, torch.Tensor) else type(result).__name__
        raise Error(
            f"the loss is no scalar tensor but {shape}: return the mean over the microbatch, or a "
            "pair of it and a dict of metrics"
        )
    return result.reshape(()).float(), {str(name): _scalar(str(name), metric) for name, metric in metrics.items()}


def _scalar(name: str, metric: Any) -> torch.Tensor:
    if isinstance(metric, (int, float)):
        metric = torch.tensor(float(metric))
    if not isinstance(metric, torch.Tensor) or metric.numel() != 1:
        shape = f"of shape {tuple(metric.shape)}" if torch.is_tensor(metric) else shown(metric)
        raise Error(f"the metric '{name}' is {shape}: return a scalar tensor, its mean")
    return metric.detach().reshape(()).float()
