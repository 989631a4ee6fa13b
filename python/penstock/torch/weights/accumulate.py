"""Gradients in ``parameter.grad``, as autograd's AccumulateGrad leaves them."""

from __future__ import annotations

import torch

from penstock.torch.devices import keep_until_read
from penstock.torch.engine import engine


def add(parameter: torch.Tensor, gradient: torch.Tensor) -> None:
    """Adds a gradient in place, so that an existing one keeps its memory, which others may view.

    A new one has the layout of the parameter if that has neither gaps nor overlaps; otherwise it is
    contiguous. ``gradient`` may be changed afterwards.
    """
    before = parameter.grad
    if before is not None and before.layout == torch.strided:
        before.add_(gradient)
        keep_until_read(before)
        return
    if before is not None:  # A sparse gradient cannot hold the sum.
        parameter.grad = gradient + before
    else:
        own = torch.empty_like(parameter, requires_grad=False)
        is_dense = own.stride() == parameter.stride()
        parameter.grad = own.copy_(gradient) if is_dense else gradient.clone(memory_format=torch.contiguous_format)
    engine.keep_for_caller(parameter.grad)
