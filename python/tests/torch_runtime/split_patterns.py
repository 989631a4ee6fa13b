"""Stages whose backwards are hard to divide into I and W."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

WIDTH = 6

_Function = Callable[[Any, torch.Tensor], torch.Tensor]


class Stage(nn.Module):
    """Computes a function of its layers and its input."""

    def __init__(self, function: _Function) -> None:
        super().__init__()
        self.function = function
        self.a, self.b, self.wide = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.norm, self.batch_norm, self.conv = nn.LayerNorm(WIDTH), nn.BatchNorm1d(WIDTH), nn.Conv1d(1, 1, 3, padding=1)
        self.scale, self.cell = nn.Parameter(torch.tensor(1.5)), nn.GRUCell(WIDTH, WIDTH)
        self.mixed = nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))
        self.table = nn.Embedding(8, WIDTH)
        self.frozen = nn.Parameter(torch.linspace(0.5, 1.5, WIDTH), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x).contiguous()  # Gloo sends no others.


class _Cube(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        (x,) = context.saved_tensors
        return gradient * 3 * x**2


def _loop(s: Any, x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = x + torch.tanh(s.a(x))
    return x


def _attention(s: Any, x: torch.Tensor) -> torch.Tensor:
    q, k, v = s.wide(x).view(1, -1, 3, WIDTH).unbind(2)
    return functional.scaled_dot_product_attention(q[None], k[None], v[None])[0, 0]


def _in_place(s: Any, x: torch.Tensor) -> torch.Tensor:
    y = s.a(x)
    y[:, :2] += s.b(x)[:, 2:4]
    return y.relu_()


def _recurrent(s: Any, x: torch.Tensor) -> torch.Tensor:
    h = torch.zeros_like(x)
    for _ in range(2):
        h = s.cell(x, h)
    return h


def _routed(s: Any, x: torch.Tensor) -> torch.Tensor:
    values, chosen = s.a(x).topk(2, dim=-1)
    return s.b(x).scatter_add(1, chosen, values)


#: By name. Each stage has the shape of its input.
PATTERNS: dict[str, _Function] = {
    "once": lambda s, x: torch.tanh(s.a(x)),
    "twice on a path": lambda s, x: torch.tanh(s.a(torch.tanh(s.a(x)))),
    "twice without a function between": lambda s, x: s.a(s.a(x)),
    "three times": lambda s, x: s.a(torch.tanh(s.a(torch.tanh(s.a(x))))),
    "on two paths": lambda s, x: s.a(torch.tanh(x)) + torch.tanh(s.a(x)),
    "residual loop": _loop,
    "transposed": lambda s, x: torch.tanh(s.a(x)) @ s.a.weight,
    "weight times weight": lambda s, x: x @ (s.a.weight @ s.b.weight),
    "weight of a weight": lambda s, x: functional.linear(x, torch.tanh(s.a.weight) * s.b.weight),
    "bias only": lambda s, x: x + s.a.bias,
    "bias twice": lambda s, x: torch.tanh(x + s.a.bias) + s.a.bias,
    "scalar": lambda s, x: s.scale * torch.tanh(s.scale * x),
    "expanded": lambda s, x: x * s.a.bias.expand(x.shape[0], WIDTH) + s.a(x),
    "gated": lambda s, x: torch.sigmoid(s.a(x)) * s.b(x),
    "several intermediates": lambda s, x: torch.tanh(s.a(x)) + torch.tanh(s.b(x)) + s.norm(x),
    "layer norm": lambda s, x: s.b(functional.gelu(s.a(s.norm(x)))) + x,
    "norm twice": lambda s, x: s.norm(torch.tanh(s.norm(x))),
    "batch norm": lambda s, x: s.batch_norm(s.a(x)),
    "convolution": lambda s, x: s.conv(x.unsqueeze(1)).squeeze(1),
    "convolution twice": lambda s, x: s.conv(torch.tanh(s.conv(x.unsqueeze(1)))).squeeze(1),
    "attention": _attention,
    "chunks": lambda s, x: sum(each * (index + 1) for index, each in enumerate(s.wide(x).chunk(3, dim=-1))),
    "slice": lambda s, x: s.wide(x)[:, WIDTH : 2 * WIDTH],
    "row sums": lambda s, x: s.a(x).sum(0, keepdim=True) * s.b(x),
    "softmax": lambda s, x: torch.softmax(s.a(x), dim=-1) @ s.b.weight,
    "log-sum-exp": lambda s, x: s.a(x) - torch.logsumexp(s.b(x), dim=-1, keepdim=True),
    "maximum": lambda s, x: torch.maximum(s.a(x), s.b(x)),
    "where": lambda s, x: torch.where(x > 0, s.a(x), s.b(x)),
    "cumulative": lambda s, x: torch.cumsum(s.a(x), dim=0),
    "outer product": lambda s, x: torch.einsum("bi,bj,ij->bj", s.a(x), s.b(x), s.a.weight),
    "in place": _in_place,
    "recurrent": _recurrent,
    "top k": _routed,
    "embedding": lambda s, x: x + s.table(torch.arange(x.shape[0], device=x.device)),
    "embedding twice": lambda s, x: (x + s.table.weight[:1]) @ s.table.weight.t() @ s.table.weight,
    "weight norm": lambda s, x: torch.tanh(s.mixed(torch.tanh(s.mixed(x)))),
    "detached path": lambda s, x: s.a(x) * torch.tanh(s.b(x)).detach() + s.b(x),
    "frozen": lambda s, x: s.a(s.frozen * torch.tanh(s.a(x))),
    "custom function": lambda s, x: _Cube.apply(s.a(torch.tanh(s.a(x)))),
    "checkpoint": lambda s, x: checkpoint(lambda y: torch.tanh(s.a(torch.tanh(s.a(y)))), x, use_reentrant=False),
    "clamped": lambda s, x: s.a(x).clamp(-0.5, 0.5) + s.b(x.abs()),
    "normalized": lambda s, x: functional.normalize(s.a(x), dim=-1) @ functional.normalize(s.a.weight, dim=0),
}
