"""Options of Megatron that own the schedule or need its code, each with the reason why it is refused."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from penstock import Error

#: Options of Megatron's model configuration: any true value is refused.
CONFIG: dict[str, str] = {
    "overlap_dispatch_backward_with_experts_wgrad": "Megatron's own backward delays the experts' weight gradients for it",
    "hybrid_context_parallel": "Megatron assigns microbatches to ranks for it while a step runs",
    "dynamic_context_parallel": "Megatron assigns microbatches to ranks for it while a step runs",
    "num_microbatches_with_partial_activation_checkpoints": "Megatron counts the microbatches in flight of its own 1F1B for it",
    "defer_embedding_wgrad_compute": "W already delays the weight gradients of the head",
    "fine_grained_activation_offloading": "Megatron prefetches in the order of its own schedules",
    "cpu_offloading": "Megatron prefetches in the order of its own schedules",
    "moe_paged_stash": "Megatron allocates in the order of its own schedules",
    "mtp_standalone": "Megatron's embedding group for it assumes its own placement",
    "use_ring_exchange_p2p": "messages are sent one by one",
    "enable_cuda_graph": "Megatron captures graphs in the order of its own schedules",
    "external_cuda_graph": "Megatron captures graphs in the order of its own schedules",
}

#: Options of which these values are refused.
VALUES: dict[str, tuple[tuple[Any, ...], str]] = {
    "cuda_graph_impl": (
        ("local", "transformer_engine", "full_iteration"),
        "Megatron captures graphs in the order of its own schedules",
    )
}

#: Options of Megatron's data-parallel configuration that are refused.
DATA_PARALLEL: dict[str, str] = {
    "use_megatron_fsdp": "the accumulators of sharded gradients exist only inside Megatron's backward hooks"
}


def refuse_config(config: Any) -> None:
    """Raises ``Error`` if the model configuration has an option that only Megatron's own schedules run."""
    for name, reason in CONFIG.items():
        if getattr(config, name, None):
            _refuse(name, reason)
    for name, (values, reason) in VALUES.items():
        if getattr(config, name, None) in values:
            _refuse(f"{name}={getattr(config, name)}", reason)
    for name in ("gtp_weight_remat_size", "expert_gtp_weight_remat_size"):
        if (getattr(config, name, 1) or 1) > 1:
            _refuse(name, "its weights are gathered inside Megatron's backward")


def refuse_actions(name: str, ops: Set[str], config: Any, *, records: bool) -> None:
    """Raises ``Error`` if a schedule has actions that the model configuration does not allow."""
    moves = sorted(ops & {"OFFLOAD", "RECOMPUTE"})
    if getattr(config, "overlap_moe_expert_parallel_comm", False) and (moves or records):
        raise Error(
            f"{name} {'has ' + ' and '.join(moves) + ' actions' if moves else 'is recorded'}, but with "
            "overlap_moe_expert_parallel_comm, Megatron runs forwards and backwards together, in parts; turn one of them off"
        )
    if "RECOMPUTE" not in ops:
        return
    if getattr(config, "recompute_granularity", None) is None:
        raise Error(
            f"{name} has RECOMPUTE actions, which run what Megatron recomputes before the backward instead of in it: set "
            "--recompute-granularity, or leave out the pass that adds them"
        )
    if getattr(config, "distribute_saved_activations", False):
        raise Error(f"{name} has RECOMPUTE actions, which need whole inputs: turn distribute_saved_activations off")


def refuse_models(models: Sequence[Any]) -> None:
    """Raises ``Error`` if a model chunk is wrapped by what only Megatron's own schedules run."""
    for model in models:
        for name, reason in DATA_PARALLEL.items():
            if getattr(getattr(model, "ddp_config", None), name, None):
                _refuse(name, reason)
        for module in (model, getattr(model, "module", None)):
            if "FullyShardedDataParallel" in type(module).__name__ or hasattr(module, "set_requires_gradient_sync"):
                _refuse("FSDP", "its gradients are sharded inside the backward")


def refuse_call(adjust_tensor_shapes_fn: Any, pg_collection: Any) -> None:
    """Raises ``Error`` for arguments of a step that only Megatron's own schedules run."""
    if adjust_tensor_shapes_fn is not None:
        _refuse("adjust_tensor_shapes_fn", "it changes the messages of Megatron's own 1F1B")
    if type(pg_collection).__name__ == "MultiModuleProcessGroupCollection":
        _refuse("a pipeline of several modules", "its modules have pipelines of their own")


def _refuse(what: str, reason: str) -> None:
    raise Error(f"{what} needs a schedule of Megatron's own: {reason}; turn it off, or run without penstock.megatron")
