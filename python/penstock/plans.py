"""Plans: how to train a model, and the best schedule for costs and a memory limit."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock import _core
from penstock.arguments import checked, count, former_names, warn_of_former_names
from penstock.costs import as_fields
from penstock.scenario_fields import FORMER_NAMES, PlanFields
from penstock.schedule_data import Schedule

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Plan(dict[str, Any]):
    """What ``penstock plan --json`` prints, as a dict; ``schedule`` is the best plan's schedule."""

    schedule: Schedule


@checked
@former_names(**FORMER_NAMES)
def plan(**fields: Unpack[PlanFields]) -> Plan:
    """Finds how to train a model on a cluster, or the best schedule for costs and a memory limit.

        penstock.plan(model="llama-3-70b", device="h100", nodes="8x8", global_batch=512)
        penstock.plan(ranks=8, microbatches=32, cost=(1, 1.2, 0.8), comm=0.2, memory_limit=6)
        penstock.plan(ranks=8, microbatches=32, costs="recorded/measured.yaml", framework="megatron")

    Args:
        fields: the options of ``penstock plan``, with ``framework`` for ``--for``. ``chunks`` are
            the numbers of stages per rank that are allowed; ``schedule``, ``exclude`` and
            ``precisions`` are names. ``uncertainty`` may be a mapping. With a model, every dimension
            that is not given is searched, and ``memory_limit`` is in bytes of a device.

    Returns:
        What ``--json`` prints: ``best``, ``front``, ``searched``, ``seconds``, ... The best plan's
        schedule is the attribute ``schedule``.

    Raises:
        Error: a keyword is unknown, has a wrong value or no effect, or nothing fits the memory.
        KeyboardInterrupt: Ctrl-C ended the search.
    """
    given: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    request = _core.PlanRequest()
    request.chunks = [count("chunks", each, 1) for each in _list(given.pop("chunks", ()))]
    request.framework = given.pop("framework", None)
    if "costs" in given:
        request.costs = os.fspath(given.pop("costs"))
    for name, least in (("global_batch", 1), ("samples", 1), ("seed", 0)):
        if name in given:
            setattr(request, name, count(name, given.pop(name), least))
    if "tokens" in given:
        request.tokens = f"{given.pop('tokens')}"
    request.price_per_hour = given.pop("price_per_hour", None)
    for name in ("schedule", "exclude", "precisions", "uncertainty"):
        setattr(request, name, _words(given.pop(name, ())))
    text, schedule = _core.plan(as_fields(_texts(given)), request)
    warn_of_former_names()
    found = Plan(json.loads(text))
    found.schedule = Schedule._of(schedule)
    return found


def _list(value: Any) -> Sequence[Any]:
    return [value] if not hasattr(value, "__len__") else value


def _words(value: Mapping[str, float] | Sequence[str] | str) -> list[str]:
    """Returns names that are given as a mapping to values, a sequence, or text with commas."""
    if isinstance(value, Mapping):
        return [f"{name}={each}" for name, each in value.items()]
    return value.split(",") if isinstance(value, str) else list(value)


def _texts(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields as files write them: paths as text, and bytes with their unit."""
    texts = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in given.items()}
    limit = texts.get("memory_limit")
    if "model" in texts and limit is not None and not isinstance(limit, str):
        if not math.isfinite(limit):
            raise _core.Error(f"memory_limit {limit}: give a finite number")
        texts["memory_limit"] = f"{limit:.0f} B"
    return texts
