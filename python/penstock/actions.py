"""Actions as NumPy structured arrays: one element per action, no Python objects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock import _core
from penstock.arguments import checked

#: A structured array. Its dtype is one of ``ACTION``, ``TIMED_ACTION``, ``MESSAGE`` and ``BUBBLE``.
Records: TypeAlias = npt.NDArray[Any]

#: The letters of each op, by number: ``OPS[lane["op"][0]]`` is ``"F"``.
OPS: tuple[str, ...] = tuple(_core.op_names())

#: The number of each op by its letters: ``OP["F"]`` is 0.
OP: dict[str, int] = {name: number for number, name in enumerate(OPS)}

#: What ``op2`` is where an action has no second part.
NO_OP: int = len(OPS)

_FIELDS = {
    "op": ("u1", 0),
    "stage": ("<u2", 2),
    "microbatch": ("<i4", 4),
    "op2": ("u1", 8),
    "stage2": ("<u2", 10),
    "microbatch2": ("<i4", 12),
}


def _layout(itemsize: int, fields: dict[str, tuple[str, int]]) -> np.dtype[np.void]:
    """Returns the dtype of a C++ struct: (format, offset in bytes) of each field."""
    return np.dtype(
        {
            "names": list(fields),
            "formats": [kind for kind, _ in fields.values()],
            "offsets": [offset for _, offset in fields.values()],
            "itemsize": itemsize,
        }
    )


#: One action: what runs (``op`` indexes ``OPS``), its stage, and its microbatch index (-1 where
#: the op has none). A forward and a backward that run together have both parts; otherwise ``op2``
#: is ``NO_OP``.
ACTION: np.dtype[np.void] = _layout(16, _FIELDS)

#: The same after ``start`` and ``end``, in the time unit of the timeline.
TIMED_ACTION: np.dtype[np.void] = _layout(
    32, {"start": ("<f8", 0), "end": ("<f8", 8)} | {name: (kind, 16 + offset) for name, (kind, offset) in _FIELDS.items()}
)

#: A message between ranks: ``kind`` 0 is an output and 1 a gradient, that ``stage`` computed.
MESSAGE: np.dtype[np.void] = _layout(
    32,
    {
        "kind": ("u1", 0),
        "stage": ("<u2", 2),
        "microbatch": ("<i4", 4),
        "from_rank": ("<i4", 8),
        "to_rank": ("<i4", 12),
        "sent": ("<f8", 16),
        "arrived": ("<f8", 24),
    },
)

#: A time in which a rank is idle. ``cause`` indexes ``BUBBLE_CAUSES``; ``before`` is the position
#: of the rank's next action, and the other two fields are the action that it waits for (-1: none).
BUBBLE: np.dtype[np.void] = _layout(
    40,
    {
        "start": ("<f8", 0),
        "end": ("<f8", 8),
        "cause": ("<i4", 16),
        "before": ("<i4", 24),
        "waits_for_rank": ("<i4", 28),
        "waits_for_position": ("<i4", 32),
    },
)

#: Figures of a rank: times in the unit of the timeline, memory in the unit of the costs.
RANK: np.dtype[np.void] = _layout(
    32, {"busy": ("<f8", 0), "first_start": ("<f8", 8), "last_end": ("<f8", 16), "peak_memory": ("<f8", 24)}
)

#: The costs of a stage and a microbatch index.
STAGE_COSTS: np.dtype[np.void] = np.dtype([(cost.name, "<f8") for cost in _core.stage_costs()])

#: Why ranks are idle.
BUBBLE_CAUSES: tuple[str, ...] = tuple(_core.bubble_causes())


def records(rows: npt.NDArray[np.uint8], dtype: np.dtype[np.void]) -> Records:
    """Returns rows of bytes, shape ``(n, itemsize)``, as ``n`` records without a copy."""
    return rows.reshape(-1).view(dtype)


def as_bytes(array: Records) -> npt.NDArray[np.uint8]:
    """Returns records as rows of bytes, shape ``(n, itemsize)``, without a copy."""
    contiguous = np.ascontiguousarray(array)
    return contiguous.view(np.uint8).reshape(len(contiguous), contiguous.dtype.itemsize)


@checked
def actions(cells: Iterable[str]) -> Records:
    """Returns actions from their text: ``actions(["0F0", "0B0"])``.

    Returns:
        An array of ``ACTION``, shape ``(cells,)``.

    Raises:
        Error: a cell is not an action in PyTorch's format.
    """
    return _parsed(cells, "cells")


@checked
def texts(lane: Records) -> list[str]:
    """Returns actions as text, the cells of a CSV: ``["0F0", "0B0"]``. An unknown op is ``"?"``.

    Raises:
        Error: ``lane`` is not a one-dimensional array of ``ACTION``.
    """
    return _core.action_texts(as_bytes(as_lane(lane, "lane")))


def as_lane(lane: Records | Iterable[str], where: str) -> Records:
    """Returns a lane as a contiguous array of ``ACTION``. ``where`` names it in errors."""
    if not isinstance(lane, np.ndarray):
        return _parsed(lane, where)
    if lane.dtype != ACTION or lane.ndim != 1:
        raise _core.Error(f"{where}: an array of {lane.dtype} and shape {lane.shape}; give one dimension of penstock.ACTION")
    return np.ascontiguousarray(lane)


def _parsed(cells: Iterable[str], where: str) -> Records:
    listed: list[Any] = [None]  # refused
    if isinstance(cells, Iterable) and not isinstance(cells, str):
        listed = list(cells)
    if not all(isinstance(cell, str) for cell in listed):
        raise _core.Error(f"{where}: give an array of penstock.ACTION or a list of text")
    return np.frombuffer(_core.parse_actions(listed), ACTION).copy()
