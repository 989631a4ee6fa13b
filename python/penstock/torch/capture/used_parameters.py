"""Which parameters have a gradient in a step: as in torch, the others are not updated."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from penstock.torch.capture.branches import Unused
from penstock.torch.weights.weights import SharedParameter


class UsedParameters:
    """The parameters that the loss depends on, by shape of the batch."""

    def __init__(self) -> None:
        self._used: dict[int, list[set[str]]] = {}  # by number of the shape, then by stage of the model
        self._of_steps: dict[frozenset[int], list[set[str]]] = {}  # by the shapes of a step

    def add(self, shape: int, unused: Unused, shared: Sequence[SharedParameter]) -> None:
        """``shared``: of parameters that several stages have, those that one of them uses."""
        used = [set(names) for names in unused.used]
        for holders in shared:
            for stage, name in zip(holders.stages, holders.names, strict=True):
                used[stage].add(name)
        self._used[shape] = used
        self._of_steps.clear()

    def of(self, shapes: Collection[int]) -> list[set[str]]:
        """Returns the parameters with a gradient in a step with these shapes, by stage of the model."""
        key = frozenset(shapes)
        if key not in self._of_steps:
            by_shape = [self._used[shape] for shape in key]
            self._of_steps[key] = [set[str]().union(*of_stage) for of_stage in zip(*by_shape, strict=True)]
        return self._of_steps[key]
