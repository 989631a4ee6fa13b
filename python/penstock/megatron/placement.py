"""Where stages are, as Megatron's code sees it.

Megatron numbers stage ``chunk * ranks + rank``, which a V or a zigzag does not. So each model chunk is built, fed and run with
the *view rank* ``stage % ranks`` as its pipeline rank: all of Megatron's own arithmetic then finds the right layers.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib.util
import inspect
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch.distributed as dist

from penstock import Error
from penstock.megatron.checks import contracts
from penstock.megatron.checks.agreement import together
from penstock.megatron.lanes import Lanes

_state = contracts.module("megatron.core.parallel_state")
_set_rank = contracts.attribute("set_pipeline_model_parallel_rank", "megatron.core.parallel_state")
_Groups = contracts.attribute("ProcessGroupCollection", "megatron.core.process_groups_config")
_unwrapped = contracts.attribute("get_attr_wrapped_model", "megatron.core.utils")
_layer_offset = contracts.function(
    "get_transformer_layer_offset", "megatron.core.transformer.transformer_layer", required="config vp_stage pp_rank"
)


class Placement:
    """Ranks and chunks of stages."""

    def __init__(self, lanes: Lanes) -> None:
        self.name = lanes.name
        self.ranks, self.chunks, self.stages = lanes.ranks, lanes.chunks, lanes.stages
        self.rank_of_stage = lanes.rank_of_stage
        self.first_rank, self.last_rank = self.rank_of_stage[0], self.rank_of_stage[-1]
        #: Whether Megatron would place a stage elsewhere.
        self.moved = any(rank != stage % self.ranks for stage, rank in enumerate(self.rank_of_stage))
        #: Whether gradients of an embedding with two copies can be added: here if they are on one rank, else by Megatron.
        self.ties = self.first_rank == self.last_rank or (self.first_rank, self.last_rank) == (0, self.ranks - 1)

    def stage(self, rank: int, chunk: int) -> int:
        """Returns the stage that a rank has as this chunk."""
        return self.rank_of_stage.index(rank, chunk * self.ranks)

    def view_rank(self, rank: int, chunk: int) -> int:
        """Returns the rank on which Megatron would place the chunk."""
        return self.stage(rank, chunk) % self.ranks

    @contextlib.contextmanager
    def view(self, rank: int, chunk: int) -> Iterator[None]:
        """While the block runs, Megatron's global state has the view rank of this chunk."""
        before = _state._MPU_PIPELINE_MODEL_PARALLEL_RANK
        _set_rank(self.view_rank(rank, chunk))
        try:
            yield
        finally:
            _set_rank(before)

    def embedding_ranks(self, pipeline_ranks: Sequence[int]) -> list[int]:
        """Returns the ranks that share the embedding if weights are tied: those with the first and the last stage."""
        shared = {self.first_rank, self.last_rank} if self.ties else {self.first_rank}
        return sorted(pipeline_ranks[rank] for rank in shared)


class _PipelineView:
    """The pipeline's process group, with a view rank."""

    def __init__(self, group: Any, rank: int) -> None:
        self._group, self._rank = group, rank

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return int(self._group.size())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._group, name)


class ModelBuilder:
    """Builds the chunks of a model where the schedule wants them."""

    def __init__(self, placement: Callable[[], Placement], splits: Callable[[], bool]) -> None:
        self._placement, self._splits = placement, splits
        self._first: weakref.ref[Any] | None = None  # the chunk with the embedding

    def wrap(self, provider: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a model provider that builds the chunk of the schedule's stage."""

        @functools.wraps(provider)
        def build(*args: Any, vp_stage: int | None = None, config: Any = None, pg_collection: Any = None, **kwargs: Any) -> Any:
            placement = self._placement_for(provider, vp_stage, pg_collection)
            _warn_of_legacy_checkpoints(placement)
            if config is not None and self._splits():
                delay_weight_gradients(config)
            given = {"vp_stage": vp_stage, "config": config, "pg_collection": pg_collection}
            if not placement.moved:
                known = inspect.signature(provider).parameters
                every = any(each.kind is each.VAR_KEYWORD for each in known.values())
                return provider(*args, **{k: v for k, v in given.items() if v is not None or every or k in known}, **kwargs)
            return self._build_moved(placement, provider, *args, **{**kwargs, **given})

        return build

    def _placement_for(self, provider: Callable[..., Any], vp_stage: int | None, pg_collection: Any) -> Placement:
        """Returns where stages are, if the model can be built there on all ranks of the pipeline."""

        def check() -> Placement:
            placement = self._placement()
            if placement.moved:
                _require_takes(provider, "pg_collection", "vp_stage", "pre_process", "post_process")
                _require_embedding_group(placement, pg_collection or _Groups.use_mpu_process_groups())
            return placement

        return self._placement() if vp_stage else together(_state.get_pipeline_model_parallel_group(), check)

    def _build_moved(
        self,
        placement: Placement,
        provider: Callable[..., Any],
        *args: Any,
        vp_stage: int | None,
        pg_collection: Any,
        **kwargs: Any,
    ) -> Any:
        groups = copy.copy(pg_collection or _Groups.use_mpu_process_groups())
        rank, chunk = groups.pp.rank(), vp_stage or 0
        stage = placement.stage(rank, chunk)
        groups.pp = _PipelineView(groups.pp, placement.view_rank(rank, chunk))
        kwargs["pre_process"], kwargs["post_process"] = stage == 0, stage == placement.stages - 1
        with placement.view(rank, chunk):
            model = provider(*args, vp_stage=vp_stage, pg_collection=groups, **kwargs)
        model.penstock_stage = stage
        if stage == 0:
            self._first = weakref.ref(model)
        elif stage == placement.stages - 1 and rank == placement.first_rank and tied(model):
            first = self._first() if self._first is not None else None
            if first is None:
                raise Error("the chunk of the first stage must be built before, and kept: the last one starts with its embedding")
            # Between ranks, Megatron copies by an all-reduce; here both are on this one.
            model.shared_embedding_or_output_weight().data.copy_(first.shared_embedding_or_output_weight().data)
        return model


def _warn_of_legacy_checkpoints(placement: Placement) -> None:
    """Warns if the run reads or writes checkpoints per rank, whose chunks follow the placement."""
    globals_of_training = sys.modules.get("megatron.training.global_vars")
    arguments = getattr(globals_of_training, "_GLOBAL_ARGS", None)
    if placement.moved and getattr(arguments, "ckpt_format", None) == "torch":
        warnings.warn(
            f"checkpoints of format 'torch' hold the chunks of each rank, here those of {placement.name}: load them only with a "
            "schedule that places stages equally, or use --ckpt-format torch_dist",
            stacklevel=3,
        )


def _require_takes(provider: Callable[..., Any], *names: str) -> None:
    known = inspect.signature(provider).parameters
    lacking = [name for name in names if name not in known]
    if lacking and not any(each.kind is each.VAR_KEYWORD for each in known.values()):
        raise Error(
            f"the model provider takes no {', '.join(lacking)}; pass them on to the model, or choose a schedule without a V"
        )


def _require_embedding_group(placement: Placement, groups: Any) -> None:
    """Refuses a group in which Megatron would wait for another rank's embedding forever."""
    group = getattr(groups, "embd", None)
    if group is None:
        return
    here = set(dist.get_process_group_ranks(group))
    pipeline = dist.get_process_group_ranks(groups.pp)
    if groups.pp.rank() in (0, placement.ranks - 1) and not here <= set(placement.embedding_ranks(pipeline)):
        raise Error(
            f"{placement.name} has its first and last stage on other ranks than Megatron's embedding group: pass "
            "get_embedding_ranks=installation.embedding_ranks to initialize_model_parallel or pretrain"
        )


def tied(model: Any) -> bool:
    """Whether the last stage has a copy of the embedding."""
    return bool(getattr(model, "share_embeddings_and_output_weights", False) or getattr(model.config, "mtp_num_layers", 0))


def require_placed(placement: Placement, rank: int, models: Sequence[Any], config: Any) -> None:
    """Raises ``Error`` unless each chunk was built for the schedule's stage."""
    for chunk, model in enumerate(models):
        stage = placement.stage(rank, chunk)
        inner = unwrapped(model)
        expected = {"pre_process": stage == 0, "post_process": stage == placement.stages - 1}
        if not placement.ties and any(expected.values()) and tied(inner):
            raise Error(
                f"{placement.name} starts on rank {placement.first_rank} and ends on rank {placement.last_rank}, where Megatron "
                "cannot share an embedding: set --untie-embeddings-and-output-weights, or put both stages on one rank, or on the "
                "first and the last rank"
            )
        wrong = [name for name, value in expected.items() if bool(getattr(inner, name, value)) != value]
        decoder: Any = getattr(inner, "decoder", None)
        if type(decoder).__name__ != "TransformerBlock":
            if placement.moved and getattr(inner, "penstock_stage", None) != stage:
                wrong.append("a model other than GPT")
        elif len(decoder.layers):
            vp_stage = chunk if len(models) > 1 else None
            with placement.view(rank, chunk):
                offset = _layer_offset(config=config, vp_stage=vp_stage, pp_rank=placement.view_rank(rank, chunk))
            number = decoder.layers[0].layer_number
            if number != offset + 1:
                wrong.append(f"layer {number} where {offset + 1} belongs")
        if wrong:
            raise Error(
                f"chunk {chunk} of pipeline rank {rank} was not built as stage {stage} of {placement.name} ({', '.join(wrong)}): "
                "build models with the provider that penstock.megatron.install(...).model(provider) returns"
            )
        if getattr(inner, "mtp_process", False) and stage != placement.stages - 1:
            raise Error(
                f"stage {stage} has the MTP layers, and penstock.megatron needs them in the last stage; move them to the end "
                "of the layout"
            )


def layers_of_stages(placement: Placement, rank: int, models: Sequence[Any]) -> dict[int, int]:
    """Returns how many decoder layers the stages of a rank have. Chunks without a list of layers are left out."""
    found = {}
    for chunk, model in enumerate(models):
        layers = getattr(getattr(unwrapped(model), "decoder", None), "layers", None)
        if layers is not None:
            found[placement.stage(rank, chunk)] = len(layers)
    return found


def unwrapped(model: Any) -> Any:
    """Returns the module inside of Megatron's wrappers that has the stage's layers."""
    try:
        return _unwrapped(model, "pre_process", allow_none=False, return_model_obj=True)
    except RuntimeError:  # a model without this attribute
        while hasattr(model, "module"):
            model = model.module
        return model


def delay_weight_gradients(config: Any) -> None:
    """Lets Transformer Engine's layers that are built with this configuration delay weight gradients.

    Megatron checks the option in the constructor alone, where it demands an option for experts.
    """
    if importlib.util.find_spec("transformer_engine") is not None and hasattr(config, "delay_wgrad_compute"):
        config.delay_wgrad_compute = True
