"""How schedules, timelines and listings look in notebooks and terminals."""

from __future__ import annotations

import html
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from penstock import _core
from penstock.arguments import checked

if TYPE_CHECKING:
    from penstock.schedule_data import Schedule
    from penstock.simulation import Timeline

_MOST_DRAWN = 20_000  # actions; a browser needs seconds for larger pictures
_COLUMNS = ("timeline", "makespan", "bubble", "span bubble", "peak memory", "messages")

_Entry = TypeVar("_Entry")


class Listing(tuple[_Entry, ...]):
    """Entries with attributes, which notebooks show as a table."""

    _columns: tuple[str, ...]

    def __new__(cls, entries: Iterable[_Entry], columns: tuple[str, ...]) -> Listing[_Entry]:
        made = super().__new__(cls, tuple(entries))
        made._columns = columns
        return made

    def _repr_html_(self) -> str:
        rows = [[_cell(getattr(entry, name)) for name in self._columns] for entry in self]
        return table_html(self._columns, rows)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("the catalog is not pickled; call it again")


@checked
class Comparison:
    """Figures of several timelines, and reports with all of them."""

    def __init__(self, timelines: Mapping[str, Timeline]) -> None:
        if not timelines:
            raise _core.Error("no timeline is given")
        self.timelines = dict(timelines)

    @property
    def rows(self) -> list[dict[str, str | float]]:
        """The figures of each timeline, in its units."""
        return [
            {
                "timeline": label,
                "makespan": line.makespan,
                "bubble": line.bubble,
                "span bubble": line.span_bubble,
                "peak memory": line.peak_memory,
                "messages": line.message_count,
            }
            for label, line in self.timelines.items()
        ]

    def svg(self, *, width: int = 1000) -> str:
        """Returns all timelines as one picture."""
        return _core.svg(self._runs(), self._style("", width, False))

    def report(
        self, path: str | os.PathLike[str], *, title: str | None = None, width: int = 1200, for_paper: bool = False
    ) -> None:
        """Writes all timelines; see ``Timeline.report``."""
        first = next(iter(self.timelines.values()))
        heading = first.schedule.algorithm or "schedule" if title is None else title
        _core.write_report(self._runs(), self._style(heading, width, for_paper), os.fspath(path))

    def show(self) -> None:
        """Prints the table."""
        print(self)

    def __str__(self) -> str:
        rows = [list(_COLUMNS), *self._texts()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
        lines = [
            row[0].ljust(widths[0]) + "".join("  " + cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
            for row in rows
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<penstock.Comparison of {', '.join(self.timelines)}>"

    def _repr_html_(self) -> str:
        return table_html(_COLUMNS, self._texts())

    def _texts(self) -> list[list[str]]:
        return [[label, *figure_texts(line)] for label, line in self.timelines.items()]

    def _runs(self) -> list[tuple[str, _core.Run]]:
        return [(label, line._run) for label, line in self.timelines.items()]

    def _style(self, title: str, width: int, for_paper: bool) -> _core.ReportStyle:
        if not 240 <= width <= 10000:
            raise _core.Error(f"width {width}: give 240 to 10000 pixels")
        first = next(iter(self.timelines.values()))
        style = _core.ReportStyle()
        style.title, style.width, style.for_paper = title, width, for_paper
        style.subtitle = f"{first.schedule.ranks} ranks, {first.schedule.microbatches} microbatches"
        if len(self.timelines) == 1:
            style.figures = list(zip(_COLUMNS[1:], figure_texts(first), strict=True))
        style.columns, style.rows = list(_COLUMNS), self._texts()
        return style


def labeled(timelines: Sequence[Timeline]) -> dict[str, Timeline]:
    """Returns timelines by name: whether they are simulated or measured, or their schedules."""
    algorithms = {line.schedule.algorithm for line in timelines}
    named: dict[str, Timeline] = {}
    for line in timelines:
        label = line._kind if len(algorithms) == 1 else line.schedule.algorithm or line._kind
        unique, number = label, 2
        while unique in named:
            unique, number = f"{label} {number}", number + 1
        named[unique] = line
    return named


def figure_texts(timeline: Timeline) -> list[str]:
    """Returns the figures with their units, without the name."""
    return [
        _core.amount(timeline.makespan, timeline.time_unit),
        f"{timeline.bubble:.1%}",
        f"{timeline.span_bubble:.1%}",
        _core.amount(timeline.peak_memory, timeline.memory_unit),
        str(timeline.message_count),
    ]


def figures_line(timeline: Timeline) -> str:
    """Returns one line of text: what ran, and how long it took."""
    schedule = timeline.schedule
    makespan, bubble = figure_texts(timeline)[:2]
    return (
        f"{schedule.algorithm or 'a schedule'}: {schedule.ranks} ranks, "
        f"{schedule.microbatches} microbatches, makespan {makespan}, bubble {bubble}"
    )


def timeline_html(timeline: Timeline) -> str:
    """Returns the picture of the timeline; only its figures where it has too many actions."""
    if len(timeline.schedule) > _MOST_DRAWN:
        return table_html(_COLUMNS, [[timeline.schedule.algorithm, *figure_texts(timeline)]])
    return f"<div>{html.escape(figures_line(timeline))}</div>{timeline.svg()}"


def schedule_html(schedule: Schedule) -> str:
    """Returns the simulated timeline, or the first fault."""
    try:
        return timeline_html(schedule.simulate())
    except _core.Error as error:
        return f"<div>{html.escape(repr(schedule))}</div><div>{html.escape(str(error))}</div>"


def table_html(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table."""

    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return f"<table>{line('th', columns)}{''.join(line('td', row) for row in rows)}</table>"


def show(timeline: Timeline, width: int | None, color: bool | None) -> None:
    """Prints a timeline to standard output."""
    columns = shutil.get_terminal_size((100, 24)).columns if width is None else width
    if not 20 <= columns <= 10000:
        raise _core.Error(f"width {columns}: give 20 to 10000 columns")
    colored = sys.stdout.isatty() if color is None else color
    depth = 0 if not colored else 2 if os.environ.get("COLORTERM") in ("truecolor", "24bit") else 1
    unicode = (getattr(sys.stdout, "encoding", None) or "").lower().startswith("utf")
    print(_core.terminal(timeline._run, columns, depth, unicode), end="")


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else ", ".join(value)
