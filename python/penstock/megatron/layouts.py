"""Splits of layers into stages, as Megatron-LM's ``--pipeline-model-parallel-layout`` has them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from penstock import Costs, Error, schedule
from penstock.arguments import checked

EMBEDDING, DECODER, MTP, LOSS = "E", "t", "m", "L"


@checked
def layout(
    layers: int,
    stages: int,
    *,
    costs: Costs | str | Sequence[float] | None = None,
    embedding: float = 0,
    loss: float = 0,
    mtp: int = 0,
) -> str:
    """Returns the split whose slowest stage is as fast as possible: ``"Et*3|(t*4|)*6,t*3,L"``.

    Stages are in the order of the model: with virtual pipeline stages, stage ``s`` is on rank
    ``s % ranks``, as in interleaved schedules. Of equally fast splits, the most even one is
    returned, with the longer stages first.

    Args:
        layers: decoder layers.
        stages: pipeline ranks times virtual pipeline size.
        costs: of a decoder layer, shape ``(layers,)``, in any unit. Default: 1 each. Or a model of
            ``penstock.models()`` by name, or a ``penstock.Costs`` of as many layers or stages;
            these include the embedding and the loss.
        embedding: cost of the embedding, in the same unit.
        loss: cost of the head and the loss.
        mtp: multi-token prediction layers, which cost as much as the last decoder layer each.

    Raises:
        Error: there are fewer layers than stages, or ``costs`` does not fit them.
    """
    if layers < 1 or stages < 1 or mtp < 0:
        raise Error(f"{layers} layers, {stages} stages, {mtp} mtp: give at least 1, 1 and 0")
    if costs is None:
        times = [1.0] * layers
    elif isinstance(costs, (str, Costs)):
        if embedding or loss:
            raise Error("the costs of a model include embedding and loss; leave these out")
        times = _layer_times(costs, layers)
    else:
        times = [float(cost) for cost in costs]
    if len(times) != layers:
        raise Error(f"costs has {len(times)} values for {layers} layers; give one per layer")
    items = [(DECODER, time) for time in times]
    if mtp:  # Megatron-LM wants these layers in one stage
        items.append((MTP * mtp, times[-1] * mtp))
    # What costs nothing belongs to the layer beside it; otherwise it may be a stage of its own.
    items = _merged([(EMBEDDING, float(embedding)), *items, (LOSS, float(loss))])
    splits = _balanced([time for _, time in items], stages)
    return _text(["".join(kind for kind, _ in items[begin:end]) for begin, end in splits])


def _merged(items: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Joins a free first or last item with its neighbor."""
    if items[0][1] == 0:
        items = [(items[0][0] + items[1][0], items[1][1]), *items[2:]]
    if items[-1][1] == 0:
        items = [*items[:-2], (items[-2][0] + items[-1][0], items[-2][1])]
    return items


@checked
def parse(text: str) -> list[str]:
    """Returns the layers of each stage: ``parse("Et*2|(t|)*2L") == ["Ett", "t", "t", "L"]``.

    ``E`` is the embedding, ``t`` a decoder layer, ``m`` one of multi-token prediction, ``L`` the
    loss.

    Raises:
        Error: ``text`` is no layout that Megatron-LM accepts; says what is wrong.
    """
    plain = text.replace(",", "").replace(" ", "")
    for pattern in (r"\(([^()]+)\)\*(\d+)", r"(.)\*(\d+)"):
        plain = re.sub(pattern, lambda found: found[1] * int(found[2]), plain)
    for character in plain:
        if character not in "EtmL|":
            raise Error(f"layout {text!r}: {character!r} is none of E, t, m, L and |")
    flat = plain.replace("|", "")
    if not re.fullmatch("Et+m*L", flat):
        raise Error(f"layout {text!r}: the layers are {flat!r}; give one E, then t, then m, and one L")
    return plain.split("|")


def _layer_times(costs: Costs | str, layers: int) -> list[float]:
    """Returns F + I + W of each layer: what a pipeline with one layer per stage takes."""
    if isinstance(costs, str):
        costs = Costs.of_model(costs, nodes=f"{layers + 1}x1")
    try:
        costs.stages(schedule("gpipe", ranks=layers + 1, microbatches=1))
    except Error:
        per_layer = costs.stages(schedule("gpipe", ranks=layers, microbatches=1))
    else:
        raise Error(f"costs have more than {layers} layers; give layers={layers + 1} or more")
    total = per_layer["forward"] + per_layer["backward_input"] + per_layer["backward_weight"]
    return [float(time) for time in total]


def _balanced(times: Sequence[float], stages: int) -> list[tuple[int, int]]:
    """Returns the begin and the end of each stage, none of them empty."""
    count = len(times)
    if count < stages:
        raise Error(f"{count} layers for {stages} stages; give at least one layer per stage")
    before = [0.0, *itertools.accumulate(times)]
    limit = _smallest_limit(before, stages) * (1 + 1e-9)
    # For the first n layers in s stages: the least sum of squares, and where the last one begins.
    best: list[tuple[float, list[int]] | None] = [None] * (count + 1)
    best[0] = (0.0, [])
    for _ in range(stages):
        extended: list[tuple[float, list[int]] | None] = [None] * (count + 1)
        for end in range(1, count + 1):
            for begin in range(end - 1, -1, -1):
                size = before[end] - before[begin]
                if size > limit:
                    break
                rest = best[begin]
                if rest is None:
                    continue
                squares = rest[0] + size * size
                found = extended[end]
                # Later begins are tried first: on a tie, an earlier stage is longer.
                if found is None or squares < found[0] * (1 - 1e-12):
                    extended[end] = (squares, [*rest[1], begin])
        best = extended
    chosen = best[count]
    assert chosen is not None  # a split with this limit exists
    return list(itertools.pairwise([*chosen[1], count]))


def _smallest_limit(before: Sequence[float], stages: int) -> float:
    """Returns the time of the slowest stage of the best split, where stages may be empty."""
    sums = sorted({end - begin for begin, end in itertools.combinations(before, 2)})
    low, high = 0, len(sums) - 1
    while low < high:
        middle = (low + high) // 2
        if _stages_needed(before, sums[middle] * (1 + 1e-9)) <= stages:
            high = middle
        else:
            low = middle + 1
    return sums[low]


def _stages_needed(before: Sequence[float], limit: float) -> float:
    """Returns how many stages of at most ``limit`` hold all layers, or infinity."""
    needed, begin = 1, 0
    for end in range(1, len(before)):
        if before[end] - before[end - 1] > limit:
            return float("inf")
        if before[end] - before[begin] > limit:
            needed, begin = needed + 1, end - 1
    return needed


def _text(stages: Sequence[str]) -> str:
    """Writes the layout with repeated layers and stages as multiplications."""
    text, left = "", list(stages)
    while left:
        stage = left[0]
        repeats = len(list(itertools.takewhile(stage.__eq__, left)))
        if repeats == len(left):
            repeats -= 1  # the last stage has no separator
        if repeats >= 2:
            piece = f"({_layers(stage)}|)*{repeats}"
        else:
            repeats, piece = 1, _layers(stage) + ("|" if len(left) > 1 else "")
        # Megatron-LM ignores commas. They separate what would be hard to read.
        text += ("," if text[-1:].isdigit() else "") + piece
        left = left[repeats:]
    return text


def _layers(stage: str) -> str:
    text = ""
    for kind, group in itertools.groupby(stage):
        count = len(list(group))
        text += ("," if text[-1:].isdigit() else "") + (f"{kind}*{count}" if count > 1 else kind)
    return text
