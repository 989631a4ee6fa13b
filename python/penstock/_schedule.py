"""Schedules: what each rank computes, in order."""
from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence

import numpy as np

from penstock import _core

# The ops of actions, by number.
OPS = tuple(_core.ops())
_PART = [("op", "u1"), ("stage", "<u2"), ("microbatch", "<i4")]
# One action: its part, and in a pair of a forward and a backward that overlap a second one. `op` indexes OPS;
# `op2` is len(OPS) where there is no second part, and `microbatch` is -1 where an op has none.
ACTION = np.dtype({
    "names": [name for name, _ in _PART] + [name + "2" for name, _ in _PART],
    "formats": [kind for _, kind in _PART] * 2,
    "offsets": [0, 2, 4, 8, 10, 12],
    "itemsize": 16,
})


class _Lanes(Sequence):
    """The actions of each rank as a NumPy array of ACTION. Assigning an array replaces a rank's actions."""

    def __init__(self, schedule: _core.Schedule):
        self._schedule = schedule

    def __len__(self) -> int:
        return self._schedule.ranks

    def __getitem__(self, rank: int) -> np.ndarray:
        if rank < 0:
            rank += len(self)
        return self._schedule._lane_bytes(rank).reshape(-1).view(ACTION)

    def __setitem__(self, rank: int, actions: np.ndarray) -> None:
        actions = np.ascontiguousarray(actions, ACTION)
        self._schedule._set_lane_bytes(rank, actions.view(np.uint8).reshape(len(actions), ACTION.itemsize))


class Schedule:
    """Who computes which microbatch when: a list of actions for each rank."""

    def __init__(self, core: _core.Schedule):
        self._core = core

    algorithm = property(lambda self: self._core.algorithm, doc="Its name in the catalog, or the file's.")
    ranks = property(lambda self: self._core.ranks)
    stages = property(lambda self: self._core.stages)
    microbatches = property(lambda self: self._core.microbatches, doc="Of one batch.")
    slices = property(lambda self: self._core.slices, doc="Pieces of a microbatch along the sequence.")
    rank_of_stage = property(lambda self: self._core.rank_of_stage, doc="The rank of each stage.")

    @property
    def lanes(self) -> _Lanes:
        """The actions of each rank: `lanes[rank]` is a copy as an array of ACTION, and assigning to it replaces them."""
        return _Lanes(self._core)

    def __len__(self) -> int:
        return len(self._core)

    def __repr__(self) -> str:
        return repr(self._core)

    def __reduce__(self):
        return _restore, (self._core._state(),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and self._core._state() == other._core._state()

    __hash__ = None

    def validate(self, most: int = 50) -> list[_core.Fault]:
        """Returns the faults, at most `most`; none if the schedule is valid."""
        return self._core._validate(most)

    def costs(self, cost: Sequence[float] = (1, 1, 1), comm: float = 0, overlap: str = "max") -> _core.Costs:
        """The same costs for every stage: F, I and W of one rank's share of one microbatch, and the latency of a message."""
        forward, backward_input, backward_weight = cost
        return _core._uniform_costs(self._core, forward, backward_input, backward_weight, comm, 1.0, overlap)

    def simulate(self, costs: _core.Costs | None = None, **uniform) -> _core.Simulation:
        """Returns the times of all actions. Takes the arguments of `costs` instead of costs."""
        if costs is not None and uniform:
            raise TypeError(f"simulate: give costs or {', '.join(uniform)}, not both")
        return _core._simulate(self._core, costs if costs is not None else self.costs(**uniform))

    def report(self, path: str | os.PathLike, **costs) -> None:
        """Writes a page (.html), picture (.svg, .png, .pdf) or trace (.trace.json). Takes the arguments of `costs`."""
        self.simulate(**costs)._report(self.algorithm, os.fspath(path))

    def show(self, width: int | None = None, **costs) -> None:
        """Draws the timeline with characters."""
        print(self.simulate(**costs)._show(width or shutil.get_terminal_size().columns))

    def _repr_html_(self) -> str:
        return self.simulate()._svg()

    def to_csv(self, path: str | os.PathLike | None = None) -> str | None:
        """Writes FILE.csv in PyTorch's format, and FILE.yaml if something is not the default; or returns the text."""
        if path is None:
            return self._core.to_csv()
        self._core.save(os.fspath(path))
        return None


def _restore(state: bytes) -> Schedule:
    return Schedule(_core._restore(state))


def schedule(name: str, *, ranks: int = 4, microbatches: int = 8, cost: Sequence[float] = (1, 1, 1), comm: float = 0,
             **options) -> Schedule:
    """Generates a schedule of the catalog (`penstock schedules` lists it). `cost` and `comm` matter to searches;
    `options` are chunks, memory_limit, group, slices, waves, steps and split."""
    params = _core._Params()
    params.ranks, params.microbatches, params.comm = ranks, microbatches, comm
    params.forward, params.backward_input, params.backward_weight = cost
    for key, value in options.items():
        if not hasattr(params, key):
            raise TypeError(f"schedule: there is no option {key!r}")
        setattr(params, key, value)
    return Schedule(_core._generate(name, params))


def from_csv(source: str | os.PathLike, **options: Mapping[str, int]) -> Schedule:
    """Reads FILE.csv (and FILE.yaml), or the text of a CSV, for which `options` are microbatches, replicas, slices and
    steps."""
    text = os.fspath(source)
    if "\n" in text or not text.endswith(".csv"):
        return Schedule(_core._parse(text, **options))
    return Schedule(_core._load(text))
