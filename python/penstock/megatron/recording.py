"""Recorded steps of Megatron-LM: measured times next to predicted ones, and costs for the next prediction."""

from __future__ import annotations

import atexit
import os
import pathlib
import re
import statistics
import sys
from typing import Any

import torch
import torch.distributed as dist

from penstock import Error, Schedule, Timeline, compare
from penstock.measuring.clock import Clock
from penstock.measuring.measured_run import measured_costs, measured_layer_costs
from penstock.measuring.steps import Spans, durations, gather_steps, timelines

SKIPPED = 2  # first steps, which open connections, allocate memory and compile


class Recorder:
    """Records when each action of some training steps ran, as an ``Observer`` of the steps.

    It records the pipeline of world rank 0, so one of several replicas, without the first two steps. Times on a GPU are events
    of its stream: no step waits for them. They are read between two steps once enough are recorded, or by ``close``, or when
    Python exits without an exception. The first rank then writes into the folder

    - ``schedule.csv`` and ``trace.json``: the step of median length, predicted and measured, which ``penstock show FOLDER`` reads
    - ``report.html``: both timelines as a page
    - ``measured.yaml``: the costs, in seconds, which ``penstock simulate`` and ``plan --costs`` read

    Evaluations are not recorded. A change of the schedule, as by ``--rampup-batch-size``, starts the recording again.

    Args:
        folder: is created, on each rank.
        steps: how many are recorded.
        group: the ranks of the pipeline. Default: Megatron-LM's pipeline group.

    Raises:
        Error: ``steps`` is not positive, or the folder cannot be created.
    """

    def __init__(self, folder: str | os.PathLike[str], *, steps: int = 10, group: dist.ProcessGroup | None = None) -> None:
        if steps < 1:
            raise Error(f"record: {steps} steps: give at least 1")
        self._folder = pathlib.Path(folder)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Error(f"record: cannot create the folder {os.fspath(folder)!r}: {error.strerror}") from None
        self._wanted, self._given_group = steps, group
        self._pipeline: _Pipeline | None = None  # known once Megatron-LM has made its groups
        self._schedule: Schedule | None = None
        self._layers: dict[int, int] = {}
        self._seen = 0
        self._steps: list[dict[str, tuple[Any, Any]]] = []
        self._current: dict[str, tuple[Any, Any]] | None = None
        self._is_closed = False
        atexit.register(self._close_at_exit)

    def note_layers(self, layers: dict[int, int]) -> None:
        """Notes how many decoder layers stages of this rank have. If all are known, costs are per layer and fit any schedule."""
        self._layers.update(layers)

    def begin_step(self, schedule: Schedule, forward_only: bool) -> None:
        self._current = None
        if self._is_closed or forward_only:
            return
        if self._pipeline is None:
            self._pipeline = _Pipeline(self._given_group)
        if len(self._steps) == self._wanted:
            self.close()
            return
        if self._schedule is not None and schedule is not self._schedule and schedule != self._schedule:
            self._steps = []
        self._schedule = schedule
        self._seen += 1
        if self._pipeline.is_recorded and self._seen > SKIPPED:
            self._current = {}

    def begin(self) -> None:
        if self._current is not None and self._pipeline is not None:
            self._start = self._pipeline.clock.mark()

    def end(self, op: str, stage: int, microbatch: int) -> None:
        if self._current is not None and self._pipeline is not None:
            self._current[f"{stage}{op}{microbatch}"] = (self._start, self._pipeline.clock.mark())

    def end_step(self) -> None:
        if self._current is not None:
            self._steps.append(self._current)
        self._current = None

    def close(self) -> None:
        """Ends the recording and writes it. All ranks of the pipeline call it, between two steps.

        What cannot be written is said on the standard error stream, and training continues.
        """
        if self._is_closed:
            return
        self._is_closed = True
        atexit.unregister(self._close_at_exit)
        pipeline, steps = self._pipeline, self._steps
        if pipeline is None or self._schedule is None or not pipeline.is_recorded:
            return
        clock = pipeline.clock
        clock.synchronize()
        time_of = clock.nanoseconds
        own = [{action: (time_of(start), time_of(end)) for action, (start, end) in step.items()} for step in steps]
        gathered = gather_steps(own, self._layers, pipeline.group, pipeline.device)
        if gathered is None:
            return
        by_rank, layers = gathered
        if not by_rank[0]:
            _complain(self._folder, f"the first {SKIPPED} training steps are left out; run more")
            return
        try:
            _write(self._folder, self._schedule, by_rank, {stage: count for each in layers for stage, count in each.items()})
        except (Error, OSError) as error:
            _complain(self._folder, str(error))

    def _close_at_exit(self) -> None:
        failed = hasattr(sys, "last_type")  # by an exception; other ranks may not come to here
        if failed or self._pipeline is None or not self._pipeline.is_recorded:
            return
        if dist.is_initialized():
            self.close()
        elif self._pipeline.is_first:
            _complain(
                self._folder,
                f"the process group was destroyed after {len(self._steps)} of {self._wanted} steps; run "
                f"{SKIPPED + self._wanted + 1} training steps, or call close() before",
            )


class _Pipeline:
    """The ranks of a pipeline, and this rank's clock. Made between two steps, since the clock waits for the device once."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        if group is None:
            from megatron.core import parallel_state

            group = parallel_state.get_pipeline_model_parallel_group()
        self.group = group
        self.is_recorded = 0 in dist.get_process_group_ranks(group)
        self.is_first = self.is_recorded and dist.get_rank(group) == 0
        on_gpu = "nccl" in dist.get_backend(group)
        self.device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
        self.clock = Clock(self.device)


def _complain(folder: pathlib.Path, why: str) -> None:
    print(f"penstock: nothing is recorded in {folder}: {why}", file=sys.stderr, flush=True)


def _write(folder: pathlib.Path, schedule: Schedule, by_rank: list[list[Spans]], layers: dict[int, int]) -> None:
    schedule = _without_messages(schedule)
    steps, taken = timelines(schedule, by_rank), durations(by_rank)
    costs = measured_costs(steps, taken, [])
    predicted = schedule.simulate(costs)
    typical = sorted(steps, key=lambda step: step.makespan)[len(steps) // 2]
    measured = Timeline.from_times(schedule, [typical.times(rank) for rank in range(schedule.ranks)], costs=costs)
    both = compare({"predicted": predicted, "measured": measured})
    schedule.to_csv(folder / "schedule.csv")
    both.report(folder / "report.html", title=schedule.algorithm or None)
    both.report(folder / "new.trace.json")
    (folder / "new.trace.json").replace(folder / "trace.json")
    if len(layers) == schedule.stages:
        costs = measured_layer_costs(steps, taken, [layers[stage] for stage in range(schedule.stages)])
    costs.save(folder / "measured.yaml")
    makespan = statistics.median(step.makespan for step in steps)
    print(
        f"penstock: {len(steps)} steps of {schedule.algorithm or 'the schedule'} are recorded in {folder}: "
        f"{makespan:.4g} s each, predicted {predicted.makespan:.4g} s",
        flush=True,
    )


def _without_messages(schedule: Schedule) -> Schedule:
    """Returns the schedule with the actions that are timed alone; a CSV file may have messages too."""
    timed = re.compile(r"\d+[FBIW]\d+|\(.*").fullmatch
    lanes = [[action for action in schedule.texts(rank) if timed(action)] for rank in range(schedule.ranks)]
    if [len(lane) for lane in lanes] == [len(lane) for lane in schedule.lanes]:
        return schedule
    return Schedule(schedule.rank_of_stage, lanes, microbatches=schedule.microbatches, algorithm=schedule.algorithm)
