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
OF_MODEL: dict[str, Any] = {"precision": "bf16", "micro_batch_size": 1, "sequence": 4096, "zero": 0}
OF_MODEL |= dict.fromkeys(("tensor", "data_parallel", "expert"), 1)
OF_MODEL |= dict.fromkeys(("flops_efficiency", "bandwidth_efficiency", "hidden_communication"), 0.5)
SIMULATED: dict[str, Any] = {"ranks": 2, "comm": 0.5, "jitter": 0.1, "runs": 2, "repeat": 2, "unit": "1ms"}
SIMULATED |= dict.fromkeys(("memory", "time_steps", "run"), True)
PLANNED: dict[str, Any] = {"model": "gpt2", "nodes": "1x2", "global_batch": 4, "chunks": [1], "schedule": ["1f1b"]}
PLANNED |= {"exclude": "gpipe", "framework": "torch", "memory_limit": "8GiB", "recompute": "none"}
PER_STAGE = dict.fromkeys(("forward", "backward_input", "recompute", "message_scale", "activation", "weights"), [1, 1])


def _all(function: Callable[..., Any], **given: Any) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Returns a function and all of its arguments: the given ones, and defaults."""
    parameters = inspect.signature(function).parameters
    defaults = {name: each.default for name, each in parameters.items() if each.default is not each.empty}
    return function, {**defaults, **given}


CALLS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    _all(penstock.schedule, name="interleaved", ranks=2, microbatches=4, chunks=2),
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
    (Costs.of_model, {"model": "llama-2-7b", "device": "h100", "nodes": "1x8", **OF_MODEL, **COMMON}),
    (Costs.load, {"path": "costs.yaml"}),
    (Costs().save, {"path": "costs.yaml"}),
    (Costs.from_yaml, {"text": "cost: 1"}),
    (Costs().stages, {"schedule": SMALL}),
    _all(Schedule, rank_of_stage=[0, 1], lanes=[["0F0", "0B0"], ["1F0", "1B0"]], shared=[[0, 1]], algorithm="mine"),
    (SMALL.texts, {"rank": 0}),
    (SMALL.without_backward, {"frozen": [0], "adapters": [1]}),
    (SMALL.validate, {"most": 1}),
    (lambda one: SMALL.apply(one), {"one": "optimizer"}),
    (lambda costs: SMALL.apply(costs=costs), {"costs": None}),
    (SMALL.lower, {"for_torch": False}),
    (SMALL.replicate, {"replicas": 2}),
    (SMALL.simulate, {"costs": None}),
    (lambda name, **fields: penstock.simulate(name, **fields), {"name": "1f1b", **SIMULATED}),
    (lambda name, **fields: penstock.sweep(name, **fields), {"name": "1f1b", "over": {"ranks": [2, 3]}, "slow_rank": ["0=1.5"]}),
    (lambda **fields: penstock.plan(**fields), PLANNED),
    (
        lambda **fields: penstock.plan(**fields),
        {"ranks": 2, "microbatches": 2, "cost": (1, 1, 1), "comm": 0.5, "objective": "span"},
    ),
    (SMALL.report, {"path": "x.svg", "costs": None}),
    (SMALL.show, {"costs": None, "width": 80}),
    (SMALL.to_csv, {"path": "x.csv"}),
    _all(Schedule.from_csv, source="0F0,0B0\n"),
    _all(Timeline.from_times, schedule=SMALL, times=TIMES, costs=Costs()),
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
    _all(megatron.layout, layers=8, stages=4),
    (megatron.parse, {"text": "Et*2|tL"}),
]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_wrong_values(number: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Costs().save("costs.yaml")
    call, good = CALLS[number]
    call(**good)
    assert complaints(call, good, also=(IndexError,)) == []


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_unknown_keywords(number: int) -> None:
    call, good = CALLS[number]
    takes_any = any(each.kind is each.VAR_KEYWORD for each in inspect.signature(call).parameters.values())
    if call.__name__ == "<lambda>" and not takes_any:
        return
    with pytest.raises(penstock.Error, match="there is no keyword 'no_such_keyword'"):
        call(**good, no_such_keyword=1)


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


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Costs.uniform(com=1), "no keyword 'com'; did you mean 'comm'"),  # type: ignore[call-arg]
        (lambda: Costs.per_stage(forwards=[1]), "no keyword 'forwards'; did you mean 'forward'"),  # type: ignore[call-arg]
        (lambda: penstock.schedule("1f1b", rank=4), "schedule: there is no keyword 'rank'; did you mean 'ranks'"),  # type: ignore[call-arg]
        (lambda: penstock.schedule("1f1b", pp=4), "did you mean 'ranks'"),  # type: ignore[call-arg]
        (lambda: Schedule([0], [["0F0"]], algorithms="a"), "Schedule: there is no keyword 'algorithms'; did you mean 'algorithm'"),  # type: ignore[call-arg]
        (lambda: penstock.simulate("1f1b", tensor_model_parallel_size=4), "did you mean 'tensor'"),  # type: ignore[call-arg]
        (lambda: penstock.plan(global_batch_size=4), "did you mean 'global_batch'"),  # type: ignore[call-arg]
        (lambda: penstock.plan(model="llama-2-7b", nodes=4), "nodes is 4: give text: '4x8' for 4 nodes of 8 devices"),  # type: ignore[arg-type]
        (lambda: Costs.of_model("llama-2-7b", nodes=4), "nodes is 4: give text: '4x8'"),  # type: ignore[arg-type]
        (lambda: Costs.of_model("llama-2-7b", tp=4), "of_model: there is no keyword 'tp'; did you mean 'tensor'"),  # type: ignore[call-arg]
        (lambda: Costs.uniform(F=1), "give one of activation_bytes, backward_input, .*, forward,"),  # type: ignore[call-arg]
        (lambda: penstock.schedule(), "schedule: missing a required argument: 'name'; it takes name by position"),  # type: ignore[call-arg]
        (lambda: penstock.schedule("zbv", 4, 8), "schedule: too many positional arguments; it takes name by position"),  # type: ignore[call-arg]
        (lambda: penstock.schedule("mine.csv"), "Schedule.from_csv reads a file"),
        (lambda: penstock.sweep("zbv", over={"ranks": 4}), "give a mapping in which each value is a sequence"),  # type: ignore[dict-item]
        (lambda: Costs.of_model("gpt-5"), "gpt-5"),
        (lambda: Costs.of_model("llama-2-7b", "no-such-device"), "no-such-device"),
    ],
)
def test_messages_name_what_is_wrong(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(penstock.Error, match=text):
        call()
