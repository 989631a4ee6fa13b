"""Functions of torch that capture would not notice, or cannot record as they are called."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from penstock.torch.engine import engine

_READS = {method: f"Tensor.{method.__name__}" for method in (torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__)}


class RefuseUnseen(TorchFunctionMode):
    """Refuses to read values of tensors that are not the same in every step, and random ops with
    a generator of their own, in place of which a run passes another one. Gives `randperm` a generator."""

    def __torch_function__(self, function: Any, types: Any, arguments: tuple[Any, ...] = (), named: Any = None) -> Any:
        read = _READS.get(function)
        if read is not None and not engine.is_constant(arguments[0]):
            raise RuntimeError(
                f"the stage reads a value out of a tensor ({read}), which a graph cannot repeat; keep the value in a tensor"
            )
        generator = (named or {}).get("generator")
        if generator is not None and generator is not torch.default_generator:
            raise RuntimeError(
                f"{function.__name__}(generator=) draws other numbers in each step, which a graph cannot repeat: leave generator out"
            )
        if function is torch.randperm and _is_of_default_generator(named or {}):
            # Without a generator, its kernel writes into a tensor, which a graph cannot contain.
            named = {**(named or {}), "generator": torch.default_generator}
        return function(*arguments, **(named or {}))


def _is_of_default_generator(named: dict[str, Any]) -> bool:
    device = named.get("device") or torch.get_default_device()
    return named.get("generator") is None and named.get("out") is None and torch.device(device).type == "cpu"
