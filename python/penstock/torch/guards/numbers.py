"""Numbers that change often: during captures, tensors without dimensions stand for them.

Each step then reads their values, and nothing is captured again.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

from penstock.torch.guards.places import Item, Place

_OFTEN = 2  # changes


class _StandIn(torch.Tensor):
    """A tensor in place of a number, which cannot be looked up in dicts as the number could.

    In float64, so that Python's arithmetic has its precision.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __hash__(self) -> int:
        raise TypeError("a tensor that stands for a number has no hash")


@dataclasses.dataclass(frozen=True)
class Number:
    """A number in a dict, and the tensor that stands for it."""

    path: str
    holder: dict[str, Any]
    key: Any
    tensor: torch.Tensor

    def fill(self, *, is_other: bool = False) -> None:
        """Gives the tensor the number's value, or another one."""
        value = self.holder[self.key]
        self.tensor.fill_(0.75 * value + 0.125 if is_other else value)


class Numbers:
    """The numbers for which tensors stand."""

    def __init__(self) -> None:
        self._changes: collections.Counter[Item] = collections.Counter()
        self._never: set[Item] = set()  # code needs their values
        self.all: dict[Item, Number] = {}

    def note(self, place: Place) -> None:
        """Counts a change of a place that code does not ask the type of."""
        if place.item is None or type(place.item[0].get(place.item[1])) is not float:
            return
        holder, name = place.item
        key = id(holder), name
        self._changes[key] += 1
        if self._changes[key] >= _OFTEN and key not in self._never:
            self.all[key] = Number(
                place.path, holder, name, torch.tensor(holder[name], dtype=torch.float64).as_subclass(_StandIn)
            )

    def give_up_others(self) -> None:
        """Has no tensor stand for what is no number any more."""
        others = {key for key, each in self.all.items() if type(each.holder.get(each.key)) is not float}
        self._never |= others
        self.all = {key: each for key, each in self.all.items() if key not in others}

    def give_up(self) -> None:
        """Has no tensor stand for the numbers, because code needs their values."""
        self._never |= self.all.keys()
        self.all = {}

    @contextlib.contextmanager
    def standing_in(self, *, is_other: bool) -> Iterator[None]:
        """Puts the tensors in the numbers' places. ``is_other``: with other values, so that code which reads these shows."""
        numbers = list(self.all.values())
        values = [each.holder[each.key] for each in numbers]
        for each in numbers:
            each.fill(is_other=is_other)
            each.holder[each.key] = each.tensor
        try:
            yield
        finally:
            for each, value in zip(numbers, values, strict=True):
                each.holder[each.key] = value
                each.fill()
