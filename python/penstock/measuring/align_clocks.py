"""How far the clocks of other ranks are ahead of rank 0's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist

_ROUNDS = 16


def clock_offsets(
    group: dist.ProcessGroup | None, device: torch.device, clock: Callable[[], int] = time.perf_counter_ns
) -> list[float]:
    """Returns, on rank 0, what to subtract from each rank's times, in nanoseconds.

    Every rank of the group calls it. Rank 0 asks each rank for its time and takes the round with
    the shortest wait, as NTP does. The result is exact within half of that wait.
    """
    ranks, own = dist.get_world_size(group), dist.get_rank(group)
    time_there = torch.zeros(1, dtype=torch.int64, device=device)
    offsets = [0.0] * ranks
    for rank in range(1, ranks):
        if own == 0:
            rounds = []
            for _ in range(_ROUNDS):
                asked = clock()
                dist.send(time_there, group_dst=rank, group=group)
                dist.recv(time_there, group_src=rank, group=group)
                there = int(time_there.item())
                rounds.append((asked, there, clock()))
            offsets[rank] = offset_of(rounds)
        elif own == rank:
            for _ in range(_ROUNDS):
                dist.recv(time_there, group_src=0, group=group)
                time_there.item()  # waits for it
                time_there.fill_(clock())
                dist.send(time_there, group_dst=0, group=group)
    return offsets


def offset_of(rounds: Iterable[tuple[int, int, int]]) -> float:
    """Returns how far the other clock is ahead, of (asked here, time there, answered here).

    0 if the clocks may be the same one, as for processes on one machine.
    """
    asked, there, answered = min(rounds, key=lambda each: each[2] - each[0])
    offset = there - (asked + answered) / 2
    return offset if abs(offset) > (answered - asked) / 2 else 0.0
