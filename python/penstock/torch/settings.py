"""Checks of a Pipeline's arguments."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from penstock import Error, Schedule
from penstock.torch.arguments import flag, function, in_code_of, number, shown, whole


_COUNTS = ("ranks", "microbatches", "threads", "slices", "data_parallel")
_MOST_ZERO = 3


@dataclasses.dataclass(frozen=True)
class Numbers:
    """The whole numbers among the keyword arguments of Pipeline."""

    ranks: int | None
    microbatches: int | None
    threads: int | None
    slices: int
    data_parallel: int
    zero: int
    seed: int | None


def check(given: dict[str, Any]) -> Numbers:
    """Raises Error for a wrong value among the keyword arguments of Pipeline.

    Returns those that are whole, which may be numbers of NumPy, as int.
    """
    counts: dict[str, Any] = {
        name: None if given[name] is None else whole(name, given[name], 1, ", or leave it out")
        for name in _COUNTS
    }
    for name in ("slices", "data_parallel"):
        if counts[name] is None:
            raise Error(f"{name} is None: give at least 1")
    counts["seed"] = None if given["seed"] is None else whole("seed", given["seed"])
    counts["zero"] = whole("zero", given["zero"], 0)
    if counts["zero"] > _MOST_ZERO:
        raise Error(f"zero is {counts['zero']}: give 0 to {_MOST_ZERO}")
    if counts["zero"] > 0 and given["optimizer"] is None:
        raise Error(
            "zero shards what an optimizer updates, but optimizer is None: leave zero out, or give "
            "an optimizer"
        )
    if given["transport"] not in ("tcp", "c10d"):
        raise Error(f"transport is {shown(given['transport'])}: give 'tcp' or 'c10d'")
    for name in ("skip_nonfinite", "exact", "outputs", "device_graphs", "device_parts"):
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
    if given["precision"] not in (None, torch.bfloat16):
        raise Error(
            f"precision is {shown(given['precision'])}: give torch.bfloat16, or None to compute in "
            "the dtypes of the modules"
        )
    if given["gradient_dtype"] not in (torch.float32, torch.bfloat16):
        raise Error(
            f"gradient_dtype is {shown(given['gradient_dtype'])}: give torch.float32 or "
            "torch.bfloat16"
        )
    return Numbers(**counts)


def held(recompute: Any) -> dict[str, str]:
    """Returns the argument ``recompute`` of a Pipeline with all its keys."""
    all_held = {"hold": "all", "hold_for_weight": "all"}
    if recompute is None:
        return all_held
    if not isinstance(recompute, Mapping) or not set(recompute) <= set(all_held):
        raise Error(
            f"recompute is {shown(recompute)}: give a dict with the keys "
            f"{' and '.join(all_held)}, such as {{'hold': 'least'}}"
        )
    for key, value in recompute.items():
        if not isinstance(value, str):
            raise Error(
                f"recompute: {key} is {shown(value)}: give 'all', 'least' or a size ('1.5MiB')"
            )
    return {**all_held, **recompute}


def pool(offload: Any) -> str | None:
    """Returns the folder that the argument ``offload`` of a Pipeline names."""
    if offload is None:
        return None
    if not isinstance(offload, Mapping) or set(offload) != {"pool"}:
        raise Error(f"offload is {shown(offload)}: give a dict with the key pool")
    folder: str = os.path.abspath(offload["pool"])
    if not os.path.isdir(folder):
        raise Error(f"offload: pool {folder!r} is not a folder: create it first")
    return folder


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


def check_schedule(schedule: Schedule, given: dict[str, Any]) -> None:
    """Raises Error for arguments about a whole batch if the schedule updates weights within it."""
    if schedule.weight_policy == "flush":
        return
    for name in ("loss_weight", "clip_grad_norm", "skip_nonfinite"):
        if given[name]:
            raise Error(
                f"{name}: schedule {schedule.algorithm!r} updates weights within a batch, so that "
                f"no gradient is that of the whole batch: leave {name} out, or choose another "
                "schedule"
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
