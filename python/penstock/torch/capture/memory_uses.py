"""What a stage's code does with the memory of the stages' tensors, noted while it is captured."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from penstock.torch.memory import storage_address

# Normalizations with running statistics: where these are among the arguments.
_NORMS = {
    torch.nn.functional.batch_norm: (1, 2),
    torch.nn.functional.instance_norm: (1, 2),
    torch.batch_norm: (3, 4),
    torch.instance_norm: (3, 4),
    torch.native_batch_norm: (3, 4),
}
_STATISTICS = ("running_mean", "running_var")
_TRAINING = 5  # whether they compute statistics, and update the running ones
# Methods that read no value.
_OF_SHAPE = {"size", "dim", "numel", "nelement", "stride", "is_contiguous", "storage_offset", "__get__", "__set__", "__len__"}


class MemoryUses(TorchFunctionMode):
    """Notes the calls whose arguments have some memory."""

    def __init__(self, storages: Collection[int]) -> None:
        """``storages``: the addresses of the storages of interest."""
        super().__init__()
        self._storages = storages
        self._read: dict[Any, torch.Tensor] = {}
        self._changed: dict[Any, torch.Tensor] = {}

    @property
    def read(self) -> list[torch.Tensor]:
        """Tensors whose values something else than their own update depends on."""
        return list(self._read.values())

    @property
    def changed(self) -> list[torch.Tensor]:
        """Tensors that are updated."""
        return list(self._changed.values())

    def __torch_function__(self, function: Any, types: Any, arguments: tuple[Any, ...] = (), named: Any = None) -> Any:
        named = named or {}
        result = function(*arguments, **named)
        name = getattr(function, "__name__", "")
        if name not in _OF_SHAPE:
            changed = list(self._of_interest(_changed(function, name, arguments, named)))
            self._note(self._changed, changed)
            # What makes a view reads nothing: calls that have the view as argument do.
            same = {*map(storage_address, changed), storage_address(result)}
            everything = self._of_interest(pytree.tree_leaves((arguments, named)))
            self._note(self._read, (each for each in everything if storage_address(each) not in same))
        return result

    def _of_interest(self, values: Iterable[Any]) -> Iterator[torch.Tensor]:
        return (each for each in values if storage_address(each) in self._storages)

    @staticmethod
    def _note(uses: dict[Any, torch.Tensor], tensors: Iterable[torch.Tensor]) -> None:
        for each in tensors:
            key = (each.data_ptr(), tuple(each.shape), each.stride(), each.dtype)
            uses.setdefault(key, each)


def _changed(function: Any, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
    """Returns the arguments that a call changes."""
    if function in _NORMS:
        is_training = named.get("training", named.get("use_input_stats", (*arguments, *([False] * 6))[_TRAINING]))
        places = _NORMS[function]
        statistics = [each for place, each in enumerate(arguments) if place in places]
        return [*statistics, *(named.get(key) for key in _STATISTICS)] if is_training else []
    changed = pytree.tree_leaves(named["out"]) if "out" in named else []
    is_in_place = name.endswith("_") and not name.endswith("__") or name.startswith("__i") or name == "__setitem__"
    if is_in_place and name not in ("__index__", "__int__", "__invert__"):
        changed += pytree.tree_leaves(arguments[0] if arguments else next(iter(named.values()), None))
    return changed
