"""The CSV of schedules is what torch's and torchtitan's loaders read."""

from __future__ import annotations

import csv
import inspect
import pathlib
from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn
from torch.distributed.pipelining import schedules
from torch.distributed.pipelining.schedules import _Action, _PipelineScheduleRuntime

import penstock

RANKS, MICROBATCHES = 4, 8
# The flag of torchtitan that places stages like the schedule, by schedule.
TITAN = {
    "1f1b": "1F1B",
    "zb-h1": "1F1B",
    "interleaved-zb": "Interleaved1F1B",
    "zbv": "ZBVZeroBubble",
    "v-min": "ZBVZeroBubble",
    "dualpipev": "DualPipeV",
}


class Stage:
    """The part of a PipelineStage that loading needs."""

    def __init__(self, number: int, stages: int) -> None:
        self.stage_index, self.num_stages = number, stages
        self.group_size, self.group_rank = RANKS, 0
        self.submod = nn.Identity()


def generate(name: str) -> penstock.Schedule:
    return penstock.schedule(name, ranks=RANKS, microbatches=MICROBATCHES)


def stages_of(schedule: penstock.Schedule) -> list[Any]:
    own = [stage for stage, rank in enumerate(schedule.rank_of_stage) if rank == 0]
    return [Stage(stage, schedule.stages) for stage in own]


def cells(order: dict[int, list[Any]]) -> list[list[str]]:
    return [[str(action) for action in order[rank]] for rank in sorted(order)]


@pytest.mark.parametrize("name", TITAN)
@pytest.mark.parametrize("lowered", [False, True])
def test_torch_loads(tmp_path: pathlib.Path, name: str, lowered: bool) -> None:
    path = tmp_path / "schedule.csv"
    schedule = generate(name)
    written = schedule.lower(for_torch=True) if lowered else schedule
    written.to_csv(path)
    runtime = _PipelineScheduleRuntime(stages_of(schedule), MICROBATCHES, loss_fn=nn.MSELoss())
    if lowered and hasattr(schedules, "_add_wait_send"):
        # From 2.15 on, waits are actions, too, which penstock.torch.runtime adds; files have none.
        with pytest.raises(ValueError, match="no matching wait|without WAIT_REDUCE_GRAD|has a pending reduction"):
            runtime._load_csv(str(path), format="compute_comms")
        return
    runtime._load_csv(str(path), format="compute_comms" if lowered else "compute_only")
    order = runtime.pipeline_order_with_comms if lowered else runtime.pipeline_order
    assert cells(order) == [written.texts(rank) for rank in range(RANKS)]


@pytest.mark.parametrize(("name", "options"), [("dualpipe", {}), ("chimera", {}), ("seq1f1b", {"slices": 2})])
def test_torch_refuses_what_it_cannot_run(tmp_path: pathlib.Path, name: str, options: dict[str, int]) -> None:
    path = tmp_path / "schedule.csv"
    schedule = penstock.schedule(name, ranks=RANKS, microbatches=MICROBATCHES, **options)
    schedule.to_csv(path)
    again = penstock.Schedule.from_csv(path)
    assert again.to_csv() == schedule.to_csv()
    assert (again.slices, again.steps) == (schedule.slices, schedule.steps)
    with path.open(newline="") as file, pytest.raises(RuntimeError, match="Invalid action string"):
        for row in csv.reader(file):
            for cell in row:
                _Action.from_str(cell)


@pytest.mark.parametrize("name", TITAN)
def test_torchtitan_loads(tmp_path: pathlib.Path, name: str) -> None:
    titan = pytest.importorskip("torchtitan.distributed.pipeline_parallel", exc_type=ImportError)  # 0.3 needs a newer torch
    path = tmp_path / "schedule.csv"
    schedule = generate(name)
    schedule.to_csv(path)
    parallelism = SimpleNamespace(
        pipeline_parallel_degree=RANKS,
        pipeline_parallel_schedule=TITAN[name],
        pipeline_parallel_schedule_csv=str(path),
        pipeline_parallel_microbatch_size=2,
        pipeline_parallel_expert_parallel_overlap=False,
    )
    stages, loss_fn = stages_of(schedule), nn.MSELoss()
    batch_size = 2 * MICROBATCHES
    build = titan._build_pipeline_schedule
    is_after_0_3 = "num_microbatches" in inspect.signature(build).parameters
    count = {"num_microbatches": MICROBATCHES} if is_after_0_3 else {"local_batch_size": batch_size}
    runtime = build(parallelism=parallelism, stages=stages, loss_fn=loss_fn, **count)
    assert cells(runtime.pipeline_order) == [schedule.texts(rank) for rank in range(RANKS)]
    assert runtime._n_microbatches == MICROBATCHES
