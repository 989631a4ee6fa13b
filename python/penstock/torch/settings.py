"""Checks of a Pipeline's arguments."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from penstock import Error, Schedule
from penstock.torch.arguments import flag, function, in_code_of, number, shown, whole


def check(given: dict[str, Any]) -> None:
    """Raises Error for a wrong value among the keyword arguments of Pipeline."""
    for name in ("ranks", "microbatches", "threads"):
        if given[name] is not None:
            whole(name, given[name], 1, ", or leave it out")
    if given["seed"] is not None:
        whole("seed", given["seed"])
    whole("slices", given["slices"], 1)
    for name in ("skip_nonfinite", "exact", "outputs"):
        flag(name, given[name])
    wanted = "give the largest norm, inf to measure it only, or 0 for no limit"
    norm = number("clip_grad_norm", given["clip_grad_norm"], wanted)
    if not norm >= 0:
        raise Error(f"clip_grad_norm is {norm}: {wanted}")
    timeout = number("timeout", given["timeout"], "give seconds above 0")
    if not 0 < timeout < 1e9:
        raise Error(f"timeout is {given['timeout']}: give seconds above 0")
    function("loss", given["loss"], "the last stage's output and the targets")
    function("loss_weight", given["loss_weight"], "the targets of a microbatch")
    function("optimizer", given["optimizer"], "a list of parameters")
    function("lr_scheduler", given["lr_scheduler"], "an optimizer")
    if given["lr_scheduler"] is not None and given["optimizer"] is None:
        raise Error("lr_scheduler needs an optimizer, which is None: leave lr_scheduler out")


def stage_list(stages: Any) -> list[nn.Module | None]:
    """Returns the stages that a Pipeline was given."""
    is_list = isinstance(stages, Sequence) and not isinstance(stages, (str, bytes))
    if not is_list and not isinstance(stages, (nn.ModuleList, nn.Sequential)):
        raise Error(
            f"stages is {shown(stages)}: pass a list of modules; penstock.torch.split divides a "
            "model"
        )
    return list(stages)


def check_module(module: Any, index: int) -> None:
    """Raises Error if a stage of this process is no module, or not ready to be trained."""
    if not isinstance(module, nn.Module):
        raise Error(
            f"stages[{index}] is {shown(module)}: pass the module of every stage that this "
            "process runs"
        )
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if nn.parameter.is_lazy(tensor):
            raise Error(
                f"stage {index}: '{name}' is not initialized, as in nn.LazyLinear: run the "
                "modules once on a batch before the Pipeline is made"
            )


def check_weighting(schedule: Schedule, loss_weight: Any) -> None:
    """Raises Error if the schedule updates after each microbatch, which then has no weight."""
    if loss_weight is not None and schedule.weights != "flush":
        raise Error(
            f"loss_weight: schedule {schedule.algorithm!r} updates weights within a batch, so that "
            "its microbatches have no common mean: choose another schedule"
        )


def make_scheduler(make: Any, optimizer: torch.optim.Optimizer | None) -> Any:
    """Returns the learning-rate scheduler of a stage; None without an optimizer."""
    if optimizer is None:
        return None
    with in_code_of("lr_scheduler"):
        made = make(optimizer)
    step = getattr(made, "step", None)
    if not callable(step):
        raise Error(f"lr_scheduler returned {shown(made)}: return a scheduler, with a step()")
    needed = [
        name
        for name, each in inspect.signature(step).parameters.items()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if needed:
        raise Error(
            f"lr_scheduler: {type(made).__name__}.step needs {', '.join(needed)}: leave "
            "lr_scheduler out, make it for each of pipe.optimizers, and call its step yourself"
        )
    return made
