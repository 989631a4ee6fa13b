"""RECOMPUTE, OFFLOAD and RELOAD in torch's runtime, which knows no such actions: they run after the action before them."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import re
from typing import Any

import torch

from penstock import Schedule

_MEMORY_ACTION = re.compile(r"(\d+)(RECOMPUTE|OFFLOAD|RELOAD)(\d+)")
_COMPUTATION = re.compile(r"(\d+)([FBIW])(\d+)")

#: The op, stage and microbatch of an action.
Cell = tuple[str, int, int]


@dataclasses.dataclass(frozen=True)
class MemoryActions:
    """The actions of a rank by the computation that they follow."""

    after: dict[Cell, list[Cell]] = dataclasses.field(default_factory=dict)
    #: Stages and microbatches of which F keeps only the inputs.
    recomputed: frozenset[tuple[int, int]] = frozenset()


def divide(schedule: Schedule, rank: int) -> tuple[Schedule, MemoryActions]:
    """Returns the schedule without these actions, and those of a rank."""
    if not _MEMORY_ACTION.search(schedule.to_csv()):
        return schedule, MemoryActions()
    without = copy.copy(schedule)
    found: dict[Cell, list[Cell]] = {}
    for each in range(schedule.ranks):
        cells = schedule.texts(each)
        without.lanes[each] = [cell for cell in cells if not _MEMORY_ACTION.fullmatch(cell)]
        if each == rank:
            found = _after(cells)
    recomputed = frozenset((stage, microbatch) for of in found.values() for op, stage, microbatch in of if op == "RECOMPUTE")
    return without, MemoryActions(found, recomputed)


def _after(cells: list[str]) -> dict[Cell, list[Cell]]:
    found: dict[Cell, list[Cell]] = {}
    last: Cell | None = None
    for cell in cells:
        action = _MEMORY_ACTION.fullmatch(cell)
        if action is not None and last is not None:
            stage, op, microbatch = action.groups()
            found.setdefault(last, []).append((op, int(stage), int(microbatch)))
        for stage, op, microbatch in _COMPUTATION.findall(cell) if action is None else ():  # of a pair, the second one
            last = op, int(stage), int(microbatch)
    return found


class Offloaded:
    """Tensors of a microbatch in the memory of the host. Copies run beside the computation."""

    def __init__(self, slots: list[torch.Tensor | None]) -> None:
        """Takes the tensors out of ``slots``."""
        tensors = {index: each for index, each in enumerate(slots) if each is not None}
        self._device = next((each.device for each in tensors.values()), torch.device("cpu"))
        self._back: dict[int, torch.Tensor] = {}
        with self._beside():
            self._on_host = {index: self._copy(each) for index, each in tensors.items()}
        for index, each in tensors.items():
            if self._device.type == "cuda":
                each.record_stream(self._stream)
            slots[index] = None

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        if self._device.type != "cuda":
            return tensor.to("cpu", copy=True)
        host = torch.empty_like(tensor, device="cpu", pin_memory=True)
        return host.copy_(tensor, non_blocking=True)

    def _beside(self) -> Any:
        """A context for copies, which wait for what was computed before."""
        if self._device.type != "cuda":
            return contextlib.nullcontext()
        self._stream = _streams.setdefault(self._device, torch.cuda.Stream(self._device))  # type: ignore[no-untyped-call]
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        return torch.cuda.stream(self._stream)

    def reload(self) -> None:
        """Starts to copy the tensors back."""
        with self._beside():
            self._back = {index: each.to(self._device, non_blocking=True) for index, each in self._on_host.items()}

    def put_back(self, slots: list[torch.Tensor | None]) -> None:
        """Waits for the tensors, on the device."""
        if not self._back:
            self.reload()
        if self._device.type == "cuda":
            current = torch.cuda.current_stream(self._device)
            current.wait_stream(self._stream)
            for each in self._back.values():
                each.record_stream(current)
        for index, each in self._back.items():
            slots[index] = each


_streams: dict[torch.device, Any] = {}
