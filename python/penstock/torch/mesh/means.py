"""What a loss is on all planes of a mesh: the value of a DTensor, and the mean over parts of a sequence."""

from __future__ import annotations

from typing import Any

import torch

from penstock.torch.mesh.dtensors import value_of
from penstock.torch.mesh.planes import Plane


def over_planes(value: torch.Tensor, plane: Plane) -> torch.Tensor:
    """Returns a loss or a metric as a plain tensor, the same on all planes.

    Its gradient is that of this plane's own loss: the engine takes the mean of gradients over parts of a sequence.
    """
    value = value_of(value)
    if plane.contexts > 1:
        value = _Mean.apply(value, plane.context)  # type: ignore[no-untyped-call]
    return value


class _Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, group: str) -> torch.Tensor:
        ops: Any = torch.ops._c10d_functional
        mean: torch.Tensor = ops.wait_tensor(ops.all_reduce(value, "avg", group))
        return mean

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None
