"""Replaces the one name of megatron-core that chooses the function of a step."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from penstock import Error, Schedule
from penstock.arguments import shown
from penstock.megatron.checks import contracts
from penstock.megatron.engine import Engine
from penstock.megatron.lanes import Source
from penstock.megatron.placement import ModelBuilder, Placement

_NAME = "get_forward_backward_func"
_state = contracts.module("megatron.core.parallel_state")
_original = contracts.attribute(_NAME, "megatron.core.pipeline_parallel.schedules")


class Installation:
    """A schedule in place of Megatron's own. Linear and looped schedules need nothing else.

    Schedules whose odd chunks run backwards through the ranks (V, zigzag) also need ``model``, ``datasets`` and
    ``embedding_ranks``, which the command ``python -m penstock.megatron`` passes by itself.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._builder = ModelBuilder(self._placement, self.splits)

    def model(self, provider: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the model provider with which chunks are built where the schedule has their stages.

        ``provider`` takes ``pre_process``, ``post_process``, ``vp_stage``, ``config`` and ``pg_collection`` by keyword and passes
        the process groups on to the model.

        Raises:
            Error: when called: the schedule does not fit the run, or an argument is missing.
        """
        return self._builder.wrap(provider)

    def datasets(self, provider: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the provider of data sets, with data for the chunks that have the first and the last stage."""

        @functools.wraps(provider)
        def build(*args: Any, vp_stage: int | None = None, **kwargs: Any) -> Any:
            placement = self._placement()
            given = {} if vp_stage is None else {"vp_stage": vp_stage}
            if not placement.moved:
                return provider(*args, **given, **kwargs)
            with placement.view(_state.get_pipeline_model_parallel_group().rank(), vp_stage or 0):
                return provider(*args, **given, **kwargs)

        return build

    def embedding_ranks(self, pipeline_ranks: Sequence[int], *_: Any) -> list[int]:
        """Returns the ranks that share the embedding, as ``get_embedding_ranks`` of ``initialize_model_parallel``."""
        chunks = _state.get_virtual_pipeline_model_parallel_world_size() or 1
        return self.engine.placement(len(pipeline_ranks), chunks).embedding_ranks(pipeline_ranks)

    def splits(self) -> bool:
        """Whether backwards are divided into I and W."""
        return self.engine.splits(*_numbers())

    def _placement(self) -> Placement:
        return self.engine.placement(*_numbers())


def _numbers() -> tuple[int, int]:
    """Returns pipeline ranks and model chunks per rank of the run."""
    ranks = _state.get_pipeline_model_parallel_world_size()
    return ranks, _state.get_virtual_pipeline_model_parallel_world_size() or 1


def install(
    schedule: Schedule | str | os.PathLike[str], *, record: str | os.PathLike[str] | None = None, **options: Any
) -> Installation:
    """Lets Megatron run a schedule: ``install("zb-h1")``, before or after ``megatron.training`` is imported.

    Afterwards ``megatron.core.pipeline_parallel.get_forward_backward_func`` returns a function that runs it, also where modules
    have imported the name already. A later call replaces the schedule.

    Args:
        schedule: a name of ``penstock.schedules()``, generated for the ranks, model chunks and microbatches of each step; or a
            CSV file; or a ``penstock.Schedule``, for one number of microbatches.
        record: a folder for the times of actions, which ``penstock show FOLDER --explain`` reads. Default: not measured.
        options: of a schedule by name: ``costs`` (``penstock.Costs`` or a file), ``chunks``, ``group``, ``waves``, ``split``,
            ``memory_limit``, ``objective``, ``passes`` (names of ``penstock.passes()``, as for ``Schedule.apply``).

    Raises:
        Error: Megatron's step cannot run the schedule, or megatron-core is too old or unknown.
    """
    contracts.require_version()
    if not isinstance(schedule, (Schedule, str, os.PathLike)):
        raise Error(f"schedule is {shown(schedule)}: give a name, a CSV file or a penstock.Schedule")
    observer = None
    if record is not None:
        observer = importlib.import_module("penstock.megatron.recording").Recorder(os.fspath(record))
    engine = Engine(Source(schedule, options), observer)

    def get_forward_backward_func(*_: Any, **__: Any) -> Engine:
        return engine

    get_forward_backward_func.penstock = True  # type: ignore[attr-defined]
    for module in list(sys.modules.values()):
        found = getattr(module, "__dict__", {}).get(_NAME)
        if found is _original or getattr(found, "penstock", False):
            setattr(module, _NAME, get_forward_backward_func)
    return Installation(engine)
