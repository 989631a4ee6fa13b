"""The engine's graphs in torch's runtime: they compute the actions of stages in place of autograd.

Where autograd's graph of a whole backward is divided by torch, the engine's graphs divide it right for any use of a weight.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import OVERLAP_F_B, _PipelineScheduleRuntime

from penstock import Error
from penstock.torch.arguments import LossFn
from penstock.torch.devices import random_states, restored_random_states
from penstock.torch.mesh.dtensors import is_dtensor, like, part_of
from penstock.torch.torch_runtime.captured_stage import CapturedStage, Program
from penstock.torch.torch_runtime.differences import KNOWS_STRIDES, outputs_of
from penstock.torch.torch_runtime.memory_actions import MemoryActions, Offloaded
from penstock.torch.torch_runtime.piece_code import Piece
from penstock.torch.torch_runtime.stage_group import StageGroup

#: By stage and microbatch of the F of a pair: the ones of its B, which follows.
Pairs = dict[tuple[int, int], tuple[int, int]]


@dataclasses.dataclass
class _Microbatch:
    """What a microbatch keeps between its actions."""

    program: Program
    slots: list[torch.Tensor | None]
    inputs: list[torch.Tensor]  # and targets
    random_states: list[Any] = dataclasses.field(default_factory=list)  # before F, if it runs again
    offloaded: Offloaded | None = None
    #: What the previous stage receives, once a pair has computed B.
    sent: tuple[torch.Tensor, ...] | None = None

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
        self,
        runtime: _PipelineScheduleRuntime,
        loss: LossFn,
        memory: MemoryActions,
        pairs: Pairs,
        group: StageGroup,
        *,
        compiled: bool,
        required: bool,
    ) -> None:
        """``required``: whether a stage that cannot be captured is an Error."""
        self._is_required, self.memory, self.group = required, memory, group
        self._runtime, self._pairs = runtime, pairs
        #: By B of a pair that ran as one graph: its F. For records.
        self.joined: dict[str, str] = {}
        runtime.penstock_joined = self.joined  # type: ignore[attr-defined]
        self._targets: Any = None
        self.stages: dict[int, _Stage] = {}
        for stage in runtime._stages:
            assert isinstance(stage, PipelineStage)
            number = stage.stage_index
            make = functools.partial(_Stage, self, stage, loss, compiled=compiled)
            try:
                self.stages[number] = group.alike(f"stage {number}", make)
            except Error as error:
                self.leave(number, error)
        run, judge = runtime._step_microbatches, cast("Callable[..., None]", runtime._maybe_compute_loss)

        def step(arg_mbs: Any = None, kwarg_mbs: Any = None, target_mbs: Any = None, *rest: Any, **named: Any) -> Any:
            self._targets = target_mbs
            self.joined.clear()
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

    def backward_in_pair(self, stage: int, microbatch: int) -> tuple[_Stage, int] | None:
        """Returns the stage and the microbatch of the B that is in a pair with an F, if this computes pairs."""
        of_backward, microbatch = self._pairs.get((stage, microbatch), (-1, -1))
        if of_backward not in self.stages or OVERLAP_F_B in self._runtime._comp_type_to_function_map:
            return None
        return self.stages[of_backward], microbatch

    def wait_for_gradients(self, stage: int, microbatch: int) -> None:
        """Waits for what the next stage has sent, before torch does."""
        received = self._runtime.bwd_recv_ops.get((stage, microbatch), [])
        for each in received:
            each.wait()
        received.clear()

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
        self._captured = CapturedStage(stage.submod, stage.stage_index, stage.num_stages, loss, split.group, compiled=compiled)
        self._running: dict[int, _Microbatch] = {}
        self._has_run = False
        #: By microbatch: the loss that its F has computed.
        self.losses: dict[int, torch.Tensor] = {}
        self._action = "", -1  # and the microbatch, of which torch's stage is in a method
        self._torchs_forward, self._torchs_backward = stage.forward_maybe_with_nosync, stage.backward_maybe_with_nosync
        stage.forward_maybe_with_nosync, stage.backward_maybe_with_nosync = self.forward, self.backward
        if not KNOWS_STRIDES:
            self._torchs_validation, stage._validate_fwd_outputs = stage._validate_fwd_outputs, self._validate
        self._received: dict[int, Any] = {}  # gradients that torch's stage has returned, which it does once
        self._torchs_gradients, stage._retrieve_recv_grads = stage._retrieve_recv_grads, self._take_received
        stage.forward_one_chunk = self._in_action("F", stage.forward_one_chunk)
        stage.backward_one_chunk = self._in_action("B", stage.backward_one_chunk)
        stage.backward_weight_one_chunk = self._in_action("W", stage.backward_weight_one_chunk)

    def begin_step(self) -> None:
        self._captured.begin_step()
        self._running.clear()
        self._received.clear()
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
        pair = None if is_recomputed else self._split.backward_in_pair(stage.stage_index, microbatch)
        results = self._run_forward(running, pair)
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
        return self._captured.outputs(program, _with_strides(results, outputs_of(stage) if KNOWS_STRIDES else None))

    def _run_forward(self, running: _Microbatch, pair: tuple[_Stage, int] | None = None) -> list[Any]:
        running.slots = [None] * running.program.slots
        for slot, tensor in zip(running.program.inputs, running.inputs, strict=True):
            running.slots[slot] = tensor.detach()
        if pair is not None and (of := pair[0]._running.get(pair[1])) is not None:
            piece = self._captured.pair(running.program, pair[0]._captured, of.program)
            if piece is not None:
                return self._run_pair(piece, running, *pair)
        return self._run(running.program.pieces["F"], running.slots)

    def _run_pair(self, piece: Piece, running: _Microbatch, other: _Stage, microbatch: int) -> list[Any]:
        """Runs F of this stage and B of another one as one graph. Returns what F does."""
        of = other._running[microbatch]
        other._take_gradients(of, other._received_gradients(microbatch))
        slots, of.slots = [*running.slots, *of.slots], []
        leaving = self._run(piece, slots)
        running.slots = slots[: len(running.slots)]
        self._split.joined[f"{other._stage.stage_index}B{microbatch}"] = f"{self._stage.stage_index}F{self._action[1]}"
        count = len(leaving) - len(of.program.differentiated)
        of.sent = other._sent(of, leaving[count:])
        return leaving[:count]

    def _received_gradients(self, microbatch: int) -> Any:
        """Returns the gradients of outputs before torch asks for them."""
        stage = self._stage
        if stage.is_last:
            return ()
        self._split.wait_for_gradients(stage.stage_index, microbatch)
        self._received[microbatch] = self._torchs_gradients(microbatch)
        return self._received[microbatch]

    def _take_received(self, microbatch: int) -> Any:
        return self._received.pop(microbatch) if microbatch in self._received else self._torchs_gradients(microbatch)

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
        if running.sent is not None:
            return self._running.pop(microbatch).sent, []
        gradients: tuple[torch.Tensor, ...] = ()
        if op != "W":
            gradients = self._compute_input_gradients(running, given["output_grads"])
        if kind != "input":
            self._compute_weight_gradients(self._running.pop(microbatch))
        return gradients, []

    def _compute_input_gradients(self, running: _Microbatch, of_outputs: Any) -> tuple[torch.Tensor, ...]:
        self._take_gradients(running, of_outputs)
        return self._sent(running, self._run(running.program.pieces["I"], running.slots))

    def _take_gradients(self, running: _Microbatch, of_outputs: Any) -> None:
        """Puts gradients of outputs into the slots of a microbatch whose backward begins."""
        running.put_back()
        program = running.program
        if not self._stage.is_last:
            for slot, gradient, output in zip(program.gradients, of_outputs, program.results, strict=True):
                if slot >= 0:
                    running.slots[slot] = torch.zeros_like(output) if gradient is None else gradient.contiguous()

    def _sent(self, running: _Microbatch, found: list[Any]) -> tuple[torch.Tensor, ...]:
        """Returns what the previous stage receives: gradients, and zeros where outputs do not depend on an input."""
        gradients = dict(zip(running.program.differentiated, found, strict=True))
        if self._stage.is_first:
            return ()
        given = [(each, gradients.get(index)) for index, each in enumerate(running.inputs[: running.program.received])]
        sent = [torch.zeros(each.shape, dtype=each.dtype, device=each.device) if of is None else of for each, of in given]
        return tuple(_with_strides(sent, self._stage._stage_meta.input_grads if KNOWS_STRIDES else None))

    def _compute_weight_gradients(self, running: _Microbatch) -> None:
        running.put_back()
        self._run(running.program.pieces["W"], running.slots)

    def _run(self, piece: Piece, slots: list[torch.Tensor | None]) -> list[Any]:
        """Runs a piece, and adds gradients to those of parameters. Returns what leaves the stage."""
        with _plainly(self._stage.device):
            leaving, gradients = piece.run(slots)
            _add_gradients(piece.trained, gradients)
        return leaving


def _add_gradients(parameters: list[torch.Tensor], gradients: list[torch.Tensor]) -> None:
    """Adds gradients to those of parameters, as a backward of autograd does."""
    added, to = [], []
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if parameter.grad is None:
            own = torch.empty_like(part_of(parameter)).copy_(gradient)  # The gradient may share memory with others.
            parameter.grad = like(own, parameter) if is_dtensor(parameter) else own
        elif is_dtensor(parameter):
            parameter.grad.add_(like(gradient, parameter))
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
