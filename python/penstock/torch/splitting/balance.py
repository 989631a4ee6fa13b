"""Where stages begin: at layers, with equal numbers of them or equal times."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

from penstock import Error
from penstock.torch.batch.batches import call


def boundaries(model: nn.Module, inputs: Any, stages: int, by: str) -> list[str]:
    """Returns the names of the layers that begin stages 1, 2, ...

    ``by`` is ``"even"`` or ``"cost"``, see `split`.
    """
    if by not in ("even", "cost"):
        raise Error(f"split: by is {by!r}: give 'even' or 'cost'")
    names = layers(model)
    if len(names) < stages:
        raise Error(
            f"split: {len(names)} layers cannot form {stages} stages: name the modules that begin "
            "stages, or use fewer ranks or chunks"
        )
    costs = [1.0] * len(names) if by == "even" else _times(model, inputs, names)
    return [names[index] for index in partition(costs, stages)]


def layers(model: nn.Module) -> list[str]:
    """Returns the names of the layers: the elements of the list that has the most parameters."""
    best: list[str] = []
    most = -1
    for name, module in model.named_modules():
        if not isinstance(module, (nn.ModuleList, nn.Sequential)) or len(module) < 2:
            continue
        size = sum(parameter.numel() for parameter in module.parameters())
        if size > most:
            most = size
            best = [f"{name}.{child}" if name else child for child, _ in module.named_children()]
    return best


def partition(costs: list[float], parts: int) -> list[int]:
    """Returns where parts 1, 2, ... begin so that the largest sum of a part is smallest.

    Of equal divisions, the earlier parts are longer.
    """
    count = len(costs)
    sums = [0.0]
    for cost in costs:
        sums.append(sums[-1] + cost)
    # By begin and parts left: the largest sum, and the begins.
    best: dict[tuple[int, int], tuple[float, list[int]]] = {(count, 0): (0.0, [])}

    def solve(begin: int, left: int) -> tuple[float, list[int]]:
        if (begin, left) in best:
            return best[begin, left]
        if left == 0 or count - begin < left:
            return (float("inf"), [])
        options = []
        for end in range(begin + 1, count - left + 2):
            largest, rest = solve(end, left - 1)
            options.append((max(sums[end] - sums[begin], largest), -end, [end, *rest]))
        found = min(options, default=(float("inf"), 0, []))
        best[begin, left] = (found[0], found[2])
        return best[begin, left]

    return solve(0, parts)[1][:-1]


def _times(model: nn.Module, inputs: Any, names: list[str]) -> list[float]:
    """Returns the time of each layer's forward, in seconds.

    What runs before the first layer counts to it, and what runs after the last one to that.
    """
    ends = [0.0] * (len(names) + 1)
    modules = dict(model.named_modules())
    handles = [
        modules[name].register_forward_hook(lambda *_, index=index: ends.__setitem__(index + 1, time.perf_counter()))
        for index, name in enumerate(names)
    ]
    best = [float("inf")] * len(names)
    try:
        with torch.no_grad():
            for _ in range(3):
                ends[0] = time.perf_counter()
                call(model, inputs)
                ends[-1] = time.perf_counter()
                best = [min(b, e - s) for b, s, e in zip(best, ends, ends[1:], strict=False)]
    finally:
        for handle in handles:
            handle.remove()
    if min(best) <= 0:
        raise Error("split: the model does not call its layers in order: name the modules that begin stages")
    return best
