"""What a loss is on all planes of a mesh: the value of a DTensor, and the mean over parts of a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from penstock.torch.mesh.dtensors import value_of
from penstock.torch.mesh.planes import Plane


def tokens_of(shapes: Sequence[Sequence[int]]) -> int | None:
    """Returns the length of the part of a sequence that targets of these shapes belong to, their dimension 1; None if they have none."""
    lengths = {shape[1] if len(shape) > 1 else None for shape in shapes}
    return lengths.pop() if len(lengths) == 1 else None


def over_planes(value: torch.Tensor, targets: Sequence[torch.Tensor], plane: Plane) -> torch.Tensor:
    """Returns a loss or a metric as a plain tensor, the same on all planes: the mean over the tokens of all parts of a sequence.

    The engine takes the mean of the planes' gradients, so the gradient is that of this plane's own loss, by its share of the tokens.
    """
    value = value_of(value)
    if plane.contexts > 1:
        tokens = tokens_of([each.shape for each in targets]) or 1
        value = _Mean.apply(value, tokens, plane.context, plane.contexts)  # type: ignore[no-untyped-call]
    return value


class _Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, tokens: int, group: str, planes: int) -> torch.Tensor:
        ops: Any = torch.ops._c10d_functional
        own = value.to(torch.promote_types(value.dtype, torch.float32))
        of_all = ops.wait_tensor(ops.all_reduce(torch.stack([own * tokens, torch.full_like(own, tokens)]), "sum", group))
        ctx.save_for_backward(tokens * planes / of_all[1])
        mean: torch.Tensor = (of_all[0] / of_all[1]).to(value.dtype)
        return mean

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        (share,) = ctx.saved_tensors
        return (gradient * share).to(gradient.dtype), None, None, None
