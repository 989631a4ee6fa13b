"""Where a process is in a mesh with dimensions for tensors and contexts.

A plane is the processes with one coordinate along these dimensions. It runs a pipeline of its own, with its own replicas.
The stages' collectives connect the planes.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import torch.distributed

from penstock import Error

dist: Any = torch.distributed

#: The names that a dimension may have.
PIPELINE, TENSOR, CONTEXT = ("pipeline", "pp"), ("tensor", "tp"), ("context", "cp")
_ACROSS = (*TENSOR, *CONTEXT)


@dataclasses.dataclass(frozen=True, eq=False)
class Plane:
    """This process's plane of a mesh."""

    mesh: Any
    #: This process's number in the plane, and the numbers of the plane's processes in the run. Replicas come first, then the
    #: ranks of the pipeline, as in a Schedule.
    process: int
    numbers: tuple[int, ...]
    #: How many there are along the dimensions for replicas, whose names follow, and along the pipeline's.
    replicas: int
    replica_names: tuple[str, ...]
    pipeline: int
    #: The processes at this place of all planes, by their coordinates along the dimensions of `across`.
    across: tuple[str, ...]
    together: dict[int, tuple[int, ...]]
    #: torch's names of the groups that divide tensors and contexts; "" without.
    tensor: str
    context: str
    #: Whether the engine draws random numbers, by op and part, rather than torch.
    numbers_random_ops: bool = True

    @property
    def name(self) -> str:
        """The plane's name, which no other one has."""
        return "-".join(f"{name}{place}" for name, place in zip(self.across, self.together[self.own], strict=True)) or "all"

    @property
    def own(self) -> int:
        """This process's number in the run."""
        return self.numbers[self.process]

    @property
    def contexts(self) -> int:
        """How many planes divide a sequence."""
        return _size(self.context)

    @property
    def context_place(self) -> int:
        """This plane's place along the context dimension."""
        pairs = zip(self.across, self.together[self.own], strict=True)
        return next((place for name, place in pairs if name in CONTEXT), 0)

    def dimensions_of(self, group: str) -> str | None:
        """Returns the dimensions along which a group connects planes, such as "tensor"; None if it is not of the mesh."""
        try:
            ranks = dist.get_process_group_ranks(dist.distributed_c10d._resolve_process_group(group))
        except (RuntimeError, ValueError, KeyError):
            return None
        if not set(ranks) <= self.together.keys():
            return None
        places = [self.together[each] for each in ranks]
        return " and ".join(name for index, name in enumerate(self.across) if len({each[index] for each in places}) > 1)


def plane_of(mesh: Any, *, has_replicas: bool = True) -> Plane:
    """Returns this process's plane. Raises Error for a mesh that cannot connect the stages of a Pipeline.

    Without replicas, planes are along all dimensions but the pipeline's.
    """
    names = tuple(getattr(mesh, "mesh_dim_names", None) or ())
    if not names or not hasattr(mesh, "get_coordinate"):
        raise Error(
            "mesh: pass a DeviceMesh of torch.distributed whose dimensions have names: init_device_mesh(..., "
            "mesh_dim_names=('pipeline', 'tensor'))"
        )
    coordinate, processes = mesh.get_coordinate(), mesh.mesh.flatten().tolist()
    if coordinate is None or sorted(processes) != list(range(dist.get_world_size())):
        raise Error(f"mesh has the processes {processes}, but {dist.get_world_size()} were started: make it of all of them")
    for kinds in (PIPELINE, TENSOR, CONTEXT):
        if sum(name in kinds for name in names) > 1:
            raise Error(f"mesh has the dimensions {names}: give one of {' and '.join(map(repr, kinds))}, not both")
    pipeline = [index for index, name in enumerate(names) if name in PIPELINE]
    across = [index for index, name in enumerate(names) if name in _ACROSS or not (has_replicas or name in PIPELINE)]
    replicas = [index for index in range(len(names)) if index not in (*pipeline, *across)]
    order = [*across, *replicas, *pipeline]
    places = mesh.mesh.permute(order).reshape(*(mesh.size(index) for index in across), -1)
    numbers = tuple(places[tuple(coordinate[index] for index in across)].tolist())
    together = _together(mesh, coordinate, across)
    tensor, context = (next((mesh.get_group(n).group_name for n in names if n in kinds), "") for kinds in (TENSOR, CONTEXT))
    return Plane(
        mesh,
        numbers.index(dist.get_rank()),
        numbers,
        _product(mesh.size(index) for index in replicas),
        tuple(names[index] for index in replicas),
        _product(mesh.size(index) for index in pipeline),
        tuple(names[index] for index in across),
        together,
        tensor,
        context,
    )


def _together(mesh: Any, coordinate: Sequence[int], across: Sequence[int]) -> dict[int, tuple[int, ...]]:
    found = {}
    for place in itertools.product(*(range(mesh.size(index)) for index in across)):
        at = list(coordinate)
        for index, along in zip(across, place, strict=True):
            at[index] = along
        found[int(mesh.mesh[tuple(at)])] = place
    return found


def _product(sizes: Any) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product


def _size(group: str) -> int:
    return int(dist.distributed_c10d._resolve_process_group(group).size()) if group else 1
