"""Schedules: what each rank computes, in order."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np

from penstock import _core, display
from penstock.actions import ACTION, Records, as_bytes, as_lane, records, texts
from penstock.arguments import checked, count, former_names, shown
from penstock.costs import Costs
from penstock.simulation import Simulation


class Lanes(Sequence[Records]):
    """The actions of each rank as a writable array of ``ACTION``, shape ``(actions,)``.

    Edits of an array take effect at once. Assigning replaces a rank's actions: by another array, or
    by text (``lanes[0] = ["0F0", "0B0"]``).
    """

    def __init__(self, lanes: list[Records]) -> None:
        self._lanes = lanes

    def __len__(self) -> int:
        return len(self._lanes)

    @overload
    def __getitem__(self, rank: int) -> Records: ...
    @overload
    def __getitem__(self, rank: slice) -> list[Records]: ...
    def __getitem__(self, rank: int | slice) -> Records | list[Records]:
        return self._lanes[rank]

    def __setitem__(self, rank: int, lane: Records | Iterable[str]) -> None:
        self._lanes[rank] = as_lane(lane, f"rank {rank}").copy()

    def __iter__(self) -> Iterator[Records]:
        return iter(self._lanes)

    def __repr__(self) -> str:
        return f"<penstock.Lanes: {', '.join(str(len(lane)) for lane in self._lanes)} actions>"


@checked
class Schedule:
    """Who computes which microbatch when: a lane of actions for each rank.

    ``penstock.schedule`` generates one; the constructor builds one from scratch:

        Schedule([0, 1], [["0F0", "0B0"], ["1F0", "1B0"]])

    Args:
        rank_of_stage: the rank of each stage, in the order of the model. With ``replicas`` K, the
            stages are K chains of equal length, one after the other.
        lanes: for each rank an array of ``ACTION``, or its actions as text.
        microbatches: of one batch, over all chains. Default: as many as the lanes have.
        replicas: chains (2 for DualPipe and Chimera).
        slices: pieces of a microbatch along the sequence; slice j of microbatch n has the index
            ``n * slices + j``.
        steps: batches that the lanes hold, of schedules without a flush.
        weight_policy: ``"flush"``, ``"stashed"`` or ``"double-buffered"``.
        vocabulary: whether embedding and head are sharded over the ranks.
        shared: for each parameter that several stages hold a copy of, these stages.
        frozen: stages of the model that train nothing: they have no W, and no I either unless a
            stage before is trained.
        adapters: stages of the model that train only adapters (LoRA): they have no W.
        algorithm: its name.

    Raises:
        Error: the arguments do not fit each other. ``validate`` checks the lanes.
    """

    __slots__ = ("_given", "_lanes")
    _given: _core.Schedule  # has the schedule's lanes until they are edited
    _lanes: list[Records] | None  # set once Python code may have changed them

    __hash__ = None  # type: ignore[assignment]  # lanes can be edited

    @former_names(weights="weight_policy")
    def __init__(
        self,
        rank_of_stage: Sequence[int],
        lanes: Sequence[Records | Iterable[str]],
        *,
        microbatches: int | None = None,
        replicas: int = 1,
        slices: int = 1,
        steps: int = 1,
        weight_policy: str = "flush",
        vocabulary: bool = False,
        shared: Iterable[Sequence[int]] = (),
        frozen: Iterable[int] = (),
        adapters: Iterable[int] = (),
        algorithm: str = "",
    ) -> None:
        arrays = [as_lane(lane, f"rank {rank}") for rank, lane in enumerate(lanes)]
        if microbatches is None:
            if slices < 1 or steps < 1:
                raise _core.Error(f"{slices} slices and {steps} steps: give at least 1 of each")
            indices = max((_indices(lane) for lane in arrays), default=0)
            microbatches = max(1, -(-indices // (slices * steps))) * replicas
        shape = _core.Shape()
        shape.algorithm = algorithm
        shape.rank_of_stage = _whole_numbers("rank_of_stage", rank_of_stage)
        shape.replicas, shape.microbatches = (count("replicas", replicas), count("microbatches", microbatches))
        shape.slices, shape.steps = count("slices", slices), count("steps", steps)
        shape.weights, shape.vocabulary = weight_policy, vocabulary
        shape.shared = [_whole_numbers("shared", stages) for stages in shared]
        shape.frozen, shape.adapters = _stages("frozen", frozen), _stages("adapters", adapters)
        self._given = _core.build(shape, [as_bytes(lane) for lane in arrays])
        self._lanes = None

    @classmethod
    def _of(cls, given: _core.Schedule) -> Schedule:
        made = cls.__new__(cls)
        made._given = given
        made._lanes = None
        return made

    def _frozen(self) -> _core.Schedule:
        """Returns the current schedule, for C++."""
        if self._lanes is None:
            return self._given
        lanes = [as_bytes(as_lane(lane, f"rank {rank}")) for rank, lane in enumerate(self._lanes)]
        return _core.build(self._given.shape, lanes)

    @property
    def algorithm(self) -> str:
        """Its name in the catalog, or the file's."""
        return self._given.shape.algorithm

    @property
    def ranks(self) -> int:
        """How many ranks run it."""
        return self._given.ranks

    @property
    def stages(self) -> int:
        """Stages of all chains."""
        return len(self._given.shape.rank_of_stage)

    @property
    def chunks(self) -> int:
        """The most stages of one chain on one rank."""
        return self._given.chunks

    @property
    def rank_of_stage(self) -> tuple[int, ...]:
        """The rank of each stage."""
        return tuple(self._given.shape.rank_of_stage)

    @property
    def replicas(self) -> int:
        """Chains of stages, each a replica of the model."""
        return self._given.shape.replicas

    @property
    def microbatches(self) -> int:
        """The microbatches of one batch, over all chains."""
        return self._given.shape.microbatches

    @property
    def slices(self) -> int:
        """Pieces of a microbatch along the sequence."""
        return self._given.shape.slices

    @property
    def steps(self) -> int:
        """Batches that the lanes hold."""
        return self._given.shape.steps

    @property
    def frozen(self) -> tuple[int, ...]:
        """Stages of the model that train nothing: without W, or with F only."""
        return tuple(self._given.shape.frozen)

    @property
    def adapters(self) -> tuple[int, ...]:
        """Stages of the model that train only adapters: without W."""
        return tuple(self._given.shape.adapters)

    @property
    def weight_policy(self) -> str:
        """Which version of the weights actions read: ``"flush"`` for the same of a whole batch."""
        return self._given.shape.weights

    @property
    def weights(self) -> str:
        """The former name of ``weight_policy``."""
        warnings.warn("'weights' is called 'weight_policy' now", FutureWarning, stacklevel=2)
        return self.weight_policy

    @property
    def lanes(self) -> Lanes:
        """The actions of each rank, which can be edited."""
        if self._lanes is None:
            given = self._given
            self._lanes = [records(given.lane(rank), ACTION).copy() for rank in range(given.ranks)]
        return Lanes(self._lanes)

    def texts(self, rank: int) -> list[str]:
        """Returns a rank's actions as text: ``["0F0", "0B0"]``.

        Raises:
            IndexError: there is no such rank.
        """
        if not 0 <= rank < self.ranks:
            raise IndexError(f"rank {rank}: give one from 0 to {self.ranks - 1}")
        return texts(self.lanes[rank])

    def __len__(self) -> int:
        """The number of actions."""
        return self._given.actions if self._lanes is None else sum(map(len, self._lanes))

    def validate(self, most: int = 50) -> list[_core.Fault]:
        """Returns the faults, at most ``most``; none if the schedule is valid."""
        return self._frozen().validate(most)

    def check(self) -> None:
        """Raises ``Error`` with the first fault unless the schedule is valid."""
        self._frozen().check()

    def apply(self, *passes: str, costs: Costs | None = None) -> Schedule:
        """Returns the schedule after passes, in order: ``apply("overlap", "offload=3")``.

        ``penstock.passes()`` lists them. Passes that compare prices do so with ``costs``.

        Raises:
            Error: the schedule is not valid, or a pass is unknown or cannot run; names the pass.
        """
        return Schedule._of(_core.apply(self._frozen(), list(passes), (costs or Costs())._fields))

    def without_backward(self, *, frozen: Iterable[int] = (), adapters: Iterable[int] = ()) -> Schedule:
        """Returns the schedule without what these stages of the model lack.

        A stage that is ``frozen`` has no W, and no I either unless a stage before it is trained. A
        stage that trains ``adapters`` (LoRA) has no W: I computes their gradients. Messages that
        nobody reads are removed, and no action starts later.

        Raises:
            Error: the model has no such stage, or the ranks share the vocabulary.
        """
        lists = _stages("frozen", frozen), _stages("adapters", adapters)
        return Schedule._of(_core.without_backward(self._frozen(), *lists))

    def replicate(self, replicas: int) -> Schedule:
        """Returns the schedule of so many data-parallel replicas of the pipeline.

        Each has ranks of its own, and runs these lanes with microbatches of its own. Replica d has
        the ranks from ``d * ranks``. So ``ranks``, ``stages``, ``replicas`` and ``microbatches``
        are multiplied.

        Raises:
            Error: the schedule is not valid, updates weights within a batch, or shards the
                vocabulary.
        """
        return Schedule._of(_core.replicate(self._frozen(), replicas))

    def lower(self, *, for_torch: bool = False) -> Schedule:
        """Returns the schedule with its SEND and RECV actions, as runtimes execute it.

        With ``for_torch``, also with the REDUCE_GRAD that ``torch.distributed.pipelining`` needs.

        Raises:
            Error: the schedule is not valid, or torch cannot read one of its actions.
        """
        return Schedule._of(_core.lower(self._frozen(), for_torch))

    def simulate(self, costs: Costs | None = None) -> Simulation:
        """Returns the times of all actions with these costs (default: F, I and W take 1 each).

        Later edits of the lanes do not change the simulation.

        Raises:
            Error: the schedule is not valid, or the costs do not fit it.
        """
        used = costs or Costs()
        return Simulation._of(_core.simulate(self._frozen(), used._fields), Schedule, used)

    def report(self, path: str | os.PathLike[str], costs: Costs | None = None) -> None:
        """Simulates and writes a report; see ``Timeline.report``."""
        self.simulate(costs).report(path)

    def show(self, costs: Costs | None = None, *, width: int | None = None) -> None:
        """Simulates and prints the timeline; see ``Timeline.show``."""
        self.simulate(costs).show(width=width)

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """Returns the schedule in PyTorch's CSV format, one line per rank.

        With a path, also writes it there. The CSV says everything but ``shared``, which is the
        model's.

        Raises:
            Error: the file cannot be written.
        """
        frozen = self._frozen()
        if path is not None:
            frozen.save(os.fspath(path))
        return frozen.to_csv()

    @staticmethod
    @former_names(weights="weight_policy")
    def from_csv(
        source: str | os.PathLike[str],
        *,
        microbatches: int | None = None,
        replicas: int | None = None,
        slices: int | None = None,
        steps: int | None = None,
        weight_policy: str | None = None,
        frozen: Iterable[int] | None = None,
        adapters: Iterable[int] | None = None,
    ) -> Schedule:
        """Reads a schedule from the text of a CSV or from a file.

        A path object, or text that ends in ``.csv``, is a file. The keywords are for text without
        a header, such as torch's; they take precedence over the text's header.

        Raises:
            Error: a cell is not an action; names the line, the column and the cell.
        """
        if isinstance(source, os.PathLike) or ("\n" not in source and source.endswith(".csv")):
            loaded = Schedule._of(_core.load_csv(os.fspath(source)))
            given = {
                "microbatches": microbatches,
                "replicas": replicas,
                "slices": slices,
                "steps": steps,
                "weight_policy": weight_policy,
                "frozen": None if frozen is None else tuple(_stages("frozen", frozen)),
                "adapters": None if adapters is None else tuple(_stages("adapters", adapters)),
            }
            for name, value in given.items():
                if value is not None and value != getattr(loaded, name):
                    raise _core.Error(f"{name} {value}: the file has {getattr(loaded, name)}; leave it out")
            return loaded
        lists = [
            None if given is None else _stages(name, given)
            for name, given in (("frozen", frozen), ("adapters", adapters))
        ]
        return Schedule._of(_core.parse_csv(source, microbatches, replicas, slices, steps, weight_policy, *lists))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and self._frozen().equals(other._frozen())

    def __copy__(self) -> Schedule:
        made = Schedule._of(self._given)
        if self._lanes is not None:
            made._lanes = [lane.copy() for lane in self._lanes]
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Schedule:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        frozen = self._frozen()
        shape = {name: getattr(frozen.shape, name) for name in _SHAPE}
        lanes = tuple(frozen.lane(rank).tobytes() for rank in range(frozen.ranks))
        return _restore, (shape, lanes)

    def __repr__(self) -> str:
        return (
            f"<penstock.Schedule {self.algorithm or 'without a name'}: {self.ranks} ranks, "
            f"{self.stages} stages, {self.microbatches} microbatches, {len(self)} actions>"
        )

    def _repr_html_(self) -> str:
        return display.schedule_html(self)


_SHAPE = (
    "algorithm",
    "rank_of_stage",
    "replicas",
    "microbatches",
    "slices",
    "steps",
    "weights",
    "vocabulary",
    "shared",
    "frozen",
    "adapters",
    "steps_wait_for_all",
)


#: What pickles of earlier versions lack.
_LATER = ("frozen", "adapters")


def _restore(state: dict[str, Any], lanes: tuple[bytes, ...]) -> Schedule:
    """Builds a schedule from its pickled state. Raises ``Error`` if the state is damaged."""
    try:
        shape = _core.Shape()
        for name in _SHAPE:
            setattr(shape, name, state.get(name, []) if name in _LATER else state[name])
        arrays = [np.frombuffer(lane, np.uint8).reshape(-1, ACTION.itemsize) for lane in lanes]
        return Schedule._of(_core.build(shape, arrays))
    except _core.Error:
        raise
    except (TypeError, KeyError, ValueError, OverflowError) as error:
        reason = str(error).partition("\n")[0]
        raise _core.Error(f"the pickled schedule is damaged: {reason}") from None


def _indices(lane: Records) -> int:
    """Returns 1 + the largest microbatch index."""
    if not len(lane):
        return 0
    return 1 + max(int(lane["microbatch"].max()), int(lane["microbatch2"].max()))


def _stages(name: str, stages: Iterable[int]) -> list[int]:
    """Returns stages of the model in ascending order."""
    return sorted(set(_whole_numbers(name, stages)))


def _whole_numbers(name: str, values: Iterable[Any]) -> list[int]:
    if not isinstance(values, Iterable):
        raise _core.Error(f"{name} contains {shown(values)}: give sequences of whole numbers")
    return [count(name, value) for value in values]
