"""torch's runtime trains with our schedules, as one process with plain autograd does."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import pytest
import small_transformer as model
import torch
import torch.distributed as dist
from gloo_ranks import run_ranks
from torch import nn
from torch.distributed.pipelining import PipelineStage

import penstock
import penstock.torch

CATALOG = [entry.name for entry in penstock.schedules()]
REFUSED = {"dualpipe", "chimera", "pipedream", "pipedream-2bw"}


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


def train_with(
    schedule: penstock.Schedule, rank: int, ready_made: bool = False
) -> list[tuple[list[torch.Tensor], dict[int, list[torch.Tensor]]]]:
    """Returns, for each step, the losses and the gradients by stage of this rank."""
    stages = model.split(schedule.stages)
    own = [number for number, of in enumerate(schedule.rank_of_stage) if of == rank]
    given: Any = {number: stages[number] for number in own}
    if ready_made:
        given = [PipelineStage(stages[s], s, len(stages), torch.device("cpu")) for s in own]
    runtime = penstock.torch.runtime(given, schedule, model.loss_fn)
    found = []
    for number in range(model.STEPS):
        losses = step(runtime, stages, number)
        found.append((losses, {s: model.gradients(stages[s]) for s in own}))
        model.update([stages[s] for s in own])
    return found


def require_equal_to_plain(results: list[Any]) -> None:
    """``results``: what ``train_with`` returned on each rank."""
    for number, (losses, gradients) in enumerate(plain()):
        by_stage = {stage: each for of_rank in results for stage, each in of_rank[number][1].items()}
        found = [gradient for stage in sorted(by_stage) for gradient in by_stage[stage]]
        found_losses = [loss for of_rank in results for loss in of_rank[number][0]]
        torch.testing.assert_close(found_losses, losses, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(found, gradients, rtol=1e-5, atol=1e-7)


def train_all(rank: int, names: list[str], ready_made: bool) -> dict[str, list[Any]]:
    ranks = dist.get_world_size()
    return {name: train_with(generate(name, ranks), rank, ready_made) for name in names}


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
        return run_ranks(ranks, train_all, supported(ranks), ranks == 2)
    except AssertionError as error:
        return str(error)


@functools.cache
def plain() -> list[tuple[list[torch.Tensor], list[torch.Tensor]]]:
    return model.train_plainly()


@pytest.mark.parametrize("name", [name for name in CATALOG if name not in REFUSED])
@pytest.mark.parametrize("ranks", [2, 4])
def test_trains_like_plain_autograd(ranks: int, name: str) -> None:
    if name not in supported(ranks):
        pytest.skip(f"{name} has no schedule of {ranks} ranks and {model.MICROBATCHES} microbatches")
    found_by_rank = trained(ranks)
    assert not isinstance(found_by_rank, str), found_by_rank
    require_equal_to_plain([of_rank[name] for of_rank in found_by_rank])


def test_covers_v_schedules() -> None:
    for name in ("zbv", "v-half", "v-min", "v-1f1b", "dualpipev", "hanayo"):
        assert name in supported(4)
        ranks = generate(name, 4).rank_of_stage
        assert any(a == b for a, b in itertools.pairwise(ranks)), name


def train_on_one_rank(rank: int) -> list[Any]:
    return [train_with(generate(name, 1), rank) for name in ("interleaved", "zbv", "hanayo")]


def test_trains_on_one_rank() -> None:
    for result in run_ranks(1, train_on_one_rank)[0]:
        require_equal_to_plain([result])


def train_changed(rank: int) -> list[Any]:
    return [train_with(schedule, rank) for schedule in changed()]


def changed() -> list[penstock.Schedule]:
    """Schedules with actions other than compute."""
    zbv = generate("zbv", 2)
    return [generate("interleaved", 2).apply("sharding"), zbv.lower(), zbv.lower(for_torch=True)]


def test_trains_with_messages_and_sharding() -> None:
    by_rank = run_ranks(2, train_changed)
    for number in range(len(changed())):
        require_equal_to_plain([of_rank[number] for of_rank in by_rank])


def evaluate(rank: int) -> Any:
    schedule = generate("zbv", 2)
    runtime = penstock.torch.runtime(model.split(4), schedule, model.loss_fn)
    tokens, targets = model.batch(0)
    with torch.no_grad():
        return runtime.eval(*((tokens,) if rank == 0 else ()), target=targets)


def test_evaluates_v_schedules() -> None:
    outputs = run_ranks(2, evaluate)
    with torch.no_grad():
        wanted = nn.Sequential(*model.layers())(model.batch(0)[0])
    torch.testing.assert_close(outputs[0], wanted)
    assert outputs[1] is None


def refusals(rank: int) -> dict[str, str]:
    """Returns the error of each thing that is wrong."""
    zbv = generate("zbv", 2)
    stages = model.split(4)

    def out_of_order() -> penstock.Schedule:
        schedule = penstock.schedule("gpipe", ranks=2, microbatches=2)
        for lane in range(2):
            forward = [f"{lane}F1", f"{lane}F0"]
            schedule.lanes[lane] = [*forward, f"{lane}B0", f"{lane}B1"]
        return schedule

    def invalid() -> penstock.Schedule:
        schedule = generate("1f1b", 2)
        schedule.lanes[0] = schedule.lanes[0][1:]
        return schedule

    def built(number: int, of: int) -> PipelineStage:
        return PipelineStage(stages[number], number, of, torch.device("cpu"))

    cases: dict[str, Any] = {name: lambda name=name: penstock.torch.runtime(stages, generate(name, 2)) for name in REFUSED}
    seq1f1b = penstock.schedule("seq1f1b", ranks=2, microbatches=8, slices=2)
    cases |= {
        "slices": lambda: penstock.torch.runtime(stages, seq1f1b),
        "STEP": lambda: penstock.torch.runtime(stages, zbv.apply("optimizer")),
        "RECOMPUTE": lambda: penstock.torch.runtime(stages, zbv.apply("recompute")),
        "OFFLOAD": lambda: penstock.torch.runtime(stages, generate("v-half", 2).apply("offload")),
        "order": lambda: penstock.torch.runtime(stages, out_of_order()),
        "invalid": lambda: penstock.torch.runtime(stages, invalid()),
        "ranks": lambda: penstock.torch.runtime(stages, generate("zbv", 4)),
        "name": lambda: penstock.torch.runtime(stages, "zbv"),
        "missing": lambda: penstock.torch.runtime(stages[:1], zbv),
        "placement": lambda: penstock.torch.runtime([built(rank, 4), built(rank + 2, 4)], zbv),
        "count": lambda: penstock.torch.runtime([built(s, 5) for s in range(4) if zbv.rank_of_stage[s] == rank], zbv),
    }
    found = {}
    for case, attempt in cases.items():
        with pytest.raises(penstock.Error) as caught:
            attempt()
        found[case] = str(caught.value)
    return found


def test_refuses_in_one_line() -> None:
    words = {
        "dualpipe": "dualpipe: torch does not support two replicas",
        "chimera": "chimera: torch does not support two replicas",
        "pipedream": "pipedream: torch does not support weights without a flush",
        "pipedream-2bw": "pipedream-2bw: torch does not support weights without a flush",
        "slices": "seq1f1b: torch does not support slices",
        "STEP": "torch has no action STEP",
        "RECOMPUTE": "torch has no action RECOMPUTE",
        "OFFLOAD": "torch has no action OFFLOAD",
        "order": "1F1 is forward 0 of the last stage",
        "invalid": "not a valid schedule: ",
        "ranks": "the schedule has 4 ranks and the process group 2",
        "name": "schedule is a str; give a penstock.Schedule",
        "missing": "has no module; the schedule places stages ",
        "placement": "but the schedule places stages ",
        "count": "is one of 5, but the schedule has 4 stages",
    }
    for found in run_ranks(2, refusals):
        assert found.keys() == words.keys()
        for case, message in found.items():
            assert words[case] in message and "\n" not in message, (case, message)
