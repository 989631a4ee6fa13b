"""What updates all stages: their optimizers and learning-rate schedulers."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from penstock import Error
from penstock.torch.arguments import in_code_of, shown
from penstock.torch.engine import engine
from penstock.torch.optimizers import AdamW
from penstock.torch.placement import Placement
from penstock.torch.processes.processes import Processes
from penstock.torch.weights import states
from penstock.torch.weights.divided_states import with_dtensors, without_dtensors
from penstock.torch.weights.stage_optimizer import StageOptimizer
from penstock.torch.weights.weights import StageWeights

MakeScheduler = Callable[[torch.optim.Optimizer], Any]


class Updates:
    """Its lists are by stage of the schedule, and have None for stages of other processes."""

    def __init__(self, weights: Sequence[StageWeights | None], placement: Placement, given: Any, *, is_sharded: bool) -> None:
        """``given``: the arguments of the Pipeline. ``is_sharded``: whether replicas divide the states of optimizers (ZeRO)."""
        self._placement, self._has_optimizers, self._is_sharded = placement, given.optimizer is not None, is_sharded
        self.steppers = [None if each is None else StageOptimizer(each, given.optimizer, is_sharded) for each in weights]
        #: The steppers of this process, each with its stage of the model.
        self.here = [(placement.model_stage(stage), each) for stage, each in enumerate(self.steppers) if each is not None]
        #: See Pipeline. The caller may change these lists, and replace them.
        self.optimizers: list[torch.optim.Optimizer | None] = []
        if self._has_optimizers:
            self.optimizers = [None if each is None else each.optimizer for each in self.steppers]
        self._make_scheduler = given.lr_scheduler
        self.lr_schedulers: list[Any] = []
        if self._make_scheduler is not None:
            self.lr_schedulers = [None if each is None or each.needs_wholes else self._scheduler(each) for each in self.steppers]
        self.followed = self.optimizers

    def make_whole(self) -> None:
        """Makes optimizers that need whole tensors again, over whole parameters. All planes of a mesh call it."""
        for stage, stepper in enumerate(self.steppers):
            if stepper is not None and stepper.needs_wholes:
                stepper.make_whole()
                self.optimizers[stage] = stepper.optimizer
                if self._make_scheduler is not None:
                    self.lr_schedulers[stage] = self._scheduler(stepper)

    def _scheduler(self, stepper: StageOptimizer) -> Any:
        return _scheduler(self._make_scheduler, stepper.optimizer)

    def follow(self) -> None:
        """Updates stages by the optimizers that the caller has put in place of others."""
        if len(self.optimizers) != (len(self.steppers) if self._has_optimizers else 0):
            raise Error(f"optimizers has {len(self.optimizers)} entries: replace entries, but leave their number as it was")
        for stepper, optimizer in zip(self.steppers, self.optimizers, strict=False):
            if stepper is None and optimizer is not None:
                raise Error("optimizers has one for a stage of another process: leave None there")
            if stepper is not None:
                if optimizer is not stepper.optimizer:
                    stepper.replace(optimizer)
                stepper.refuse_parts()
                stepper.refuse_in_shards()
        self.followed = self.optimizers

    def follow_weights(self, weights: Sequence[StageWeights | None]) -> None:
        """Updates other weights from now on. Raises Error, before anything has changed, if an optimizer does not know one."""
        pairs = [(stepper, now) for stepper, now in zip(self.steppers, weights, strict=True) if stepper and now]
        for stepper, now in pairs:
            stepper.check(now)
        for stepper, now in pairs:
            stepper.follow(now)

    @property
    def are_bound_otherwise(self) -> bool:
        """Whether a compiled stage updates in Python what now updates without it, or vice versa."""
        return any(each.is_bound_otherwise for _, each in self.here)

    @property
    def are_between_steps(self) -> bool:
        """Whether Python code runs between two steps that changes what an update in Python reads."""
        return bool(self.lr_schedulers) and any(each.optimizer and not each.is_native for _, each in self.here)

    def begin_run(self, used: Sequence[set[str]], steps: int) -> None:
        """Prepares updates for a run of steps. ``used``: by stage of the model, the parameters that have a gradient."""
        for index, stepper in self.here:
            stepper.begin_run(used[index])
        for number in range(steps):
            if number > 0:
                self.step_schedulers()
            for _, stepper in self.here:
                stepper.add_settings()

    def watches(self) -> list[Any]:
        """Returns watches that notice whether updates have to be prepared again."""
        members = engine.Watch()
        members.add_members(self.optimizers)
        return [members, *(each.watch() for _, each in self.here)]

    def step_schedulers(self) -> None:
        for lr_scheduler in self.lr_schedulers:
            if lr_scheduler is not None:
                lr_scheduler.step()

    def state(self, processes: Processes, timeout: float) -> dict[str, list[Any]]:
        """Returns the states of optimizers and schedulers by stage of the model, of whole parameters."""
        self.follow()
        state: dict[str, list[Any]] = {}
        for name in states.STATEFUL:
            made = getattr(self, name)
            state[name] = [None] * (self._placement.chain_length if made else 0)
            for stage in reversed(self._placement.local if made else []):  # the first replica last
                state[name][self._placement.model_stage(stage)] = made[stage] and made[stage].state_dict()
        if self._is_sharded:
            parts = {stage: each.part() for stage, each in enumerate(self.steppers) if each and each.optimizer}
            for index, whole in states.joined(parts, processes, timeout, self._placement).items():
                state["optimizers"][index]["state"] = whole
        for index, stepper in self.here:
            if stepper.optimizer is not None:
                state["optimizers"][index] = with_dtensors(state["optimizers"][index], stepper)
        return state

    def load(self, state: dict[str, Any]) -> None:
        """Continues from what `state` has returned on all processes together, see `states.merge`."""
        self.follow()
        pairs = []
        for name, stage in ((name, stage) for name in states.STATEFUL for stage in self._placement.local):
            index, prefix = self._placement.model_stage(stage), f"load_state_dict: {name}"
            own = getattr(self, name)[stage] if getattr(self, name) else None
            other = state[name][index] if state[name] else None
            if own is None and other is not None:
                raise Error(f"{prefix}: this Pipeline has none of stage {index}")
            if own is not None and other is None:
                raise Error(f"{prefix}: the state has none of stage {index}: pass a list of the states of all processes")
            if own is not None:
                if name == "optimizers" and other is not None and (stepper := self.steppers[stage]) is not None:
                    other = without_dtensors(other, stepper)
                pairs.append((prefix, own, other))
        for prefix, own, other in pairs:
            with in_code_of(prefix):
                # The native update copies what it needs.
                own.load_state_dict(other if type(own) is AdamW else copy.deepcopy(other))


def _scheduler(make: MakeScheduler, optimizer: torch.optim.Optimizer | None) -> Any:
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
