"""Whatever an argument is, what comes out is a result or one clear line."""

from __future__ import annotations

import inspect
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock import Costs, Schedule, Timeline, megatron
from wrong_values import complaints

SMALL = penstock.schedule("zbv", ranks=2, microbatches=2)
RUN = SMALL.simulate()
TIMES = [RUN.times(rank) for rank in range(2)]
COMMON: dict[str, Any] = {"comm": 0.5, "overlap": "max", "transfers": "blocking", "prices": {"step": 1.0}, "time_unit": "s"}
PER_STAGE = dict.fromkeys(("forward", "backward_input", "recompute", "message_scale", "activation", "weights"), [1, 1])

CALLS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (
        penstock.schedule,
        {
            "name": "interleaved",
            "ranks": 2,
            "microbatches": 4,
            "chunks": 2,
            "costs": None,
            "memory_limit": None,
            "objective": "makespan",
            "group": None,
            "slices": 1,
            "waves": None,
            "steps": 1,
            "split": False,
        },
    ),
    (penstock.actions, {"cells": ["0F0"]}),
    (penstock.texts, {"lane": SMALL.lanes[0]}),
    (penstock.compare, {"timelines": [RUN]}),
    (lambda timeline: penstock.compare([timeline]), {"timeline": RUN}),
    (Costs.uniform, {"forward": 1, "backward_input": 1, "kept_for_weight": 1, **COMMON}),
    (Costs.uniform, {"bandwidth": 1, "message_bytes": 1}),
    (Costs.uniform, {"topology": [{"level": "node", "latency": 1}]}),
    (lambda level: Costs.uniform(topology=[level]), {"level": {"level": "node", "latency": 1}}),
    (lambda latency: Costs.uniform(topology=[{"level": "n", "latency": latency}]), {"latency": 1}),
    (Costs.per_stage, {**PER_STAGE, **COMMON, "memory_in_bytes": False}),
    (Costs.per_layer, {"layers": [1, 1], **PER_STAGE, **COMMON, "memory_in_bytes": True}),
    (
        Costs.of_model,
        {
            "model": "llama-2-7b",
            "device": "h100",
            "nodes": "1x8",
            "precision": "bf16",
            "micro_batch_size": 1,
            "sequence": 4096,
            "tensor": 1,
            "data_parallel": 1,
            "expert": 1,
            "zero": 0,
            "flops_efficiency": 0.5,
            "bandwidth_efficiency": 0.5,
            "hidden_communication": 0.5,
            **COMMON,
        },
    ),
    (Costs.load, {"path": "costs.yaml"}),
    (Costs().save, {"path": "costs.yaml"}),
    (Costs.from_yaml, {"text": "cost: 1"}),
    (Costs().stages, {"schedule": SMALL}),
    (
        Schedule,
        {
            "rank_of_stage": [0, 1],
            "lanes": [["0F0", "0B0"], ["1F0", "1B0"]],
            "microbatches": 1,
            "replicas": 1,
            "slices": 1,
            "steps": 1,
            "weight_policy": "flush",
            "vocabulary": False,
            "shared": [[0, 1]],
            "algorithm": "mine",
        },
    ),
    (SMALL.texts, {"rank": 0}),
    (SMALL.validate, {"most": 1}),
    (lambda one: SMALL.apply(one), {"one": "optimizer"}),
    (lambda costs: SMALL.apply(costs=costs), {"costs": None}),
    (SMALL.lower, {"for_torch": False}),
    (SMALL.replicate, {"replicas": 2}),
    (SMALL.simulate, {"costs": None}),
    (
        lambda name, **fields: penstock.simulate(name, **fields),
        {
            "name": "1f1b",
            "ranks": 2,
            "comm": 0.5,
            "jitter": 0.1,
            "runs": 2,
            "repeat": 2,
            "memory": True,
            "time_steps": True,
            "run": True,
            "unit": "1ms",
        },
    ),
    (lambda name, **fields: penstock.sweep(name, **fields), {"name": "1f1b", "over": {"ranks": [2, 3]}, "slow_rank": ["0=1.5"]}),
    (
        lambda **fields: penstock.plan(**fields),
        {
            "model": "gpt2",
            "nodes": "1x2",
            "global_batch": 4,
            "chunks": [1],
            "schedule": ["1f1b"],
            "exclude": "gpipe",
            "framework": "torch",
            "memory_limit": "8GiB",
            "recompute": "none",
        },
    ),
    (
        lambda **fields: penstock.plan(**fields),
        {"ranks": 2, "microbatches": 2, "cost": (1, 1, 1), "comm": 0.5, "objective": "span"},
    ),
    (SMALL.report, {"path": "x.svg", "costs": None}),
    (SMALL.show, {"costs": None, "width": 80}),
    (SMALL.to_csv, {"path": "x.csv"}),
    (
        Schedule.from_csv,
        {"source": "0F0,0B0\n", "microbatches": 1, "replicas": 1, "slices": 1, "steps": 1, "weight_policy": "flush"},
    ),
    (Timeline.from_times, {"schedule": SMALL, "times": TIMES, "costs": Costs(), "time_unit": "s"}),
    (lambda of_rank: Timeline.from_times(SMALL, [of_rank, TIMES[1]]), {"of_rank": TIMES[0]}),
    (RUN.times, {"rank": 0}),
    (RUN.actions, {"rank": 0}),
    (RUN.memory, {"rank": 0}),
    (RUN.bubbles, {"rank": 0, "memory_limit": None}),
    (RUN.report, {"path": "x.svg", "title": "x", "width": 300, "for_paper": False}),
    (lambda other: RUN.report("x.svg", other), {"other": RUN}),
    (RUN.svg, {"width": 300}),
    (RUN.show, {"width": 80, "color": False}),
    (penstock.compare([RUN]).svg, {"width": 300}),
    (penstock.compare([RUN]).report, {"path": "x.svg", "title": "x", "width": 300}),
    (megatron.layout, {"layers": 8, "stages": 4, "costs": None, "embedding": 0, "loss": 0, "mtp": 0}),
    (megatron.parse, {"text": "Et*2|tL"}),
]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_wrong_values(number: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Costs().save("costs.yaml")
    call, good = CALLS[number]
    call(**good)
    assert complaints(call, good, also=(IndexError,)) == []


def test_every_public_function_is_tried() -> None:
    tried = {getattr(call, "__qualname__", "") for call, _ in CALLS}
    takes_none = {"schedules", "passes", "devices", "models", "fields"}
    through_lambda = {"Schedule.apply", "plan", "simulate", "sweep"}
    public = {name: getattr(penstock, name) for name in penstock.__all__}
    functions = {name for name, value in public.items() if inspect.isroutine(value)}
    assert functions - takes_none - through_lambda <= tried
    for owner in (Costs, Schedule, Timeline, penstock.Comparison):
        for name, member in vars(owner).items():
            if name.startswith("_") or isinstance(member, property):
                continue
            function = getattr(member, "__func__", member)
            code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
            if code is None or code.co_argcount + code.co_kwonlyargcount <= 1:
                continue
            assert f"{owner.__name__}.{name}" in tried | through_lambda


def test_unknown_keywords_get_a_suggestion() -> None:
    with pytest.raises(penstock.Error, match="no keyword 'com'; did you mean 'comm'"):
        Costs.uniform(com=1)  # type: ignore[call-arg]
    with pytest.raises(penstock.Error, match="no keyword 'forwards'; did you mean 'forward'"):
        Costs.per_stage(forwards=[1])  # type: ignore[call-arg]


def test_a_model_is_checked_where_it_is_named() -> None:
    with pytest.raises(penstock.Error, match="gpt-5"):
        Costs.of_model("gpt-5")
    with pytest.raises(penstock.Error, match="no-such-device"):
        Costs.of_model("llama-2-7b", "no-such-device")
