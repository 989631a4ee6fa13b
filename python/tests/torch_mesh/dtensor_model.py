"""Stages made by parallelize_module: DTensor parameters, a plan like torchtitan's, loss_parallel."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

VOCAB, DIM, HEADS, HIDDEN, TOKENS = 64, 32, 4, 64, 16


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        q, k, v = (
            w(x).view(b, t, -1, DIM // HEADS).transpose(1, 2) for w in (self.wq, self.wk, self.wv)
        )
        a = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(a.transpose(1, 2).reshape(b, t, -1))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w1, self.w3 = nn.Linear(DIM, HIDDEN), nn.Linear(DIM, HIDDEN, bias=False)
        self.w2 = nn.Linear(HIDDEN, DIM)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w2(nn.functional.silu(self.w1(x)) * self.w3(x))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(DIM), nn.LayerNorm(DIM)
        self.attention, self.feed_forward = Attention(), FeedForward()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class Stage(nn.Module):
    def __init__(self, index: int, count: int) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCAB, DIM) if index == 0 else None
        self.layers = nn.ModuleList([Layer()])
        last = index == count - 1
        self.norm = nn.RMSNorm(DIM) if last else None
        self.output = nn.Linear(DIM, VOCAB, bias=False) if last else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x if self.tok_embeddings is None else self.tok_embeddings(x)
        for layer in self.layers:
            x = layer(x)
        return x if self.norm is None else self.output(self.norm(x))


def parallelize(stage: Any, mesh: Any, *, sequence: bool, loss: bool) -> Any:
    """``sequence``: norms and residuals are on parts of the sequence. ``loss``: logits stay divided."""
    between = Shard(1) if sequence else Replicate()
    plan: dict[str, Any] = {}
    if stage.tok_embeddings is not None:
        plan["tok_embeddings"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=between)
    for index in range(len(stage.layers)):
        of = f"layers.{index}."
        if sequence:
            plan |= {of + "attention_norm": SequenceParallel(), of + "ffn_norm": SequenceParallel()}
        plan |= {
            of + "attention": PrepareModuleInput(
                input_layouts=(between,), desired_input_layouts=(Replicate(),)
            ),
            of + "attention.wq": ColwiseParallel(),
            of + "attention.wk": ColwiseParallel(),
            of + "attention.wv": ColwiseParallel(),
            of + "attention.wo": RowwiseParallel(output_layouts=between),
            of + "feed_forward": PrepareModuleInput(
                input_layouts=(between,), desired_input_layouts=(Replicate(),)
            ),
            of + "feed_forward.w1": ColwiseParallel(),
            of + "feed_forward.w2": RowwiseParallel(output_layouts=between),
            of + "feed_forward.w3": ColwiseParallel(),
        }
    if stage.output is not None:
        if sequence:
            plan["norm"] = SequenceParallel()
        plan["output"] = ColwiseParallel(
            input_layouts=between,
            output_layouts=Shard(-1) if loss else Replicate(),
            use_local_output=not loss,
        )
    return parallelize_module(stage, mesh, plan)


def loss_of(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), target.flatten())


def stages(count: int) -> list[nn.Module]:
    torch.manual_seed(1)
    return [Stage(index, count) for index in range(count)]


def batches(steps: int, samples: int = 8) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(100)
    tokens = [torch.randint(0, VOCAB, (samples, TOKENS + 1), generator=generator) for _ in range(steps)]
    return [(each[:, :-1].contiguous(), each[:, 1:].contiguous()) for each in tokens]
