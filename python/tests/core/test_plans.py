"""penstock.plan: what `penstock plan` finds, as Python data and a schedule."""

from __future__ import annotations

import copy
import os
import pathlib
import pickle
import re
import signal
import threading
import time
import typing

import pytest

import penstock
from penstock.scenario_fields import ModelFields, PlanFields

# Only schedules that rules give: searches of others take long where few cores share them.
JOB: typing.Any = {
    "model": "gpt2-large",
    "device": "a100",
    "nodes": "1x4",
    "global_batch": 16,
    "schedule": ["1f1b", "interleaved"],
}


def test_keywords_have_every_field_of_models() -> None:
    of_models = [each.name for each in penstock.fields() if each.group == "model"]
    assert list(typing.get_type_hints(ModelFields)) == of_models
    assert set(of_models) < set(typing.get_type_hints(PlanFields))


def test_a_plan_for_a_model_has_its_schedule() -> None:
    plan = penstock.plan(**JOB, ranks=4, chunks=[1, 2])
    best = plan["best"]
    assert best == plan["front"][0] and plan["searched"] > 0 and not plan["stopped"]
    assert best["pipeline"] == 4 and best["schedule"] in ("1f1b", "interleaved")
    assert plan.schedule.ranks == 4
    assert plan.schedule.microbatches == best["microbatches"]
    assert plan.schedule.validate() == []
    (run,) = penstock.simulate(
        best["schedule"] if best["chunks"] == 1 else f"interleaved:chunks={best['chunks']}",
        model="gpt2-large",
        device="a100",
        nodes="1x4",
        ranks=4,
        tensor=best["tensor"],
        data_parallel=best["data"],
        micro_batch_size=best["micro_batch"],
        microbatches=best["microbatches"],
        recompute=best["recompute"],
        layout=best["layout"],
    )
    assert run["makespan"] <= best["step_time"] * (1 + 1e-9)


def test_a_plan_for_costs_has_its_schedule() -> None:
    costs = penstock.Costs.uniform(1, 1.2, 0.8, comm=0.1)
    plan = penstock.plan(ranks=4, microbatches=8, cost=(1, 1.2, 0.8), comm=0.1, memory_limit=3)
    run = plan.schedule.simulate(costs)
    best = plan["best"]
    assert run.makespan == pytest.approx(best["makespan"])
    assert run.peak_memory == pytest.approx(best["peak_memory"])
    assert best["peak_memory"] <= 3
    assert best["lower_bound"] <= best["makespan"] * (1 + 1e-9)
    only_one = penstock.plan(ranks=4, microbatches=8, chunks=1, memory_limit=3)
    assert only_one.schedule.rank_of_stage == (0, 1, 2, 3)


def test_a_plan_for_a_file_of_costs(tmp_path: pathlib.Path) -> None:
    costs = penstock.Costs.per_layer([1, 6, 1], forward=[2, 1, 3], comm=0.1)
    costs.save(tmp_path / "measured.yaml")
    plan = penstock.plan(ranks=4, microbatches=8, costs=tmp_path / "measured.yaml", chunks=[1, 2], framework="megatron")
    assert plan.schedule.replicas == 1
    pairs: typing.Any = {"overlap": "sum"} if ";" in plan.schedule.to_csv() else {}
    priced = penstock.Costs.per_layer([1, 6, 1], forward=[2, 1, 3], comm=0.1, **pairs)
    assert plan.schedule.simulate(priced).makespan == pytest.approx(plan["best"]["makespan"])
    for name in ("1f1b", "zbv"):
        assert plan["best"]["makespan"] <= penstock.schedule(name, ranks=4, microbatches=8).simulate(costs).makespan + 1e-9


def test_plans_can_be_copied_and_pickled() -> None:
    plan = penstock.plan(ranks=2, microbatches=2)
    for same in (copy.copy(plan), pickle.loads(pickle.dumps(plan))):
        assert same == plan and same.schedule == plan.schedule


def test_uncertainty() -> None:
    plan = penstock.plan(**JOB, tensor=1, samples=20, seed=2, uncertainty={"link_efficiency": 0.3})
    outlook = plan["uncertainty"]
    assert sum(each["wins"] for each in outlook["candidates"]) == outlook["samples"] == 20
    (link,) = (each for each in outlook["constants"] if each["name"] == "link_efficiency")
    assert link["error"] == 0.3
    assert "uncertainty" not in penstock.plan(**JOB, tensor=1, ranks=4)


def test_memory_limits_are_bytes_of_a_device() -> None:
    limits = (8 * 2**30, "8GiB", float(8 * 2**30))
    plans = [penstock.plan(**JOB, tensor=1, ranks=4, memory_limit=limit) for limit in limits]
    assert {plan["memory_limit"] for plan in plans} == {8 * 2**30}


def test_paths(tmp_path: pathlib.Path) -> None:
    machine = tmp_path / "machine.yaml"
    machine.write_text("constants: [{flops_efficiency: 0.1}]\n")
    slow = penstock.plan(**JOB, ranks=4, machine=machine)["best"]["step_time"]
    assert slow > penstock.plan(**JOB, ranks=4)["best"]["step_time"]


def test_ctrl_c_ends_a_plan() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which jobs in the background lack
    begin = time.monotonic()
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        penstock.plan(model="llama-3-405b", nodes="64x8", global_batch=4096, sequence=8192)
    assert time.monotonic() - begin < 120


def test_other_threads_run_meanwhile() -> None:
    done = threading.Event()
    turns = 0

    def count() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    penstock.plan(**JOB)
    done.set()
    thread.join()
    assert turns > 3


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({}, "global_batch is missing"),
        ({"global_batch": 0}, "global_batch 0"),
        ({"global_batch": 16, "cost": 1}, "cost: model says what stages cost"),
        ({"global_batch": 16, "framework": "megatrn"}, "framework 'megatrn' is none of"),
        ({"global_batch": 16, "schedule": "1f1c"}, "did you mean '1f1b'"),
        ({"global_batch": 16, "exclude": ["1f1b"], "schedule": ["1f1b"]}, "exclude 1f1b"),
        ({"global_batch": 16, "memory_limit": "x"}, "memory_limit 'x'"),
        ({"global_batch": 16, "memory_limit": "1MiB"}, "do not fit the model"),
        ({"global_batch": 16, "chunks": [0]}, "chunks 0"),
        ({"global_batch": 16, "seed": 1}, "seed has no effect without samples"),
        ({"global_batch": 16, "samples": 2, "uncertainty": "x=1"}, "no constant that varies"),
        ({"global_batch": 16, "modle": "gpt2"}, "did you mean 'model'"),
    ],
)
def test_errors_name_the_keyword(fields: dict[str, typing.Any], part: str) -> None:
    with pytest.raises(penstock.Error, match=part) as caught:
        penstock.plan(model="gpt2", nodes="1x4", **fields)
    assert not re.search(r"--|`|\n|\bline \d", str(caught.value))


def test_what_models_have_needs_one() -> None:
    with pytest.raises(penstock.Error, match="global_batch has no effect without model"):
        penstock.plan(ranks=2, microbatches=2, global_batch=4)
    with pytest.raises(penstock.Error, match="tensor has no effect without model"):
        penstock.plan(ranks=2, microbatches=2, tensor=2)
