"""Timelines: when each action of a schedule ran, simulated or measured."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from penstock import _core, display
from penstock.actions import BUBBLE, BUBBLE_CAUSES, MESSAGE, RANK, TIMED_ACTION, Records, records
from penstock.arguments import checked
from penstock.costs import Costs

if TYPE_CHECKING:
    from penstock.schedule_data import Schedule

_AnyTimeline = TypeVar("_AnyTimeline", bound="Timeline")


@checked
class Timeline:
    """A schedule with the times of its actions. Immutable.

    Times are in ``time_unit``: ``"s"``, or empty for the unit of the costs. Memory is in
    ``memory_unit``: ``"B"``, or empty for activations of one rank's share of one microbatch.
    """

    _kind = "measured"
    _run: _core.Run
    _schedule_type: type[Schedule]
    _costs: Costs | None

    def __init__(self) -> None:
        raise TypeError("use Timeline.from_times or Schedule.simulate")

    @classmethod
    def _of(cls: type[_AnyTimeline], run: _core.Run, schedule_type: type[Schedule], costs: Costs | None) -> _AnyTimeline:
        made = cls.__new__(cls)
        made._run, made._schedule_type, made._costs = run, schedule_type, costs
        return made

    @staticmethod
    def from_times(
        schedule: Schedule, times: Sequence[npt.ArrayLike], *, costs: Costs | None = None, time_unit: str = "s"
    ) -> Timeline:
        """Returns a measured timeline.

        Args:
            schedule: what ran. It must be valid.
            times: for each rank the start and the end of each of its actions, shape
                ``(actions, 2)``, all by one clock. The earliest start becomes 0.
            costs: what the actions hold, for memory over time. Optional.
            time_unit: ``"s"``, or empty for the unit of the costs.

        Raises:
            Error: an array has another shape, or a time is not finite or before its start.
        """
        if time_unit not in ("", "s"):
            raise _core.Error(f"time_unit {time_unit!r}: give 's' or ''")
        arrays = []
        for rank, of_rank in enumerate(times):
            try:
                array = np.ascontiguousarray(of_rank, np.float64)
            except (TypeError, ValueError):
                raise _core.Error(f"rank {rank}: the times are not an array of numbers") from None
            if array.size == 0:
                array = array.reshape(0, 2)
            if array.ndim != 2:
                raise _core.Error(f"rank {rank}: times have the shape {array.shape}; give a start and an end per action")
            arrays.append(array)
        prices = None if costs is None else costs._fields
        run = _core.measured(schedule._frozen(), arrays, prices, time_unit)
        return Timeline._of(run, type(schedule), costs)

    @cached_property
    def schedule(self) -> Schedule:
        """A copy of the schedule as it ran."""
        return self._schedule_type._of(self._run.schedule)

    @property
    def makespan(self) -> float:
        """Time from 0 to the end of the last action."""
        return self._run.makespan

    @property
    def bubble(self) -> float:
        """``1 - ideal / makespan``, where ideal is the busiest rank's busy time."""
        return self._run.bubble

    @property
    def span_bubble(self) -> float:
        """``1 - ideal / longest span``; a span is from a rank's first start to its last end."""
        return self._run.span_bubble

    @property
    def peak_memory(self) -> float:
        """Activations of the worst rank, in the unit of memory; 0 if unknown."""
        return self._run.peak_memory

    @property
    def message_count(self) -> int:
        """Messages between ranks, in both directions."""
        return self._run.message_count

    @property
    def time_unit(self) -> str:
        """``"s"``, or empty for the unit of the costs."""
        return self._run.time_unit

    @property
    def memory_unit(self) -> str:
        """``"B"``, or empty for activations of one rank's share of one microbatch."""
        return self._run.memory_unit

    @property
    def per_rank(self) -> Records:
        """``busy``, ``first_start``, ``last_end`` and ``peak_memory``, shape ``(ranks,)``."""
        return records(self._run.per_rank(), RANK)

    def times(self, rank: int) -> npt.NDArray[np.float64]:
        """Returns start and end of a rank's actions, shape ``(actions, 2)``, read-only.

        Raises:
            IndexError: there is no such rank.
        """
        return self._run.times(rank).view(np.float64)

    def actions(self, rank: int) -> Records:
        """Returns a rank's actions with ``start`` and ``end``: ``TIMED_ACTION``, ``(actions,)``.

        Raises:
            IndexError: there is no such rank.
        """
        times = self._run.times(rank)
        rows = np.empty((len(times), TIMED_ACTION.itemsize), np.uint8)
        rows[:, :16] = times
        rows[:, 16:] = self._run.schedule.lane(rank)
        return records(rows, TIMED_ACTION)

    @property
    def messages(self) -> Records:
        """The messages between ranks: ``MESSAGE``, shape ``(messages,)``; none if measured."""
        return records(self._run.messages(), MESSAGE)

    def memory(self, rank: int) -> npt.NDArray[np.float64]:
        """Returns the activations that a rank holds over time, shape ``(points, 2)``.

        From the time in column 0 until the next point, the rank holds the amount in column 1.

        Raises:
            Error: the timeline has no costs.
            IndexError: there is no such rank.
        """
        return self._run.memory(rank).points().view(np.float64)

    @cached_property
    def _explanation(self) -> _core.Explanation:
        return _core.explain(self._run, None)

    def bubbles(self, rank: int, *, memory_limit: float | None = None) -> Records:
        """Returns the times in which a rank is idle: ``BUBBLE``, shape ``(bubbles,)``.

        With ``memory_limit`` (per rank), forwards that do not fit are a cause.

        Raises:
            IndexError: there is no such rank.
        """
        explained = self._explanation if memory_limit is None else _core.explain(self._run, float(memory_limit))
        return records(explained.bubbles(rank), BUBBLE)

    @property
    def bubble_causes(self) -> dict[str, float]:
        """The idle time of all ranks by cause."""
        return dict(zip(BUBBLE_CAUSES, self._explanation.totals(), strict=True))

    @property
    def critical_path(self) -> npt.NDArray[np.int32]:
        """The actions that determine the end: rank and position in its lane, ``(actions, 2)``."""
        return self._explanation.critical_path().view(np.int32)

    def report(
        self,
        path: str | os.PathLike[str],
        *others: Timeline,
        title: str | None = None,
        width: int = 1200,
        for_paper: bool = False,
    ) -> None:
        """Writes this timeline, and others below it, as the ending of the path says.

        ``.html`` is a page, ``.svg``, ``.png`` and ``.pdf`` are pictures (``width`` pixels wide),
        and ``.trace.json`` is a trace for Perfetto. ``penstock.compare`` names the timelines.

        Raises:
            Error: the ending is unknown, the file cannot be written, or units differ.
        """
        compared = display.Comparison(display.labeled((self, *others)))
        compared.report(path, title=title, width=width, for_paper=for_paper)

    def svg(self, width: int = 1000) -> str:
        """Returns the timeline as a picture."""
        return display.Comparison({"": self}).svg(width=width)

    def show(self, *, width: int | None = None, color: bool | None = None) -> None:
        """Prints the timeline with characters, as wide as the terminal.

        Raises:
            Error: the width is too small.
        """
        display.show(self, width, color)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Timeline):
            return NotImplemented
        ranks = range(self._run.schedule.ranks)
        return self._run.schedule.equals(other._run.schedule) and all(
            np.array_equal(self.times(rank), other.times(rank)) for rank in ranks
        )

    __hash__ = None  # type: ignore[assignment]  # arrays have no hash

    def __repr__(self) -> str:
        return f"<penstock.{type(self).__name__} of {display.figures_line(self)}>"

    def _repr_html_(self) -> str:
        return display.timeline_html(self)

    def __copy__(self: _AnyTimeline) -> _AnyTimeline:
        return self

    def __deepcopy__(self: _AnyTimeline, memo: dict[int, Any]) -> _AnyTimeline:
        return self

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        ranks = range(self._run.schedule.ranks)
        times = [np.array(self.times(rank)) for rank in ranks]
        return _restore_measured, (self.schedule, times, self.time_unit, self._costs)


class Simulation(Timeline):
    """A schedule with its simulated times. Immutable; pickled as its schedule and costs."""

    _kind = "simulated"

    @property
    def costs(self) -> Costs:
        """What the actions took."""
        assert self._costs is not None
        return self._costs

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return _simulate_again, (self.schedule, self.costs)


@checked
def compare(timelines: Mapping[str, Timeline] | Sequence[Timeline]) -> display.Comparison:
    """Returns a comparison: a table of figures, and reports with all timelines.

        penstock.compare({"predicted": simulation, "measured": timeline}).report("x.html")

    Raises:
        Error: no timeline is given.
    """
    given = timelines if isinstance(timelines, Mapping) else display.labeled(timelines)
    return display.Comparison(given)


def _simulate_again(schedule: Schedule, costs: Costs) -> Simulation:
    return schedule.simulate(costs)


def _restore_measured(schedule: Schedule, times: list[npt.ArrayLike], time_unit: str, costs: Costs | None = None) -> Timeline:
    return Timeline.from_times(schedule, times, costs=costs, time_unit=time_unit)
