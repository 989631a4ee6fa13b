"""A small transformer in stages, its batches, and its training by plain autograd."""

from __future__ import annotations

import torch
from torch import nn

VOCABULARY, WIDTH, HEADS, LENGTH, BLOCKS = 16, 8, 2, 4, 8
ATTENTION = (3, 8)
MICROBATCHES, STEPS, RATE = 8, 2, 0.1


class Attention(nn.Module):
    """Causal attention. Input and output: (samples, LENGTH, WIDTH)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        samples = x.shape[0]
        heads = self.qkv(self.norm(x)).view(samples, LENGTH, 3, HEADS, WIDTH // HEADS)
        q, k, v = (part.transpose(1, 2) for part in heads.unbind(2))
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(attended.transpose(1, 2).reshape(samples, LENGTH, WIDTH))


class Mlp(nn.Module):
    """A layer that works on each token. Input and output: (samples, LENGTH, WIDTH)."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + nn.functional.gelu(self.inner(x))


def layers() -> list[nn.Module]:
    """Returns all layers: the embedding, the blocks and the head, the same on every rank."""
    made: list[nn.Module] = []
    for index in range(BLOCKS + 2):
        torch.manual_seed(index)
        if index == 0:
            made.append(nn.Embedding(VOCABULARY, WIDTH))
        elif index <= BLOCKS:
            # Few of the slow ones: the tests train with every schedule.
            made.append(Attention() if index in ATTENTION else Mlp())
        else:
            made.append(nn.Linear(WIDTH, VOCABULARY))
    return made


def split(stages: int) -> list[nn.Sequential]:
    """Returns the model in stages with as many blocks each. Blocks must divide evenly."""
    embedding, *blocks, head = layers()
    per_stage = BLOCKS // stages
    parts = [blocks[stage * per_stage : (stage + 1) * per_stage] for stage in range(stages)]
    parts[0] = [embedding, *parts[0]]
    parts[-1] = [*parts[-1], head]
    return [nn.Sequential(*part) for part in parts]


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns tokens and their targets, (2 * MICROBATCHES, LENGTH) each."""
    torch.manual_seed(1000 + step)
    tokens = torch.randint(VOCABULARY, (2 * MICROBATCHES, LENGTH + 1))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def loss_fn(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def update(modules: list[nn.Module]) -> None:
    with torch.no_grad():
        for module in modules:
            for parameter in module.parameters():
                parameter -= RATE * parameter.grad
                parameter.grad = None


def gradients(module: nn.Module) -> list[torch.Tensor]:
    return [parameter.grad.clone() for parameter in module.parameters()]


def train_plainly() -> list[tuple[list[torch.Tensor], list[torch.Tensor]]]:
    """Returns the losses of the microbatches and the gradients of all parameters of each step."""
    model = nn.Sequential(*layers())
    results = []
    for step in range(STEPS):
        tokens, targets = batch(step)
        losses = []
        for inputs, wanted in zip(tokens.chunk(MICROBATCHES), targets.chunk(MICROBATCHES), strict=True):
            losses.append(loss_fn(model(inputs), wanted))
            losses[-1].backward()
        for parameter in model.parameters():
            parameter.grad.div_(MICROBATCHES)
        results.append(([loss.detach() for loss in losses], gradients(model)))
        update([model])
    return results
