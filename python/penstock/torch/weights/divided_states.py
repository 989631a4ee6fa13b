"""States of optimizers of DTensors: optimizers have own parts, or whole tensors, and checkpoints have DTensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from penstock.torch.mesh.dtensors import like, own_part, value_of
from penstock.torch.weights.stage_optimizer import StageOptimizer


def with_dtensors(state: dict[str, Any], stepper: StageOptimizer) -> dict[str, Any]:
    """Returns a ``state_dict`` of a stage's optimizer with DTensors in place of own parts, or of tensors of all elements."""

    def of_whole(each: torch.Tensor, whole: Any) -> Any:
        return like(own_part(each, whole), whole) if each.shape == whole.shape else each

    return _mapped(state, stepper, of_whole if stepper.has_wholes else like)


def without_dtensors(state: dict[str, Any], stepper: StageOptimizer) -> dict[str, Any]:
    """Returns a ``state_dict`` with what the stage's optimizer has in place of DTensors and of tensors of all elements."""
    return _mapped(state, stepper, (lambda each, whole: value_of(each)) if stepper.has_wholes else own_part)


def _mapped(state: dict[str, Any], stepper: StageOptimizer, change: Callable[[Any, Any], Any]) -> dict[str, Any]:
    wholes, optimizer = stepper.weights.whole_of, stepper.optimizer
    if not wholes or optimizer is None or not isinstance(state, dict) or not isinstance(state.get("state"), dict):
        return state
    of_known = {id(known): wholes.get(id(part)) for known, part in zip(stepper.known, stepper.weights.updated, strict=True)}
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    changed = dict(state["state"])
    for number, parameter in enumerate(parameters):
        of: Mapping[str, Any] = changed.get(number, {})
        whole = of_known.get(id(parameter))
        if whole is not None and number in changed:
            changed[number] = {k: change(each, whole) if _has_elements(each) else each for k, each in of.items()}
    return {**state, "state": changed}


def _has_elements(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0
