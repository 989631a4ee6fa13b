"""Costs: uniform, per stage and layer, of models, and as files."""

from __future__ import annotations

import copy
import math
import pathlib
import pickle

import numpy as np
import pytest

import penstock
from penstock import Costs

GPIPE = penstock.schedule("gpipe", ranks=2, microbatches=1)


def test_uniform() -> None:
    run = penstock.schedule("1f1b", ranks=4, microbatches=8).simulate()
    assert run.makespan == 33  # (m + p - 1)(F + I + W)
    assert run.bubble == pytest.approx(3 / 11)
    assert GPIPE.simulate(Costs.uniform(1, 1, 2, comm=0.5)).makespan == 1 + 0.5 + 1 + 3 + 0.5 + 3
    assert GPIPE.simulate(Costs()).makespan == 6


def test_bandwidth() -> None:
    costs = Costs.uniform(comm=0.5, bandwidth=10, message_bytes=20)
    assert GPIPE.simulate(costs).makespan == 6 + 2 * (0.5 + 2)
    levels = [{"level": "node", "latency": 0.5, "bandwidth": 10}]
    assert GPIPE.simulate(Costs.uniform(topology=levels, message_bytes=20)).makespan == 11


def test_per_stage() -> None:
    costs = Costs.per_stage(forward=[1, 5], activation=[3, 4])
    run = GPIPE.simulate(costs)
    assert run.makespan == 1 + 5 + 2 + 2
    assert run.per_rank["peak_memory"].tolist() == [3, 4]
    assert costs.stages(GPIPE)["forward"].tolist() == [1, 5]
    in_bytes = Costs.per_stage(forward=[1, 5], activation=2**30, memory_in_bytes=True)
    assert GPIPE.simulate(in_bytes).memory_unit == "B"
    assert GPIPE.simulate(in_bytes).peak_memory == 2**30
    with pytest.raises(penstock.Error, match="one entry per stage"):
        penstock.schedule("gpipe", ranks=4).simulate(costs)


def test_per_layer_fits_any_number_of_stages() -> None:
    costs = Costs.per_layer(layers=[3, 1], forward=[1, 2])
    assert GPIPE.simulate(costs).makespan == 2 + 3 + 4 + 4
    assert penstock.schedule("gpipe", ranks=4, microbatches=1).simulate(costs).makespan == 5 + 8
    with pytest.raises(penstock.Error, match="4 layers cannot fill 8 stages"):
        penstock.schedule("gpipe", ranks=8).simulate(costs)


def test_of_model() -> None:
    assert "llama-2-7b" in penstock.models() and "h100" in penstock.devices()
    costs = Costs.of_model("llama-2-7b", "h100", nodes="1x8")
    run = penstock.schedule("1f1b", ranks=8, microbatches=16).simulate(costs)
    assert (run.time_unit, run.memory_unit) == ("s", "B")
    assert 0.1 < run.makespan < 10
    with pytest.raises(penstock.Error, match="model 'llama': no model is called 'llama'"):
        GPIPE.simulate(Costs.of_model("llama"))
    with pytest.raises(penstock.Error, match="tensor 3") as caught:
        GPIPE.simulate(Costs.of_model("llama-2-7b", tensor=3))
    assert "--" not in str(caught.value)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1, "x", None, [1], 1e300])
def test_numbers_that_are_no_cost(bad: object) -> None:
    for make in (
        lambda: Costs.uniform(bad),  # type: ignore[arg-type]
        lambda: Costs.uniform(comm=bad if bad is not None else "none"),
        lambda: Costs.per_stage(forward=[1, bad]),
        lambda: Costs.per_layer(layers=[1, 2], activation=[1, bad]),
        lambda: Costs.uniform(prices={"step": bad}),  # type: ignore[dict-item]
    ):
        with pytest.raises(penstock.Error) as caught:
            GPIPE.simulate(make())
        assert "\n" not in str(caught.value)


def test_arguments_that_do_not_fit() -> None:
    for make in (
        lambda: Costs.per_stage(),
        lambda: Costs.per_stage(forward=1),
        lambda: Costs.per_stage(forward=[1, 2], activation=[1, 2, 3]),
        lambda: Costs.per_stage(forward=np.ones((2, 2))),
        lambda: Costs.per_layer(layers=[0], forward=[1]),
        lambda: Costs.per_layer(layers=[1.5, 2], forward=[1, 2]),
        lambda: Costs.per_layer(layers=np.array([2.0, 2]), forward=[1, 2]),
        lambda: Costs.per_stage(forward=[1, 2], memory_in_bytes=True),
        lambda: Costs.uniform(overlap="none"),
        lambda: Costs.uniform(transfers="none"),
        lambda: Costs.uniform(bandwidth=10),
        lambda: Costs.uniform(time_unit="h"),
        lambda: Costs.uniform(prices={"none": 1}),
        lambda: Costs.uniform(topology=[{"level": "a"}], comm=1),
        lambda: Costs.from_yaml("a: ["),
        lambda: Costs.from_yaml("launch: -3"),
        lambda: Costs.from_yaml("forwards: 3"),
        lambda: Costs.from_yaml("[]"),
    ):
        with pytest.raises(penstock.Error) as caught:
            make()
        assert "\n" not in str(caught.value)
    with pytest.raises(penstock.Error, match="^comm: -1.0 is negative"):
        Costs.uniform(comm=-1)
    with pytest.raises(penstock.Error, match="did you mean 'forward'"):
        Costs.per_stage(forwards=[1, 2])  # type: ignore[call-arg]


ALL = [
    Costs(),
    Costs.uniform(1, 2.5, 0.1, kept_for_weight=0.5, comm=1e-5, overlap="sum", transfers="batched"),
    Costs.uniform(comm=1, bandwidth=3, message_bytes=5, prices={"step": 1}, time_unit="s"),
    Costs.per_stage(forward=[1 / 3, 2], backward=1.5, recompute=[0, 1], step=2, weights=[3, 4]),
    Costs.per_stage(forward=[1, 2], activation=[100, 200], optimizer=7, memory_in_bytes=True),
    Costs.per_layer(layers=[2, 3], forward=[1, 2], message_scale=2, message_bytes=4),
    Costs.of_model("gpt2", "a100", precision="f32", sequence=512, flops_efficiency=0.5),
]


@pytest.mark.parametrize("costs", ALL)
def test_files_pickles_and_copies(costs: Costs, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "costs.yaml"
    costs.save(path)
    assert Costs.load(path) == costs == pickle.loads(pickle.dumps(costs)) == copy.deepcopy(costs)
    assert Costs.load(path).stages(GPIPE).tolist() == costs.stages(GPIPE).tolist()
    assert hash(Costs.load(path)) == hash(costs)
    assert len({*ALL}) == len(ALL)


def test_reads_configurations_of_the_program(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("schedule: 1f1b\nranks: 2\ncost: [1, 1, 3]\ncomm: 2\n")
    assert Costs.load(path) == Costs.uniform(1, 1, 3, comm=2)
    path.write_text("cost: 1\nslow_rank: 1=2\n")
    assert Costs.load(path) == Costs.uniform(slow_rank={1: 2})
    with pytest.raises(penstock.Error, match="none.yaml"):
        Costs.load(tmp_path / "none.yaml")
