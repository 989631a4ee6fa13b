"""split: the stages of a model that was written as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from penstock import Error
from penstock.torch.batches import Structure
from penstock.torch.capture import refuse_hooks
from penstock.torch.splitting import balance, by_graph, by_layers


def split(
    model: nn.Module, inputs: Any, stages: int | Sequence[str], *, by: str = "even"
) -> list[nn.Module]:
    """Divides a model into stages that share its parameters and buffers.

    If stages begin at layers that hand one tensor from layer to layer, each stage runs the model's
    own code with the other layers left out. Otherwise the model is traced by torch.export, and its
    graph is cut; values that later stages read (skip connections) are carried along the chain.

    Args:
        model: on the CPU, in the mode (``train()`` or ``eval()``) in which it will run.
        inputs: of one microbatch: a tensor, a tuple of positional arguments, or a dict of keyword
            arguments. Stages that are cut from a graph take inputs of these shapes only.
        stages: the names of the modules that begin stages 1, 2, ... (``"model.layers.4"``), in the
            order in which they run; or the number of stages, which then begin at layers.
        by: with a number: ``"even"`` for equal numbers of layers, ``"cost"`` for equal measured
            times of forwards.

    Returns:
        The stages. The first takes ``inputs``, and the last returns what the model returns.

    Raises:
        Error: a name is not a module that the model calls, or torch.export cannot trace the model;
            says where.
    """
    refuse_hooks(model, 0)
    names = (
        balance.boundaries(model, inputs, stages, by) if isinstance(stages, int) else list(stages)
    )
    known = dict(model.named_modules())
    for name in names:
        if name not in known:
            raise Error(
                f"split: the model has no module '{name}': choose from model.named_modules()"
            )
    made = by_layers.cut(model, inputs, names)
    if made is not None and _is_same(model, made, inputs):
        return made
    return by_graph.cut(model, inputs, names)


def call(module: nn.Module, inputs: Any) -> Any:
    """Calls a module with the inputs of `split`."""
    if type(inputs) is dict:
        return module(**inputs)
    return module(*inputs) if isinstance(inputs, (tuple, list)) else module(inputs)


def _is_same(model: nn.Module, stages: list[nn.Module], inputs: Any) -> bool:
    """Whether the chain computes what the model does, on these inputs without random ops."""
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            value = inputs
            for stage in stages:
                value = call(stage, value)
            expected, actual = Structure.of(call(model, inputs)), Structure.of(value)
    finally:
        for module, mode in training.items():
            module.training = mode
    same = len(expected[1]) == len(actual[1])
    return same and all(torch.equal(a, b) for a, b in zip(expected[1], actual[1], strict=True))
