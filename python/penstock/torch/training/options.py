"""The options of a Pipeline, and checks of its stages."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import torch
from torch import nn

from penstock import Error, Schedule
from penstock.torch.arguments import function, in_code_of, number, one_of, shown, whole
from penstock.torch.batch import losses, weighting
from penstock.torch.plain_tensors import require_plain_module
from penstock.torch.weights.stage_optimizer import MakeOptimizer

#: The rules of a Pipeline's arguments: what its signature annotates is checked.
Count = Annotated[int, whole(1, otherwise=", or leave it out")]
Zero = Annotated[int, whole(0, 3)]
Norm = Annotated[float, number("the largest norm, inf to measure it only, or 0 for no limit", lambda norm: norm >= 0)]
Seconds = Annotated[float, number("seconds above 0", lambda seconds: 0 < seconds < 1e9)]
Precision = Annotated[
    torch.dtype | None, one_of("torch.bfloat16, or None to compute in the dtypes of the modules", torch.bfloat16, None)
]
GradientDtype = Annotated[torch.dtype, one_of("torch.float32 or torch.bfloat16", torch.float32, torch.bfloat16)]
Transport = Annotated[str, one_of("'tcp' or 'c10d'", "tcp", "c10d")]
Loss = Annotated[losses.Loss | None, function("the last stage's output and the targets")]
LossWeight = Annotated[weighting.LossWeight | None, function("the targets of a microbatch")]
Optimizer = Annotated[MakeOptimizer | None, function("a list of parameters")]
LrScheduler = Annotated[Callable[[torch.optim.Optimizer], Any] | None, function("an optimizer")]


def check_without_optimizer(zero: int, lr_scheduler: Any) -> None:
    """Raises Error for arguments that need an optimizer."""
    if zero > 0:
        raise Error("zero shards what an optimizer updates, but optimizer is None: leave zero out, or give an optimizer")
    if lr_scheduler is not None:
        raise Error("lr_scheduler needs an optimizer, which is None: leave lr_scheduler out")


def held(recompute: Any) -> dict[str, str]:
    """Returns the argument ``recompute`` of a Pipeline with all its keys."""
    all_held = {"hold": "all", "hold_for_weight": "all"}
    if recompute is None:
        return all_held
    if not isinstance(recompute, Mapping) or not set(recompute) <= set(all_held):
        raise Error(
            f"recompute is {shown(recompute)}: give a dict with the keys {' and '.join(all_held)}, such as {{'hold': 'least'}}"
        )
    for key, value in recompute.items():
        if not isinstance(value, str):
            raise Error(f"recompute: {key} is {shown(value)}: give 'all', 'least' or a size ('1.5MiB')")
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
        raise Error(f"stages is {shown(stages)}: pass a list of modules; penstock.torch.split divides a model")
    return list(stages)


def check_module(module: Any, index: int) -> None:
    """Raises Error if a stage of this process is no module, or not ready to be trained."""
    if not isinstance(module, nn.Module):
        raise Error(f"stages[{index}] is {shown(module)}: pass the module of every stage that this process runs")
    require_plain_module(f"stage {index}", module)
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if nn.parameter.is_lazy(tensor):
            raise Error(
                f"stage {index}: '{name}' is not initialized, as in nn.LazyLinear: run the "
                "modules once on a batch before the Pipeline is made"
            )


def check_schedule(schedule: Schedule, **of_batch: Any) -> None:
    """Raises Error for arguments about a whole batch if the schedule updates weights within it."""
    for name, value in of_batch.items():
        if value and schedule.weight_policy != "flush":
            raise Error(
                f"{name}: schedule {schedule.algorithm!r} updates weights within a batch, so that "
                f"no gradient belongs to the whole batch: leave {name} out, or choose another "
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
