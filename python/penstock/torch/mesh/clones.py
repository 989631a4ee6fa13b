"""Clones of groups for ranks of one process, which are threads: collectives of one group have one order."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch.distributed

from penstock.torch.engine import engine

dist: Any = torch.distributed

_clones: dict[tuple[str, int], Any] = {}  # by group and rank of the schedule; torch knows groups by weak references


def make_clones(groups: Sequence[str], ranks: Sequence[int]) -> None:
    """Makes clones of groups for the ranks of this process but the first.

    All processes of a group call it, with the groups in the same order.
    """
    for group, rank in itertools.product(groups, sorted(ranks)[1:]):
        if (group, rank) not in _clones:
            original = dist.distributed_c10d._resolve_process_group(group)
            members = dist.get_process_group_ranks(original)
            _clones[group, rank] = dist.new_group(members, backend=dist.get_backend(original), use_local_synchronization=True)
        engine.set_clone_of_group(group, rank, _clones[group, rank].group_name)
