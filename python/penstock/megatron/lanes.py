"""Schedules as this engine runs them: found by name or file, checked, lowered, one list of actions per rank."""

from __future__ import annotations

import functools
import hashlib
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from penstock import NO_OP, OPS, Costs, Error, Records, Schedule, schedule, schedules

_LOCAL = frozenset([*"FIWB", "OFFLOAD", "RELOAD", "RECOMPUTE"])
_MESSAGES = {"SEND_F": 1, "RECV_F": -1, "SEND_B": -1, "RECV_B": 1}  # to or from which neighbor

_WHOLE = ("chunks", "group", "waves")
_OPTIONS = (*_WHOLE, "split", "costs", "memory_limit", "objective", "passes")


class Action(NamedTuple):
    """What a rank does next."""

    op: str  # of _LOCAL or _MESSAGES
    stage: int
    microbatch: int
    paired: bool = False  # with the next one


class Lanes:
    """The actions of each rank of one pipeline, and where its stages are.

    Raises:
        Error: the schedule has something that Megatron's step cannot do; names it.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.name = schedule.algorithm or "the schedule"
        self.ranks, self.stages, self.microbatches = schedule.ranks, schedule.stages, schedule.microbatches
        self.rank_of_stage = schedule.rank_of_stage
        _require_supported(schedule, self.name)
        self.chunks = _chunks(self.rank_of_stage, self.ranks, self.name)
        lowered = schedule
        if not any(OPS[op] in _MESSAGES for lane in schedule.lanes for op in set(lane["op"].tolist())):
            lowered = schedule.lower()
        self.of_rank = [list(_actions(lane)) for lane in lowered.lanes]
        self.ops = frozenset(action.op for lane in self.of_rank for action in lane)
        #: Whether linear layers leave their weight gradients to us: for W, or since offloaded weights are copies, without the
        #: attributes that Megatron gives to parameters.
        self.splits = not self.ops.isdisjoint({"I", "OFFLOAD"})
        self._require_messages_complete()
        self._require_orders_of_stages()

    @functools.cached_property
    def digest(self) -> str:
        """A hash of all actions and places, equal for equal lanes."""
        return hashlib.sha256(repr((self.rank_of_stage, self.of_rank)).encode()).hexdigest()

    def forward_only(self, rank: int, microbatches: int) -> list[Action]:
        """Returns a rank's forwards and their messages for any number of microbatches.

        All ranks take them out of one order, so that blocking messages complete.
        """
        lane = []
        for _, backwards, microbatch in sorted(
            (microbatch + stage, -stage, microbatch) for stage in range(self.stages) for microbatch in range(microbatches)
        ):
            stage = -backwards
            here, before = self.rank_of_stage[stage], self.rank_of_stage[max(stage - 1, 0)]
            if before != here and before == rank:
                lane.append(Action("SEND_F", stage - 1, microbatch))
            if before != here and here == rank:
                lane.append(Action("RECV_F", stage, microbatch))
            if here == rank:
                lane.append(Action("F", stage, microbatch))
        return lane

    def _require_messages_complete(self) -> None:
        """Runs all lanes with messages that block until both ranks have posted them, and in the same order."""
        position = [0] * self.ranks
        ready = list(range(self.ranks))
        while ready:
            rank = ready.pop()
            mine = self._next_message(rank, position)
            if mine is None:
                continue
            peer = self.rank_of_stage[mine.stage + _MESSAGES[mine.op]]
            theirs = self._next_message(peer, position)
            if theirs is not None and _passes(mine) == _passes(theirs) and mine.op != theirs.op:
                position[rank], position[peer] = position[rank] + 1, position[peer] + 1
                ready += [rank, peer]
        for rank in range(self.ranks):
            waiting = self._next_message(rank, position)
            if waiting is not None:
                raise Error(
                    f"{self.name}: rank {rank} waits at {waiting.stage}{waiting.op}{waiting.microbatch} forever, because ranks "
                    "have their messages in different orders; remove the SEND and RECV actions, which penstock.megatron adds"
                )

    def _next_message(self, rank: int, position: list[int]) -> Action | None:
        """Returns the message at which a rank is, after the actions that compute; moves its position there."""
        lane = self.of_rank[rank]
        while position[rank] < len(lane) and lane[position[rank]].op not in _MESSAGES:
            position[rank] += 1
        return lane[position[rank]] if position[rank] < len(lane) else None

    def _require_orders_of_stages(self) -> None:
        """Data iterators, losses and Transformer Engine's queues need these orders."""
        for stage, rank in enumerate(self.rank_of_stage):
            lane = self.of_rank[rank]
            forwards = [action.microbatch for action in lane if action.stage == stage and action.op == "F"]
            if forwards != list(range(self.microbatches)):
                raise Error(f"{self.name}: stage {stage} runs forwards out of the order of microbatches; sort them")
            inputs, weights = ([a.microbatch for a in lane if a.stage == stage and a.op == op] for op in "IW")
            if inputs != weights:
                raise Error(f"{self.name}: stage {stage} has its W in another order than its I; give both the same order")


def _passes(message: Action) -> tuple[int, str, int]:
    """Returns what a SEND and its RECV have in common: the stage that computes it, F or B, and the microbatch."""
    stage = message.stage + _MESSAGES[message.op] if message.op.startswith("RECV") else message.stage
    return stage, message.op[-1], message.microbatch


def _require_supported(schedule: Schedule, name: str) -> None:
    schedule.check()
    reasons = {
        f"{schedule.replicas} chains of stages": schedule.replicas > 1,
        f"{schedule.slices} slices of a microbatch": schedule.slices > 1,
        f"{schedule.steps} batches without a flush": schedule.steps > 1,
        f"weights that are {schedule.weight_policy}": schedule.weight_policy != "flush",
        "stages without a part of the backward": bool(schedule.frozen or schedule.adapters),
    }
    for reason, applies in reasons.items():
        if applies:
            raise Error(
                f"{name} has {reason}, which a step of Megatron cannot run; choose a schedule with one chain that flushes"
            )
    ops = {OPS[op] for lane in schedule.lanes for field in ("op", "op2") for op in set(lane[field].tolist()) if op != NO_OP}
    for op in sorted(ops - _LOCAL - _MESSAGES.keys()):
        raise Error(f"{name} has {op} actions, which penstock.megatron does not run; leave out the pass that adds them")


def _chunks(rank_of_stage: Sequence[int], ranks: int, name: str) -> int:
    """Returns the stages per rank. Megatron numbers stage ``chunk * ranks + r``; each chunk has a stage on every rank."""
    chunks, rest = divmod(len(rank_of_stage), ranks)
    groups = [rank_of_stage[chunk * ranks : (chunk + 1) * ranks] for chunk in range(chunks)]
    if rest or any(sorted(group) != list(range(ranks)) for group in groups):
        raise Error(
            f"{name} places stages on ranks {list(rank_of_stage)}; Megatron needs one of every {ranks} stages on each rank"
        )
    return chunks


def _actions(lane: Records) -> Iterator[Action]:
    """Yields the actions of a rank; a pair is two, one after the other."""
    for record in lane.tolist():
        op, stage, microbatch, op2, stage2, microbatch2 = record
        yield Action(OPS[op], stage, microbatch, paired=op2 != NO_OP)
        if op2 != NO_OP:
            yield Action(OPS[op2], stage2, microbatch2)


def parse_options(text: str) -> tuple[str, dict[str, str]]:
    """Returns name and options of ``zb-auto,costs=measured.yaml``. Raises ``Error`` for what is not ``option=value``."""
    name, *parts = text.split(",")
    options = {}
    for part in parts:
        option, equals, value = part.partition("=")
        if not equals and option != "split":
            raise Error(f"schedule {text!r}: {part!r} is not option=value")
        options[option] = value or "true"
    return name, options


class Source:
    """Returns the lanes of a run. Schedules by name are generated for each number of microbatches, and kept."""

    def __init__(self, given: Schedule | str | os.PathLike[str], options: dict[str, Any]) -> None:
        self._fixed: Lanes | None = None
        self._options: dict[str, Any] = {}
        self._kept: dict[tuple[int, int, int], Lanes] = {}
        if isinstance(given, str) and not given.endswith(".csv"):
            self.name, own = parse_options(given)
            self._options = _options({**own, **options})
            self._algorithm = _algorithm(self.name)
            return
        if options:
            raise Error(f"options {', '.join(options)}: only schedules by name have options; leave them out")
        self._fixed = Lanes(given if isinstance(given, Schedule) else Schedule.from_csv(pathlib.Path(given)))
        self.name = self._fixed.name

    def lanes(self, ranks: int, chunks: int, microbatches: int) -> Lanes:
        """Returns the lanes for pipeline ranks, model chunks per rank and microbatches of a step.

        Raises:
            Error: the schedule is for other numbers, or there is none for these.
        """
        if self._fixed is None:
            key = (ranks, chunks, microbatches)
            if key not in self._kept:
                self._kept[key] = Lanes(self._generate(*key))
            lanes = self._kept[key]
        else:
            lanes = self._fixed
            if lanes.microbatches != microbatches:
                raise Error(
                    f"{self.name} is for {lanes.microbatches} microbatches and the step has {microbatches}; generate it with "
                    f"--microbatches {microbatches}, or give the schedule by name"
                )
        return self._fitting(lanes, ranks, chunks)

    def any_lanes(self, ranks: int, chunks: int, likely: int | None) -> Lanes:
        """Returns lanes for some number of microbatches, ``likely`` if they must be generated: for where stages are."""
        kept = (lanes for (*numbers, _), lanes in self._kept.items() if tuple(numbers) == (ranks, chunks))
        lanes = self._fixed or next(kept, None)
        if lanes is None:
            return self.lanes(ranks, chunks, likely or 4 * ranks)
        return self._fitting(lanes, ranks, chunks)

    def _fitting(self, lanes: Lanes, ranks: int, chunks: int) -> Lanes:
        if lanes.ranks != ranks:
            raise Error(
                f"{self.name} is for {lanes.ranks} pipeline ranks and the run has {ranks}; generate it with --ranks {ranks}, "
                f"or set --pipeline-model-parallel-size {lanes.ranks}"
            )
        if lanes.chunks != chunks:
            chosen = (
                f"--num-virtual-stages-per-pipeline-rank {lanes.chunks}" if lanes.chunks > 1 else "no virtual pipeline stages"
            )
            raise Error(f"{self.name} has {_stages(lanes.chunks)} per rank and the model {_stages(chunks)}; set {chosen}")
        return lanes

    def _generate(self, ranks: int, chunks: int, microbatches: int) -> Schedule:
        options = dict(self._options)
        passes = options.pop("passes", [])
        if "chunks" in self._algorithm.parameters and not {"chunks", "waves"} & options.keys():
            options["chunks"] = chunks
        return schedule(self.name, ranks=ranks, microbatches=microbatches, **options).apply(*passes, costs=options.get("costs"))


def _stages(count: int) -> str:
    return f"{count} stage{'' if count == 1 else 's'}"


def _algorithm(name: str) -> Any:
    for algorithm in schedules():
        if name == algorithm.name or name in algorithm.aliases:
            return algorithm
    schedule(name)  # raises the error that names similar ones
    raise AssertionError(name)


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """Returns options with the types that ``penstock.schedule`` takes."""
    made: dict[str, Any] = {}
    for name, value in given.items():
        if name not in _OPTIONS:
            raise Error(f"{name}: schedules of penstock.megatron have the options {', '.join(_OPTIONS)}")
        if name in _WHOLE and isinstance(value, str):
            if not value.isdigit():
                raise Error(f"{name}={value}: give a whole number")
            value = int(value)
        elif name == "split" and isinstance(value, str):
            if value not in ("true", "false"):
                raise Error(f"split={value}: give true or false")
            value = value == "true"
        elif name == "passes" and isinstance(value, str):
            value = value.split("+")
        elif name == "costs" and not isinstance(value, Costs):
            value = Costs.load(value)
        made[name] = value
    return made
