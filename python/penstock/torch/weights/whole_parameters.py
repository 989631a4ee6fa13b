"""Whole parameters, for optimizers that need them: each update gathers values and gradients, and keeps the own parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed
from torch import nn

from penstock import Error
from penstock.torch.engine import engine
from penstock.torch.weights.weights import StageWeights

dist: Any = torch.distributed


@dataclasses.dataclass(frozen=True)
class Division:
    """How the ranks of a group divide a parameter: along one dimension, in the order of the ranks."""

    group: str
    dim: int
    sizes: tuple[int, ...]  # by rank
    shape: torch.Size  # of the whole parameter

    @staticmethod
    def of(what: str, group: str, own: nn.Parameter, whole: Any) -> Division:
        """``what``: "stage 1: parameter 'weight'". ``own``: this process's part. ``whole``: the DTensor whose part it is, or None."""
        if whole is None:
            return Division._of_plain(what, group, own)
        place = next(each for each in whole.placements if not each.is_replicate())
        if type(place).__name__ != "Shard":
            raise Error(f"{what} has the placements {whole.placements}, but its optimizer needs whole tensors: redistribute it to Shard")
        ranks, dim = _resolved(group).size(), place.dim % whole.dim()
        chunks = [each.numel() for each in torch.empty(whole.shape[dim], device="meta").chunk(ranks)]
        return Division(group, dim, (*chunks, *[0] * (ranks - len(chunks))), whole.shape)

    @staticmethod
    def _of_plain(what: str, group: str, own: nn.Parameter) -> Division:
        """For a part that is a plain tensor. All ranks of the group call it."""
        dim = getattr(own, "partition_dim", None)
        if not isinstance(dim, int) or not -own.dim() <= dim < own.dim():
            raise Error(
                f"{what} is a part of a larger one, whose optimizer needs whole tensors: set partition_dim on it, the dimension that the "
                "ranks divide, or use an optimizer that updates each element by itself, such as penstock.torch.AdamW"
            )
        dim %= own.dim()
        sizes = tuple(_all_gather(torch.tensor([own.shape[dim]]), group).tolist())
        return Division(group, dim, sizes, torch.Size((*own.shape[:dim], sum(sizes), *own.shape[dim + 1 :])))

    def elements(self) -> list[int]:
        """Returns how many elements each rank has."""
        row = self.shape[: self.dim].numel() * self.shape[self.dim + 1 :].numel()
        return [size * row for size in self.sizes]

    def join(self, parts: Iterable[torch.Tensor]) -> torch.Tensor:
        """Returns the whole tensor of the ranks' flat parts."""
        shapes = [(*self.shape[: self.dim], size, *self.shape[self.dim + 1 :]) for size in self.sizes]
        return torch.cat([part.view(shape) for part, shape in zip(parts, shapes, strict=True)], self.dim)

    def own_of(self, whole: torch.Tensor) -> torch.Tensor:
        """Returns this rank's part."""
        rank = _resolved(self.group).rank()
        return whole.narrow(self.dim, sum(self.sizes[:rank]), self.sizes[rank])


class WholeParameters:
    """What an optimizer updates in place of the stage's own parts. Parameters that no group divides are the stage's own."""

    def __init__(self, weights: StageWeights, before: WholeParameters | None = None) -> None:
        """All ranks of the groups call it. ``before``: of earlier weights; parts that it has keep their whole parameters.

        The parameters have no values before `gather`.
        """
        self._masters, wholes = weights.masters, weights.whole_of
        self._divisions: list[Division | None] = []
        for (name, _), own, master in zip(weights.parameters, weights.own, weights.masters, strict=True):
            what, group = f"stage {weights.stage}: parameter '{name}'", weights.divided.get(name)
            self._divisions.append(Division.of(what, group, own, wholes.get(id(master))) if group else None)
        known = {} if before is None else dict(zip(map(id, before._masters), before.parameters, strict=True))
        #: In the order of the stage's parameters.
        self.parameters: list[nn.Parameter] = [
            known.get(id(master), master if of is None else nn.Parameter(master.detach().new_zeros(of.shape)))
            for master, of in zip(self._masters, self._divisions, strict=True)
        ]

    @torch.no_grad()
    def gather(self, gradients: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """Gives the parameters the values that their parts have now. Returns their gradients.

        All ranks of the groups call it, with gradients of the same parameters.
        """
        found = list(gradients)
        for group in sorted({each.group for each in self._divisions if each is not None}):
            numbers = [number for number, each in enumerate(self._divisions) if each is not None and each.group == group]
            parts = [(number, self._masters[number].detach()) for number in numbers]
            parts += [(number, each) for number in numbers if (each := gradients[number]) is not None]
            for index, ((number, _), whole) in enumerate(zip(parts, self._joined(group, parts), strict=True)):
                parameter = self.parameters[number]
                if index < len(numbers):
                    parameter.copy_(whole)
                else:
                    found[number] = whole.to(parameter.dtype)
        return found

    def _joined(self, group: str, parts: Sequence[tuple[int, torch.Tensor]]) -> list[torch.Tensor]:
        """Returns whole tensors, by one call of the group. ``parts``: numbers of parameters, and tensors placed as these."""
        divisions = [of for number, _ in parts if (of := self._divisions[number]) is not None]
        sizes = [list(of_rank) for of_rank in zip(*(each.elements() for each in divisions), strict=True)]
        own = torch.cat([part.reshape(-1) for _, part in parts])
        padded = nn.functional.pad(own, (0, max(map(sum, sizes)) - own.numel()))
        rows = _all_gather(padded, group).view(len(sizes), -1)
        of_ranks = [row[: sum(of_rank)].split(of_rank) for row, of_rank in zip(rows, sizes, strict=True)]
        return [division.join(pieces) for division, pieces in zip(divisions, zip(*of_ranks, strict=True), strict=True)]

    def give_back(self) -> None:
        """Gives the parts the values that the parameters have now."""
        for master, parameter, division in zip(self._masters, self.parameters, self._divisions, strict=True):
            if division is not None:
                master.copy_(division.own_of(parameter))


def _all_gather(tensor: torch.Tensor, group: str) -> torch.Tensor:
    gathered: torch.Tensor = torch.ops.penstock.c10d_all_gather(tensor, _resolved(group).size(), engine.number_of_group(group))
    return gathered


def _resolved(group: str) -> Any:
    return dist.distributed_c10d._resolve_process_group(group)
