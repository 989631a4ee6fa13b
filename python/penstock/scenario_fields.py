"""The types of a scenario's fields, for editors and type checkers; a test compares them with the table."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict


class _Schedules(TypedDict, total=False):
    ranks: int
    chunks: int
    microbatches: int
    group: int
    slices: int
    waves: int
    steps: int
    split: bool
    frozen: Sequence[int] | str
    adapters: Sequence[int] | str
    objective: str
    replicas: int
    weight_policy: str
    iteration: int
    trace_rule: str | os.PathLike[str]
    cost: float | Sequence[float] | str
    stage_costs: Sequence[Mapping[str, Any]]
    layer_costs: Sequence[Mapping[str, Any]]
    comm: float | str
    bandwidth: float
    overlap: float | str
    launch: float | str
    slow_rank: Sequence[str] | str
    transfers: str
    offload_sharing: int
    microbatch_lengths: Sequence[float] | str
    memory_limit: float | str
    activation_bytes: float | str
    message_bytes: float | str
    topology: Sequence[Mapping[str, Any]]
    collectives: Mapping[str, Any]
    time_unit: str


class ModelFields(TypedDict, total=False):
    """How a model is trained."""

    model: str | os.PathLike[str]
    device: str | os.PathLike[str]
    nodes: str
    micro_batch_size: int
    sequence: int
    precision: str
    tensor: int
    data_parallel: int
    expert: int
    expert_tensor: int
    context: int
    context_exchange: str
    sequence_parallel: bool
    gather_again: bool
    recompute: str
    layout: Sequence[int] | str
    zero_ranks: int
    zero: int
    flops_efficiency: float
    bandwidth_efficiency: float
    link_efficiency: float
    network_efficiency: float
    hidden_communication: float
    hidden_gradients: float
    device_launch: float | str
    host_launch: float | str
    time_factor: float
    sites: int
    across_sites: str
    site_bandwidth: float | str
    site_latency: float | str
    failures: float | str
    restart: float | str
    storage_bandwidth: float | str
    layers: int
    dim: int
    hidden: int
    vocabulary: int
    heads: int
    kv_heads: int
    head_dim: int
    latent: Sequence[int] | str
    window: int
    experts: int
    top_k: int
    expert_hidden: int
    shared_experts: int
    shared_hidden: int
    dense_layers: int
    experts_every: int
    predictors: int
    pattern: str
    mamba: Sequence[int] | str
    positions: int
    qk_norm: bool
    tied: bool
    gated: bool
    implementation: str
    attention: str
    cuda_graphs: str
    dispatcher: str
    release: str
    expert_imbalance: float
    dropout: bool
    deterministic: bool
    fused_loss: bool
    fused_experts: bool
    overlapped_experts: bool
    optimizer_states: str
    offloaded_states: float
    fp8_attention: bool
    linear_biases: bool
    grouped_experts: bool
    attention_mask: bool
    fragmentation: float
    deferred_head: int
    drops_tokens: bool
    consecutive_experts: bool
    async_tensor: bool
    fp32_gradients: bool
    lora: bool
    qkv_adapters: bool
    layers_at_end_in_bf16: int
    offload_modules: Sequence[str] | str
    offloaded_layers: int
    stage_tensor: Sequence[int] | str
    stage_data: Sequence[int] | str
    stage_recompute: Sequence[str] | str
    machine: str | os.PathLike[str]


_Runs = TypedDict(
    "_Runs",
    {
        "pass": "Sequence[str] | str",
        "price": "Sequence[str] | str",
        "jitter": "float",
        "seed": "int",
        "runs": "int",
        "repeat": "int",
    },
    total=False,
)


class ScenarioFields(_Schedules, ModelFields, _Runs, total=False):
    """The fields of ``penstock.fields()``."""


class PlanFields(ModelFields, total=False):
    """What ``penstock.plan`` takes: the options of ``penstock plan``."""

    ranks: int
    microbatches: int
    chunks: int | Sequence[int]
    memory_limit: float | str
    overlap: float | str
    global_batch: int
    schedule: Sequence[str] | str
    exclude: Sequence[str] | str
    precisions: Sequence[str] | str
    tokens: float | str
    price_per_hour: float
    framework: str
    samples: int
    seed: int
    uncertainty: Mapping[str, float] | Sequence[str] | str
    costs: str | os.PathLike[str]
    cost: float | Sequence[float] | str
    comm: float | str
    objective: str


#: Former names of fields, which work in this release only, with a warning.
FORMER_NAMES = {"data": "data_parallel", "weights": "weight_policy"}
