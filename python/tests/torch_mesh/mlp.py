"""An MLP by functional collectives: column and then row parallel."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed import _functional_collectives as fc

SIZE, HIDDEN = 32, 64


class Enter(torch.autograd.Function):
    """Identity; the sum of gradients over the group (Megatron's f). Also for a weight of parts of the sequence."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        return fc.all_reduce(gradient.contiguous(), "sum", ctx.group), None


class Leave(torch.autograd.Function):
    """The sum over the group; identity for gradients (Megatron's g)."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        return fc.all_reduce(x, "sum", group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        return gradient, None


class Block(nn.Module):
    def __init__(self, hidden: int = HIDDEN, group: Any = None) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(SIZE), nn.Linear(SIZE, hidden), nn.Linear(hidden, SIZE, bias=False)
        self.bias = nn.Parameter(torch.zeros(SIZE))
        self.group = group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        if self.group is not None:
            h = Enter.apply(h, self.group)
        h = self.down(nn.functional.gelu(self.up(h)))
        if self.group is not None:
            h = Leave.apply(h, self.group)
        return x + h + self.bias


def dim_of(name: str) -> int | None:
    return {"up.weight": 0, "up.bias": 0, "down.weight": 1}.get(name)


def blocks(count: int) -> list[nn.Module]:
    torch.manual_seed(1)
    return [Block() for _ in range(count)]


def batches(steps: int, samples: int = 16) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(100)
    return [tuple(torch.randn(2, samples, SIZE, generator=generator)) for _ in range(steps)]  # type: ignore[misc]
