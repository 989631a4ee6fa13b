"""Pipelines inside of a larger group of processes, with stages that FSDP shards."""

from __future__ import annotations

from typing import Any

import small_transformer as model
import torch
import torch.distributed as dist
from gloo_ranks import run_ranks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import penstock
import penstock.torch


def train_sharded(rank: int, name: str) -> Any:
    """Two pipelines of two ranks, each with the whole batch. Returns the gradients by stage."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pipeline", "data"))
    schedule = penstock.schedule(name, ranks=2, microbatches=model.MICROBATCHES)
    stages = model.split(schedule.stages)
    own = [s for s, of in enumerate(schedule.rank_of_stage) if of == mesh["pipeline"].get_local_rank()]
    for stage in own:
        fully_shard(stages[stage], mesh=mesh["data"])
    runtime = penstock.torch.runtime(stages, schedule, model.loss_fn, group=mesh["pipeline"].get_group())
    tokens, targets = model.batch(0)
    with penstock.torch.record(runtime) as run:
        runtime.step(*((tokens,) if 0 in own else ()), target=targets)
    if mesh["pipeline"].get_local_rank() == 0:
        assert run.timeline.schedule == schedule
    dist.barrier()
    return {stage: [parameter.grad.full_tensor() for parameter in stages[stage].parameters()] for stage in own}


def test_shards_stages_and_takes_a_group() -> None:
    by_rank = run_ranks(4, train_sharded, "zbv")
    wanted = model.train_plainly()[0][1]
    for pipeline in (by_rank[0::2], by_rank[1::2]):
        by_stage = {stage: found for of_rank in pipeline for stage, found in of_rank.items()}
        found = [gradient for stage in sorted(by_stage) for gradient in by_stage[stage]]
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-7)
