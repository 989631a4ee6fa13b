"""The times of a run's steps: gathered from all ranks, and as timelines."""

from __future__ import annotations

import collections
import itertools
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

from penstock import Schedule, Timeline
from penstock.measuring.align_clocks import clock_offsets
from penstock.measuring.measured_run import Kind

#: The start and the end of a rank's actions in one step, in nanoseconds, by action: "0F3".
Spans: TypeAlias = "dict[str, tuple[float, float]]"


def gather_steps(
    steps: list[Spans], facts: Any, group: dist.ProcessGroup | None, device: torch.device
) -> tuple[list[list[Spans]], list[Any]] | None:
    """Returns, on rank 0 of the group, the steps and the ``facts`` of each rank; None on other ranks.

    Every rank of the group calls it. Times are by rank 0's clock. Steps that some ranks lack are left out.

    Args:
        steps: of this rank, by ``time.perf_counter_ns``.
        facts: whatever else rank 0 needs of each rank; is pickled.
        device: for the messages that align clocks.
    """
    offsets = clock_offsets(group, device)
    root = dist.get_rank(group) == 0
    gathered: list[Any] | None = [None] * dist.get_world_size(group) if root else None
    dist.gather_object((steps, facts), gathered, group_dst=0, group=group)
    if gathered is None:
        return None
    count = min(len(of_rank) for of_rank, _ in gathered)
    by_rank = [
        [{action: (start - ahead, end - ahead) for action, (start, end) in step.items()} for step in of_rank[:count]]
        for (of_rank, _), ahead in zip(gathered, offsets, strict=True)
    ]
    return by_rank, [facts for _, facts in gathered]


def timelines(schedule: Schedule, by_rank: Sequence[Sequence[Spans]]) -> list[Timeline]:
    """Returns the timeline of each step; the two parts of a pair run one after the other."""
    return [_timeline(schedule, step) for step in zip(*by_rank, strict=True)]


def durations(by_rank: Sequence[Sequence[Spans]]) -> dict[Kind, list[float]]:
    """Returns the seconds of all actions, also of the two parts of a pair that ran one after the other, by op and stage."""
    found: dict[Kind, list[float]] = {}
    for step in itertools.chain(*by_rank):
        actions_of = collections.Counter(step.values())
        for action, (start, end) in step.items():
            if actions_of[start, end] > 1:
                continue
            stage, op, _ = re.split("([FBIW])", action)
            found.setdefault((op, int(stage)), []).append((end - start) * 1e-9)
    return found


def _timeline(schedule: Schedule, spans: Sequence[Spans]) -> Timeline:
    times = []
    for rank, of_rank in enumerate(spans):
        rows = []
        for action in schedule.texts(rank):
            parts = action.partition(")")[0].lstrip("(").split(";")
            rows.append([of_rank[parts[0]][0] * 1e-9, of_rank[parts[-1]][1] * 1e-9])
        times.append(rows)
    return Timeline.from_times(schedule, times)
