"""Collectives in stages: the functional ones of torch.distributed over groups of a mesh are recorded, others are refused."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

import torch
import torch.distributed
from torch.utils._python_dispatch import TorchDispatchMode

from penstock.torch.engine import engine
from penstock.torch.mesh.planes import Plane
from penstock.torch.user_code import innermost, is_of_library

_LIBRARIES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "symm_mem", "_dtensor", "fsdp")
# Methods of groups and of their backends that wait for other processes, in all versions of torch.
_METHODS = (
    "allreduce allreduce_coalesced allgather allgather_coalesced allgather_into_tensor_coalesced _allgather_base all_gather "
    "alltoall alltoall_base barrier monitored_barrier broadcast gather recv recv_anysource reduce reduce_scatter "
    "_reduce_scatter_base reduce_scatter_tensor_coalesced scatter send _start_coalescing split_group merge_remote_group "
    "all_gather_single all_gather_single_coalesced all_to_all_single gather_single gather_into_tensor reduce_scatter_single "
    "reduce_scatter_single_coalesced new_window reconfigure"
).split()
_STAGE_CODE = os.path.join(os.path.dirname(__file__), "stage_code.py")
_FOLDER = os.path.dirname(str(torch.distributed.__file__)) + os.sep
_FUNCTIONAL = "_c10d_functional::"
_REDUCTIONS = ("sum", "avg", "min", "max")

_library: Any = torch.library  # not in torch's types
_kept: dict[str, Any] = {}  # kernels live as long as their library
_replaced: set[str] = set()  # ops
_install = threading.Lock()


@dataclasses.dataclass(frozen=True)
class Call:
    """A collective that a stage calls."""

    name: str
    reduction: str  # "" for collectives that reduce nothing
    dimensions: str  # of the mesh, that its group connects
    group: str  # torch's name


class _Capture(threading.local):
    plane: Plane | None = None
    calls: list[Call] = []


_capture = _Capture()


@contextlib.contextmanager
def recorded(plane: Plane) -> Iterator[list[Call]]:
    """Captures of this thread record collectives over the groups of the mesh. Yields them, in the order of their calls."""
    before = _capture.plane, _capture.calls
    _capture.plane, _capture.calls = plane, []
    try:
        yield _capture.calls
    finally:
        _capture.plane, _capture.calls = before


def install() -> None:
    """Makes ops and groups of torch.distributed ask whether their caller is being captured."""
    if not torch.distributed.is_available():
        return
    with _install:
        # Modules that are imported later register more ops.
        for name in torch._C._dispatch_get_all_op_names():
            library, _, op = name.partition("::")
            if library in _LIBRARIES and name not in _replaced:
                _replaced.add(name)
                if library not in _kept:
                    _kept[library] = _library.Library(library, "IMPL")
                # Only threads that capture dispatch to this key.
                record = _RECORDED.get(op) if library + "::" == _FUNCTIONAL else None
                kernel = functools.partial(_refuse, name) if record is None else functools.partial(_record, name, record)
                _kept[library].impl(op, kernel, "Fake")
        # Kernels of custom ops call groups where no op is captured.
        c10d: Any = torch.distributed.distributed_c10d
        for name in _METHODS:
            _guard(c10d.ProcessGroup, name)
            _guard(torch._C._distributed_c10d.Backend, name)
        # These use stores and memory before any group.
        _guard(c10d, "_new_process_group_helper", "new_group")
        _guard(c10d, "_object_to_tensor", "a collective of objects")


def _guard(holder: Any, name: str, shown: str = "") -> None:
    """Replaces a function by one that refuses threads that capture."""
    original: Callable[..., Any] | None = vars(holder).get(name)
    if original is None or hasattr(original, "_penstock"):
        return

    @functools.wraps(original)
    def guarded(*arguments: Any, **named: Any) -> Any:
        if engine.is_capturing():
            _refuse(shown or name)
        return original(*arguments, **named)

    vars(guarded)["_penstock"] = True
    setattr(holder, name, guarded)


class RefuseCollectives(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses ops of torch.distributed in code that runs on one process before it is captured."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, op: Any, types: Any, arguments: tuple[Any, ...] = (), named: Any = None) -> Any:
        if op.namespace in _LIBRARIES:
            _refuse(str(op))
        return op(*arguments, **(named or {}))


# Recorded collectives: how the engine's op is called. All take a tensor, or several for coalesced forms, and end with a group.


def _reduce(name: str, tensor: torch.Tensor, reduction: str, *rest: Any) -> torch.Tensor:
    *sizes, group = rest
    number = _number(name, group, reduction)
    op: Any = torch.ops.penstock.c10d_reduce_scatter if sizes else torch.ops.penstock.c10d_all_reduce
    return op(tensor, reduction, *sizes, number)  # type: ignore[no-any-return]


def _gather(name: str, tensor: torch.Tensor, size: int, group: str) -> torch.Tensor:
    return torch.ops.penstock.c10d_all_gather(tensor, size, _number(name, group))  # type: ignore[no-any-return]


def _all_to_all(name: str, tensor: torch.Tensor, received: Sequence[int], sent: Sequence[int], group: str) -> torch.Tensor:
    number = _number(name, group)
    return torch.ops.penstock.c10d_all_to_all(tensor, list(received), list(sent), number)  # type: ignore[no-any-return]


def _broadcast(name: str, tensor: torch.Tensor, source: int, group: str) -> torch.Tensor:
    return torch.ops.penstock.c10d_broadcast(tensor, source, _number(name, group))  # type: ignore[no-any-return]


def _each(record: Callable[..., torch.Tensor]) -> Callable[..., list[torch.Tensor]]:
    return lambda name, tensors, *rest: [record(name, each, *rest) for each in tensors]


_RECORDED: dict[str, Callable[..., Any]] = {
    "all_reduce": _reduce,
    "all_reduce_coalesced": _each(_reduce),
    "reduce_scatter_tensor": _reduce,
    "reduce_scatter_tensor_coalesced": _each(_reduce),
    "all_gather_into_tensor": _gather,
    "all_gather_into_tensor_coalesced": _each(_gather),
    "all_to_all_single": _all_to_all,
    "broadcast": _broadcast,
    # Results are waited for where they are read.
    "wait_tensor": lambda name, tensor: tensor,
    "wait_tensors": lambda name, tensors: list(tensors),
    "_wrap_tensor_autograd": lambda name, tensor: tensor,
}


def _record(name: str, record: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """What captures do in place of an op of torch.distributed."""
    with torch._C._AutoDispatchBelowAutograd():
        return record(name, *arguments, *named.values())


def _number(name: str, group: str, reduction: str = "") -> int:
    """Returns the engine's number of a group of the mesh, and notes the call."""
    plane = _capture.plane
    if plane is None:
        _refuse(name, remedy="pass mesh=, whose groups stages may use, or leave it out")
    assert plane is not None
    dimensions = plane.dimensions_of(group)
    if dimensions is None:
        connects = f"the processes {sorted(plane.together)} here" if len(plane.together) > 1 else "no processes"
        _refuse(
            name,
            why=f"uses the group {group!r}, but the tensor and context dimensions of mesh connect {connects}",
            remedy="use a group of these dimensions, such as mesh['tensor'].get_group()",
        )
    if reduction and reduction not in _REDUCTIONS:
        _refuse(name, why=f"reduces by {reduction!r}", remedy=f"reduce by {', '.join(_REDUCTIONS[:-1])} or {_REDUCTIONS[-1]}")
    _capture.calls.append(Call(name.removeprefix(_FUNCTIONAL), reduction, dimensions or "", group))
    return int(engine.number_of_group(group))


def _refuse(name: str, *_: Any, why: str = "", remedy: str = "", **__: Any) -> None:
    """Raises an error that names the function of torch.distributed that the user's code calls."""
    if not remedy:
        remedy = "leave it out of stages and the loss; Pipeline communicates between its stages and replicas itself"
        if _capture.plane is not None:
            remedy = "call torch.distributed._functional_collectives, which return new tensors, over groups of mesh"
    frames: list[tuple[str, int | None, str]] = []  # the innermost last
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        frames.insert(0, (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    # Errors in forward and in the loss get their line from in_user_code.
    is_backward = not any(file == _STAGE_CODE and function in ("forward", "loss") for file, _, function in frames)
    raise RuntimeError(
        f"{_called(frames) or name}{innermost(frames) if is_backward else ''} "
        f"{why or 'exchanges tensors with other processes, which compiled steps do not repeat'}: {remedy}"
    )


def _called(frames: list[tuple[str, int | None, str]]) -> str:
    """Returns the outermost function of torch.distributed that is running, below the user's code."""
    name = ""
    for file, _, function in reversed(frames):
        if not is_of_library(file):
            break
        if file.startswith(_FOLDER) and function != "wrapper":
            name = f"{function} of torch.distributed"
    return name
