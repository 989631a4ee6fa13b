"""The extension module of the engine, and its errors as penstock.Error."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from penstock import Error
from penstock.arguments import keywords_of, name_of, require_keywords

_INSTALL = "with torch installed, run pip install .[torch] in the folder of Penstock"


def _require_same_torch(built: pathlib.Path) -> None:
    """Raises Error if the engine was built for another minor version of torch. ``built`` has its version."""
    of_engine = built.read_text().strip() if built.exists() else ""
    if of_engine and of_engine.split(".")[:2] != torch.__version__.split(".")[:2]:
        raise Error(f"penstock was built for torch {of_engine}, which does not work with torch {torch.__version__}: {_INSTALL}")


_require_same_torch(pathlib.Path(__file__).with_name("torch_version.txt"))
try:
    from penstock.torch import _engine
except ImportError as missing:
    raise Error(
        f"penstock was built without the engine, or for another Python or torch than {torch.__version__} ({missing}): {_INSTALL}"
    ) from missing

engine: Any = _engine
_Function = TypeVar("_Function", bound=Callable[..., Any])


def pipeline_options(given: Any, by_rank: Sequence[torch.device], threads: int, offload_folder: str) -> Any:
    """Returns the engine's options of a Pipeline. ``given`` has its arguments, by name."""
    options = engine.PipelineOptions()
    options.set_devices([str(each) for each in by_rank], given.device_graphs, given.device_parts)
    options.set_stages(given.exact, given.gradient_dtype == torch.bfloat16, given.seed)
    options.set_recompute(**given.recompute, gather_again=given.gather_again)
    options.set_replicas(given.data_parallel, given.zero)
    options.set_update(given.clip_grad_norm, given.skip_nonfinite)
    options.threads, options.watchdog, options.offload_folder = threads, given.timeout, offload_folder
    return options


def one_line(function: _Function) -> _Function:
    """Makes errors of the engine penstock.Error, whose text is one line."""

    @functools.wraps(function)
    def checked(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except Error:
            raise
        except RuntimeError as error:
            raise Error(str(error).split("\n", 1)[0]) from error

    return checked  # type: ignore[return-value]


def exclusive(function: _Function) -> _Function:
    """As one_line, for methods of an object with a lock `_busy`, which one call at a time holds."""

    known, own_name = keywords_of(function), name_of(function)

    @functools.wraps(function)
    def guarded(self: Any, *arguments: Any, **named: Any) -> Any:
        if named:
            require_keywords(own_name, named, known)
        if not self._busy.acquire(blocking=False):
            raise Error(
                f"{function.__name__}: another call on this {type(self).__name__} has not ended: call its methods one at a time"
            )
        try:
            return function(self, *arguments, **named)
        except Error:
            raise
        except RuntimeError as error:
            raise Error(str(error).split("\n", 1)[0]) from error
        finally:
            self._busy.release()

    return guarded  # type: ignore[return-value]


__all__ = ["engine", "exclusive", "one_line", "pipeline_options"]
