"""The processes of a mesh that run the same stages, whose collectives connect them. All of them run a graph, or none."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch.distributed as dist

from penstock import Error
from penstock.torch.mesh.planes import Plane, plane_of
from penstock.torch.torch_runtime.piece_code import Piece

_Made = TypeVar("_Made")


class StageGroup:
    """``plane`` is None without a mesh. Then this process is alone."""

    def __init__(self, mesh: Any, pipeline: dist.ProcessGroup | None) -> None:
        """``pipeline``: the group whose ranks have the stages. Raises Error if the mesh has others along its pipeline."""
        self.plane: Plane | None = None
        self._processes: list[int] = []
        if mesh is None:
            return
        self.plane = dataclasses.replace(plane_of(mesh, has_replicas=False), context="", numbers_random_ops=False)
        ranks = dist.get_process_group_ranks(pipeline or dist.group.WORLD)
        if ranks != list(self.plane.numbers):
            raise Error(
                f"mesh has the processes {list(self.plane.numbers)} along its pipeline, but the stages are on {ranks}: pass "
                "group=mesh['pipeline'].get_group()"
            )
        self._processes = sorted(self.plane.together)
        if len(self._processes) > 1:
            self._group = dist.new_group(self._processes, backend="gloo", use_local_synchronization=True)

    def alike(self, what: str, make: Callable[[], _Made], pieces_of: Callable[[_Made], Iterable[Piece]] = lambda _: ()) -> _Made:
        """Returns what ``make`` returns. Raises Error on all processes unless all make pieces with the same collectives."""
        made, failure = None, None
        try:
            made = make()
        except Error as error:
            failure = error
        order = [] if made is None else self._order(pieces_of(made))
        all_said = self.gather((failure and str(failure), order))
        if failure is not None:
            raise failure
        assert made is not None
        for process, (line, of_process) in zip(self._processes, all_said, strict=False):
            if line:
                raise Error(f"process {process}: {line}")
            if of_process != order:
                raise Error(
                    f"{what} calls other collectives on process {process}, or in another order, than on process {dist.get_rank()}: "
                    "call the same ones on all processes of mesh that have the stage"
                )
        return made

    def is_same(self, piece: Piece | None) -> bool:
        """Whether all processes have a piece with the same collectives."""
        order = None if piece is None else self._order([piece])
        return all(each == order for each in self.gather(order))

    def _order(self, pieces: Iterable[Piece]) -> list[Sequence[str | None]]:
        """Returns the collectives, by dimensions of the mesh in place of groups, of which processes have their own."""
        if self.plane is None:
            return []
        return [(*op, self.plane.dimensions_of(group)) for piece in pieces for *op, group in piece.collectives]

    def gather(self, value: Any) -> list[Any]:
        """Returns the values of all processes."""
        if len(self._processes) < 2:
            return [value]
        found = [None] * len(self._processes)
        dist.all_gather_object(found, value, group=self._group)
        return found
