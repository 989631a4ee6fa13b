"""split: the stages of a model that was written as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from penstock import Error
from penstock.torch.arguments import shown, whole
from penstock.torch.batches import Structure
from penstock.torch.capture import in_user_code, refuse_hooks
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
    _check_arguments(model, stages, by)
    refuse_hooks(model, 0)
    with in_user_code("split: the model"):
        if isinstance(stages, int):
            return _split(model, inputs, balance.boundaries(model, inputs, stages, by))
        return _split(model, inputs, list(stages))


def _check_arguments(model: Any, stages: Any, by: Any) -> None:
    if not isinstance(model, nn.Module):
        raise Error(f"split: the model is {shown(model)}: pass a torch.nn.Module")
    if not isinstance(by, str) or by not in ("even", "cost"):
        raise Error(f"split: by is {shown(by)}: give 'even' or 'cost'")
    if isinstance(stages, int):
        whole("split: stages", stages, 1)
        return
    is_list = isinstance(stages, Sequence) and not isinstance(stages, (str, bytes))
    if not is_list or not all(isinstance(name, str) for name in stages):
        raise Error(
            f"split: stages is {shown(stages)}: give the number of stages, or a list of the names "
            "of the modules that begin stages 1, 2, ..."
        )
    known = dict(model.named_modules())
    for index, name in enumerate(stages):
        if name not in known:
            raise Error(
                f"split: the model has no module '{name}': choose from model.named_modules()"
            )
        if name in stages[:index]:
            raise Error(f"split: '{name}' begins two stages: name a module once")


def _split(model: nn.Module, inputs: Any, names: Sequence[str]) -> list[nn.Module]:
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
