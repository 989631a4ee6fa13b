"""torch.utils.checkpoint in code that is captured.

Capture computes the gradients of given tensors, and recognizes recomputed random ops by the state
of torch's generator, which a checkpoint restores. So under capture, reentrant checkpoints run as
the others do, and all of them preserve the generator's state.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import checkpoint as _torch

from penstock.torch.engine import engine

_checkpoints: Any = _torch
_install = threading.Lock()
_of_thread = threading.local()


class _Reentrant:
    """Stands for torch's CheckpointFunction."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def apply(self, function: Any, preserve: bool, *args: Any) -> Any:
        if not (engine.is_capturing() or getattr(_of_thread, "has_none", False)):
            return self._original.apply(function, preserve, *args)
        if not any(isinstance(each, torch.Tensor) and each.requires_grad for each in args):
            _checkpoints.check_backward_validity(args)  # warns, as torch does
            with torch.no_grad():
                return function(*args)
        return _checkpoints.checkpoint(function, *args, use_reentrant=False)


@contextlib.contextmanager
def without_reentrant() -> Iterator[None]:
    """Has reentrant checkpoints of this thread run as the others do: the gradients of given tensors need that."""
    install()
    _of_thread.has_none = True
    try:
        yield
    finally:
        _of_thread.has_none = False


def install() -> None:
    """Makes torch.utils.checkpoint ask whether its caller is being captured."""
    with _install:
        if isinstance(_checkpoints.CheckpointFunction, _Reentrant):
            return
        # From 2.14 on, torch.utils.checkpoint calls the second of these, with arguments as a tuple and options by name.
        before, since = (f"_checkpoint_without_reentrant_generator{end}" for end in ("", "_impl"))
        if hasattr(_checkpoints, since):
            setattr(_checkpoints, since, _preserving_by_name(getattr(_checkpoints, since)))
        else:
            setattr(_checkpoints, before, _preserving(getattr(_checkpoints, before)))
        _checkpoints.CheckpointFunction = _Reentrant(_checkpoints.CheckpointFunction)


def _preserving(original: Any) -> Any:
    def run(fn: Any, preserve_rng_state: bool = True, *args: Any, **kwargs: Any) -> Any:
        return original(fn, preserve_rng_state or engine.is_capturing(), *args, **kwargs)

    return run


def _preserving_by_name(original: Any) -> Any:
    def run(*args: Any, preserve_rng_state: bool = True, **named: Any) -> Any:
        return original(*args, preserve_rng_state=preserve_rng_state or engine.is_capturing(), **named)

    return run
