"""The shapes of microbatches that stages are compiled for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from penstock import Error, Schedule
from penstock.torch.batch import weighting
from penstock.torch.batch.batches import Checked

#: Of each tensor of a batch: its sizes and dtype.
Kinds = tuple[tuple[tuple[int, ...], torch.dtype], ...]

_MOST_SHAPES = 64  # each has its graphs, and constants such as masks


def kinds_of(batch: Checked) -> tuple[Kinds, Kinds]:
    """Returns the kinds of the inputs and of the targets."""
    inputs, targets = (
        tuple((tuple(tensor.shape), tensor.dtype) for tensor in tensors) for tensors in (batch.inputs, batch.targets)
    )
    return inputs, targets


@dataclasses.dataclass(frozen=True)
class Shape:
    """The tensors of a microbatch, for all stages: what the first and the last one read."""

    inputs: Kinds
    targets: Kinds


def of_batch(inputs: Kinds, targets: Kinds, microbatches: int) -> list[Shape]:
    """Returns the shape of each microbatch, or one for all."""

    def of(index: int) -> Shape:
        return Shape(_part(inputs, index, microbatches), _part(targets, index, microbatches))

    first, last = of(0), of(microbatches - 1)
    if first == last:
        return [first]
    samples = next(sizes[0] for sizes, _ in inputs if sizes)
    larger = samples % microbatches  # the first ones have one sample more
    return [first] * larger + [last] * (microbatches - larger)


def _part(kinds: Kinds, index: int, microbatches: int) -> Kinds:
    return tuple(
        ((weighting.sizes(sizes[0], microbatches)[index], *sizes[1:]), dtype) if sizes else (sizes, dtype)
        for sizes, dtype in kinds
    )


def of_processes(
    kinds: Sequence[Sequence[tuple[Kinds, Kinds]]], readers: Sequence[list[int]], microbatches: int
) -> list[list[Shape]]:
    """Returns the shapes of each batch.

    Args:
        kinds: by process and batch, of the inputs and targets that it was given.
        readers: the processes that read inputs, and the processes that read targets.

    Raises:
        Error: processes were given different batches.
    """
    all_shapes = []
    for number in range(len(kinds[0])):
        read: list[Kinds] = []
        for which, processes in enumerate(readers):
            for process in processes:
                if len(kinds[process]) != len(kinds[0]):
                    raise Error("steps: processes have different numbers of batches: pass the same")
                own, first = kinds[process][number][which], kinds[processes[0]][number][which]
                if own != first:
                    raise Error(
                        f"step: {('inputs', 'targets')[which]} are {shown(first)} on process "
                        f"{processes[0]}, but {shown(own)} on process {process}: pass "
                        "the same batch"
                    )
            read.append(kinds[processes[0]][number][which])
        all_shapes.append(of_batch(read[0], read[1], microbatches))
    return all_shapes


def shown(kinds: Kinds) -> str:
    return ", ".join(f"{dtype} {list(sizes)}" for sizes, dtype in kinds)


def with_factors(of_batch: Sequence[Shape], schedule: Schedule) -> list[Shape]:
    """Returns the shapes with the factor of the loss as the last target (batches.factors)."""
    shapes = []
    for each in of_batch:
        tokens = next((sizes[1] for sizes, _ in each.inputs if len(sizes) > 1), 0)
        sizes = (1, tokens) if schedule.slices > 1 else (1,)
        shapes.append(Shape(each.inputs, (*each.targets, (sizes, torch.float32))))
    return shapes


class ShapeNumbers:
    """The numbers under which the engine has programs, of the shapes that were used last."""

    def __init__(self, first: Shape) -> None:
        self._first = first
        self._numbers = {first: 0}  # the least recently used first
        self._last = 0

    def missing(self, wanted: Sequence[Shape]) -> list[Shape]:
        """Returns the shapes that have no number, each once."""
        return [each for each in dict.fromkeys(wanted) if each not in self._numbers]

    def of(self, shape: Shape) -> int | None:
        """Returns the number of a shape; None if it has none."""
        return self._numbers.get(shape)

    def add(self, shape: Shape) -> int:
        """Returns the number of a new shape."""
        self._last += 1
        self._numbers[shape] = self._last
        return self._last

    def use(self, wanted: Sequence[Shape]) -> list[int]:
        """Returns the numbers of shapes, which become the most recently used."""
        for shape in dict.fromkeys(wanted):
            self._numbers[shape] = self._numbers.pop(shape)
        return [self._numbers[shape] for shape in wanted]

    def drop_surplus(self, needed: Sequence[Shape]) -> list[int]:
        """Forgets shapes beyond the limit, except the first and these. Returns their numbers."""
        kept = {self._first, *needed}
        surplus = [shape for shape in self._numbers if shape not in kept]
        surplus = surplus[: max(0, len(self._numbers) - _MOST_SHAPES)]
        return [self._numbers.pop(shape) for shape in surplus]
