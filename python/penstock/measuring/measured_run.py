"""The costs that explain measured timelines."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from penstock import NO_OP, OPS, Costs, Schedule, Timeline

# A compute action without its microbatch: op and stage.
Kind = tuple[str, int]


def measured_costs(steps: Sequence[Timeline], durations: Mapping[Kind, Sequence[float]], output_bytes: Sequence[int]) -> Costs:
    """Returns the median times of each stage's actions and of messages, in seconds.

    Args:
        steps: timelines of the same schedule.
        durations: of actions, also of the two parts of a pair, by op and stage.
        output_bytes: size of each stage's output, shape ``(stages,)``.
    """
    options: dict[str, Any] = {"comm": _latency(steps), "time_unit": "s"}
    times = _stage_times(steps[0].schedule.stages, durations)
    if pairs := _pair_times(steps, times):
        options["overlap"] = min(1.0, statistics.median(pairs))
    if len(output_bytes) > 1 and max(output_bytes[:-1]):
        largest = max(output_bytes[:-1])
        options["message_bytes"] = largest
        options["message_scale"] = [*(size / largest for size in output_bytes[:-1]), 1.0]
    return Costs.per_stage(**times, **options)


def measured_layer_costs(steps: Sequence[Timeline], durations: Mapping[Kind, Sequence[float]], layers: Sequence[int]) -> Costs:
    """Returns the median times of the model's layers and of messages, which fit any number of stages.

    A layer takes what the stages between the first and the last one take per layer. What the first and the last stage take
    beyond that is part of the first and of the last layer. Without stages between them, each stage's time is divided equally
    among its layers. Memory is in activations of one of these ranks and a microbatch: each layer has the same share. There is no
    rule for pairs, which schedules without pairs refuse.

    Args:
        steps: timelines of the same schedule.
        durations: of actions, also of the two parts of a pair, by op and stage.
        layers: of each stage, shape ``(stages,)``. A stage without layers, with the embedding or the head alone, counts as one.
    """
    counts = [max(1, count) for count in layers]
    times = _stage_times(len(counts), durations)
    columns: dict[str, Any]
    if len(counts) < 3:
        groups = counts
        columns = {name: [time / count for time, count in zip(column, counts, strict=True)] for name, column in times.items()}
    else:
        groups = [1, sum(counts) - 2, 1]
        columns = {name: _first_middle_last(column, counts) for name, column in times.items()}
    columns["activation"] = [steps[0].schedule.ranks / sum(counts)] * len(groups)
    columns["backward"] = [min(whole, i + w) for whole, i, w in zip(*(columns[name] for name in _BACKWARDS), strict=True)]
    return Costs.per_layer(groups, **columns, comm=_latency(steps), time_unit="s")


_BACKWARDS = ("backward", "backward_input", "backward_weight")


def _first_middle_last(column: Sequence[float], counts: Sequence[int]) -> list[float]:
    """Returns the times of the first layer, of each layer between, and of the last one, of the times of stages."""
    layer = statistics.median(time / count for time, count in list(zip(column, counts, strict=True))[1:-1])
    return [max(0.0, column[0] - (counts[0] - 1) * layer), layer, max(0.0, column[-1] - (counts[-1] - 1) * layer)]


def _stage_times(stages: int, durations: Mapping[Kind, Sequence[float]]) -> dict[str, Any]:
    """Returns the medians by keyword of ``Costs``, shape ``(stages,)`` each. Half of a whole backward counts as W without one."""
    median = {kind: statistics.median(found) for kind, found in durations.items()}
    columns: dict[str, Any] = {"forward": [], "backward_input": [], "backward_weight": [], "backward": []}
    for stage in range(stages):
        whole = median.get(("B", stage))
        half_i = median.get(("I", stage), (whole or 0) / 2)
        half_w = median.get(("W", stage), (whole or 0) / 2)
        columns["forward"].append(median[("F", stage)])
        columns["backward_input"].append(half_i)
        columns["backward_weight"].append(half_w)
        # A whole backward does no more than its halves; beyond them, a difference is noise.
        columns["backward"].append(half_i + half_w if whole is None else min(whole, half_i + half_w))
    return columns


def _latency(steps: Sequence[Timeline]) -> float:
    waits = [wait for step in steps for wait in _message_times(step)]
    return statistics.median(waits) if waits else 0.0


def _pair_times(steps: Sequence[Timeline], times: Mapping[str, Sequence[float]]) -> list[float]:
    """Returns how long each pair took, as a factor of its F and B."""
    found = []
    for action in (each for step in steps for rank in range(step.schedule.ranks) for each in step.actions(rank)):
        if action["op2"] != NO_OP:
            parts = sum(times["forward" if op == "F" else "backward"][stage] for op, stage, _ in _parts(action))
            found.append(float(action["end"] - action["start"]) / parts)
    return found


def _message_times(step: Timeline) -> list[float]:
    """Returns how long inputs took that a rank was waiting for, from their end to its start."""
    schedule = step.schedule
    ended: dict[tuple[str, int, int], float] = {}
    for rank in range(schedule.ranks):
        for action in step.actions(rank):
            for op, stage, microbatch in _parts(action):
                value = "F" if op == "F" else "I" if op in "BI" else ""
                ended[(value, stage, microbatch)] = float(action["end"])
    found = []
    for rank in range(schedule.ranks):
        for before, action in pairwise(step.actions(rank)):
            op, stage, microbatch = _parts(action)[0]
            made = _input_of(schedule, op, stage, microbatch)
            if made is not None and made in ended and ended[made] > before["end"]:
                found.append(max(0.0, float(action["start"]) - ended[made]))
    return found


def _parts(action: np.void) -> list[tuple[str, int, int]]:
    parts = [(OPS[action["op"]], int(action["stage"]), int(action["microbatch"]))]
    if action["op2"] != NO_OP:
        parts.append((OPS[action["op2"]], int(action["stage2"]), int(action["microbatch2"])))
    return parts


def _input_of(schedule: Schedule, op: str, stage: int, microbatch: int) -> tuple[str, int, int] | None:
    """Returns what an action reads from another rank, if anything."""
    other = stage - 1 if op == "F" else stage + 1 if op in "BI" else -1
    ranks = schedule.rank_of_stage
    if not 0 <= other < len(ranks) or ranks[other] == ranks[stage]:
        return None
    return ("F" if op == "F" else "I", other, microbatch)
