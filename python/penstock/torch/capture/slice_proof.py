"""Proves that a stage computes the same for sequence slices as for whole sequences.

Slices read nothing of later tokens, and of earlier ones only keys and values. Any other model would
train on other numbers. So before a stage is compiled, it runs on random tokens: whole, with other
later tokens, and in slices.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

from penstock import Error
from penstock.torch import slices
from penstock.torch.capture.collectives import RefuseCollectives
from penstock.torch.capture.stage_code import StageCode
from penstock.torch.devices import autocast_setting, device_of, forked_random

_SAMPLES = 2  # batch normalization needs more than one
_MOST_TOKENS = 2048  # attention takes memory for the square
_TRIES = 2  # a tie of experts may break another way once
_NORMS = nn.modules.batchnorm._BatchNorm  # they mix tokens only in training mode


def prove(
    code: StageCode, module: nn.Module, index: int, examples: list[torch.Tensor], targets: list[torch.Tensor] | None, count: int
) -> None:
    """Raises Error if the stage differs in slices.

    Args:
        index: of the stage in the model.
        examples: inputs of the first slice; a sliced stage has one.
        targets: likewise, of a last stage whose loss is a mean over tokens; else None.
        count: slices of a sequence.
    """
    if len(examples) != 1 or examples[0].dim() < 2:
        return  # the engine refuses it
    name = getattr(module, "model_name", type(module).__name__)
    generator = torch.Generator().manual_seed(index)
    try:
        with _as_trial(module, generator), RefuseCollectives():
            for left in reversed(range(_TRIES)):
                reason = _difference(code, examples[0], targets, count, generator)
                if reason is None:
                    return
                if left == 0:
                    raise Error(f"stage {index}: {name} {reason}, or train it without slices")
    finally:
        code.outputs = None  # as before its first forward


def _difference(
    code: StageCode, example: torch.Tensor, targets: list[torch.Tensor] | None, count: int, generator: torch.Generator
) -> str | None:
    length = min(example.shape[1], _MOST_TOKENS // count)
    value = _random_like(example, length * count, generator)
    other = value.clone()
    other[:, length:] = _random_like(example, length * (count - 1), generator)
    whole, again, changed = (_run(code, [each])[0] for each in (value, value, other))
    if whole.dim() < 2 or whole.shape[1] != value.shape[1]:
        return None  # the engine refuses it, or it is a loss
    if _differ(whole[:, :length], changed[:, :length]):
        return "is not causal: what it returns for a token depends on later tokens, which slices do not see: mask them"
    if _differ(whole, again):
        return None  # it draws random numbers also in eval mode
    parts = _run(code, _columns(value, length))
    if _differ(whole, torch.cat(parts, 1)):
        return (
            "returns other numbers for slices than for whole sequences: a layer reads more of "
            "earlier tokens than the keys and values that penstock.torch.slices keeps, or does not "
            "start its positions where the slice does: use current().extend and current().start"
        )
    return None if targets is None else _loss_difference(code, whole, targets, length)


def _loss_difference(code: StageCode, outputs: torch.Tensor, targets: list[torch.Tensor], length: int) -> str | None:
    tokens, generator = outputs.shape[1], torch.Generator().manual_seed(0)
    whole_targets = [
        each.new_full((_SAMPLES, tokens, *each.shape[2:]), int(each.max()))
        if not each.is_floating_point()  # no value that the loss may ignore, such as -100
        else _random_like(each, tokens, generator)
        for each in targets
    ]
    columns = [_columns(each, length) for each in whole_targets]
    whole = code.loss([outputs], whole_targets)[0]
    parts = [code.loss([part], [column[index] for column in columns])[0] for index, part in enumerate(_columns(outputs, length))]
    if _differ(whole.reshape(1, 1), torch.stack(parts).mean().reshape(1, 1)):
        return (
            "has a loss that is not the mean over its tokens (a sum, or targets that are shifted "
            "within the loss), so that slices would train another one: shift targets outside"
        )
    return None


def _columns(value: torch.Tensor, length: int) -> list[torch.Tensor]:
    return [value[:, at : at + length] for at in range(0, value.shape[1], length)]


def _run(code: StageCode, parts: list[torch.Tensor]) -> list[torch.Tensor]:
    """Returns the outputs of consecutive parts of a sequence, with the same random numbers."""
    torch.manual_seed(0)
    outputs = []
    kept: list[list[slices.KeysValues]] = []
    start = 0
    for part in parts:
        code.outputs = None
        with slices.trial(start, kept):
            outputs.append(code.forward([part])[0].detach().clone())
        start += part.shape[1]
    return outputs


def _differ(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether a token differs by more than rounding."""
    rounding = 1e-3
    is_cast = autocast_setting(one.device) is not None
    if one.dtype not in (torch.float32, torch.float64) or is_cast:
        rounding = 0.1
    one, other = one.double(), other.double()
    if not torch.isfinite(one).all() or not torch.isfinite(other).all():
        return not torch.equal(one.isfinite(), other.isfinite())
    size = one.square().mean().sqrt()
    gap = (one - other).square()
    of_token = gap.flatten(2).mean(2) if gap.dim() > 2 else gap
    return bool(of_token.max().sqrt() > rounding * size)


def _random_like(example: torch.Tensor, tokens: int, generator: torch.Generator) -> torch.Tensor:
    """Returns normal numbers, or numbers of tokens that the example has."""
    shape = (_SAMPLES, tokens, *example.shape[2:])
    if example.is_floating_point():
        return torch.randn(shape, generator=generator).to(example)
    highest = int(example.max()) if example.numel() > 0 else 0
    return torch.randint(0, max(highest, 0) + 1, shape, generator=generator).to(example)


@contextlib.contextmanager
def _as_trial(module: nn.Module, generator: torch.Generator) -> Iterator[None]:
    """Random weights, so that zeros hide nothing, and no dropout. Restores everything."""
    modes = [(each, each.training) for each in module.modules()]
    tensors = [each.detach() for each in (*module.parameters(), *module.buffers())]
    copies = [each.clone() for each in tensors]
    try:
        with forked_random(device_of(module)), torch.no_grad():
            for each, _ in modes:
                each.training = isinstance(each, _NORMS)
            for weight in module.parameters():
                if weight.is_floating_point():
                    scale = weight[0].numel() ** -0.5 if weight.dim() > 1 else 0.1
                    noise = torch.randn(weight.shape, generator=generator).to(weight) * scale
                    weight.copy_(noise if weight.dim() > 1 else weight + noise)
            yield
    finally:
        for each, mode in modes:
            each.training = mode
        with torch.no_grad():
            for tensor, copy in zip(tensors, copies, strict=True):
                tensor.copy_(copy)
