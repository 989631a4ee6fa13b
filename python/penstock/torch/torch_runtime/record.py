"""Real runs of torch's pipeline runtime as timelines."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from penstock import Costs, Error, Schedule, Simulation, Timeline, compare
from penstock.arguments import named
from penstock.measuring.clock import Clock
from penstock.measuring.measured_run import measured_costs
from penstock.measuring.steps import durations, gather_steps, timelines
from penstock.torch.torch_runtime.differences import output_bytes


class record:
    """Records the steps of a runtime: ``with record(runtime) as run: runtime.step(...)``.

    Works with ``penstock.torch.runtime`` and with torch's own multi-stage schedules. Every rank
    of the process group enters and leaves the block; when they leave, the times are gathered on
    rank 0, by its clock. The properties are of rank 0 then; ``report`` does nothing on others. If
    the block raises, nothing is gathered.

    An action starts when its input has arrived and ends when its work, including the loss, is done.
    On an accelerator, these are times of its stream. Steps without a loss function, and steps of
    ``eval``, are not recorded.

    Args:
        runtime: of this rank.

    Raises:
        Error: ``runtime`` is a single-stage schedule of torch, which has no list of actions.
    """

    @named
    def __init__(self, runtime: _PipelineScheduleRuntime) -> None:
        if not isinstance(runtime, _PipelineScheduleRuntime):
            raise Error(
                f"{type(runtime).__name__} has no list of actions; use penstock.torch.runtime or "
                "one of torch's multi-stage schedules, such as ScheduleInterleaved1F1B"
            )
        self._runtime = runtime
        self._group = runtime._stages[0].group
        self._device = torch.device(runtime._stages[0].device)
        self._times: list[dict[str, tuple[Any, Any]]] = []  # of each step
        self._steps: list[Timeline] | None = None
        self._costs: Costs | None = None

    def __enter__(self) -> record:
        self._times, self._steps, self._costs = [], None, None
        self._clock = Clock(self._device)
        self._hooks = _Hooks()
        self._hooks.set(self._runtime, "_step_microbatches", self._on_step)
        self._hooks.set(self._runtime, "_maybe_compute_loss", self._on_loss)
        for stage in self._runtime._stages:
            number = stage.stage_index
            self._hooks.set(stage, "forward_one_chunk", self._on("F", number))
            self._hooks.set(stage, "backward_one_chunk", self._on("B", number))
            self._hooks.set(stage, "backward_weight_one_chunk", self._on("W", number))
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._hooks.remove()
        if error is None:
            self._gather()

    def _on_step(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._runtime._has_backward:
            self._times.append({})
            return original(*args, **kwargs)
        self._hooks.paused = True
        try:
            return original(*args, **kwargs)
        finally:
            self._hooks.paused = False

    def _on(self, op: str, stage: int) -> Callable[..., Any]:
        def hook(original: Callable[..., Any], microbatch: int, *args: Any, **kwargs: Any) -> Any:
            split = op == "B" and not kwargs.get("full_backward", True)
            start = self._clock.mark()
            result = original(microbatch, *args, **kwargs)
            cell = f"{stage}{'I' if split else op}{microbatch}"
            first = getattr(self._runtime, "penstock_joined", {}).pop(cell, None)
            # F and B of a pair that ran as one graph have one time.
            self._times[-1][cell] = (start, self._clock.mark()) if first is None else self._times[-1][first]
            return result

        return hook

    def _on_loss(self, original: Callable[..., Any], stage: Any, output: Any, targets: Any, microbatch: int, *more: Any) -> Any:
        result = original(stage, output, targets, microbatch, *more)
        if stage.is_last:
            cell = f"{stage.stage_index}F{microbatch}"
            self._times[-1][cell] = (self._times[-1][cell][0], self._clock.mark())
        return result

    def _gather(self) -> None:
        """Collects the times of all ranks on rank 0. Every rank calls it."""
        self._clock.synchronize()
        time_of = self._clock.nanoseconds
        times = [{cell: (time_of(start), time_of(end)) for cell, (start, end) in step.items()} for step in self._times]
        sizes = {stage.stage_index: output_bytes(stage) for stage in self._runtime._stages if times}
        gathered = gather_steps(times, sizes, self._group, self._device)
        if gathered is None:
            return
        by_rank, sizes_of_ranks = gathered
        self._steps = timelines(schedule_of(self._runtime), by_rank)
        if self._steps:
            first = 1 if len(self._steps) > 1 else 0  # the first opens connections and allocates memory
            outputs = {stage: size for of_rank in sizes_of_ranks for stage, size in of_rank.items()}
            by_stage = [outputs[stage] for stage in sorted(outputs)]
            self._costs = measured_costs(self._steps[first:], durations([steps[first:] for steps in by_rank]), by_stage)

    @property
    def steps(self) -> list[Timeline]:
        """The timeline of each recorded step, in seconds."""
        if self._steps is None:
            raise Error("the run is on rank 0 only, and after the with block")
        if not self._steps:
            raise Error("no step was recorded; call runtime.step in the with block")
        return self._steps

    @property
    def timeline(self) -> Timeline:
        """The timeline of the last step."""
        return self.steps[-1]

    @property
    def costs(self) -> Costs:
        """The median time of each stage's actions and messages, without the first step.

        Times are seconds, and memory is in activations of one rank and microbatch. Half of a whole
        backward counts as W where a stage ran no W.
        """
        assert self.steps and self._costs is not None
        return self._costs

    def predict(self, costs: Costs | None = None) -> Simulation:
        """Returns the simulation of the same schedule, by default with ``self.costs``."""
        return self.timeline.schedule.simulate(self.costs if costs is None else costs)

    def report(self, path: str | os.PathLike[str], *, costs: Costs | None = None, title: str | None = None) -> None:
        """Writes the last step next to its prediction: ``run.report("x.html")``.

        Args:
            path: its ending says what is written; see ``penstock.Timeline.report``.
            costs: of the prediction, and what actions hold. Default: ``self.costs``. With costs of
                ``profile``, memory is in bytes.
            title: of the report. Default: the schedule's name.

        Raises:
            Error: no step was recorded, or the file cannot be written.
        """
        if dist.get_rank(self._group) != 0:
            return
        predicted = self.predict(costs)
        schedule = predicted.schedule
        times = [self.timeline.times(rank) for rank in range(schedule.ranks)]
        measured = Timeline.from_times(schedule, times, costs=predicted.costs)
        compare({"predicted": predicted, "measured": measured}).report(path, title=title)


class _Hooks:
    """Methods of objects that are replaced for a while."""

    def __init__(self) -> None:
        self.paused = False
        self._replaced: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, hook: Callable[..., Any]) -> None:
        """Has ``hook(original, *args)`` called instead of a method."""
        original = getattr(owner, name)
        self._replaced.append((owner, name, vars(owner).get(name)))

        def replacement(*args: Any, **kwargs: Any) -> Any:
            if self.paused:
                return original(*args, **kwargs)
            return hook(original, *args, **kwargs)

        setattr(owner, name, replacement)

    def remove(self) -> None:
        for owner, name, before in self._replaced:
            delattr(owner, name)
            if before is not None:
                setattr(owner, name, before)


def schedule_of(runtime: _PipelineScheduleRuntime) -> Schedule:
    """Returns the compute actions of all ranks that a runtime of torch executes."""
    ranks = runtime.stage_index_to_group_rank
    lanes = [
        [str(action) for action in runtime.pipeline_order_with_comms[rank] if action.is_compute_op]
        for rank in range(runtime.pp_group_size)
    ]
    return Schedule(
        [ranks[stage] for stage in range(runtime._num_stages)],
        lanes,
        microbatches=runtime._n_microbatches,
        algorithm=getattr(runtime, "penstock_algorithm", type(runtime).__name__),
    )
