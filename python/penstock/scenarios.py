"""Scenarios: simulations and sweeps of everything that ``penstock simulate`` takes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock import _core
from penstock.arguments import checked, former_names, warn_of_former_names
from penstock.costs import as_fields
from penstock.display import Listing
from penstock.scenario_fields import FORMER_NAMES, ScenarioFields

if TYPE_CHECKING:
    from typing_extensions import Unpack


def fields() -> Listing[_core.Field]:
    """Returns the fields of scenarios, the keywords of ``simulate`` and ``sweep``, with their help."""
    return Listing(_core.fields(), ("name", "group", "help"))


@checked
@former_names(**FORMER_NAMES)
def simulate(
    *schedules: str | os.PathLike[str],
    memory: bool = False,
    time_steps: bool = False,
    run: bool = False,
    unit: str | None = None,
    **scenario: Unpack[ScenarioFields],
) -> list[dict[str, Any]]:
    """Simulates schedules as ``penstock simulate`` does, and returns their figures.

        penstock.simulate("1f1b", "zbv", ranks=8, model="llama-3-70b", nodes="8x8", tensor=8)
        penstock.simulate("zbv", ranks=8, jitter=0.1, runs=1000, repeat=4)

    Args:
        schedules: names of the catalog, with options of their own after colons if need be
            (``"interleaved:v=4"``), and files: CSV, traces, dumps, and at most one configuration
            (``.yaml``), whose keys hold where no keyword is given.
        memory: also return each rank's memory by kind: ``memory``, a list of dicts with ``peak``
            and ``timelines``.
        time_steps: also return ``time_steps``: for each rank the ``action``, ``start`` and ``end``
            of its actions.
        run: also execute the schedules on emulated devices; ``measured`` has their figures.
        unit: real time of one unit of ``cost`` in these runs (default ``"5ms"``; one second with a
            model).
        scenario: the other fields, by the names of ``penstock.fields()``: numbers, text as on the
            command line, sequences, or mappings as in configurations.

    Returns:
        One dict per schedule, with ``schedule``, ``ranks``, ``chunks``, ``microbatches``,
        ``makespan``, ``bubble``, ``span_bubble``, ``peak_memory``, ``messages``, ``time_unit`` and
        ``memory_unit``; with a limit ``memory_limit`` and ``above_memory_limit``; with ``jitter`` a
        dict ``jittered``; with ``repeat`` ``steady_step``, the time of one of that many steps in a
        row.

    Raises:
        Error: a field is unknown, has a wrong value or no effect, or a schedule does not exist.
    """
    figures = _core.simulate_scenario(_words(schedules), _json(scenario), memory, time_steps, run, unit)
    warn_of_former_names()
    return figures


@checked
@former_names(**FORMER_NAMES)
def sweep(
    *schedules: str | os.PathLike[str], over: Mapping[str, Sequence[Any]], **scenario: Unpack[ScenarioFields]
) -> list[dict[str, Any]]:
    """Simulates all combinations of values, on all cores: ``penstock simulate --sweep``.

        rows = penstock.sweep("1f1b", "zbv", over={"ranks": [4, 8], "microbatches": [16, 32]})
        pandas.DataFrame(rows)

    Args:
        schedules: as of ``simulate``; or ``over`` has ``"schedule"``, whose value ``"all"`` stands
            for the whole catalog.
        over: the values of each field that varies.
        scenario: as of ``simulate``.

    Returns:
        One dict per combination: the values of its fields, and the figures of ``simulate``; or
        ``skipped``, why there is no such schedule.

    Raises:
        Error: as ``simulate``; or every combination is skipped.
    """
    axes = {name: [_value(value) for value in values] for name, values in over.items()}
    rows = _core.sweep_scenario(_words(schedules), _json({**scenario, "sweep": axes}))
    warn_of_former_names()
    for row in rows:  # as they were given, not as text
        for name, values in over.items():
            if name in row and name != "schedule":
                given = (value for value in values if str(_value(value)) == row[name])
                row[name] = next(given, row[name])  # a range has values of its own
    return rows


def _words(schedules: Sequence[str | os.PathLike[str]]) -> list[str]:
    return [os.fspath(word) for word in schedules]


def _value(value: Any) -> Any:
    """Returns a value of a sweep as a configuration writes it."""
    if isinstance(value, (list, tuple)):
        return ",".join(str(part) for part in value)
    return str(value).lower() if isinstance(value, bool) else value


def _json(scenario: Mapping[str, Any]) -> str:
    given = {
        name: os.fspath(value) if isinstance(value, os.PathLike) else value
        for name, value in scenario.items()
        if value is not None
    }
    return as_fields(given)
