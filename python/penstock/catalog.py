"""The catalog: every schedule by name, and the passes that change schedules."""

from __future__ import annotations

import math
from collections.abc import Iterable

from penstock import _core
from penstock.arguments import checked, count
from penstock.costs import Costs, as_fields
from penstock.display import Listing
from penstock.schedule_data import Schedule


@checked
def schedule(
    name: str,
    *,
    ranks: int = 4,
    microbatches: int = 8,
    chunks: int | None = None,
    costs: Costs | None = None,
    memory_limit: float | str | None = None,
    objective: str = "makespan",
    group: int | None = None,
    slices: int = 1,
    waves: int | None = None,
    steps: int = 1,
    split: bool = False,
    frozen: Iterable[int] | str = (),
    adapters: Iterable[int] | str = (),
) -> Schedule:
    """Generates a schedule of the catalog: ``schedule("zbv", ranks=8, microbatches=32)``.

    Args:
        name: a name or alias of ``penstock.schedules()``.
        ranks: pipeline ranks.
        microbatches: of one batch.
        chunks: stages per rank. Default: the algorithm's.
        costs: what searches plan with. Default: F, I and W take 1 each.
        memory_limit: of a search, per rank: activations of one rank and microbatch; or bytes if the
            costs are in bytes, which may be text (``"6GiB"``).
        objective: what a search makes as short as possible, ``"makespan"`` or ``"span"``.
        group: group size of ``interleaved``. Default: the algorithm's.
        slices: pieces of a microbatch along the sequence.
        waves: of ``hanayo``. Default: the algorithm's.
        steps: number of batches, for schedules without a flush.
        split: whether the backward is split into I and W, where an algorithm has both forms.
        frozen: stages of the model that train nothing (``[0, 1]`` or ``"0-1"``): they have no W,
            and no I either unless a stage before is trained.
        adapters: stages of the model that train only adapters (LoRA): they have no W.

    Raises:
        Error: the name is unknown, or the algorithm has no schedule for these parameters; says
            which would do.
    """
    used = costs or Costs()
    fields = {
        "ranks": count("ranks", ranks, 1),
        "microbatches": count("microbatches", microbatches, 1),
        "chunks": None if chunks is None else count("chunks", chunks, 1),
        "group": None if group is None else count("group", group, 1),
        "waves": None if waves is None else count("waves", waves, 1),
        "slices": count("slices", slices, 1),
        "steps": count("steps", steps, 1),
        "split": split,
        "objective": objective,
        "memory_limit": _limit(memory_limit, used),
        "frozen": _stages("frozen", frozen),
        "adapters": _stages("adapters", adapters),
    }
    if name.endswith(".csv"):
        raise _core.Error(f"name is {name!r}: Schedule.from_csv reads a file")
    given = {name: value for name, value in fields.items() if value is not None}
    return Schedule._of(_core.generate(name, as_fields(given), used._fields))


def _stages(name: str, stages: Iterable[int] | str) -> str | None:
    """Returns the stages as text, None if there are none."""
    if isinstance(stages, str):
        return stages or None
    return ",".join(str(count(name, stage)) for stage in stages) or None


def _limit(limit: float | str | None, costs: Costs) -> float | str | None:
    """Returns the limit with the unit of the costs."""
    if limit is None or isinstance(limit, str):
        return limit
    number = float(limit)
    if not math.isfinite(number):
        raise _core.Error(f"memory_limit {number}: give a finite number")
    return f"{number:.0f} B" if costs.memory_unit == "B" else number


def schedules() -> Listing[_core.Algorithm]:
    """Returns the catalog's schedules, each with its name, summary, source and parameters."""
    return Listing(_core.algorithms(), ("name", "summary", "parameters", "source"))


def passes() -> Listing[_core.Pass]:
    """Returns the passes of ``Schedule.apply``, each with its name, arguments and summary."""
    return Listing(_core.passes(), ("name", "arguments", "summary"))
