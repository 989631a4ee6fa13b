"""The engine's graphs in torch's runtime: they compute the actions of stages in place of autograd.

Where autograd's graph of a whole backward is divided by torch, the engine's graphs divide it right for any use of a weight.
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from penstock import Error
from penstock.torch.arguments import LossFn
from penstock.torch.devices import random_states, restored_random_states
from penstock.torch.torch_runtime.captured_stage import CapturedStage, Program
from penstock.torch.torch_runtime.differences import KNOWS_STRIDES, outputs_of
from penstock.torch.torch_runtime.memory_actions import MemoryActions, Offloaded


@dataclasses.dataclass
class _Microbatch:
    """What a microbatch keeps between its actions."""

    program: Program
    slots: list[torch.Tensor | None]
    inputs: list[torch.Tensor]  # and targets
    random_states: list[Any] = dataclasses.field(default_factory=list)  # before F, if it runs again
    offloaded: Offloaded | None = None

    def put_back(self) -> None:
        """Waits for what was offloaded."""
        if self.offloaded is not None:
            self.offloaded.put_back(self.slots)
            self.offloaded = None


class OwnSplit:
    """Computes the actions of a runtime's stages by captured graphs.

    A stage that cannot be captured in the first step keeps torch's actions, with a warning; `stages` has the others. From
    then on, a stage whose code cannot be captured again raises an Error.
    """

    def __init__(
        self, runtime: _PipelineScheduleRuntime, loss: LossFn, memory: MemoryActions, *, compiled: bool, required: bool
    ) -> None:
        """``required``: whether a stage that cannot be captured is an Error."""
        self._is_required, self.memory = required, memory
        self._targets: Any = None
        self.stages: dict[int, _Stage] = {}
        for stage in runtime._stages:
            assert isinstance(stage, PipelineStage)
            try:
                self.stages[stage.stage_index] = _Stage(self, stage, loss, compiled=compiled)
            except Error as error:
                self.leave(stage.stage_index, error)
        run, judge = runtime._step_microbatches, cast("Callable[..., None]", runtime._maybe_compute_loss)

        def step(arg_mbs: Any = None, kwarg_mbs: Any = None, target_mbs: Any = None, *rest: Any, **named: Any) -> Any:
            self._targets = target_mbs
            for each in self.stages.values():
                each.begin_step()
            try:
                return run(arg_mbs, kwarg_mbs, target_mbs, *rest, **named)
            finally:
                self._targets = None

        def keep_loss(stage: PipelineStage, output: Any, targets: Any, microbatch: int, *rest: Any) -> None:
            own = self.stages.get(stage.stage_index)
            loss = None if own is None else own.losses.pop(microbatch, None)
            if loss is None:
                judge(stage, output, targets, microbatch, *rest)
            elif any(rest):
                raise Error("step: loss_kwargs are not captured: put them into target, or pass split='torch' to runtime")
            else:
                runtime._internal_losses.append(loss)

        runtime._step_microbatches = step  # type: ignore[method-assign]
        runtime._maybe_compute_loss = keep_loss  # type: ignore[method-assign]

    def target(self, microbatch: int) -> Any:
        return None if self._targets is None else self._targets[microbatch]

    def run_memory_actions(self, op: str, stage: int, microbatch: int) -> None:
        """Runs what follows an action."""
        for kind, of_stage, of_microbatch in self.memory.after.get((op, stage, microbatch), ()):
            self.stages[of_stage].run_memory_action(kind, of_microbatch)

    def leave(self, stage: int, reason: Error) -> None:
        """Leaves a stage that cannot be captured to torch. Raises the reason if captures are required."""
        if self._is_required:
            raise reason
        self.stages.pop(stage, None)
        warnings.warn(
            f"stage {stage} is not captured, so torch divides its backward, which the first step checks: {reason}", stacklevel=2
        )


class _Stage:
    """Computes what torch's stage asks autograd for, which then sends and receives as always."""

    def __init__(self, split: OwnSplit, stage: Any, loss: LossFn, *, compiled: bool) -> None:
        self._split, self._stage, self._memory = split, stage, split.memory
        if stage.dw_builder is not None:
            raise Error(f"stage {stage.stage_index} has a dw_builder, which computes its W")
        self._captured = CapturedStage(stage.submod, stage.stage_index, stage.num_stages, loss, compiled=compiled)
        self._running: dict[int, _Microbatch] = {}
        self._has_run = False
        #: By microbatch: the loss that its F has computed.
        self.losses: dict[int, torch.Tensor] = {}
        self._action = "", -1  # and the microbatch, of which torch's stage is in a method
        self._torchs_forward, self._torchs_backward = stage.forward_maybe_with_nosync, stage.backward_maybe_with_nosync
        stage.forward_maybe_with_nosync, stage.backward_maybe_with_nosync = self.forward, self.backward
        if not KNOWS_STRIDES:
            self._torchs_validation, stage._validate_fwd_outputs = stage._validate_fwd_outputs, self._validate
        stage.forward_one_chunk = self._in_action("F", stage.forward_one_chunk)
        stage.backward_one_chunk = self._in_action("B", stage.backward_one_chunk)
        stage.backward_weight_one_chunk = self._in_action("W", stage.backward_weight_one_chunk)

    def begin_step(self) -> None:
        self._captured.begin_step()
        self._running.clear()
        self.losses.clear()

    def _in_action(self, op: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a method of torch's stage that tells its action. Its first argument is a microbatch."""

        def call(microbatch: int, *arguments: Any, **named: Any) -> Any:
            is_input = op == "B" and not named.get("full_backward", True)
            self._action = "I" if is_input else op, microbatch
            try:
                result = method(microbatch, *arguments, **named)
                if is_input and self._stage.is_first and microbatch in self._running:  # torch leaves the whole backward to W
                    gradients = self._stage.backward_state[microbatch][3]
                    self._compute_input_gradients(self._running[microbatch], gradients)
            finally:
                (of, _), self._action = self._action, ("", -1)
            self._split.run_memory_actions(of, self._stage.stage_index, microbatch)
            return result

        return call

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        stage, (op, microbatch) = self._stage, self._action
        if op != "F" or not stage.has_backward or stage.stage_index not in self._split.stages:
            return self._torchs_forward(*args, **kwargs)
        try:
            program, tensors = self._captured.program(args, kwargs, self._split.target(microbatch))
        except Error as error:
            if self._has_run:
                raise
            self._split.leave(stage.stage_index, error)
            return self._torchs_forward(*args, **kwargs)
        self._has_run = True
        running = self._running[microbatch] = _Microbatch(program, [], tensors)
        is_recomputed = (stage.stage_index, microbatch) in self._memory.recomputed
        if is_recomputed:
            self._require_repeatable(program)
            running.random_states = random_states(stage.device)
        results = self._run_forward(running)
        if is_recomputed:
            running.slots = []
        left = len(results) - len(program.buffers)
        with torch.no_grad():
            for buffer, value in zip(program.buffers, results[left:], strict=True):
                buffer.copy_(value)
        results = results[:left]
        if stage.is_last:
            self.losses[microbatch] = results[0]
            results = results[1:]
        return program.outputs.fill(_with_strides(results, outputs_of(stage) if KNOWS_STRIDES else None))

    def _run_forward(self, running: _Microbatch) -> list[Any]:
        running.slots = [None] * running.program.slots
        for slot, tensor in zip(running.program.inputs, running.inputs, strict=True):
            running.slots[slot] = tensor.detach()
        with _plainly(self._stage.device):
            results, _ = running.program.pieces["F"].run(running.slots)
        return results

    def _validate(self, outputs: tuple[torch.Tensor, ...]) -> None:
        """Graphs return contiguous tensors, as the next stage receives, where torch requires the strides of the module's."""
        expected = outputs_of(self._stage)
        if self._action[1] in self._running and len(expected) == len(outputs):
            outputs = tuple(_with_stride(*pair) for pair in zip(outputs, expected, strict=True))
        self._torchs_validation(outputs)

    def _require_repeatable(self, program: Program) -> None:
        if program.buffers:
            raise Error(
                f"stage {self._stage.stage_index} updates buffers (running statistics), which its RECOMPUTE actions would read "
                "after the update: leave the pass recompute out"
            )

    def run_memory_action(self, op: str, microbatch: int) -> None:
        running = self._running[microbatch]
        if op == "OFFLOAD":
            running.offloaded = Offloaded(running.slots)
        elif op == "RELOAD" and running.offloaded is not None:
            running.offloaded.reload()
        elif op == "RECOMPUTE":
            with restored_random_states(self._stage.device, running.random_states):
                self._run_forward(running)

    def backward(self, kind: str, given: dict[str, Any], last_backward: bool = False) -> Any:
        """As the stage's own method: ``kind`` is "full", "input" or "weight". Returns gradients of inputs, and torch's state for W."""
        op, microbatch = self._action
        running = self._running.get(microbatch)
        if running is None:
            return self._torchs_backward(kind, given, last_backward=last_backward)
        gradients: tuple[torch.Tensor, ...] = ()
        if op != "W":
            gradients = self._compute_input_gradients(running, given["output_grads"])
        if kind != "input":
            self._compute_weight_gradients(self._running.pop(microbatch))
        return gradients, []

    def _compute_input_gradients(self, running: _Microbatch, of_outputs: Any) -> tuple[torch.Tensor, ...]:
        """Returns what the previous stage receives: gradients, and zeros where outputs do not depend on an input."""
        running.put_back()
        program = running.program
        if not self._stage.is_last:
            for slot, gradient, output in zip(program.gradients, of_outputs, program.results, strict=True):
                if slot >= 0:
                    running.slots[slot] = torch.zeros_like(output) if gradient is None else gradient.contiguous()
        found = self._run_backward(running, "I")
        gradients = dict(zip(program.differentiated, found, strict=True))
        if self._stage.is_first:
            return ()
        given = [(each, gradients.get(index)) for index, each in enumerate(running.inputs[: program.received])]
        sent = [torch.zeros(each.shape, dtype=each.dtype, device=each.device) if of is None else of for each, of in given]
        return tuple(_with_strides(sent, self._stage._stage_meta.input_grads if KNOWS_STRIDES else None))

    def _compute_weight_gradients(self, running: _Microbatch) -> None:
        running.put_back()
        self._run_backward(running, "W")

    def _run_backward(self, running: _Microbatch, op: str) -> list[Any]:
        """Runs I or W, and adds gradients to those of parameters. Returns what leaves the stage."""
        piece = running.program.pieces[op]
        with _plainly(self._stage.device):
            leaving, gradients = piece.run(running.slots)
            _add_gradients(piece.trained, gradients)
        return leaving


def _add_gradients(parameters: list[torch.Tensor], gradients: list[torch.Tensor]) -> None:
    """Adds gradients to those of parameters, as a backward of autograd does."""
    added, to = [], []
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if parameter.grad is None:
            parameter.grad = torch.empty_like(parameter).copy_(gradient)  # The gradient may share memory with others.
        else:
            added.append(gradient)
            to.append(parameter.grad)
    if to:
        torch._foreach_add_(to, added)


def _with_strides(tensors: list[torch.Tensor], expected: Any) -> list[torch.Tensor]:
    """Returns tensors with the strides that torch has inferred, with which the other rank receives them."""
    if expected is None or len(expected) != len(tensors):
        return tensors  # which torch refuses
    return [each if of is None else _with_stride(each, of) for each, of in zip(tensors, expected, strict=True)]


def _with_stride(tensor: torch.Tensor, expected: Any) -> torch.Tensor:
    strides = expected.stride() if isinstance(expected, torch.Tensor) else expected.stride
    if tensor.shape != expected.shape or tensor.stride() == tuple(strides):
        return tensor
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


@contextlib.contextmanager
def _plainly(device: torch.device) -> Iterator[None]:
    """A context for graphs, in which casts and gradients are nodes."""
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        yield
