"""Random numbers of divided tensors: each part draws its own, and replicated tensors draw the same everywhere."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from penstock.arguments import named
from penstock.torch.engine import engine
from penstock.torch.mesh.planes import Plane

_lock = threading.RLock()


@named
@contextlib.contextmanager
def part_of_random(part: int) -> Iterator[None]:
    """Random ops of a captured stage draw other numbers within it than those of other parts.

    For stages without DTensors: ``part`` is the rank in the group that divides the tensor.
    """
    engine.set_part_of_tensor(part + 1)
    try:
        yield
    finally:
        engine.set_part_of_tensor(0)


class _RandomParts:
    """What DTensor asks before it calls a random op: its tracker of generators, which CPUs lack."""

    distribute_region_enabled = True

    def _distribute_region(self, spec: Any, generator: Any = None) -> contextlib.AbstractContextManager[None]:
        part, coordinate = 0, spec.mesh.get_coordinate()
        for index, placement in enumerate(spec.placements):
            if placement.is_shard():
                part = part * spec.mesh.size(index) + coordinate[index] + 1
        return part_of_random(part - 1) if part else contextlib.nullcontext()


class _LikeAutograd:
    """The same for graphs that draw from the device's generator, as DTensor does on CPUs alone."""

    distribute_region_enabled = True

    def _distribute_region(self, spec: Any, generator: Any = None) -> contextlib.AbstractContextManager[None]:
        if spec.mesh.device_type != "cpu":
            raise RuntimeError("draws random numbers of a DTensor, which have a generator of their own: draw them of to_local()")
        return contextlib.nullcontext()


@contextlib.contextmanager
def drawn_by_part(plane: Plane) -> Iterator[None]:
    """Has random ops of DTensors draw numbers by the parts that processes have, if the engine draws them."""
    from torch.distributed.tensor import _random

    random: Any = _random
    with _lock:
        before, random._rng_tracker = random._rng_tracker, _RandomParts() if plane.numbers_random_ops else _LikeAutograd()
        try:
            yield
        finally:
            random._rng_tracker = before
