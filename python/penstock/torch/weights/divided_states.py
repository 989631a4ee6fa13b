"""States of optimizers of DTensors: the engine has their own parts, and checkpoints have DTensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from penstock.torch.mesh.dtensors import like, own_part
from penstock.torch.weights.weights import StageWeights


def with_dtensors(state: dict[str, Any], optimizer: torch.optim.Optimizer, weights: StageWeights) -> dict[str, Any]:
    """Returns a ``state_dict`` of an optimizer with DTensors in place of their own parts."""
    return _mapped(state, optimizer, weights, lambda each, whole: like(each, whole) if each.dim() > 0 else each)


def with_parts(state: dict[str, Any], optimizer: torch.optim.Optimizer, weights: StageWeights) -> dict[str, Any]:
    """Returns a ``state_dict`` with own parts in place of DTensors and of tensors of all elements."""
    return _mapped(state, optimizer, weights, lambda each, whole: own_part(each, whole) if each.dim() > 0 else each)


def _mapped(
    state: dict[str, Any], optimizer: torch.optim.Optimizer, weights: StageWeights, change: Callable[[Any, Any], Any]
) -> dict[str, Any]:
    wholes = weights.whole_of
    if not wholes or not isinstance(state, dict) or not isinstance(state.get("state"), dict):
        return state
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    changed = dict(state["state"])
    for number, parameter in enumerate(parameters):
        of: Mapping[str, Any] = changed.get(number, {})
        whole = wholes.get(id(parameter))
        if whole is not None:
            changed[number] = {k: change(each, whole) if isinstance(each, torch.Tensor) else each for k, each in of.items()}
            if number not in state["state"]:
                del changed[number]
    return {**state, "state": changed}
