"""Losses of the last stage, where Megatron reads them: on the last rank of the pipeline."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from penstock import Error

_ALIGNMENT = 16  # bytes: of every dtype's elements


class _Leaf(NamedTuple):
    """A tensor, or a number, that is elsewhere in the message."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    number: bool

    @property
    def size(self) -> int:
        """Bytes."""
        return self.dtype.itemsize * torch.Size(self.shape).numel()


class LossMessages:
    """Sends what loss functions return from one rank to another, as one tensor.

    Both ranks keep the structure of the first message of each kind, and only that message has its structure with it. Messages
    of no kind (None) may differ from each other: each is preceded by its structure, for which the receiver waits.
    """

    def __init__(self, group: Any, source: int, target: int) -> None:
        self._group = group
        self._source, self._target = (dist.get_global_rank(group, rank) for rank in (source, target))
        self._structures: dict[Hashable, Any] = {}
        self._sent: tuple[Any, torch.Tensor] | None = None

    def send(self, kind: Hashable, value: Any, device: torch.device) -> None:
        """Sends nested lists and dicts of tensors and numbers.

        Raises:
            Error: something else is in them, or an earlier message of this kind had another structure.
        """
        leaves: list[torch.Tensor] = []
        structure = _structure(value, leaves, device)
        if kind is None or kind not in self._structures:
            self._structures[kind] = structure
            dist.send_object_list([structure], self._target, group=self._group)
        if structure != self._structures[kind]:
            raise Error(
                "the loss function returns other names, shapes or dtypes than at the first step; return the same at each step"
            )
        if self._sent is not None:
            self._sent[0].wait()
        parts = itertools.chain.from_iterable((_bytes(leaf), _padding(leaf.nbytes, device)) for leaf in leaves)
        message = torch.cat([torch.empty(0, dtype=torch.uint8, device=device), *parts])
        self._sent = (dist.isend(message, self._target, group=self._group), message) if len(message) else None

    def receive(self, kind: Hashable, device: torch.device) -> Any:
        """Receives what ``send`` sends. The tensors are on the device."""
        if kind is None or kind not in self._structures:
            received: list[Any] = [None]
            dist.recv_object_list(received, self._source, group=self._group)
            self._structures[kind] = received[0]
        structure = self._structures[kind]
        size = sum(leaf.size + _rest(leaf.size) for leaf in _leaves(structure))
        message = torch.empty(size, dtype=torch.uint8, device=device)
        if size:
            dist.recv(message, self._source, group=self._group)
        return _value(structure, message, [0])


def _structure(value: Any, leaves: list[torch.Tensor], device: torch.device) -> Any:
    """Returns the value with its tensors and numbers replaced by what they are, and appends them to ``leaves``."""
    if isinstance(value, dict):
        return {name: _structure(each, leaves, device) for name, each in value.items()}
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(_structure(each, leaves, device) for each in value)
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, (int, float)):
        kind = torch.int64 if isinstance(value, int) else torch.float64
        leaves.append(torch.tensor(value, dtype=kind, device=device))
        return _Leaf(kind, (), True)
    if isinstance(value, torch.Tensor):
        leaves.append(value.detach().to(device))
        return _Leaf(value.dtype, tuple(value.shape), False)
    raise Error(f"the loss function returns a {type(value).__name__}; return dicts of tensors and numbers, which can be sent")


def _leaves(structure: Any) -> Iterator[_Leaf]:
    if isinstance(structure, _Leaf):
        yield structure
    elif isinstance(structure, (dict, list, tuple)):
        for each in structure.values() if isinstance(structure, dict) else structure:
            yield from _leaves(each)


def _value(structure: Any, message: torch.Tensor, position: list[int]) -> Any:
    """Returns the value of a structure, from the message's bytes at ``position[0]``, which advances."""
    if isinstance(structure, _Leaf):
        begin = position[0]
        position[0] += structure.size + _rest(structure.size)
        tensor = message[begin : begin + structure.size].view(structure.dtype).reshape(structure.shape)
        return tensor.item() if structure.number else tensor
    if isinstance(structure, dict):
        return {name: _value(each, message, position) for name, each in structure.items()}
    if isinstance(structure, (list, tuple)):
        return type(structure)(_value(each, message, position) for each in structure)
    return structure


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).contiguous().view(torch.uint8)


def _rest(size: int) -> int:
    return -size % _ALIGNMENT


def _padding(size: int, device: torch.device) -> torch.Tensor:
    return torch.zeros(_rest(size), dtype=torch.uint8, device=device)
