"""Communication of torch.distributed in code that is captured.

A captured collective would run once, on a process whose peers capture other stages, and compiled
steps would not call it again. So threads that capture refuse it, before it sends anything.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
import torch.distributed
from torch.utils._python_dispatch import TorchDispatchMode

from penstock.torch.engine import engine
from penstock.torch.user_code import LIBRARIES, innermost

_LIBRARIES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "symm_mem", "_dtensor", "fsdp")
# Methods of groups and of their backends that wait for other processes, in all versions of torch.
_METHODS = (
    "allreduce allreduce_coalesced allgather allgather_coalesced allgather_into_tensor_coalesced _allgather_base all_gather "
    "alltoall alltoall_base barrier monitored_barrier broadcast gather recv recv_anysource reduce reduce_scatter "
    "_reduce_scatter_base reduce_scatter_tensor_coalesced scatter send _start_coalescing split_group merge_remote_group"
).split()
_STAGE_CODE = os.path.join(os.path.dirname(__file__), "stage_code.py")
_FOLDER = os.path.dirname(str(torch.distributed.__file__)) + os.sep

_library: Any = torch.library  # not in torch's types
_kept: dict[str, Any] = {}  # kernels live as long as their library
_refused: set[str] = set()  # ops
_install = threading.Lock()


def install() -> None:
    """Makes ops and groups of torch.distributed ask whether their caller is being captured."""
    if not torch.distributed.is_available():
        return
    with _install:
        # Modules that are imported later register more ops.
        for name in torch._C._dispatch_get_all_op_names():
            library, _, op = name.partition("::")
            if library in _LIBRARIES and name not in _refused:
                _refused.add(name)
                if library not in _kept:
                    _kept[library] = _library.Library(library, "IMPL")
                # Only threads that capture dispatch to this key.
                _kept[library].impl(op, functools.partial(_refuse, name), "Fake")
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


def _refuse(name: str, *_: Any, **__: Any) -> None:
    """Raises an error that names the function of torch.distributed that the user's code calls."""
    frames: list[tuple[str, int | None, str]] = []  # the innermost last
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        frames.insert(0, (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    # Errors in forward and in the loss get their line from in_user_code.
    is_backward = not any(file == _STAGE_CODE and function in ("forward", "loss") for file, _, function in frames)
    raise RuntimeError(
        f"{_called(frames) or name}{innermost(frames) if is_backward else ''} exchanges tensors with other processes, which "
        "compiled steps do not repeat: leave it out of stages and the loss; Pipeline communicates between its stages and "
        "replicas itself"
    )


def _called(frames: list[tuple[str, int | None, str]]) -> str:
    """Returns the outermost function of torch.distributed that is running, below the user's code."""
    name = ""
    for file, _, function in reversed(frames):
        if not file.startswith(LIBRARIES):
            break
        if file.startswith(_FOLDER) and function != "wrapper":
            name = f"{function} of torch.distributed"
    return name
