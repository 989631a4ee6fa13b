"""Every schedule computes what Megatron computes on one rank, or on as many, under the same options."""

from __future__ import annotations

import dataclasses

import penstock
import pytest
import worlds
from tiny_gpt import Case

V, LOOPED = {"pp": 2, "vp": 2}, {"pp": 2, "vp": 2}
OVERLAP = {"dp": 2, "overlap": True, "bucket": 4000, "steps": 3}
COMBINED = {"dp": 2, "ep": 2, "experts": 4, "combined": True}
DROPOUT = (("hidden_dropout", 0.1),)
SHARDED = {**OVERLAP, "distributed_optimizer": True}

#: By label: what the schedule runs with. Limits are for losses, evaluations, norms, gradients and parameters.
CASES = {
    "1f1b": Case("1f1b", pp=2, evaluate=8),
    "naive": Case("naive", pp=2, frees=True),
    "gpipe": Case("gpipe", pp=2, frees=True),
    "zb-h1": Case("zb-h1", pp=2, evaluate=5, frees=True),
    "zb-h2": Case("zb-h2", pp=2, delays=True),
    "zb-auto": Case("zb-auto", pp=2, delays=True, frees=True),
    "seq1f1b": Case("seq1f1b,split=true", pp=2),
    "interleaved": Case("interleaved", **LOOPED, evaluate=4),
    "interleaved of four": Case("interleaved", pp=2, vp=4, delays=True),
    "interleaved-zb": Case("interleaved-zb", **LOOPED, frees=True),
    "looped-bfs": Case("looped-bfs", **LOOPED),
    "zbv": Case("zbv", **V, evaluate=3, frees=True, delays=True),
    "zbv-formatted": Case("zbv-formatted", **V),
    "v-half": Case("v-half", **V, frees=True),
    "v-min": Case("v-min", **V, delays=True),
    "v-1f1b": Case("v-1f1b", **V, frees=True),
    "v-auto": Case("v-auto", **V),
    "dualpipev": Case("dualpipev", **V, frees=True, evaluate=9),
    "hanayo": Case("hanayo", **V),
    "hanayo of four": Case("hanayo", pp=2, vp=4, delays=True),
    "hanayo of two waves": Case("hanayo,waves=2", pp=2, vp=4),
    "one rank": Case("zb-h1", recompute="full", evaluate=3),
    "zb-h1 on four": Case("zb-h1", pp=4),
    "interleaved on four": Case("interleaved", pp=4, vp=2, evaluate=8),
    "zbv on four": Case("zbv", pp=4, vp=2, evaluate=3, frees=True, delays=True),
    "v-half on four": Case("v-half", pp=4, vp=2, microbatches=12),
    "dualpipev on four": Case("dualpipev", pp=4, vp=2, frees=True, evaluate=9),
    "untied": Case("zbv", **V, tied=False),
    "tokens": Case("zbv", **V, per_token=True, evaluate=4),
    "tokens of dualpipev": Case("dualpipev", **V, per_token=True, dp=2),
    "scale": Case("zbv", **V, scale=128.0, timers=True),
    "recompute": Case("zbv", **V, recompute="full", frees=True),
    "recompute of zb-h1": Case("zb-h1", pp=2, recompute="selective"),
    "recomputed before I": Case("zbv,passes=recompute", **V, recompute="full", frees=True),
    "recomputed before B": Case("1f1b,passes=recompute", pp=2, recompute="selective"),
    "recomputed experts": Case("dualpipev,passes=recompute", **V, experts=4, recompute="full", evaluate=4),
    "recomputed with dropout": Case("zb-h1,passes=recompute", recompute="full", microbatches=2, config=DROPOUT),
    "offloaded": Case("zbv,passes=offload", **V, frees=True, evaluate=4, delays=True),
    "offloaded and fused": Case("1f1b,passes=offload", pp=2, fused=True, frees=True),
    "offloaded experts": Case("interleaved,passes=offload", **LOOPED, experts=4, delays=True),
    "offloaded, in sequence": Case("v-half,passes=offload", **V, tp=2, sp=True, frees=True),
    "offloaded and overlapped": Case("zbv,passes=offload", **V, **OVERLAP),
    "offloaded and recomputed": Case("gpipe,passes=offload+recompute", pp=2, recompute="full", frees=True),
    "variable": Case("zbv", **V, variable=True, evaluate=4),
    "variable of zb-h1": Case("zb-h1", pp=2, variable=True, frees=True),
    "fused": Case("zb-h1", pp=2, fused=True),
    "fused of dualpipev": Case("dualpipev", **V, fused=True, timers=True),
    "tensor": Case("zb-h1", pp=2, tp=2),
    "sequence": Case("zbv", **V, tp=2, sp=True, frees=True),
    "sequence of B and W": Case("dualpipev", **V, tp=2, sp=True, fused=True),
    "experts": Case("zbv", **V, experts=4, evaluate=4),
    "expert parallel": Case("zbv", **V, dp=2, ep=2, experts=4),
    "combined": Case("dualpipev", **V, **COMBINED, evaluate=4),
    "combined and freed": Case("dualpipev", **V, **COMBINED, frees=True, delays=True),
    "combined without W": Case("interleaved,passes=overlap", **LOOPED, **COMBINED, per_token=True),
    "combined without pairs": Case("zbv", **V, **COMBINED, scale=128.0, timers=True),
    "combined and overlapped": Case("dualpipev", **V, **{**OVERLAP, **COMBINED}),
    "layout": Case("zbv", **V, layout="Et|ttt|tt|ttL"),
    "layout with empty ends": Case("interleaved", **LOOPED, layout="E|tttt|tttt|L"),
    "data parallel": Case("zb-h1", pp=2, dp=2),
    "overlap": Case("zbv", **V, **OVERLAP),
    "overlap of 1f1b": Case("1f1b", pp=2, **OVERLAP),
    "distributed optimizer": Case("zbv", **V, dp=2, distributed_optimizer=True),
    "distributed optimizer and overlap": Case("zbv", **V, **SHARDED, evaluate=4),
    "aligned": Case("dualpipev", **V, **SHARDED, align=True),
    "aligned zb-h1": Case("zb-h1", pp=2, **SHARDED, align=True),
}
LIMITS = {"losses": 5e-7, "evaluations": 5e-7, "norms": 1e-6, "gradients": 3e-6, "parameters": 5e-7}

#: Megatron's own pipelines differ from one rank in these.
PIPELINED = {
    "prediction": Case("zb-h1", pp=2, mtp=1),
    "prediction of zbv": Case("zbv", **V, mtp=1, recompute="full"),
    "prediction, recomputed before I": Case("zbv,passes=recompute", **V, mtp=1, recompute="full"),
    "prediction, combined": Case("dualpipev", **V, **COMBINED, mtp=1),
}
EXACT = {"losses": 0.0, "evaluations": 0.0, "norms": 0.0, "gradients": 0.0, "parameters": 0.0}
IN_64_BITS = {"losses": 2e-14, "evaluations": 2e-14, "norms": 0.0, "gradients": 2e-14, "parameters": 2e-14}


def check(case: Case, expected: Case, limits: dict[str, float]) -> None:
    found = worlds.differences(worlds.merged(case), worlds.reference(expected))
    print({kind: f"{value:.1e}" for kind, value in found.items()})
    assert all(found[kind] <= limit for kind, limit in limits.items()), found


@pytest.mark.parametrize("label", CASES)
def test_one_rank_computes_the_same(label: str) -> None:
    check(CASES[label], worlds.alone(CASES[label]), LIMITS)


@pytest.mark.parametrize("label", PIPELINED)
def test_megatrons_pipeline_computes_the_same(label: str) -> None:
    check(PIPELINED[label], worlds.pipelined(PIPELINED[label]), LIMITS)


@pytest.mark.parametrize(
    "case", [Case("zb-h1", pp=2), Case("interleaved-zb", **LOOPED), Case("zbv", **V)], ids=lambda case: case.schedule
)
def test_in_64_bits(case: Case) -> None:
    case = dataclasses.replace(case, dtype="float64")
    check(case, worlds.alone(case), IN_64_BITS)


def test_in_16_bits_every_bit_is_megatrons() -> None:
    case = Case("zb-h1", pp=2, dtype="bfloat16", evaluate=4)
    check(case, worlds.pipelined(case), EXACT)
    case = dataclasses.replace(case, schedule="zbv", vp=2)
    check(case, worlds.pipelined(case), {**EXACT, "norms": 1e-6, "evaluations": 1e-6})
    case = Case("dualpipev", **V, **COMBINED, dtype="bfloat16", evaluate=4)
    check(case, worlds.pipelined(case), {**EXACT, "norms": 1e-6, "evaluations": 1e-6})


GROUPED = {"dtype": "bfloat16", "experts": 4, "grouped": True}


@pytest.mark.parametrize(
    "case",
    [
        Case("zb-h1", pp=2, **GROUPED, evaluate=4),
        Case("dualpipev", **V, **GROUPED, **OVERLAP),
        Case("1f1b,passes=offload", pp=2, **GROUPED),
        Case("zbv", **V, **GROUPED, recompute="full"),
    ],
    ids=lambda case: case.schedule,
)
def test_grouped_experts_are_megatrons(case: Case) -> None:
    check(case, worlds.pipelined(case), {**EXACT, "norms": 1e-6, "evaluations": 1e-6})


def test_every_schedule_with_one_chain_is_tried() -> None:
    tried = {case.schedule.split(",")[0] for case in CASES.values()}
    for algorithm in penstock.schedules():
        schedule = penstock.schedule(algorithm.name, ranks=2, microbatches=8)
        if schedule.replicas == schedule.slices == schedule.steps == 1 and schedule.weight_policy == "flush":
            assert algorithm.name in tried


def test_schedule_out_of_a_file(tmp_path: object) -> None:
    path = f"{tmp_path}/own.csv"
    penstock.schedule("zbv", ranks=2, microbatches=6).lower().to_csv(path)
    case = Case(path, **V, microbatches=6, evaluate=4)
    check(case, worlds.alone(case), LIMITS)
