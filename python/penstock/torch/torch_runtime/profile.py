"""What the stages of a model take: times, activations and messages, measured."""

from __future__ import annotations

import statistics
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any

import torch
from torch import nn
from torch.distributed.pipelining._backward import stage_backward, stage_backward_input, stage_backward_weight
from torch.utils._pytree import tree_leaves, tree_map_only

from penstock import Costs, Error
from penstock.torch.arguments import LossFn, checked, shown, whole
from penstock.torch.devices import device_of
from penstock.measuring.clock import Clock
from penstock.torch.user_code import in_user_code


@checked
def profile(
    stages: Sequence[nn.Module],
    *inputs: Any,
    loss_fn: LossFn = None,
    target: Any = None,
    repeat: Annotated[int, whole(1)] = 10,
    warmup: Annotated[int, whole(0)] = 2,
    split: bool = True,
    **common: Any,
) -> Costs:
    """Returns what each stage takes, in seconds and bytes, as ``Schedule.simulate`` reads it.

    The stages run one after the other, each on the device where its parameters are. On an
    accelerator, times are taken on its stream. Gradients, buffers and random states of the modules
    are as before when it returns.

    I and W are measured as torch's runtime executes them: by its own split of the backward. The
    first stage has no input gradient, so its I takes no time and its W is the whole backward.

    Args:
        stages: the modules by stage number; each takes what the previous one returns.
        inputs: of the first stage, of one microbatch.
        loss_fn: takes the last stage's output and ``target``; part of the last stage.
        target: of one microbatch.
        repeat: how often each action runs. Costs are medians.
        warmup: how often each runs before.
        split: whether to measure I and W too. Otherwise, each counts as half of the backward.
        common: keywords of ``penstock.Costs``, such as ``comm`` and ``bandwidth`` in seconds and
            bytes per second.

    Raises:
        Error: there is no stage or repetition, or torch cannot split the backward of a stage.
    """
    kinds = (Sequence, nn.ModuleList, nn.Sequential)
    if not isinstance(stages, kinds) or not all(isinstance(each, nn.Module) for each in stages):
        raise Error(f"profile: stages is {shown(stages)}: pass a list of modules")
    if not len(stages):
        raise Error("profile: there are 0 stages: pass at least 1")
    with in_user_code("profile"):
        return _profile(list(stages), inputs, loss_fn, target, repeat, warmup, split, common)


def _profile(
    stages: Sequence[nn.Module],
    inputs: tuple[Any, ...],
    loss_fn: Callable[..., torch.Tensor] | None,
    target: Any,
    repeat: int,
    warmup: int,
    split: bool,
    common: dict[str, Any],
) -> Costs:
    measured = []
    values: Any = inputs
    with _everything_restored(stages):
        for number, module in enumerate(stages):
            last = number == len(stages) - 1
            loss = (lambda output: loss_fn(output, target)) if last and loss_fn else None
            stage = _Stage(number, module, values, loss)
            measured.append(_measure(stage, repeat, warmup, split))
            values = _as_tuple(stage.forward()[0])
            values = tree_map_only(torch.Tensor, torch.Tensor.detach, values)
    return _costs(measured, common)


@dataclass
class _Measured:
    forward: float = 0
    backward: float = 0
    backward_input: float = 0
    backward_weight: float = 0
    activation: int = 0
    activation_after_i: int = 0
    weights: int = 0
    output_bytes: int = 0


def _costs(measured: list[_Measured], common: dict[str, Any]) -> Costs:
    def column(name: str) -> list[Any]:
        return [getattr(stage, name) for stage in measured]

    sent = column("output_bytes")[:-1]
    if sent and max(sent):
        scale = [stage.output_bytes / max(sent) for stage in measured[:-1]] + [1.0]
        common = {"message_bytes": max(sent), "message_scale": scale, **common}
    return Costs.per_stage(
        memory_in_bytes=True,
        forward=column("forward"),
        backward_input=column("backward_input"),
        backward_weight=column("backward_weight"),
        backward=column("backward"),
        activation=column("activation"),
        activation_after_i=column("activation_after_i"),
        weights=column("weights"),
        gradients=column("weights"),
        time_unit="s",
        **common,
    )


@dataclass
class _Stage:
    """One stage and an example of its inputs."""

    number: int
    module: nn.Module
    inputs: tuple[Any, ...]
    loss: Callable[[Any], torch.Tensor] | None
    device: torch.device = field(init=False)

    def __post_init__(self) -> None:
        self.device = device_of(self.module)

    def forward(self) -> tuple[Any, list[torch.Tensor]]:
        """Returns the output, or the loss, and the input tensors that it was computed from."""
        inputs = tree_map_only(torch.Tensor, self._received, self.inputs)
        output = self.module(*inputs)
        found = output if self.loss is None else self.loss(output)
        return found, [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]

    def _received(self, tensor: torch.Tensor) -> torch.Tensor:
        received = tensor.detach().to(self.device)
        wants_gradient = self.number > 0 and received.is_floating_point()
        return received.requires_grad_(wants_gradient)


def _as_tuple(output: Any) -> tuple[Any, ...]:
    return tuple(output) if isinstance(output, (tuple, list)) else (output,)


def _gradients(outputs: tuple[Any, ...], is_loss: bool) -> list[torch.Tensor] | None:
    """Returns what the next stage would send, or None for a loss."""
    return None if is_loss else [torch.ones_like(output) for output in outputs]


def _measure(stage: _Stage, repeat: int, warmup: int, split: bool) -> _Measured:
    clock = Clock(stage.device)
    measured = _Measured(weights=_bytes_of(stage.module.parameters()))
    rounds = [_whole_backward(stage, clock) for _ in range(warmup + repeat)][warmup:]
    clock.synchronize()
    measured.forward, measured.backward = _medians(clock, rounds)
    if split and stage.number > 0:
        rounds = [_split_backward(stage, clock) for _ in range(warmup + repeat)][warmup:]
        clock.synchronize()
        _, measured.backward_input, measured.backward_weight = _medians(clock, rounds)
    elif split:
        measured.backward_weight = measured.backward
    else:
        measured.backward_input = measured.backward_weight = measured.backward / 2
    # A whole backward does no more than its halves; beyond them, a difference is noise.
    measured.backward = min(measured.backward, measured.backward_input + measured.backward_weight)
    _measure_bytes(stage, split, measured)
    return measured


def _medians(clock: Clock, rounds: list[list[Any]]) -> list[float]:
    """Returns the median seconds between each mark and the next."""
    times = [[clock.nanoseconds(mark) for mark in marks] for marks in rounds]
    spans = zip(*([end - begin for begin, end in pairwise(of)] for of in times), strict=True)
    return [statistics.median(of_action) * 1e-9 for of_action in spans]


def _whole_backward(stage: _Stage, clock: Clock) -> list[Any]:
    """Runs F and B. Returns the marks before, between and after them."""
    marks = [clock.mark()]
    output, inputs = stage.forward()
    marks.append(clock.mark())
    _backward(stage, output, inputs)
    marks.append(clock.mark())
    return marks


def _backward(stage: _Stage, output: Any, inputs: list[torch.Tensor]) -> None:
    outputs = _as_tuple(output)
    if stage.loss is None:
        stage_backward(outputs, tuple(_gradients(outputs, False) or ()), inputs)
    else:
        stage_backward(output, None, inputs)


def _split_backward(stage: _Stage, clock: Clock) -> list[Any]:
    """Runs F, I and W. Returns the marks before, between and after them."""
    marks = [clock.mark()]
    output, inputs = stage.forward()
    marks.append(clock.mark())
    groups = _backward_input(stage, output, inputs)
    marks.append(clock.mark())
    stage_backward_weight(stage.module.parameters(), groups)
    marks.append(clock.mark())
    return marks


def _backward_input(stage: _Stage, output: Any, inputs: list[torch.Tensor]) -> list[dict[str, Any]]:
    outputs = _as_tuple(output)
    gradients = _gradients(outputs, stage.loss is not None)
    try:
        _, groups = stage_backward_input(list(outputs), gradients, inputs, stage.module.parameters())
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise Error(
            f"stage {stage.number}: torch cannot split its backward ({reason}); "
            "profile with split=False, and choose schedules with whole backwards"
        ) from error
    return groups


class _Saved:
    """A tensor that autograd keeps for the backward."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def _measure_bytes(stage: _Stage, split: bool, measured: _Measured) -> None:
    """Counts what F keeps for the backward, and what of it I leaves for W.

    Counts storages, each once, without parameters and buffers: the same on all devices,
    whatever their allocators round up.
    """
    saved: list[weakref.ref[_Saved]] = []

    def pack(tensor: torch.Tensor) -> _Saved:
        kept = _Saved(tensor)
        saved.append(weakref.ref(kept))
        return kept

    def alive() -> list[torch.Tensor]:
        return [kept.tensor for kept in (each() for each in saved) if kept is not None]

    persistent = [*stage.module.parameters(), *stage.module.buffers()]
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept.tensor):
        output, inputs = stage.forward()
    outputs = _as_tuple(output)
    measured.output_bytes = _bytes_of(outputs)
    measured.activation = _bytes_of([*alive(), *inputs, *outputs], without=persistent)
    measured.activation_after_i = measured.activation
    if split and stage.number > 0:
        groups = _backward_input(stage, output, inputs)
        del output, outputs
        # W reads the gradients at the operations that it starts from, in addition to what F kept.
        kept = [leaf for group in groups for leaf in tree_leaves(group.get("grads"))]
        after = _bytes_of([*alive(), *kept], without=persistent)
        measured.activation_after_i = min(after, measured.activation)


def _bytes_of(tensors: Any, without: Sequence[torch.Tensor] = ()) -> int:
    """Returns the bytes of the storages of all tensors, each storage once."""
    skipped = {tensor.untyped_storage().data_ptr() for tensor in without}
    sizes = {}
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in skipped:
                sizes[storage.data_ptr()] = storage.nbytes()
    return sum(sizes.values())


@contextmanager
def _everything_restored(stages: Sequence[nn.Module]) -> Iterator[None]:
    """Sets gradients, buffers and random states back afterwards."""
    parameters = [parameter for module in stages for parameter in module.parameters()]
    gradients = [parameter.grad for parameter in parameters]
    buffers = [buffer for module in stages for buffer in module.buffers()]
    copies = [buffer.clone() for buffer in buffers]
    accelerators = {device_of(module) for module in stages} - {torch.device("cpu")}
    kind = next((device.type for device in accelerators), "cuda")
    for parameter in parameters:
        parameter.grad = None
    try:
        with torch.random.fork_rng(list(accelerators), device_type=kind), torch.enable_grad():
            yield
    finally:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        with torch.no_grad():
            for buffer, copy in zip(buffers, copies, strict=True):
                buffer.copy_(copy)
