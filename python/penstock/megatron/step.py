"""One step: the actions of this rank, in order."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import torch

from penstock import Error, Schedule
from penstock.megatron.activations import SavedTensors, recompute
from penstock.megatron.checks import contracts
from penstock.megatron.lanes import Action
from penstock.megatron.messages import Messages
from penstock.megatron.placement import tied, unwrapped
from penstock.megatron.weights import SplitBackward

_SCHEDULES = "megatron.core.pipeline_parallel.schedules"
_state = contracts.module("megatron.core.parallel_state")
_forward_step = contracts.function(
    "forward_step",
    _SCHEDULES,
    required="forward_step_func data_iterator model num_microbatches input_tensor forward_data_store config cp_group_size "
    "collect_non_loss_data is_first_microbatch current_microbatch vp_stage is_last_stage",
)
_backward_step = contracts.function(
    "backward_step", _SCHEDULES, required="input_tensor output_tensor output_tensor_grad config", optional="model_type"
)
_is_first = contracts.function("check_first_val_step", _SCHEDULES, required="first_val_step forward_only cond")
_free = contracts.function("deallocate_output_tensor", _SCHEDULES, required="out deallocate_pipeline_outputs")
_set_rank = contracts.attribute("set_pipeline_model_parallel_rank", "megatron.core.parallel_state")


class Observer(Protocol):
    """What a step notifies of its actions: ``penstock.megatron.recording.Recorder``.

    Calls come from the thread that runs the step. A step that fails ends without ``end_step``.
    """

    def note_layers(self, layers: dict[int, int]) -> None:
        """Says how many decoder layers stages of this rank have, where that is known, before their first step."""

    def begin_step(self, schedule: Schedule, forward_only: bool) -> None:
        """Begins a step with this schedule. With ``forward_only``, it runs forwards alone, in another order."""

    def begin(self) -> None:
        """Begins an action: its input has arrived."""

    def end(self, op: str, stage: int, microbatch: int) -> None:
        """Ends the action of the last ``begin``. ``op`` is one of ``penstock.OPS``: F, I, W, B; pairs are two actions."""

    def end_step(self) -> None:
        """Ends the step, after the last action and before gradients are finalized."""


class Program(NamedTuple):
    """The actions of one rank, with the last ones of each stage."""

    actions: list[Action]
    last_input: dict[int, int]  # by stage: the microbatch of its last I or B
    last_weight: dict[int, int]  # and of its last W or B
    offloaded: dict[int, set[int]]  # and the microbatches that are offloaded

    @classmethod
    def of(cls, actions: list[Action]) -> Program:
        """Returns the program of these actions."""
        inputs = {action.stage: action.microbatch for action in actions if action.op in "IB"}
        weights = {action.stage: action.microbatch for action in actions if action.op in "WB"}
        offloaded: dict[int, set[int]] = {action.stage: set() for action in actions}
        for action in actions:
            if action.op == "OFFLOAD":
                offloaded[action.stage].add(action.microbatch)
        return cls(actions, inputs, weights, offloaded)


class NoSync:
    """Megatron's context in which gradients of chunks are not reduced."""

    def __init__(self, function: Callable[[], Any] | None) -> None:
        self._function, self._stack = function, contextlib.ExitStack()

    def enter(self) -> None:
        """Stops reductions."""
        if self._function is not None:
            self._stack.close()
            self._stack.enter_context(self._function())

    def leave(self) -> None:
        """Lets Megatron's hooks reduce."""
        self._stack.close()


class Stage:
    """A stage of this rank during one step."""

    def __init__(self, number: int, chunk: int, model: Any, iterator: Any, vp_stage: int | None) -> None:
        self.number, self.chunk, self.model, self.iterator, self.vp_stage = number, chunk, model, iterator, vp_stage
        self.first = self.last = False
        self.previous: Stage | None = None  # if it is on this rank too
        self.next: Stage | None = None
        self.previous_peer = self.next_peer = -1  # global ranks
        self.view_rank: int | None = None
        self.split: SplitBackward | None = None
        self.no_sync = NoSync(None)
        self.synchronize: Callable[[Any], None] | None = None  # Megatron's grad_sync_func
        self.last_input = self.last_weight = -1  # microbatches
        self.offloaded: set[int] = set()
        # By microbatch:
        self.arriving_outputs: dict[int, tuple[Any, torch.Tensor]] = {}
        self.arriving_gradients: dict[int, tuple[Any, torch.Tensor]] = {}
        self.inputs: dict[int, torch.Tensor] = {}
        self.gradients: dict[int, torch.Tensor] = {}
        self.outputs: dict[int, tuple[torch.Tensor | None, torch.Tensor]] = {}
        self.shapes: dict[int, torch.Size] = {}
        self.input_gradients: dict[int, torch.Tensor | None] = {}
        self.saved: dict[int, SavedTensors] = {}

    @property
    def overlaps(self) -> bool:
        """Whether Megatron's data parallelism reduces gradients during the backward."""
        return bool(getattr(getattr(self.model, "ddp_config", None), "overlap_grad_reduce", False))


class Step:
    """Runs a program once.

    Args:
        stages: of this rank, by number.
        forward: keyword arguments of Megatron's ``forward_step`` that are the same for all microbatches.
    """

    def __init__(
        self,
        stages: dict[int, Stage],
        messages: Messages,
        config: Any,
        forward: dict[str, Any],
        *,
        model_type: Any,
        forward_only: bool,
        first_val_step: bool | None,
        tokens: torch.Tensor,
        observer: Observer | None,
    ) -> None:
        self._stages, self._messages, self._config, self._forward = stages, messages, config, forward
        self._model_type, self._trains, self._observer = model_type, not forward_only, observer
        self._is_first = functools.partial(_is_first, first_val_step=first_val_step, forward_only=forward_only)
        self._frees = bool(config.deallocate_pipeline_outputs) and not forward_only
        self.losses: list[Any] = forward["forward_data_store"]
        self.tokens = tokens

        self._runs = {
            "F": self._run_forward,
            "I": self._run_input_backward,
            "B": self._run_backward,
            "W": self._run_weights,
            "SEND_F": self._send_output,
            "RECV_F": self._receive_output,
            "SEND_B": self._send_gradient,
            "RECV_B": self._receive_gradient,
            "OFFLOAD": self._offload,
            "RELOAD": self._reload,
            "RECOMPUTE": self._recompute,
        }

    def run(self, program: Program) -> None:
        """Runs all actions. Afterwards gradients are complete but not finalized, and everything has been sent."""
        stages = self._stages
        if self._trains:
            for stage in stages.values():
                stage.no_sync.enter()
        with _view():
            self._run_actions(program.actions)
        self._messages.finish()
        for each in stages.values():
            each.no_sync.leave()
            if each.split is not None and self._trains:
                each.split.require_finished()

    def _run_actions(self, actions: list[Action]) -> None:
        for action in actions:
            self._run_action(action)

    def _run_action(self, action: Action) -> None:
        self._runs[action.op](self._stages[action.stage], action.microbatch)

    def _receive_output(self, stage: Stage, microbatch: int) -> None:
        stage.arriving_outputs[microbatch] = self._messages.receive_output(stage.previous_peer, requires_grad=self._trains)

    def _send_output(self, stage: Stage, microbatch: int) -> None:
        output = stage.outputs[microbatch][1] if self._trains else stage.outputs.pop(microbatch)[1]
        self._messages.send_output(output, stage.next_peer, free=self._trains)

    def _receive_gradient(self, stage: Stage, microbatch: int) -> None:
        shape = stage.shapes.pop(microbatch)
        stage.arriving_gradients[microbatch] = self._messages.receive_gradient(shape, stage.next_peer)

    def _send_gradient(self, stage: Stage, microbatch: int) -> None:
        self._messages.send_gradient(stage.input_gradients.pop(microbatch), stage.previous_peer)

    def _begin(self, stage: Stage) -> None:
        set_view(stage)
        if self._observer is not None:
            self._observer.begin()

    def _end(self, op: str, stage: Stage, microbatch: int) -> None:
        if self._observer is not None:
            self._observer.end(op, stage.number, microbatch)

    def _run_forward(self, stage: Stage, microbatch: int) -> None:
        given = self._take_input(stage, microbatch)
        self._begin(stage)
        with _saving(stage, microbatch, given):
            output, tokens = self._run_forward_step(stage, microbatch, given)
        self._end("F", stage, microbatch)
        self._keep_output(stage, microbatch, given, output, tokens)

    def _take_input(self, stage: Stage, microbatch: int) -> torch.Tensor | None:
        if stage.previous is not None:
            return stage.inputs.pop(microbatch)
        return None if stage.first else _arrived(stage.arriving_outputs, microbatch)

    def _run_forward_step(self, stage: Stage, microbatch: int, given: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        return _forward_step(  # type: ignore[no-any-return]
            data_iterator=stage.iterator,
            model=stage.model,
            input_tensor=given,
            is_first_microbatch=self._is_first(cond=microbatch == 0),
            current_microbatch=microbatch,
            vp_stage=stage.vp_stage,
            is_last_stage=stage.last,
            **self._forward,
        )

    def _keep_output(
        self, stage: Stage, microbatch: int, given: torch.Tensor | None, output: torch.Tensor, tokens: torch.Tensor
    ) -> None:
        if stage.last:
            self.tokens += tokens
        if stage.next is not None:
            stage.next.inputs[microbatch] = output.detach().requires_grad_(self._trains)
            _free(out=output, deallocate_pipeline_outputs=self._frees)
        elif not stage.last:
            stage.shapes[microbatch] = output.shape
        if self._trains or (not stage.last and stage.next is None):
            stage.outputs[microbatch] = given, output

    def _run_input_backward(self, stage: Stage, microbatch: int) -> None:
        split = stage.split
        assert split is not None  # of stages with I
        with self._backward_hooks(stage, microbatch, weights_follow=True):
            backward = self._begin_backward(stage, microbatch)
            gradient = split.input_gradients(microbatch, backward)
            self._end("I", stage, microbatch)
        self._hand_over(stage, microbatch, gradient)

    def _run_backward(self, stage: Stage, microbatch: int) -> None:
        with self._backward_hooks(stage, microbatch, weights_follow=microbatch != stage.last_weight):
            backward = self._begin_backward(stage, microbatch)
            gradient = backward()
            if stage.split is not None:
                stage.split.queued_gradients()
            self._end("B", stage, microbatch)
        if microbatch == stage.last_weight:
            self._weights_are_ready(stage)
        self._hand_over(stage, microbatch, gradient)

    def _begin_backward(self, stage: Stage, microbatch: int) -> Callable[[], Any]:
        """Waits for the gradient of the output and returns Megatron's backward."""
        given, output = stage.outputs.pop(microbatch)
        gradient = None
        if stage.next is not None:
            gradient = stage.gradients.pop(microbatch)
        elif not stage.last:
            gradient = _arrived(stage.arriving_gradients, microbatch)
            if self._frees:
                self._messages.release(output)  # Megatron's backward wants it freed
        self._begin(stage)
        if microbatch in stage.saved:
            stage.saved.pop(microbatch).wait()
        return functools.partial(self._run_backward_step, stage, given, output, gradient)

    def _run_backward_step(
        self, stage: Stage, given: torch.Tensor | None, output: torch.Tensor, gradient: torch.Tensor | None
    ) -> torch.Tensor | None:
        del stage
        return _backward_step(  # type: ignore[no-any-return]
            input_tensor=given,
            output_tensor=output,
            output_tensor_grad=gradient,
            config=self._config,
            model_type=self._model_type,
        )

    def _hand_over(self, stage: Stage, microbatch: int, gradient: torch.Tensor | None) -> None:
        if stage.previous is None:
            if not stage.first:
                stage.input_gradients[microbatch] = gradient
            return
        if gradient is None:
            raise Error(f"stage {stage.number} has no gradient for its input: its output does not depend on it")
        stage.previous.gradients[microbatch] = gradient

    def _run_weights(self, stage: Stage, microbatch: int) -> None:
        assert stage.split is not None  # of stages with W
        is_last = microbatch == stage.last_weight
        self._begin(stage)
        if is_last and stage.split.has_queues and stage.synchronize is None:
            stage.no_sync.leave()
        stage.split.weight_gradients(microbatch)
        self._end("W", stage, microbatch)
        if is_last:
            self._weights_are_ready(stage)

    def _offload(self, stage: Stage, microbatch: int) -> None:
        stage.saved[microbatch].offload()

    def _reload(self, stage: Stage, microbatch: int) -> None:
        stage.saved[microbatch].reload()

    def _recompute(self, stage: Stage, microbatch: int) -> None:
        set_view(stage)
        if microbatch in stage.saved:
            stage.saved[microbatch].wait()
        recompute(stage.outputs[microbatch][1])

    @contextlib.contextmanager
    def _backward_hooks(self, stage: Stage, microbatch: int, *, weights_follow: bool) -> Iterator[None]:
        """In the last backward of a stage, Megatron's hooks take the gradients of what is not delayed as complete."""
        if microbatch != stage.last_input or stage.synchronize is not None:
            yield
            return
        stage.no_sync.leave()
        yield
        if weights_follow:
            stage.no_sync.enter()

    def _weights_are_ready(self, stage: Stage) -> None:
        """After the last weight gradient of a stage: reduces what Megatron's hooks have not seen."""
        stage.no_sync.leave()
        if stage.synchronize is not None:
            stage.synchronize(stage.model.parameters())
        elif stage.split is not None and stage.overlaps:
            stage.split.ready(stage.model)
        stage.no_sync.enter()

    def add_tied_gradients(self) -> None:
        """Adds the gradients of the embedding's two copies if both are on this rank, where Megatron has one."""
        first = next((stage for stage in self._stages.values() if stage.first), None)
        last = next((stage for stage in self._stages.values() if stage.last), None)
        if first is None or last is None or first is last or not tied(unwrapped(last.model)):
            return
        weights = [unwrapped(stage.model).shared_embedding_or_output_weight() for stage in (first, last)]
        if all(weight.requires_grad for weight in weights):
            one, two = map(_gradient, weights)
            one.add_(two)
            two.copy_(one)


def set_view(stage: Stage) -> None:
    """Gives Megatron's global state the view rank of a stage."""
    if stage.view_rank is not None:
        _set_rank(stage.view_rank)


def _gradient(weight: Any) -> Any:
    return weight.main_grad if hasattr(weight, "main_grad") else weight.grad


def _saving(stage: Stage, microbatch: int, given: torch.Tensor | None) -> Any:
    if microbatch not in stage.offloaded:
        return contextlib.nullcontext()
    saved = stage.saved[microbatch] = SavedTensors(stage.model, given)
    return saved.saving()


def _arrived(arriving: dict[int, tuple[Any, torch.Tensor]], microbatch: int) -> torch.Tensor:
    handle, tensor = arriving.pop(microbatch)
    handle.wait()
    return tensor


@contextlib.contextmanager
def _view() -> Iterator[None]:
    """Restores Megatron's pipeline rank, which actions set to the view rank of their stage."""
    before = _state._MPU_PIPELINE_MODEL_PARALLEL_RANK
    try:
        yield
    finally:
        _set_rank(before)
