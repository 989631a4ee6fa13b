"""What a Pipeline does apart from training: evaluation, and views of its last step and graphs."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from typing import Any

from torch import nn

from penstock import Error, Schedule, Timeline
from penstock.torch import arguments
from penstock.torch.batch.last_step import LastStep
from penstock.torch.engine import exclusive
from penstock.torch.training.run import Run


@dataclasses.dataclass(frozen=True)
class RecordedGraphs:
    """Graphs of the device (CUDA graphs) that a rank has recorded in place of forwards and backwards."""

    rank: int
    #: How many it recorded, and how often it ran one of them.
    recorded: int
    runs: int
    #: What it runs op by op instead, and why.
    refused: list[str]


@dataclasses.dataclass(frozen=True)
class Collective:
    """The calls of a collective over a group in one action."""

    name: str
    #: torch's name of the group.
    group: str
    calls: int
    #: The bytes of whole tensors: for each call, the larger one of what it sends and what it returns.
    bytes: int


class Views:
    """The part of Pipeline that trains nothing. Pipeline sets the attributes."""

    schedule: Schedule
    _stages: Sequence[nn.Module | None]
    _busy: threading.Lock
    _run: Run

    @property
    def _built(self) -> Any:
        """The engine's pipeline; None before the first step."""
        return None if self._run.graphs.now is None else self._run.graphs.now.engine

    @exclusive
    def eval_step(self, inputs: Any, targets: Any = None) -> Any:
        """Runs the modules' own forward: nothing is compiled, trained or changed.

        Call ``eval()`` on the modules before, and ``train()`` before the next `step`: in training
        mode, dropout is active. Buffers and random numbers of later steps stay the same. Every
        process calls it.

        Args:
            inputs, targets: as in `step`; a batch may have fewer samples than microbatches.

        Returns:
            With targets, or if the last stage returns the loss: the mean loss of the batch, as
            `step` returns it. Otherwise what the last stage returns for the whole batch. On every
            process.

        Raises:
            Error: a stage failed. The pipeline can be used further.
        """
        last = self._run.eval_step(inputs, targets)
        return last.outputs if last.loss is None else last.loss

    @exclusive
    def gather(self) -> None:
        """Gives the modules their whole weights, which replicas divide (``zero``) during steps.

        They stay until the next `step`, which takes changes of them over. Every process calls it.
        Without such weights it does nothing.
        """
        self._run.graphs.gather()

    @exclusive
    def timeline(self) -> Timeline:
        """Returns the measured timeline of the last step, in seconds, for reports.

        With several processes, only the process that runs all ranks can return it.
        """
        times = [] if self._built is None else self._built.times()
        if len(times) != self.schedule.ranks:
            raise Error("timeline: no step has run, or other processes run some of the ranks")
        spans = [list(zip(starts, ends, strict=True)) for _, starts, ends in times]
        return Timeline.from_times(self.schedule, spans, time_unit="s")

    @property
    def local_stages(self) -> list[int]:
        """The stages of the schedule that this process runs. Stage s computes ``stages[s % len(stages)]``."""
        return list(self._run.model.placement.local)

    _local = local_stages  # its name before it was public

    @property
    @exclusive
    def saved_bytes(self) -> list[int]:
        """Activations that each stage keeps of a microbatch between F and its backward, in bytes.

        0 for stages of other processes, and before the first step.
        """
        return [0] * self.schedule.stages if self._built is None else self._built.saved_bytes()

    @exclusive
    def collectives(self, stage: int) -> dict[str, list[Collective]]:
        """Returns what the collectives of a microbatch move on a stage, by action: ``"F"``, ``"I"`` and ``"W"``; B has I and W.

        Raises:
            Error: no step has run, or another process runs the stage.
        """
        counts = self._of_compiled("collectives", "collectives", stage)
        return {action: [Collective(*each) for each in of] for action, of in zip("FIW", counts, strict=True)}

    def _of_compiled(self, name: str, function: str, stage: int) -> Any:
        """Returns what a function of the engine's pipeline says about a compiled stage, for the method `name`."""
        last = len(self._stages) - 1
        if not 0 <= arguments.whole()(f"{name}: stage", stage) <= last:
            raise Error(f"{name}: there is no stage {stage}: give one from 0 to {last}")
        found = None if self._built is None else getattr(self._built, function)(stage)
        if not found:
            raise Error(f"{name}: stage {stage} is not compiled: call step first, on its process")
        return found

    @property
    @exclusive
    def recorded_graphs(self) -> list[RecordedGraphs]:
        """What ``device_graphs`` has done so far, for each rank of this process; empty without."""
        found = [] if self._built is None else self._built.device_graphs()
        return [RecordedGraphs(*each) for each in found]

    @exclusive
    def graph(self, stage: int) -> str:
        """Returns the compiled graphs of a stage as text: what F, I and W run.

        One line per value: its type, bytes and FLOPs. ``penstock::fused`` is a compiled kernel.

        Raises:
            Error: no step has run, or another process runs the stage.
        """
        return str(self._of_compiled("graph", "graph_text", stage))

    @property
    @exclusive
    def last(self) -> LastStep:
        """What the last `step`, `steps` or `eval_step` computed but did not return.

        Raises:
            Error: none has run.
        """
        return self._run.last()

    @property
    def lr(self) -> float:
        """The learning rate of the first parameter group; `optimizers` has all.

        Raises:
            Error: no stage of this process has an optimizer.
        """
        for optimizer in self._run.model.updates.optimizers:
            if optimizer is not None:
                return float(optimizer.param_groups[0]["lr"])
        raise Error("lr: no stage of this process has an optimizer")

    def __repr__(self) -> str:
        schedule, kinds = self.schedule, {type(each).__name__ for each in self._run.model.updates.optimizers if each}
        parts = [
            f"{schedule.algorithm or 'schedule'!r}",
            f"stages={len(self._stages)}",
            f"ranks={schedule.ranks}",
            f"microbatches={schedule.microbatches}",
            *(f"optimizer={kind}" for kind in sorted(kinds)),
            *([f"lr={self.lr:g}"] if kinds else []),
            f"steps={self._run.done}",
        ]
        return f"Pipeline({', '.join(parts)})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise Error(
            "a Pipeline cannot be copied or pickled: copy its modules, make another Pipeline, and "
            "pass state_dict() to its load_state_dict"
        )
