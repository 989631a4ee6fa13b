"""Lists in a batch: containers of tensors, or one tensor per sample, which divide like a tensor.

A list of one tensor per sample has as many elements as the batch has samples. Other lists are
containers like tuples: each of their tensors is of the whole batch, as in torch's chunking.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from penstock import Error


def count(inputs: Any, targets: Any) -> int | None:
    """Returns the samples of the batch: dimension 0 of the first tensor that is in no list.

    If ``inputs`` is a list of tensors, their dimension 0. None without tensors.
    """
    for value in (inputs, targets):
        for leaf in pytree.tree_leaves(value, is_leaf=lambda each: type(each) is list):
            if isinstance(leaf, torch.Tensor) and leaf.dim() > 0:
                return int(leaf.shape[0])
    tensors = [t for t in pytree.tree_leaves((inputs, targets)) if isinstance(t, torch.Tensor)]
    sizes = {int(tensor.shape[0]) for tensor in tensors if tensor.dim() > 0}
    if not sizes:
        return None
    if type(inputs) is list and len(sizes) == 1 and all(map(torch.is_tensor, inputs)):
        return sizes.pop()
    raise Error(
        "step: every tensor is in a list, so the number of samples is not known: pass a tensor or "
        "a tuple where each tensor is of the whole batch, and targets in a tensor"
    )


def is_one(value: Any, name: str, samples: int) -> bool:
    """Returns whether a value is a list of one tensor per sample.

    Raises:
        Error: a list of this length may be both, or its elements do not form a tensor.
    """
    if type(value) is not list or len(value) != samples or samples < 2:
        return False
    if not all(isinstance(each, torch.Tensor) for each in value):
        if any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value)):
            raise Error(
                f"step: {name} contain a list of {samples} elements, as many as samples, which "
                "are not all tensors: pass tensors whose dimension 0 is the batch"
            )
        raise Error(
            f"step: {name} contain a list of {samples} {type(value[0]).__name__}, as many as "
            "samples: pass a tensor, or a tuple if it is the same for every microbatch"
        )
    shapes = {tuple(each.shape) for each in value}
    if any(shape[:1] == (samples,) for shape in shapes):
        raise Error(
            f"step: {name} contain a list of {samples} tensors with {samples} rows, which may be "
            "one per sample or each of the whole batch: pass torch.stack(list), or a tuple"
        )
    if len(shapes) > 1 or len({each.dtype for each in value}) > 1:
        raise Error(f"step: {name} contain a list of one tensor per sample, of several shapes or dtypes: pad them to one shape")
    return True
