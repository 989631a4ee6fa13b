"""penstock.simulate and penstock.sweep: everything that the command line has."""

from __future__ import annotations

import os
import pathlib
import typing
from collections.abc import Mapping, Sequence

import pytest

import penstock
from penstock import Costs
from penstock.costs import _FIELDS, Common, StageFields
from penstock.scenario_fields import ScenarioFields


def test_keywords_are_the_fields_of_the_table() -> None:
    names = {"Any": typing.Any, "Mapping": Mapping, "Sequence": Sequence, "os": os}
    types = {each.name: eval(each.type, names) for each in penstock.fields()}  # noqa: S307
    hints = typing.get_type_hints(ScenarioFields)
    assert list(hints) == list(types) and hints == types
    assert all(each.help for each in penstock.fields())


def test_costs_have_every_field_that_prices() -> None:
    other_form = {"cost", "stage_costs", "layer_costs", "memory_limit"}  # uniform, per_stage, ...
    priced = {each.name for each in penstock.fields() if each.group == "costs"} - other_form
    assert priced == set(typing.get_type_hints(Common)) - {"prices"}


def test_stages_have_every_cost_of_the_table() -> None:
    own = set(typing.get_type_hints(StageFields)) - set(typing.get_type_hints(Common))
    assert own == _FIELDS
    assert all(f"``{name}``" in (Costs.per_stage.__doc__ or "") for name in _FIELDS)


@pytest.mark.parametrize(
    "costs",
    [
        {"comm": 0.5},
        {"launch": 0.25, "slow_rank": {1: 1.5}},
        {"microbatch_lengths": [1, 0.5, 2]},
        {"message_bytes": 8, "topology": [{"level": "a", "latency": 1, "bandwidth": 4}]},
        {"transfers": "batched", "comm": 1},
        {"activation_bytes": 64, "overlap": "sum"},
    ],
)
def test_a_schedule_with_costs_and_a_scenario_give_the_same_figures(costs: dict[str, typing.Any]) -> None:
    name = "dualpipev" if "overlap" in costs else "zbv"
    fields = dict(costs)
    if "slow_rank" in fields:
        fields["slow_rank"] = [f"{rank}={by}" for rank, by in costs["slow_rank"].items()]
    (figures,) = penstock.simulate(name, ranks=4, microbatches=9, **fields)
    made = penstock.schedule(name, ranks=4, microbatches=9, costs=Costs.uniform(**costs))
    run = made.simulate(Costs.uniform(**costs))
    assert figures["makespan"] == run.makespan
    assert figures["bubble"] == run.bubble
    assert figures["peak_memory"] == run.peak_memory
    assert (figures["time_unit"], figures["memory_unit"]) == (run.time_unit, run.memory_unit)


def test_noise_and_steady_state() -> None:
    (figures,) = penstock.simulate("1f1b", jitter=0.2, runs=20, seed=3, repeat=8)
    assert figures["jittered"]["makespan"]["mean"] > figures["makespan"] >= figures["steady_step"]
    assert penstock.simulate("1f1b", jitter=0.2, runs=20, seed=3, repeat=8) == [figures]


def test_memory_steps_and_runs_are_those_of_the_command_line() -> None:
    (figures,) = penstock.simulate(
        "1f1b", ranks=2, microbatches=2, price="weights=1", memory=True, time_steps=True, run=True, unit="1ms"
    )
    assert [len(rank) for rank in figures["time_steps"]] == [4, 4]
    last = figures["time_steps"][0][-1]
    assert last["action"] == "0B1" and last["end"] == figures["makespan"]
    for rank, peak in zip(figures["memory"], (2, 1)):
        assert rank["peak"]["by_kind"]["weights"] == 1
        assert rank["peak"]["amount"] == 1 + peak
        assert rank["timelines"]["weights"] == [(0, 1)]
    assert figures["measured"]["makespan"] > 0.9 * figures["makespan"]
    assert figures["measured"]["messages"] == figures["messages"]


@pytest.mark.parametrize(
    "figures",
    [
        lambda name: penstock.simulate("1f1b", model="gpt2", nodes="1x4", **{name: 2}),
        lambda name: penstock.simulate(f"1f1b:{name}=2", model="gpt2", nodes="1x4"),
        lambda name: [row["makespan"] for row in penstock.sweep("1f1b", over={name: [2]}, model="gpt2", nodes="1x4")],
        lambda name: Costs.of_model("gpt2", nodes="1x4", **{name: 2}),
    ],
)
def test_former_names_work_with_a_warning(figures: typing.Callable[[str], typing.Any]) -> None:
    with pytest.warns(FutureWarning, match="'data' is called 'data_parallel' now") as caught:
        former = figures("data")
    assert former == figures("data_parallel") or "1f1b:" in str(former)
    assert [pathlib.Path(each.filename).name for each in caught] == [pathlib.Path(__file__).name]
    with pytest.raises(penstock.Error, match="former name"):
        penstock.simulate("1f1b", model="gpt2", nodes="1x4", data=2, data_parallel=2)


def test_former_name_of_the_weight_policy() -> None:
    with pytest.warns(FutureWarning, match="weight_policy"):
        made = penstock.Schedule.from_csv("0F0,0B0\n", weights="stashed")
    assert made.weight_policy == "stashed"
    with pytest.warns(FutureWarning, match="weight_policy"):
        assert made.weights == "stashed"


def test_a_sweep_has_what_its_simulations_have() -> None:
    over = {"tensor": [2, 4], "micro_batch_size": [1, 2]}
    model = {"model": "llama-2-7b", "nodes": "1x8", "microbatches": 8}
    rows = penstock.sweep("1f1b", "zbv", over=over, **model)
    assert len(rows) == 8 and not any("skipped" in row for row in rows)
    for row in rows:
        chosen = {name: row[name] for name in over}
        (alone,) = penstock.simulate(row["schedule"], **chosen, **model)
        assert {**alone, **chosen} == row
    skipped = [row for row in penstock.sweep("1f1b", over={"chunks": [1, 2]}) if "skipped" in row]
    assert [row["chunks"] for row in skipped] == [2] and "chunks 2" in skipped[0]["skipped"]
    assert len(penstock.sweep(over={"schedule": ["all"]}, ranks=4)) == len(penstock.schedules())
    ranges = penstock.sweep("1f1b", over={"microbatches": ["4..16"]})
    assert [row["microbatches"] for row in ranges] == ["4", "8", "16"]


def test_configurations_and_files(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "a.yaml"
    config.write_text("schedule: [gpipe, zbv]\nranks: 3\ncomm: 1\n")
    named = penstock.simulate(config)
    assert [each["schedule"] for each in named] == ["gpipe", "zbv"]
    assert penstock.simulate(config, comm=2)[0]["makespan"] > named[0]["makespan"]
    config.write_text("schedule: gpipe\nranks: none\n")
    with pytest.raises(penstock.Error, match="a.yaml: line 2: ranks"):
        penstock.simulate(config)
    penstock.schedule("zbv", ranks=2).to_csv(tmp_path / "b.csv")
    assert penstock.simulate(tmp_path / "b.csv")[0]["ranks"] == 2


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"ranks": 0}, "ranks 0"),
        ({"comm": "5ms"}, "comm 5ms"),
        ({"group": 3}, "group"),
        ({"tensor": 2}, "tensor has no effect here"),
        ({"memory_limit": "x"}, "memory_limit 'x'"),
        ({"price": "step=-1"}, "step=-1"),
        ({"jitter": -1}, "jitter"),
        ({"runs": 5}, "runs has no effect here"),
        ({"weight_policy": "flush"}, "weight_policy has no effect here"),
        ({"repeat": 1}, "repeat 1: 2 to 1000"),
        ({"unit": "1ms"}, "unit has no effect here"),
        ({"run": True, "unit": "x"}, "unit 'x'"),
        ({"price": "weights=1"}, "only memory of"),
        ({"model": "llama-2-7b", "zero": 1}, "zero 1"),
        ({"slow_rank": "9=2"}, "slow_rank"),
    ],
)
def test_errors_name_the_keyword(fields: dict[str, typing.Any], part: str) -> None:
    with pytest.raises(penstock.Error, match=part) as caught:
        penstock.simulate("1f1b", **fields)
    assert not any(sign in str(caught.value) for sign in ("--", "`", "\n", "line 1"))
