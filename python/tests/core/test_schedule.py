"""Schedules: generating, editing, validating, text, pickling."""

from __future__ import annotations

import copy
import pathlib
import pickle

import numpy as np
import pytest

import penstock


def test_generates_what_the_catalog_lists() -> None:
    names = [entry.name for entry in penstock.schedules()]
    assert {"gpipe", "1f1b", "interleaved", "zbv"} <= set(names)
    schedule = penstock.schedule("1f1b", ranks=4, microbatches=8)
    assert (schedule.ranks, schedule.stages, schedule.microbatches, len(schedule)) == (4, 4, 8, 64)
    assert schedule.rank_of_stage == (0, 1, 2, 3)
    assert schedule.validate() == []
    schedule.check()


def test_takes_all_parameters() -> None:
    assert penstock.schedule("interleaved", ranks=4, chunks=4).stages == 16
    assert penstock.schedule("seq1f1b", ranks=4, slices=2).slices == 2
    assert penstock.schedule("pipedream", ranks=4, steps=3).weight_policy == "stashed"
    limited = penstock.schedule("v-auto", ranks=4, microbatches=16, memory_limit=3)
    assert limited.simulate().peak_memory <= 3
    costs = penstock.Costs.of_model("gpt2", nodes="1x4")
    planned = penstock.schedule("v-auto", ranks=4, costs=costs, memory_limit="6GiB")
    assert planned.validate() == []


@pytest.mark.parametrize(
    ("name", "options", "part"),
    [
        ("1f1c", {}, "did you mean '1f1b'"),
        ("zbv", {"ranks": 0}, "ranks 0"),
        ("zbv", {"ranks": -1}, "ranks -1"),
        ("zbv", {"ranks": 10**30}, "ranks"),
        ("zbv", {"microbatches": 2.5}, "microbatches is 2.5"),
        ("zbv", {"chunks": 3}, "chunks 3"),
        ("zbv", {"chunks": 0}, "chunks 0"),
        ("v-auto", {"memory_limit": float("nan")}, "memory_limit nan"),
        ("v-auto", {"memory_limit": "much"}, "memory_limit 'much'"),
        ("v-auto", {"objective": "speed"}, "speed"),
    ],
)
def test_refuses_in_one_line(name: str, options: dict[str, object], part: str) -> None:
    with pytest.raises(penstock.Error) as caught:
        penstock.schedule(name, **options)  # type: ignore[arg-type]
    assert isinstance(caught.value, ValueError)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_lanes_are_edited_in_place() -> None:
    schedule = penstock.schedule("1f1b", ranks=2, microbatches=3)
    lane = schedule.lanes[0]
    assert lane.dtype == penstock.ACTION
    assert penstock.OPS[lane["op"][0]] == "F"
    assert sorted(set(lane["microbatch"].tolist())) == [0, 1, 2]
    lane["microbatch"][0] = 2
    assert schedule.texts(0)[0] == "0F2"
    (fault, *_) = schedule.validate()
    assert (fault.rank, fault.action) == (0, "0F2") or fault.reason
    with pytest.raises(penstock.Error, match="not a valid schedule: rank"):
        schedule.check()
    with pytest.raises(penstock.Error, match="not a valid schedule"):
        schedule.simulate()
    lane["microbatch"][0] = 0
    schedule.check()


def test_lanes_are_replaced() -> None:
    schedule = penstock.schedule("1f1b", ranks=2, microbatches=1)
    kept = schedule.lanes[0]
    schedule.lanes[0] = ["0F0"]
    assert "0B0" in {fault.action for fault in schedule.validate()}
    schedule.lanes[0] = kept
    assert schedule.validate() == []
    with pytest.raises(IndexError):
        schedule.lanes[2]
    with pytest.raises(penstock.Error, match="rank 0"):
        schedule.lanes[0] = np.zeros(3)
    with pytest.raises(penstock.Error, match="is not an action"):
        schedule.lanes[0] = ["0F0", "x"]


def test_unknown_ops_are_faults() -> None:
    schedule = penstock.schedule("zbv", ranks=2, microbatches=2)
    generator = np.random.default_rng(1)
    for _ in range(50):
        noise = generator.integers(0, 256, (7, 16), np.uint8)
        schedule.lanes[1] = noise.reshape(-1).view(penstock.ACTION)
        assert schedule.validate()
        schedule.texts(1)
        with pytest.raises(penstock.Error):
            schedule.simulate()


def test_is_built_from_scratch() -> None:
    built = penstock.Schedule([0, 1], [["0F0", "0B0"], ["1F0", "1B0"]], algorithm="mine")
    assert built.microbatches == 1
    assert built.simulate().makespan == 6
    empty = penstock.Schedule([0, 1], [["0F0", "0B0"], []])
    assert empty.validate()


@pytest.mark.parametrize(
    ("stages", "lanes", "options"),
    [
        ([], [], {}),
        ([0], [], {}),
        ([1], [["0F0"]], {}),
        ([-1], [["0F0"]], {}),
        ([0], [["0F0"]], {"microbatches": 2**31}),
        ([0], [["0F0"]], {"microbatches": 2**20, "slices": 2**20}),
        ([0], [["0F0"]], {"slices": 0}),
        ([0], [["0F0"]], {"replicas": 0, "microbatches": 1}),
        ([0], [["0F0"]], {"weight_policy": "none"}),
        ([0], [["0F0"]], {"shared": [[0, 9]]}),
        ([0.5], [["0F0"]], {}),
        ([0], [3], {}),
    ],
)
def test_arguments_that_do_not_fit(stages: list[int], lanes: list[list[str]], options: dict[str, object]) -> None:
    with pytest.raises(penstock.Error):
        penstock.Schedule(stages, lanes, **options)  # type: ignore[arg-type]


def test_many_microbatches_are_a_fault_not_memory() -> None:
    assert penstock.Schedule([0], [["0F0"]], microbatches=2**29).validate()


@pytest.mark.parametrize("name", ["interleaved", "dualpipe", "seq1f1b", "pipedream", "zbv"])
def test_csv_pickle_and_copy(name: str, tmp_path: pathlib.Path) -> None:
    schedule = penstock.schedule(name, slices=2 if name == "seq1f1b" else 1)
    path = tmp_path / "a.csv"
    text = schedule.to_csv(path)
    assert penstock.Schedule.from_csv(path).to_csv() == text == schedule.to_csv()
    assert penstock.Schedule.from_csv(str(path)).microbatches == schedule.microbatches
    assert pickle.loads(pickle.dumps(schedule)) == schedule
    assert copy.deepcopy(schedule) == copy.copy(schedule) == schedule
    edited = copy.copy(schedule)
    edited.lanes[0]["stage"][0] = 1
    assert edited != schedule
    assert pickle.loads(pickle.dumps(edited)) == edited != schedule


@pytest.mark.parametrize("text", ["x", "0F0,\x00", "0F0\n0F0\n", "99999F0", "0F99999999999", '"0F0', "0B0;"])
def test_csv_that_is_no_schedule(text: str) -> None:
    try:
        assert penstock.Schedule.from_csv(text).validate()
    except penstock.Error as error:
        assert "\n" not in str(error)


def test_missing_files_are_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(penstock.Error, match="none.csv"):
        penstock.Schedule.from_csv(tmp_path / "none.csv")
    with pytest.raises(penstock.Error):
        penstock.schedule("gpipe").to_csv(tmp_path / "no" / "a.csv")


def test_damaged_pickles() -> None:
    restore, (shape, lanes) = penstock.schedule("gpipe").__reduce__()
    for damaged in ({}, {**shape, "slices": -1}, {**shape, "rank_of_stage": [9]}, {**shape, "weights": 3}):
        with pytest.raises(penstock.Error):
            restore(damaged, lanes)
    with pytest.raises(penstock.Error):
        restore(shape, (b"123", *lanes[1:]))
    with pytest.raises(penstock.Error):
        restore(shape, (3, *lanes[1:]))
    data = pickle.dumps(penstock.schedule("zbv", ranks=2, microbatches=2))
    for at in range(len(data)):  # whatever is read validates or is refused, without a crash
        broken = data[:at] + bytes([data[at] ^ 0x15]) + data[at + 1 :]
        try:
            read = pickle.loads(broken)
        except Exception:  # noqa: BLE001  pickle's own errors are of many kinds
            continue
        if isinstance(read, penstock.Schedule):
            read.validate()


def test_passes() -> None:
    assert "optimizer" in {entry.name for entry in penstock.passes()}
    schedule = penstock.schedule("1f1b", ranks=2, microbatches=2)
    stepped = schedule.apply("split-backward", "optimizer")
    assert stepped.texts(0)[-1] == "0STEP"
    priced = penstock.Costs.uniform(prices={"step": 2})
    assert stepped.simulate(priced).makespan == schedule.apply("split-backward").simulate().makespan + 2
    lowered = schedule.lower()
    assert "0SEND_F0" in lowered.texts(0)
    assert "0REDUCE_GRAD" in schedule.lower(for_torch=True).texts(0)
    assert lowered.validate() == []
    with pytest.raises(penstock.Error, match="no pass is called"):
        schedule.apply("nothing")
    schedule.lanes[0] = ["0F0"]
    with pytest.raises(penstock.Error, match="not a valid schedule"):
        schedule.lower()
