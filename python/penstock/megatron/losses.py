"""Losses of the last stage, where Megatron reads them: on the last rank of the pipeline."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
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


class _Structure(NamedTuple):
    """What a step sends."""

    tokens: _Leaf
    losses: Any  # of each microbatch if they are equal, else a list
    equal: bool

    @classmethod
    def of(cls, losses: list[Any], tokens: torch.dtype) -> _Structure:
        """Returns the structure of a step with these structures of losses."""
        equal = all(each == losses[0] for each in losses)
        return cls(_Leaf(tokens, (), False), losses[0] if losses and equal else losses, equal)

    def of_step(self, microbatches: int) -> list[Any]:
        """Returns the structure of the token count and all losses."""
        return [self.tokens, [self.losses] * microbatches if self.equal else self.losses]


class LossMessages:
    """Sends what loss functions return from one rank to another, as one tensor per step.

    Both ranks keep the structures of earlier messages; only a new one is sent, before its first message. All training steps have
    one structure, so the receiver's host never waits again. Other steps may differ from each other: the number of the structure
    is sent first, for which the receiver waits.
    """

    def __init__(self, group: Any, source: int, target: int) -> None:
        self._group = group
        self._source, self._target = (dist.get_global_rank(group, rank) for rank in (source, target))
        self._of_training: list[_Structure] = []  # one at most
        self._of_others: list[_Structure] = []
        self._sent: tuple[Any, torch.Tensor] | None = None

    def send(self, losses: list[Any], tokens: torch.Tensor, device: torch.device, *, trains: bool) -> None:
        """Sends the losses of microbatches, which are nested lists and dicts of tensors and numbers, and the token count.

        Raises:
            Error: something else is in them, or an earlier training step had another structure.
        """
        leaves: list[torch.Tensor] = [tokens]
        structure = _Structure.of([_structure(each, leaves, device) for each in losses], tokens.dtype)
        known = self._of_training if trains else self._of_others
        is_new = structure not in known
        if is_new and trains and known:
            raise Error(
                "the loss function returns other names, shapes or dtypes than at the first step; return the same at each step"
            )
        if not trains:
            number = len(known) if is_new else known.index(structure)
            dist.send(torch.full((1,), number, dtype=torch.int64, device=device), self._target, group=self._group)
        if is_new:
            known.append(structure)
            dist.send_object_list([structure], self._target, group=self._group)
        if self._sent is not None:
            self._sent[0].wait()
        parts = itertools.chain.from_iterable((_bytes(leaf), _padding(leaf.nbytes, device)) for leaf in leaves)
        message = torch.cat([torch.empty(0, dtype=torch.uint8, device=device), *parts])
        self._sent = dist.isend(message, self._target, group=self._group), message

    def receive(self, microbatches: int, device: torch.device, *, trains: bool) -> tuple[list[Any], torch.Tensor]:
        """Receives what ``send`` sends. The tensors are on the device."""
        known, number = self._of_training if trains else self._of_others, 0
        if not trains:
            received = torch.empty(1, dtype=torch.int64, device=device)
            dist.recv(received, self._source, group=self._group)
            number = int(received)
        if number == len(known):
            new: list[Any] = [None]
            dist.recv_object_list(new, self._source, group=self._group)
            known.append(new[0])
        structure = known[number].of_step(microbatches)
        size = sum(leaf.size + _rest(leaf.size) for leaf in _leaves(structure))
        message = torch.empty(size, dtype=torch.uint8, device=device)
        dist.recv(message, self._source, group=self._group)
        tokens, losses = _value(structure, message, [0])
        return losses, tokens


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
        leaves.append(torch.full((), value, dtype=kind, device=device))
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
