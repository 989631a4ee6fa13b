"""The arguments of a Pipeline: their rules, which its signature annotates, and what they must fit."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import torch
from torch import nn

from penstock import Error, Schedule
from penstock.torch.arguments import Rule, function, number, one_of, shown, whole
from penstock.torch.batch import losses, weighting
from penstock.torch.mesh import plans
from penstock.torch.mesh.planes import Plane
from penstock.torch.weights.stage_optimizer import MakeOptimizer
from penstock.torch.weights.updates import MakeScheduler


def stage_list(name: str, stages: Any) -> list[nn.Module | None]:
    """Returns the stages that a Pipeline was given."""
    is_list = isinstance(stages, Sequence) and not isinstance(stages, (str, bytes))
    if not is_list and not isinstance(stages, (nn.ModuleList, nn.Sequential)):
        raise Error(f"{name} is {shown(stages)}: pass a list of modules; penstock.torch.split divides a model")
    return list(stages)


def _held(name: str, recompute: Any) -> dict[str, str]:
    """Returns what microbatches keep, with all keys."""
    all_held = {"hold": "all", "hold_for_weight": "all"}
    if recompute is None:
        return all_held
    if not isinstance(recompute, Mapping) or not set(recompute) <= set(all_held):
        raise Error(
            f"{name} is {shown(recompute)}: give a dict with the keys {' and '.join(all_held)}, such as {{'hold': 'least'}}"
        )
    for key, value in recompute.items():
        if not isinstance(value, str):
            raise Error(f"{name}: {key} is {shown(value)}: give 'all', 'least' or a size ('1.5MiB')")
    return {**all_held, **recompute}


def _folder(name: str, offload: Any) -> str | None:
    """Returns the folder that activations are moved to."""
    if offload is None:
        return None
    if not isinstance(offload, Mapping) or set(offload) != {"pool"}:
        raise Error(f"{name} is {shown(offload)}: give a dict with the key pool")
    folder: str = os.path.abspath(offload["pool"])
    if not os.path.isdir(folder):
        raise Error(f"{name}: pool {folder!r} is not a folder: create it first")
    return folder


# The types and rules of arguments, as the signature of Pipeline has them.
Stages = Annotated[Sequence[nn.Module | None], Rule("a list of modules", stage_list)]
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
LrScheduler = Annotated[MakeScheduler | None, function("an optimizer")]
Recompute = Annotated[Mapping[str, str] | None, Rule("a dict with the keys hold and hold_for_weight", _held)]
Offload = Annotated[Mapping[str, str | os.PathLike[str]] | None, Rule("a dict with the key pool", _folder)]


Mesh = Annotated[Any, Rule("a DeviceMesh", lambda name, mesh: mesh)]
TensorPlan = Annotated[plans.Plan | str | None, Rule("'auto' or a dict", plans.checked_plan)]


def check_mesh(given: Any, plane: Plane | None, schedule: Schedule) -> None:
    """Raises Error for what the planes of a mesh cannot do."""
    if plane is None:
        return
    replicas, ranks = given.data_parallel, schedule.ranks // given.data_parallel
    if replicas % plane.replicas != 0 or (plane.replicas > 1 and replicas != plane.replicas):
        raise Error(
            f"mesh has {plane.replicas} replicas along its dimensions {' and '.join(plane.replica_names)}, but data_parallel is "
            f"{replicas}: pass data_parallel={plane.replicas}"
        )
    if ranks % plane.pipeline != 0:
        raise Error(
            f"mesh has {plane.pipeline} processes along its pipeline, which cannot share {ranks} ranks equally: change ranks"
        )
    if schedule.slices > 1:
        raise Error("mesh: stages with collectives cannot compute sequence slices: leave slices out, or mesh")
    if plane.contexts > 1 and given.loss_weight is not None:
        raise Error(
            "loss_weight: the planes of mesh's context dimension have different parts of the targets, whose terms are not added: "
            "leave loss_weight out, and have the loss be a mean of as many terms on each plane"
        )


def check_transport(given: Any) -> None:
    """Raises Error for a transport that a mesh cannot have."""
    if given.mesh is not None and given.transport != "tcp":
        raise Error(f"transport is {given.transport!r}, but the planes of mesh exchange messages by 'tcp': leave transport out")


def check_optimizer(given: Any) -> None:
    """Raises Error for arguments that need an optimizer, if there is none. ``given`` has the arguments by name."""
    if given.optimizer is not None:
        return
    if given.zero > 0:
        raise Error("zero shards what an optimizer updates, but optimizer is None: leave zero out, or give an optimizer")
    if given.lr_scheduler is not None:
        raise Error("lr_scheduler needs an optimizer, which is None: leave lr_scheduler out")


def check_untrained(given: Any, schedule: Schedule) -> None:
    """Raises Error for a trained weight of a stage that the schedule says is frozen."""
    for index in schedule.frozen:
        stage = given.stages[index]
        named = stage.named_parameters() if isinstance(stage, torch.nn.Module) else ()
        for name, parameter in named:
            if parameter.requires_grad:
                raise Error(
                    f"stage {index} is frozen in schedule {schedule.algorithm!r}, but its parameter {name!r} is trained: freeze it "
                    "(requires_grad_(False)), or take a schedule in which the stage is not frozen"
                )


def check_schedule(given: Any, schedule: Schedule) -> None:
    """Raises Error for arguments about a whole batch if the schedule updates weights within it."""
    for name in ("loss_weight", "clip_grad_norm", "skip_nonfinite"):
        if getattr(given, name) and schedule.weight_policy != "flush":
            raise Error(
                f"{name}: schedule {schedule.algorithm!r} updates weights within a batch, so that no gradient belongs to the "
                f"whole batch: leave {name} out, or choose another schedule"
            )
