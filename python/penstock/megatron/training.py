"""Megatron-LM's training loop: what ``pretrain`` of an unmodified script gets."""

from __future__ import annotations

import functools
import importlib.util
import inspect
from collections.abc import Callable
from typing import Any

from penstock.megatron.checks import contracts
from penstock.megatron.installation import Installation
from penstock.megatron.placement import delay_weight_gradients

_HAS_TRANSFORMER_ENGINE = importlib.util.find_spec("transformer_engine") is not None

#: The class that Megatron-LM 0.19 and newer build models by, which they find by its name.
Builder: Any = None


def wrap_pretrain(installation: Installation) -> None:
    """Lets ``megatron.training.pretrain`` build models and data sets where the schedule has its stages, if it is there."""
    training = contracts.module("megatron.training")
    original = getattr(training, "pretrain", None)
    if original is None:
        return
    wrapped = _with_config if "cfg_container" in inspect.signature(original).parameters else _with_provider
    pretrain = functools.wraps(original)(functools.partial(wrapped, installation, original))
    training.pretrain = contracts.module("megatron.training.training").pretrain = pretrain


def _with_provider(
    installation: Installation,
    original: Callable[..., Any],
    datasets: Callable[..., Any],
    model_provider: Callable[..., Any],
    *args: Any,
    get_embedding_ranks: Any = None,
    **kwargs: Any,
) -> Any:
    """Calls ``pretrain`` of Megatron-LM 0.16 to 0.18."""

    @functools.wraps(model_provider)
    def provider(*given: Any, config: Any = None, **others: Any) -> Any:
        if config is None and _HAS_TRANSFORMER_ENGINE and installation.splits():
            arguments = contracts.module("megatron.training").get_args()
            config = contracts.attribute("core_transformer_config_from_args", "megatron.training.arguments")(arguments)
            delay_weight_gradients(config)
            arguments.delay_wgrad_compute = True  # from here on, Megatron reads it for data parallelism alone
        return model_provider(*given, config=config, **others)

    return original(
        installation.datasets(datasets),
        installation.model(provider),
        *args,
        get_embedding_ranks=_embedding_ranks(installation, get_embedding_ranks),
        **kwargs,
    )


def _with_config(
    installation: Installation,
    original: Callable[..., Any],
    config: Any,
    datasets: Callable[..., Any],
    *args: Any,
    get_embedding_ranks: Any = None,
    model_provider: Any = None,
    **kwargs: Any,
) -> Any:
    """Calls ``pretrain`` of Megatron-LM 0.19 and newer, whose configuration names the class that builds models."""
    global Builder
    base = config.model.get_builder_cls()

    class PlacedBuilder(base):  # type: ignore[misc, valid-type]
        def build_model(
            self,
            pg_collection: Any,
            pre_process: bool | None = None,
            post_process: bool | None = None,
            vp_stage: int | None = None,
        ) -> Any:
            def provider(config: Any = None, **given: Any) -> Any:
                return base.build_model(self, **given)

            if installation.splits():
                delay_weight_gradients(self._model_config.transformer)
            given = {"pre_process": pre_process, "post_process": post_process, "vp_stage": vp_stage}
            return installation.model(provider)(pg_collection=pg_collection, **given)

    Builder = PlacedBuilder
    config.model.builder = f"{__name__}.Builder"
    parallel = config.model.transformer
    ranks, chunks = parallel.pipeline_model_parallel_size, parallel.virtual_pipeline_model_parallel_size or 1
    if _HAS_TRANSFORMER_ENGINE and installation.engine.splits(ranks, chunks):
        config.ddp.delay_wgrad_compute = True
    return original(
        config,
        installation.datasets(datasets),
        *args,
        get_embedding_ranks=_embedding_ranks(installation, get_embedding_ranks),
        model_provider=model_provider and installation.model(model_provider),
        **kwargs,
    )


def _embedding_ranks(installation: Installation, original: Any) -> Any:
    """Returns Megatron's ranks with the embedding, or the script's, with the last stage where the schedule has it."""

    def ranks(pipeline_ranks: list[int], *rest: Any) -> list[int]:
        ours = installation.embedding_ranks(pipeline_ranks)
        if original is None:
            return ours
        theirs = original(pipeline_ranks, *rest)
        if pipeline_ranks[-1] in ours:
            return list(theirs)
        return sorted({pipeline_ranks[0] if rank == pipeline_ranks[-1] else rank for rank in theirs})

    return ranks
