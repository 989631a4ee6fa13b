"""The catalog: every schedule by name, and the passes that change schedules."""

from __future__ import annotations

from penstock import _core
from penstock.arguments import checked, count
from penstock.costs import Costs
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

    Raises:
        Error: the name is unknown, or the algorithm has no schedule for these parameters; says
            which would do.
    """
    params = _core.Params()
    params.ranks, params.microbatches = count("ranks", ranks), count("microbatches", microbatches)
    params.chunks = 0 if chunks is None else count("chunks", chunks, 1)
    params.group = 0 if group is None else count("group", group, 1)
    params.waves = 0 if waves is None else count("waves", waves, 1)
    params.slices, params.steps, params.split = (
        count("slices", slices),
        count("steps", steps),
        split,
    )
    as_text = memory_limit if isinstance(memory_limit, str) else None
    if memory_limit is not None and as_text is None:
        params.memory_limit = float(memory_limit)
    return Schedule._of(
        _core.generate(name, params, (costs or Costs())._list, as_text, objective)
    )


def schedules() -> Listing[_core.Algorithm]:
    """Returns the catalog's schedules, each with its name, summary, source and parameters."""
    return Listing(_core.algorithms(), ("name", "summary", "parameters", "source"))


def passes() -> Listing[_core.Pass]:
    """Returns the passes of ``Schedule.apply``, each with its name, arguments and summary."""
    return Listing(_core.passes(), ("name", "arguments", "summary"))
