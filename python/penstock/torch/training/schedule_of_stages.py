"""The schedule that a Pipeline was given: by name, as a file, or made."""

from __future__ import annotations

import os
from typing import Any

from penstock import Error, Schedule
from penstock import schedule as generate
from penstock.torch.arguments import shown
from penstock.torch.placement import model_stages, zero_of


def schedule_of_stages(given: Any) -> Schedule:
    """Returns the schedule of all replicas, and checks that it has as many stages as the model.

    ``given`` has the arguments of a Pipeline, by name.
    """
    microbatches, data_parallel = given.microbatches, given.data_parallel  # of all replicas together
    if microbatches is not None and microbatches % data_parallel != 0:
        raise Error(
            f"microbatches is {microbatches}, which the {data_parallel} replicas of data_parallel do not divide: give a multiple"
        )
    pipeline = _of_one_replica(given, None if microbatches is None else microbatches // data_parallel)
    try:
        made = pipeline.replicate(data_parallel)
    except Error as error:
        raise Error(f"data_parallel: {error}") from None
    shards = zero_of(given.zero, data_parallel, made) >= 2  # gradients
    if shards and given.zero == 3:
        made = made.apply("sharding=1:0")
    return made.apply("reduce-grad") if shards else made


def _of_one_replica(given: Any, microbatches: int | None) -> Schedule:
    stages, ranks, made = len(given.stages), given.ranks, given.schedule
    label = made if isinstance(made, (str, os.PathLike)) else None
    if label is not None and os.fspath(label).endswith(".csv"):
        made = Schedule.from_csv(label)
    if isinstance(made, Schedule):
        for name, asked, has in (("ranks", ranks, made.ranks), ("microbatches", microbatches, made.microbatches)):
            if asked is not None and asked != has:
                each = " per replica" if given.data_parallel > 1 else ""
                raise Error(f"{name} is {asked}{each}, but the schedule has {has}: leave it out")
    elif not isinstance(made, str):
        raise Error(f"schedule is {shown(made)}: give a name, a penstock.Schedule, or a CSV file")
    else:
        ranks = 2 if ranks is None else ranks
        made = _generate(made, stages, ranks, 2 * ranks if microbatches is None else microbatches, given.slices)
    made.check()
    chain = model_stages(made)
    if chain != stages:
        what = "the schedule" if label is None else f"schedule {str(label)!r}"
        raise Error(
            f"stages has {stages} modules, but {what} on {made.ranks} ranks has {chain} stages: split the model into {chain}"
        )
    if made.steps != 1:
        raise Error(f"the schedule has {made.steps} steps: pass one of a single step")
    return made


def _generate(name: str, stages: int, ranks: int, microbatches: int, slices: int) -> Schedule:
    """Generates a schedule with as many chunks per rank as the stages need, if it has chunks."""
    error: Error | None = None
    for chunks in dict.fromkeys((max(1, stages // ranks), None)):
        try:
            made = generate(name, ranks=ranks, microbatches=microbatches, chunks=chunks, slices=slices)
        except Error as refused:
            error = error or refused
            continue
        if model_stages(made) == stages or chunks is None:
            return made
    assert error is not None
    raise error
