"""The types of a scenario's fields, for editors and type checkers; a test compares them with the table."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

#: The fields of ``penstock.fields()``.
ScenarioFields = TypedDict(
    "ScenarioFields",
    {
        "ranks": "int",
        "chunks": "int",
        "microbatches": "int",
        "group": "int",
        "slices": "int",
        "waves": "int",
        "steps": "int",
        "split": "bool",
        "objective": "str",
        "replicas": "int",
        "weight_policy": "str",
        "iteration": "int",
        "trace_rule": "str | os.PathLike[str]",
        "cost": "float | Sequence[float] | str",
        "stage_costs": "Sequence[Mapping[str, Any]]",
        "layer_costs": "Sequence[Mapping[str, Any]]",
        "comm": "float | str",
        "bandwidth": "str",
        "overlap": "float | str",
        "launch": "float | str",
        "slow_rank": "Sequence[str] | str",
        "transfers": "str",
        "offload_sharing": "int",
        "microbatch_lengths": "Sequence[float] | str",
        "memory_limit": "float | str",
        "activation_bytes": "float | str",
        "message_bytes": "float | str",
        "topology": "Sequence[Mapping[str, Any]]",
        "collectives": "Mapping[str, Any]",
        "time_unit": "str",
        "model": "str | os.PathLike[str]",
        "device": "str | os.PathLike[str]",
        "nodes": "str",
        "micro_batch_size": "int",
        "sequence": "int",
        "precision": "str",
        "tensor": "int",
        "data_parallel": "int",
        "expert": "int",
        "zero": "int",
        "flops_efficiency": "float",
        "bandwidth_efficiency": "float",
        "hidden_communication": "float",
        "stage_tensor": "Sequence[int] | str",
        "stage_data": "Sequence[int] | str",
        "stage_recompute": "Sequence[str] | str",
        "machine": "str | os.PathLike[str]",
        "pass": "Sequence[str] | str",
        "price": "Sequence[str] | str",
        "jitter": "float",
        "seed": "int",
        "runs": "int",
        "repeat": "int",
    },
    total=False,
)

#: Former names of fields, which work in this release only, with a warning.
FORMER_NAMES = {"data": "data_parallel", "weights": "weight_policy"}
