"""Recorded runs of torch's runtime: their order, times, costs and reports."""

from __future__ import annotations

import pathlib
import time
from typing import Any

import pytest
import small_transformer as model
import torch
from gloo_ranks import run_ranks
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import ScheduleInterleaved1F1B

import penstock
import penstock.torch
from penstock.measuring.align_clocks import clock_offsets, offset_of

MICROBATCHES = model.MICROBATCHES


def step(runtime: Any) -> None:
    tokens, targets = model.batch(0)
    own = {stage.stage_index for stage in runtime._stages}
    inputs = (tokens,) if 0 in own else ()
    runtime.step(*inputs, target=targets if runtime._num_stages - 1 in own else None)


def run_and_record(rank: int, name: str, folder: str) -> Any:
    schedule = penstock.schedule(name, ranks=2, microbatches=MICROBATCHES)
    stages = model.split(schedule.stages)
    runtime = penstock.torch.runtime(stages, schedule, model.loss_fn)
    step(runtime)
    methods = [vars(stage).copy() for stage in runtime._stages]
    with penstock.torch.record(runtime) as run:
        for _ in range(3):
            step(runtime)
        with torch.no_grad():
            runtime.eval(*((model.batch(0)[0],) if rank == 0 else ()), target=model.batch(0)[1])
    assert [vars(stage).keys() for stage in runtime._stages] == [of.keys() for of in methods]
    run.report(pathlib.Path(folder) / f"{rank}.html")
    tokens, targets = (part[:2] for part in model.batch(0))
    in_bytes = penstock.torch.profile(stages, tokens, loss_fn=model.loss_fn, target=targets, repeat=1)
    run.report(pathlib.Path(folder) / f"bytes{rank}.html", costs=in_bytes)
    if rank != 0:
        with pytest.raises(penstock.Error, match="rank 0"):
            _ = run.timeline
        return None
    return run.steps, run.costs, run.predict()


@pytest.mark.parametrize("name", ["1f1b", "zbv", "dualpipev"])
def test_records_what_ran(tmp_path: pathlib.Path, name: str) -> None:
    steps, costs, predicted = run_ranks(2, run_and_record, name, str(tmp_path))[0]
    schedule = penstock.schedule(name, ranks=2, microbatches=MICROBATCHES)
    assert len(steps) == 3
    for measured in steps:
        assert measured.schedule == schedule
        require_causal(measured)
    assert predicted.schedule == schedule
    assert predicted.time_unit == "s"
    of_stage = costs.stages(schedule)
    assert (of_stage["forward"] > 0).all()
    # The command line refuses a rule for pairs where there are none.
    assert ("overlap" in costs.to_yaml()) == (name == "dualpipev")
    assert predicted.makespan > 0
    assert (tmp_path / "0.html").read_text().count("measured") > 0
    assert "KiB" in (tmp_path / "bytes0.html").read_text()
    assert not (tmp_path / "1.html").exists()


def require_causal(measured: penstock.Timeline) -> None:
    """Every action starts after its rank's previous one, and after its input was computed."""
    schedule, ends = measured.schedule, {}
    for rank in range(schedule.ranks):
        times = measured.times(rank)
        assert (times[1:, 0] >= times[:-1, 1]).all()
        for cell, (_, end) in zip(schedule.texts(rank), times, strict=True):
            ends[cell] = end
    for rank in range(schedule.ranks):
        for cell, (start, _) in zip(schedule.texts(rank), measured.times(rank), strict=True):
            stage, forward, microbatch = cell.partition("F")
            made = ends.get(f"{int(stage) - 1}F{microbatch}") if forward and "(" not in cell else None
            assert made is None or start >= made, cell


def record_torchs_own(rank: int) -> Any:
    stages = [
        PipelineStage(module, number, 4, torch.device("cpu"))
        for number, module in enumerate(model.split(4))
        if number % 2 == rank
    ]
    runtime = ScheduleInterleaved1F1B(stages, MICROBATCHES, loss_fn=model.loss_fn)
    with penstock.torch.record(runtime) as run:
        step(runtime)
    return run.timeline if rank == 0 else None


def test_records_torchs_own_schedules() -> None:
    measured = run_ranks(2, record_torchs_own)[0]
    assert measured.schedule.stages == 4
    assert measured.schedule.algorithm == "ScheduleInterleaved1F1B"
    assert measured.schedule.validate() == []


def leave_without_steps(rank: int) -> str:
    schedule = penstock.schedule("gpipe", ranks=1, microbatches=2)
    runtime = penstock.torch.runtime(model.split(1), schedule, model.loss_fn)
    with penstock.torch.record(runtime) as run:
        pass
    with pytest.raises(penstock.Error, match="no step was recorded") as caught:
        _ = run.costs
    return str(caught.value)


def test_refuses_a_run_without_steps() -> None:
    assert "\n" not in run_ranks(1, leave_without_steps)[0]


def measure_offsets(rank: int, ahead: int) -> list[float]:
    return clock_offsets(None, torch.device("cpu"), lambda: time.perf_counter_ns() + (ahead if rank == 1 else 0))


def test_aligns_clocks_of_processes() -> None:
    day = 86_400_000_000_000
    offsets = run_ranks(2, measure_offsets, day)[0]
    assert offsets[0] == 0
    assert abs(offsets[1] - day) < 1e9  # within the wait for an answer, even on a busy machine
    assert run_ranks(2, measure_offsets, 0)[0] == [0, 0]


def test_offset_is_that_of_the_fastest_answer() -> None:
    assert offset_of([(0, 1_000_500, 900), (10, 1_000_060, 110)]) == 1_000_000
    assert offset_of([(0, 40, 100)]) == 0  # may be the same clock


def test_refuses_single_stage_schedules() -> None:
    with pytest.raises(penstock.Error, match="int has no list of actions"):
        penstock.torch.record(3)  # type: ignore[arg-type]
