"""What differs between the versions of torch's pipeline runtime. What a version has is asked of its code, not of its number."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, schedules
from torch.distributed.pipelining.schedules import _Action, _ComputationType

from penstock.torch.preserve import copies

# The actions of each rank. torch's lists may also have None, which ours never do.
Lanes: TypeAlias = dict[int, list[Any]]

_torch: Any = schedules
#: Whether stages receive tensors with the strides that the sender has. Otherwise they receive contiguous ones.
KNOWS_STRIDES = not hasattr(PipelineStage, "get_outputs_meta")
_WAIT_REDUCE_GRAD = getattr(_ComputationType, "WAIT_REDUCE_GRAD", None)


def with_waits(actions: Mapping[int, list[Any]]) -> Lanes:
    """Returns lanes with messages and sharding with the waits that newer versions expect as actions; the older ones wait at the end of a step."""
    lanes = {rank: _with_reduction_waits(lane) for rank, lane in actions.items()}
    has_waits = any(action.computation_type.name.startswith("WAIT_SEND") for lane in lanes.values() for action in lane)
    return lanes if has_waits or not hasattr(_torch, "_add_wait_send") else _torch._add_wait_send(lanes)  # type: ignore[no-any-return]


def _with_reduction_waits(lane: list[Any]) -> list[Any]:
    if _WAIT_REDUCE_GRAD is None or any(action.computation_type is _WAIT_REDUCE_GRAD for action in lane):
        return lane
    waited = []
    for action in lane:
        waited.append(action)
        if action.computation_type is _ComputationType.REDUCE_GRAD:
            waited.append(_Action(action.stage_index, _WAIT_REDUCE_GRAD, None))
    return waited


def of_mesh(mesh: Any) -> dict[str, Any]:
    """Returns arguments of a `PipelineStage` that may return DTensors, whose meshes newer versions ask for."""
    is_asked = mesh is not None and "get_mesh" in inspect.signature(PipelineStage).parameters
    return {"get_mesh": lambda names, _: mesh[names]} if is_asked else {}


def skip_messages_to_itself(stage: PipelineStage) -> None:
    """Leaves out the start-up messages between two stages of the same rank, as newer versions do.

    Older ones open the connections of a rank with its neighbors by messages. Where the next stage is on
    the same rank, as at the turn of a V schedule, the rank sends one to itself. Gloo has no such
    connection: the rank fails, and the others hang. Nothing is lost without it, because such stages
    hand tensors over without messages.
    """
    neighbors = getattr(stage, "_get_init_p2p_neighbors_ops", None)
    if neighbors is None:
        return

    def others() -> list[dist.P2POp]:
        return [op for op in neighbors() if op.group_peer != stage.group_rank]

    stage._get_init_p2p_neighbors_ops = others


def keep_buffers(stage: Any) -> None:
    """Restores buffers after torch has run a stage to learn what it sends, as newer versions do.

    2.12 and 2.13 run it on memory that nothing has written, which batch normalization would count.
    """
    clean_up = getattr(stage, "_post_metadata_inference_cleanup", None)
    if clean_up is None or hasattr(stage, "_pre_metadata_inference_backup"):
        return
    run, kept = stage._forward_metadata_inference, list[tuple[str, torch.Tensor, torch.Tensor]]()

    def run_and_keep(*args: Any, **named: Any) -> Any:
        kept.extend(copies(stage.submod))
        return run(*args, **named)

    def restore() -> None:
        clean_up()
        for _, buffer, content in kept:
            with torch.no_grad():
                buffer.copy_(content)
        kept.clear()

    stage._forward_metadata_inference, stage._post_metadata_inference_cleanup = run_and_keep, restore


def outputs_of(stage: Any) -> Any:
    """Returns what a stage knows of the tensors that it sends to the next one: shapes, dtypes and strides."""
    return stage._stage_meta.outputs if KNOWS_STRIDES else stage.get_outputs_meta()


def output_bytes(stage: Any) -> int:
    """Returns the size of what a stage that has run sends to the next one."""
    return sum(math.prod(each.shape) * each.dtype.itemsize for each in outputs_of(stage))
