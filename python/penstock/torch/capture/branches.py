"""Which outputs and parameters of stages the loss depends on.

A stage is compiled before the next one, so it returns gradients of all that its outputs depend on:
zeros for what later stages do not read. Autograd has no gradients of these, and optimizers skip
such parameters, so the stages are then compiled again without them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import torch


@dataclasses.dataclass(frozen=True)
class Sources:
    """What an output of a stage, or the loss, depends on."""

    inputs: frozenset[int] = frozenset()
    parameters: frozenset[str] = frozenset()

    @staticmethod
    def of(output: torch.Tensor, inputs: Sequence[torch.Tensor], names: Mapping[int, str]) -> Sources | None:
        """Returns None if the output has no gradient. `names` has parameters by id."""
        if not output.requires_grad:
            return None
        found = {id(leaf) for leaf in leaves(output)}
        return Sources(
            frozenset(index for index, each in enumerate(inputs) if id(each) in found),
            frozenset(names[each] for each in found if each in names),
        )


@dataclasses.dataclass(frozen=True)
class Unused:
    """What the loss does not depend on although it requires gradients."""

    #: By stage: indices of its outputs.
    outputs: tuple[frozenset[int], ...]
    #: By stage: parameters that it does use.
    used: tuple[frozenset[str], ...]

    @staticmethod
    def of(stages: Sequence[Sequence[Sources | None]]) -> Unused:
        """``stages``: what each output of each stage depends on; the loss for the last one."""
        needed = frozenset({0})
        outputs: list[frozenset[int]] = []
        used: list[frozenset[str]] = []
        for sources in reversed(stages):
            live = [each for index, each in enumerate(sources) if each and index in needed]
            outputs.append(frozenset(i for i, each in enumerate(sources) if each) - needed)
            used.append(frozenset[str]().union(*(each.parameters for each in live)))
            needed = frozenset[int]().union(*(each.inputs for each in live))
        return Unused(tuple(reversed(outputs)), tuple(reversed(used)))


def leaves(result: torch.Tensor) -> Iterable[torch.Tensor]:
    """Returns the leaves whose gradients autograd computes from a result's gradient."""
    if result.grad_fn is None:
        return [result] if result.requires_grad else []
    found: dict[int, torch.Tensor] = {}
    waiting = [result.grad_fn]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        if node.name() == "torch::autograd::AccumulateGrad":
            variable: torch.Tensor = node.variable  # type: ignore[attr-defined]
            found[id(variable)] = variable
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return found.values()
