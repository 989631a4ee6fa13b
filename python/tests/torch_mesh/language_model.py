"""A language model by functional collectives, with sequence parallelism and a vocabulary-parallel loss.

Between blocks, each rank has its part of the sequence. An all-gather starts attention and the MLP,
a reduce-scatter ends them. Norms on parts of the sequence are the same on all ranks, and the sum of
their gradients is an all-reduce that only weights need.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as fc
from torch_mesh.mlp import Enter, Leave

VOCAB, DIM, HEADS, KV, HIDDEN, TOKENS = 64, 32, 4, 2, 64, 16


def gather(x: torch.Tensor, group: Any) -> torch.Tensor:
    """[b, t/n, d] -> [b, t, d]; gradient: reduce-scatter."""
    if group is None:
        return x
    return fc.all_gather_tensor_autograd(x.transpose(0, 1).contiguous(), 0, group).transpose(0, 1)


def scatter(x: torch.Tensor, group: Any) -> torch.Tensor:
    """The sum over the group, divided along the sequence; gradient: all-gather."""
    if group is None:
        return x
    x = x.transpose(0, 1).contiguous()
    return fc.reduce_scatter_tensor_autograd(x, "sum", 0, group).transpose(0, 1)


class Norm(nn.Module):
    def __init__(self, group: Any) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(DIM)), nn.Parameter(torch.zeros(DIM))
        self.group = group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, bias = self.weight, self.bias
        if self.group is not None:
            weight, bias = Enter.apply(weight, self.group), Enter.apply(bias, self.group)
        return nn.functional.layer_norm(x, (DIM,), weight, bias)


class Layer(nn.Module):
    def __init__(self, group: Any = None) -> None:
        super().__init__()
        n = 1 if group is None else dist.get_world_size(group)
        self.group, self.heads, self.kv = group, HEADS // n, KV // n
        head = DIM // HEADS
        self.norm1, self.norm2 = Norm(group), Norm(group)
        self.q = nn.Linear(DIM, self.heads * head, bias=False)
        self.k = nn.Linear(DIM, self.kv * head, bias=False)
        self.v = nn.Linear(DIM, self.kv * head, bias=False)
        self.o = nn.Linear(self.heads * head, DIM, bias=False)
        self.up = nn.Linear(DIM, HIDDEN // n, bias=False)
        self.gate = nn.Linear(DIM, HIDDEN // n, bias=False)
        self.down = nn.Linear(HIDDEN // n, DIM, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = gather(self.norm1(x), self.group)
        b, t, _ = h.shape
        q = self.q(h).view(b, t, self.heads, -1).transpose(1, 2)
        k = self.k(h).view(b, t, self.kv, -1).transpose(1, 2)
        v = self.v(h).view(b, t, self.kv, -1).transpose(1, 2)
        k, v = (e.repeat_interleave(self.heads // self.kv, 1) for e in (k, v))
        a = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + scatter(self.o(a.transpose(1, 2).reshape(b, t, -1)), self.group)
        h = gather(self.norm2(x), self.group)
        return x + scatter(self.down(nn.functional.silu(self.gate(h)) * self.up(h)), self.group)


class Embed(nn.Module):
    """Rows of the vocabulary are divided; the sum over the ranks is scattered."""

    def __init__(self, group: Any = None) -> None:
        super().__init__()
        n = 1 if group is None else dist.get_world_size(group)
        self.group, self.rows = group, VOCAB // n
        self.first = 0 if group is None else dist.get_rank(group) * self.rows
        self.weight = nn.Parameter(torch.randn(self.rows, DIM) * 0.1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        local = tokens - self.first
        inside = (local >= 0) & (local < self.rows)
        found = nn.functional.embedding(torch.where(inside, local, 0), self.weight)
        return scatter(found * inside.unsqueeze(-1).to(found.dtype), self.group)


class Head(nn.Module):
    def __init__(self, group: Any = None) -> None:
        super().__init__()
        n = 1 if group is None else dist.get_world_size(group)
        self.group, self.norm = group, Norm(group)
        self.weight = nn.Parameter(torch.randn(VOCAB // n, DIM) * 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(gather(self.norm(x), self.group), self.weight)


def make_loss(group: Any) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    def loss_of(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        logits = logits.float()
        if group is None:
            return nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
        rows = logits.shape[-1]
        top = fc.all_reduce(logits.detach().amax(-1), "max", group)
        shifted = logits - top.unsqueeze(-1)
        total = Leave.apply(shifted.exp().sum(-1), group)
        local = target - dist.get_rank(group) * rows
        inside = (local >= 0) & (local < rows)
        own = shifted.gather(-1, torch.where(inside, local, 0).unsqueeze(-1)).squeeze(-1)
        own = Leave.apply(own * inside.to(own.dtype), group)
        return (total.log() - own).mean()

    return loss_of


DIVIDED = {"q": 0, "k": 0, "v": 0, "o": 1, "up": 0, "gate": 0, "down": 1}


def dim_of(name: str) -> int | None:
    if name in ("head.weight", "embed.weight"):
        return 0
    return DIVIDED.get(name.split(".")[-2])


class Stage(nn.Module):
    def __init__(self, index: int, count: int, layers: int, group: Any = None) -> None:
        super().__init__()
        self.embed = Embed(group) if index == 0 else None
        self.layers = nn.ModuleList(Layer(group) for _ in range(layers))
        self.head = Head(group) if index == count - 1 else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.embed is not None:
            x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return x if self.head is None else self.head(x)


def stages(count: int, group: Any = None) -> list[nn.Module]:
    torch.manual_seed(1)
    return [Stage(index, count, 1, group) for index in range(count)]


def batches(steps: int, samples: int = 8) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(100)
    tokens = [torch.randint(0, VOCAB, (samples, TOKENS + 1), generator=generator) for _ in range(steps)]
    return [(each[:, :-1].contiguous(), each[:, 1:].contiguous()) for each in tokens]
