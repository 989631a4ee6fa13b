"""The schedule that a Pipeline was given: by name, as a file, or made."""

from __future__ import annotations

import os

from penstock import Error, Schedule
from penstock import schedule as generate
from penstock.torch.arguments import shown


def schedule_of_stages(
    given: str | Schedule, stages: int, ranks: int | None, microbatches: int | None, slices: int, data_parallel: int, zero: int
) -> Schedule:
    """Returns the schedule of all replicas, and checks that it has as many stages as the model.

    ``microbatches`` is the number of all replicas together.
    """
    if microbatches is not None and microbatches % data_parallel != 0:
        raise Error(
            f"microbatches is {microbatches}, which the {data_parallel} replicas of data_parallel do not divide: give a multiple"
        )
    of_one = None if microbatches is None else microbatches // data_parallel
    pipeline = _of_one_replica(given, stages, ranks, of_one, slices, data_parallel)
    try:
        made = pipeline.replicate(data_parallel)
    except Error as error:
        raise Error(f"data_parallel: {error}") from None
    shards = made.replicas > 1 and zero_of(zero, data_parallel, made) >= _SHARDS_GRADIENTS
    if shards and zero == 3:
        made = made.apply("sharding=1:0")
    return made.apply("reduce-grad") if shards else made


def zero_of(zero: int, data_parallel: int, schedule: Schedule) -> int:
    """Returns what replicas shard: the two of a bidirectional schedule share no gradients."""
    if schedule.replicas == 1:
        return 0
    return min(zero, 1) if data_parallel == 1 else zero


_SHARDS_GRADIENTS = 2  # from this ZeRO stage on


def _of_one_replica(
    given: str | Schedule, stages: int, ranks: int | None, microbatches: int | None, slices: int, data_parallel: int
) -> Schedule:
    label = given if isinstance(given, (str, os.PathLike)) else None
    if label is not None and os.fspath(label).endswith(".csv"):
        given = Schedule.from_csv(label)
    if isinstance(given, Schedule):
        made = given
        for name, asked, has in (("ranks", ranks, made.ranks), ("microbatches", microbatches, made.microbatches)):
            if asked is not None and asked != has:
                each = " per replica" if data_parallel > 1 else ""
                raise Error(f"{name} is {asked}{each}, but the schedule has {has}: leave it out")
    elif not isinstance(given, str):
        raise Error(f"schedule is {shown(given)}: give a name, a penstock.Schedule, or a CSV file")
    else:
        ranks = 2 if ranks is None else ranks
        if ranks < 1:
            raise Error(f"ranks is {ranks}: give at least 1")
        made = _generate(given, stages, ranks, 2 * ranks if microbatches is None else microbatches, slices)
    made.check()
    chain = made.stages // made.replicas
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
        if made.stages // made.replicas == stages or chunks is None:
            return made
    assert error is not None
    raise error
