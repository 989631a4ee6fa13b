"""torch's runtime trains with our schedules, as one process with plain autograd does."""

from __future__ import annotations

import functools
from typing import Any

import model
import penstock
import penstock.torch
import pytest
import torch
import torch.distributed as dist
from processes import run_ranks
from torch import nn
from torch.distributed.pipelining import PipelineStage

CATALOG = [entry.name for entry in penstock.schedules()]
REFUSED = {"dualpipe": "replicas", "chimera": "replicas", "pipedream": "flush", "pipedream-2bw": "flush"}


def generate(name: str, ranks: int) -> penstock.Schedule:
    return penstock.schedule(name, ranks=ranks, microbatches=model.MICROBATCHES)


def step(runtime: Any, stages: list[nn.Module], number: int) -> list[torch.Tensor]:
    """Runs one step. Returns the losses of the last stage's microbatches."""
    tokens, targets = model.batch(number)
    own = {stage.stage_index for stage in runtime._stages}
    losses: list[torch.Tensor] = []
    inputs = (tokens,) if 0 in own else ()
    last = len(stages) - 1 in own
    runtime.step(*inputs, target=targets if last else None, losses=losses if last else None)
    return [loss.detach() for loss in losses]


def train(rank: int, names: list[str], ready_made: bool) -> dict[str, list[Any]]:
    """Returns, for each schedule and step, the losses and the gradients by stage of this rank."""
    found = {}
    for name in names:
        schedule = generate(name, dist.get_world_size())
        stages = model.split(schedule.stages)
        own = [number for number, of in enumerate(schedule.rank_of_stage) if of == rank]
        given: Any = {number: stages[number] for number in own}
        if ready_made:
            given = [PipelineStage(stages[s], s, len(stages), torch.device("cpu")) for s in own]
        runtime = penstock.torch.runtime(given, schedule, model.loss_fn)
        found[name] = []
        for number in range(model.STEPS):
            losses = step(runtime, stages, number)
            found[name].append((losses, {s: model.gradients(stages[s]) for s in own}))
            model.update([stages[s] for s in own])
    return found


def supported(ranks: int) -> list[str]:
    names = []
    for name in CATALOG:
        try:
            generate(name, ranks)
        except penstock.Error:
            continue  # no schedule of this size
        if name not in REFUSED:
            names.append(name)
    return names


@functools.cache
def trained(ranks: int) -> list[dict[str, list[Any]]] | str:
    """Returns what each rank found, or why the run failed, so that it runs only once."""
    try:
        return run_ranks(ranks, train, supported(ranks), ranks == 2)
    except AssertionError as error:
        return str(error)


@functools.cache
def plain() -> list[tuple[list[torch.Tensor], list[torch.Tensor]]]:
    return model.train_plainly()


@pytest.mark.parametrize("name", [name for name in CATALOG if name not in REFUSED])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_trains_like_plain_autograd(ranks: int, name: str) -> None:
    if name not in supported(ranks):
        pytest.skip(f"{name} has no schedule of {ranks} ranks and {model.MICROBATCHES} microbatches")
    found_by_rank = trained(ranks)
    assert not isinstance(found_by_rank, str), found_by_rank
    results = [of_rank[name] for of_rank in found_by_rank]
    for number, (losses, gradients) in enumerate(plain()):
        by_stage = {stage: each for of_rank in results for stage, each in of_rank[number][1].items()}
        found = [gradient for stage in sorted(by_stage) for gradient in by_stage[stage]]
        found_losses = [loss for of_rank in results for loss in of_rank[number][0]]
        torch.testing.assert_close(found_losses, losses, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(found, gradients, rtol=1e-5, atol=1e-7)


def test_covers_v_schedules() -> None:
    for name in ("zbv", "v-half", "v-min", "v-1f1b", "dualpipev", "hanayo"):
        assert name in supported(4)
        ranks = generate(name, 4).rank_of_stage
        assert any(a == b for a, b in zip(ranks, ranks[1:], strict=False)), name
