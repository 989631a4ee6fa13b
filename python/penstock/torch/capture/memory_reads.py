"""Methods of tensors that read their memory without an op, which a capture would not notice."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from penstock.torch.engine import engine

_READS = {method: f"Tensor.{method.__name__}" for method in (torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__)}


class RefuseMemoryReads(TorchFunctionMode):
    """Refuses to read values of tensors that are not the same in every step."""

    def __torch_function__(self, function: Any, types: Any, arguments: tuple[Any, ...] = (), named: Any = None) -> Any:
        read = _READS.get(function)
        if read is not None and not engine.is_constant(arguments[0]):
            raise RuntimeError(
                f"the stage reads a value out of a tensor ({read}), which a graph cannot repeat; keep the value in a tensor"
            )
        return function(*arguments, **(named or {}))
