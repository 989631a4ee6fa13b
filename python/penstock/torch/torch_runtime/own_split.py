"""The engine's graphs in torch's runtime: they compute the actions of stages in place of autograd.

Where autograd's graph of a whole backward is divided by torch, the engine's graphs divide it right for any use of a weight.
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from penstock import Error
from penstock.torch.arguments import LossFn
from penstock.torch.devices import random_states, restored_random_states
from penstock.torch.torch_runtime.captured_stage import CapturedStage, Program
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

    A stage that cannot be captured in the first step keeps torch's actions, with a warning; `captured` has the others. From
    then on, a stage whose code cannot be captured again raises an Error.
    """

    def __init__(
        self, runtime: _PipelineScheduleRuntime, loss: LossFn, memory: MemoryActions, *, compiled: bool, required: bool
    ) -> None:
        """``required``: whether a stage that cannot be captured is an Error."""
        self._required, self.memory = required, memory
        self._targets: Any = None
        self.stages: dict[int, _Stage] = {}
        for stage in runtime._stages:
            assert isinstance(stage, PipelineStage)
            with self._or_torchs(stage.stage_index):
                self.stages[stage.stage_index] = _Stage(self, stage, loss, compiled=compiled)
        run, judge = runtime._step_microbatches, runtime._maybe_compute_loss

        def step(arg_mbs: Any = None, kwarg_mbs: Any = None, target_mbs: Any = None, *rest: Any, **named: Any) -> Any:
            self._targets = target_mbs
            for each in self.stages.values():
                each.begin_step()
            try:
                return run(arg_mbs, kwarg_mbs, target_mbs, *rest, **named)
            finally:
                self._targets = None

        def keep_loss(stage: PipelineStage, output: Any, targets: Any, microbatch: int) -> None:
            own = self.stages.get(stage.stage_index)
            loss = None if own is None else own.losses.pop(microbatch, None)
            if loss is None:
                judge(stage, output, targets, microbatch)
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

    @contextlib.contextmanager
    def _or_torchs(self, stage: int) -> Iterator[None]:
        """Leaves a stage that cannot be captured to torch."""
        try:
            yield
        except Error as error:
            if self._required:
                raise
            self.leave(stage, error)

    def leave(self, stage: int, reason: Error) -> None:
        """Leaves a stage to torch."""
        self.stages.pop(stage, None)
        warnings.warn(
            f"stage {stage} is not captured, so torch divides its backward, which the first step checks: {reason}", stacklevel=2
        )


class _Stage:
    def __init__(self, split: OwnSplit, stage: PipelineStage, loss: LossFn, *, compiled: bool) -> None:
        self._split, self._stage = split, stage
        self._captured = CapturedStage(stage.submod, stage.stage_index, stage.num_stages, loss, compiled=compiled)
        self._running: dict[int, _Microbatch] = {}
        self._has_run = False
        self._memory = split.memory
        #: By microbatch: the loss that its F has computed.
        self.losses: dict[int, torch.Tensor] = {}
        self._forward, self._backward, self._weight = stage.forward_one_chunk, stage.backward_one_chunk, stage.backward_weight_one_chunk
        stage.forward_one_chunk = self.forward  # type: ignore[method-assign]
        stage.backward_one_chunk = self.backward  # type: ignore[method-assign]
        stage.backward_weight_one_chunk = self.weight  # type: ignore[method-assign]

    def begin_step(self) -> None:
        self._captured.begin_step()
        self._running.clear()
        self.losses.clear()

    def forward(self, microbatch: int, args: tuple[Any, ...], kwargs: Any = None, save_forward_output: bool = True) -> Any:
        stage, original = self._stage, self._forward
        if not stage.has_backward or stage.stage_index not in self._split.stages:
            return original(microbatch, args, kwargs, save_forward_output)
        given = args if stage.is_first else stage._retrieve_recv_activations(microbatch)
        try:
            program, tensors = self._captured.program(tuple(given), kwargs or {}, self._split.target(microbatch))
        except Error as error:
            if self._has_run or self._split._required:
                raise
            self._split.leave(stage.stage_index, error)
            return original(microbatch, args, kwargs, save_forward_output)
        self._has_run = True
        stage._validate_fwd_input(args, kwargs or {})
        running = self._running[microbatch] = _Microbatch(program, [], tensors)
        is_recomputed = (stage.stage_index, microbatch) in self._memory.recomputed
        if is_recomputed:
            self._require_repeatable(program)
            running.random_states = random_states(stage.device)
        results = self._run_forward(running)
        if is_recomputed:
            running.slots = []
        with torch.no_grad():
            for buffer, value in zip(program.buffers, results[len(results) - len(program.buffers) :], strict=True):
                buffer.copy_(value)
        results = results[: len(results) - len(program.buffers)]
        if stage.is_last:
            self.losses[microbatch] = results[0]
            results = results[1:]
        output = program.outputs.fill(results)
        outputs = tuple(output) if isinstance(output, (tuple, list)) else (output,)
        if stage.is_last and save_forward_output:
            stage.output_chunks.append(output)
        stage.fwd_cache[microbatch] = outputs, tensors
        self._require_shapes(outputs)
        self._split.run_memory_actions("F", stage.stage_index, microbatch)
        return output

    def _run_forward(self, running: _Microbatch) -> list[Any]:
        running.slots = [None] * running.program.slots
        for slot, tensor in zip(running.program.inputs, running.inputs, strict=True):
            running.slots[slot] = tensor.detach()
        with _plainly(self._stage.device):
            results, _ = running.program.pieces["F"].run(running.slots)
        return results

    def _require_shapes(self, outputs: tuple[torch.Tensor, ...]) -> None:
        """Raises Error for outputs that the next stage does not expect. Graphs return contiguous ones, as it receives."""
        expected = [(each.shape, each.dtype) for each in self._stage.get_outputs_meta()]
        found = [(each.shape, each.dtype) for each in outputs]
        if found != expected:
            raise Error(f"stage {self._stage.stage_index} returns {found}, but the next stage expects {expected}, as the first step had")

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

    def backward(self, microbatch: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False) -> None:
        stage, running = self._stage, self._running.get(microbatch)
        if running is None:
            return self._backward(microbatch, loss=loss, full_backward=full_backward, last_backward=last_backward)
        stage.fwd_cache.pop(microbatch)
        running.put_back()
        if not stage.is_last:
            gradients = stage._retrieve_recv_grads(microbatch)
            for slot, gradient in zip(running.program.gradients, gradients, strict=True):
                if slot >= 0:
                    running.slots[slot] = gradient
        with _plainly(stage.device):
            of_inputs, of_parameters = running.program.pieces["I"].run(running.slots)
        self._accumulate("I", running, of_parameters)
        stage.bwd_cache[microbatch] = () if stage.is_first else self._input_gradients(running, of_inputs)
        if full_backward:
            self._run_weight(self._running.pop(microbatch))
        self._split.run_memory_actions("B" if full_backward else "I", stage.stage_index, microbatch)
        return None

    def weight(self, microbatch: int, last_backward: bool = False) -> None:
        running = self._running.pop(microbatch, None)
        if running is None:
            return self._weight(microbatch, last_backward=last_backward)
        self._run_weight(running)
        self._split.run_memory_actions("W", self._stage.stage_index, microbatch)
        return None

    def _run_weight(self, running: _Microbatch) -> None:
        running.put_back()
        with _plainly(self._stage.device):
            _, gradients = running.program.pieces["W"].run(running.slots)
        self._accumulate("W", running, gradients)

    def _input_gradients(self, running: _Microbatch, found: list[torch.Tensor | None]) -> tuple[torch.Tensor, ...]:
        """Returns what the previous stage receives: gradients, and zeros where outputs do not depend on an input."""
        gradients = dict(zip(running.program.differentiated, found, strict=True))
        given = ((each, gradients.get(index)) for index, each in enumerate(running.inputs))
        return tuple(torch.zeros_like(each) if gradient is None else gradient for each, gradient in given)

    def _accumulate(self, piece: str, running: _Microbatch, gradients: list[torch.Tensor]) -> None:
        self._captured.add_gradients(running.program.pieces[piece].gradients, gradients)


@contextlib.contextmanager
def _plainly(device: torch.device) -> Iterator[None]:
    """A context for graphs, in which casts and gradients are nodes."""
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        yield
