"""Whether torch's split of backwards into I and W gives the gradients of whole backwards."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Collection, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime
from torch.distributed.pipelining.stage import _PipelineStageBase
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves, tree_map_only

from penstock import Error
from penstock.torch.preserve import preserved

_Arguments = tuple[tuple[Any, ...], dict[str, Any]]
_Gradients = dict[str, "torch.Tensor | None"]  # by what they belong to: a parameter or an input


def check_first_step(runtime: _PipelineScheduleRuntime, split: set[int], captured: Collection[int]) -> None:
    """Has the first training step compare I and W of each stage with a whole backward, at its end.

    If they differ for a stage of any rank, that step raises an Error on all ranks. The comparison
    repeats the first microbatch. It leaves gradients, buffers and random numbers as they are.

    Args:
        split: the stages of all ranks whose backwards the schedule splits.
        captured: stages of this rank whose backwards torch does not split. They may become fewer in the step.
    """
    split = split - {0}  # the first stage computes its whole backward in W
    if not split:
        return
    run = runtime._step_microbatches
    stages = [each for each in runtime._stages if each.stage_index in split and _is_comparable(each)]
    is_checked = False

    def step(*arguments: Any, **named: Any) -> Any:
        nonlocal is_checked
        if is_checked or not runtime._has_backward:
            return run(*arguments, **named)
        with contextlib.ExitStack() as stack:
            inputs = [stack.enter_context(_first_inputs(each)) for each in stages]
            result = run(*arguments, **named)
        is_checked = True
        targets = named.get("target_mbs", arguments[2] if len(arguments) > 2 else None)
        target = targets[0] if targets else None
        of_torch = [(each, of[0]) for each, of in zip(stages, inputs, strict=True) if of and each.stage_index not in captured]
        found = [(each.stage_index, _complaint(runtime, each, of, target)) for each, of in of_torch]
        _raise_on_all([each for each in found if each[1]], runtime._stages[0].group)
        return result

    runtime._step_microbatches = step  # type: ignore[method-assign]


def _is_comparable(stage: _PipelineStageBase) -> bool:
    """FSDP's weights are there only during the actions; a stage may also have its own W."""
    sharded = (FSDPModule, FullyShardedDataParallel)
    return stage.dw_builder is None and not any(isinstance(each, sharded) for each in stage.submod.modules())


@contextlib.contextmanager
def _first_inputs(stage: _PipelineStageBase) -> Iterator[list[_Arguments]]:
    """Collects a copy of the arguments of the first forward that torch computes for the stage."""
    found: list[_Arguments] = []
    forward: Any = stage.forward_maybe_with_nosync

    def note(*arguments: Any, **named: Any) -> Any:
        if not found:
            found.append(tree_map_only(torch.Tensor, _copy, (arguments, named)))
        return forward(*arguments, **named)

    stage.forward_maybe_with_nosync = note  # type: ignore[method-assign]
    try:
        yield found
    finally:
        stage.forward_maybe_with_nosync = forward  # type: ignore[method-assign]


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _complaint(runtime: _PipelineScheduleRuntime, stage: _PipelineStageBase, inputs: _Arguments, target: Any) -> str:
    """Returns what torch's split computes wrongly for the stage; "" if it computes nothing wrong."""
    try:
        whole, again, split, epsilon = _gradients(runtime, stage, inputs, target)
        name, error = _largest_error(whole, split, epsilon)
        # The gradients of some modules vary from backward to backward.
        if not error or _largest_error(whole, again, epsilon)[1]:
            return ""
    except Exception as reason:  # noqa: BLE001
        warnings.warn(
            f"stage {stage.stage_index}: the split of its backward was not compared with a whole one ({type(reason).__name__}: "
            f"{str(reason).partition(chr(10))[0]}): compare its gradients, or use a schedule without split backwards",
            stacklevel=4,
        )
        return ""
    return (
        f"stage {stage.stage_index}: torch's split of the backward into I and W gives another gradient of {name} than a whole "
        f"backward (relative error {error:.2g}): torch.distributed.pipelining counts a weight twice that is used twice on a "
        "path: use a schedule without split backwards, such as '1f1b' or 'interleaved'"
    )


def _gradients(
    runtime: _PipelineScheduleRuntime, stage: _PipelineStageBase, inputs: _Arguments, target: Any
) -> tuple[_Gradients, _Gradients, _Gradients, float]:
    """Returns the gradients of two whole backwards, those of I and W, and the coarsest precision of what the stage computes."""
    module = stage.submod.module if isinstance(stage.submod, DistributedDataParallel) else stage.submod
    named = {f"'{name}'": each for name, each in module.named_parameters() if each.requires_grad}
    parameters = list(named.values())
    before = [each.grad for each in parameters]
    dtypes = {each.dtype for each in parameters}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        dtypes.add(tensor.dtype)
        return tensor

    with contextlib.ExitStack() as stack:
        stack.enter_context(preserved(module))
        if isinstance(runtime._loss_fn, nn.Module):
            stack.enter_context(preserved(runtime._loss_fn))
        stack.enter_context(torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor))
        try:
            for parameter in parameters:
                parameter.grad = None
            arguments, keywords = tree_map_only(torch.Tensor, _copy, inputs)
            values = [each for each in tree_leaves((arguments, keywords)) if _is_trained(each)]
            output = module(*arguments, **keywords)
            if stage.is_last:
                output = runtime._compute_loss(output, target)  # type: ignore[no-untyped-call]
            outputs = [each for each in tree_leaves(output) if _is_trained(each)]
            if not outputs:
                return {}, {}, {}, 0.0
            gradients = None if stage.is_last else [torch.randn_like(each) for each in outputs]
            names = [*(f"input {index}" for index in range(len(values))), *named]
            whole, again = (
                torch.autograd.grad(outputs, [*values, *parameters], gradients, retain_graph=True, allow_unused=True) for _ in range(2)
            )
            of_inputs, groups = stage_backward_input(outputs, gradients, values, iter(parameters))
            stage_backward_weight(iter(parameters), groups)
            split = [*of_inputs, *(each.grad for each in parameters)]
        finally:
            for parameter, gradient in zip(parameters, before, strict=True):
                parameter.grad = gradient
    epsilon = max(float(torch.finfo(each).eps) for each in dtypes if each.is_floating_point)
    one, two, three = (dict(zip(names, each, strict=True)) for each in (whole, again, split))
    return one, two, three, epsilon


def _is_trained(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _largest_error(whole: _Gradients, other: _Gradients, epsilon: float) -> tuple[str, float]:
    """Returns which gradient differs most, and its relative error; 0 if all are the same but for rounding."""
    largest = max((float(_local(each).abs().max()) for each in whole.values() if each is not None and each.numel()), default=0.0)
    found = ("", 0.0)
    for name, one in whole.items():
        two = other[name]
        given = one if one is not None else two
        if given is None:
            continue
        expected, actual = (torch.zeros_like(_local(given)) if each is None else _local(each) for each in (one, two))
        size, gap = float(expected.norm()), float((expected - actual).norm())
        # What is zero but for rounding is rounded like the largest numbers of the stage.
        rounding = epsilon**0.5 * size + 2 * epsilon * largest * expected.numel() ** 0.5
        if gap > rounding or gap != gap and size == size:
            error = gap / size if size else float("inf")
            found = max(found, (name, error), key=lambda each: each[1])
    return found


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """Returns this rank's part of a tensor, with enough digits to compare it."""
    own = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return own.detach().double() if own.device.type == "cpu" else own.detach().float()


def _raise_on_all(found: list[tuple[int, str]], group: dist.ProcessGroup | None) -> None:
    """Raises the first stage's error on all ranks, which would wait for one that stops."""
    of_ranks: list[list[tuple[int, str]]] = [[]] * dist.get_world_size(group)
    dist.all_gather_object(of_ranks, found, group=group)
    of_stages = sorted(itertools.chain(*of_ranks))
    if of_stages:
        raise Error(of_stages[0][1])
