"""Recorded steps of penstock.megatron: the files, the commands that read them, and the costs of layers."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import subprocess
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from forks import run_all
from gloo_ranks import run_ranks

import penstock
from penstock import NO_OP, OPS
from penstock.measuring.measured_run import measured_layer_costs
from penstock.megatron.recording import SKIPPED, Recorder

MICROBATCHES = 4
STEPS = 3
PROGRAM = os.environ.get("PENSTOCK_PROGRAM") or str(pathlib.Path(__file__).parents[3] / "build/penstock")


def run_step(recorder: Recorder, schedule: penstock.Schedule, rank: int, forward_only: bool = False) -> None:
    """Runs a rank's lane with its messages, and notifies the recorder as a step of penstock.megatron does."""
    recorder.begin_step(schedule, forward_only)
    message, rank_of = torch.zeros(1), schedule.rank_of_stage
    has_messages = any(OPS[op].startswith("SEND") for lane in schedule.lanes for op in lane["op"])
    for action in (schedule if has_messages else schedule.lower()).lanes[rank]:
        parts = [("op", "stage", "microbatch"), ("op2", "stage2", "microbatch2")]
        for op, stage, microbatch in parts if action["op2"] != NO_OP else parts[:1]:
            name, number = OPS[action[op]], int(action[stage])
            if name.startswith("SEND"):
                dist.send(message, rank_of[number + (1 if name == "SEND_F" else -1)])
            elif name.startswith("RECV"):
                dist.recv(message, rank_of[number + (-1 if name == "RECV_F" else 1)])
            else:
                recorder.begin()
                time.sleep(1e-4)
                recorder.end(name, number, int(action[microbatch]))
    recorder.end_step()


def record(rank: int, name: str, folder: str, layers: int | None) -> str:
    schedule = penstock.schedule(name, ranks=2, microbatches=MICROBATCHES)
    recorder = Recorder(folder, steps=STEPS, group=dist.group.WORLD)
    if layers:
        recorder.note_layers({stage: layers for stage, of in enumerate(schedule.rank_of_stage) if of == rank})
    for _ in range(SKIPPED + STEPS):
        run_step(recorder, schedule, rank)
        recorder.begin_step(schedule, forward_only=True)  # an evaluation
        recorder.begin()
        recorder.end("F", 0, 0)
        recorder.end_step()
    recorder.begin_step(schedule, forward_only=False)  # the step after the last recorded one writes the files
    return schedule.to_csv()


def run(*words: Any) -> str:
    if not pathlib.Path(PROGRAM).exists():
        pytest.skip(f"{PROGRAM} is not built")
    ended = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize("name", ["1f1b", "zbv", "dualpipev"])
def test_commands_read_a_recording(tmp_path: pathlib.Path, name: str) -> None:
    csv = run_ranks(2, record, name, str(tmp_path), 2)[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["measured.yaml", "report.html", "schedule.csv", "trace.json"]
    assert (tmp_path / "schedule.csv").read_text() == csv
    assert "predicted" in (tmp_path / "report.html").read_text()
    shown = run("show", tmp_path, "--explain")
    assert "bubble" in shown or "idle" in shown
    run("simulate", "1f1b", "zbv", tmp_path / "measured.yaml", "-p", 2, "-m", MICROBATCHES)
    # The trace has the schedule that ran, with its actions in the order of their times.
    run("schedule", "--csv", tmp_path / "trace.json", "-o", tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_text() == csv


def test_costs_of_a_recorded_1f1b_price_and_search_other_schedules(tmp_path: pathlib.Path) -> None:
    run_ranks(2, record, "1f1b", str(tmp_path), 2)
    costs = tmp_path / "measured.yaml"
    runs = json.loads(run("simulate", "1f1b", "zbv", "v-half", costs, "-p", 2, "-m", MICROBATCHES, "--json"))["schedules"]
    assert [each["schedule"] for each in runs] == ["1f1b", "zbv", "v-half"]
    assert all(0 < each["makespan"] < 1 for each in runs)  # seconds
    run("schedule", "v-auto", costs, "-p", 2, "-m", MICROBATCHES, "-o", tmp_path / "best.csv")
    found = penstock.Schedule.from_csv(tmp_path / "best.csv")
    assert (found.ranks, found.stages, found.validate()) == (2, 4, [])
    loaded = penstock.Costs.load(costs)
    assert penstock.schedule("zb-auto", ranks=2, microbatches=MICROBATCHES, costs=loaded).simulate(loaded).time_unit == "s"


def test_without_layers_costs_are_of_the_stages(tmp_path: pathlib.Path) -> None:
    run_ranks(2, record, "zbv", str(tmp_path), None)
    stages = penstock.Costs.load(tmp_path / "measured.yaml").stages(penstock.schedule("zbv", ranks=2, microbatches=MICROBATCHES))
    assert (stages["forward"] > 0).all()
    assert (stages["backward_weight"] > 0).all()


def change_schedules(rank: int, folder: str) -> None:
    recorder = Recorder(folder, steps=STEPS, group=dist.group.WORLD)
    for name in ("1f1b", "zb-h1"):
        schedule = penstock.schedule(name, ranks=2, microbatches=MICROBATCHES)
        for _ in range(SKIPPED + 1):
            run_step(recorder, schedule, rank)
    recorder.close()
    recorder.close()


def test_records_the_last_schedule_and_closes_once(tmp_path: pathlib.Path) -> None:
    run_ranks(2, change_schedules, str(tmp_path))
    assert "0W0" in (tmp_path / "schedule.csv").read_text()


def fail_in_a_step(rank: int, folder: str) -> None:
    recorder = Recorder(folder, steps=STEPS, group=dist.group.WORLD)
    schedule = penstock.schedule("1f1b", ranks=2, microbatches=MICROBATCHES)
    for _ in range(SKIPPED):
        run_step(recorder, schedule, rank)
    recorder.begin_step(schedule, forward_only=False)
    recorder.begin()  # fails: no end_step
    run_step(recorder, schedule, rank)
    recorder.close()


def test_leaves_out_a_step_that_failed(tmp_path: pathlib.Path) -> None:
    run_ranks(2, fail_in_a_step, str(tmp_path))
    assert (tmp_path / "measured.yaml").exists()


def record_one_of_two_pipelines(rank: int, folder: str) -> None:
    groups = [dist.new_group([first, first + 1]) for first in (0, 2)]
    recorder = Recorder(folder, steps=1, group=groups[rank // 2])
    schedule = penstock.schedule("1f1b", ranks=2, microbatches=MICROBATCHES)
    for _ in range(SKIPPED + 2):
        recorder.begin_step(schedule, forward_only=False)
        for action in schedule.lanes[rank % 2]:
            recorder.begin()
            recorder.end(OPS[action["op"]], int(action["stage"]), int(action["microbatch"]))
        recorder.end_step()


def test_records_one_replica(tmp_path: pathlib.Path) -> None:
    run_ranks(4, record_one_of_two_pipelines, str(tmp_path))
    assert (tmp_path / "trace.json").exists()


def durations(**by_stage: list[float]) -> dict[tuple[str, int], list[float]]:
    return {(op, stage): [time] for op, times in by_stage.items() for stage, time in enumerate(times)}


def stages_of(costs: penstock.Costs, stages: int) -> Any:
    return costs.stages(penstock.schedule("gpipe", ranks=stages, microbatches=1))


def test_layers_take_what_their_stages_took() -> None:
    steps = [penstock.schedule("gpipe", ranks=4, microbatches=2).simulate()]
    # A layer takes 1, the embedding 0.5 and the head 2. The layers are 2, 3, 3, 1.
    costs = measured_layer_costs(steps, durations(F=[2.5, 3, 3, 3], B=[5, 6, 6, 6]), [2, 3, 3, 1])
    assert stages_of(costs, 9)["forward"].tolist() == pytest.approx([1.5, *[1] * 7, 3])
    assert stages_of(costs, 3)["forward"].tolist() == pytest.approx([3.5, 3, 5])
    assert stages_of(costs, 3)["backward_weight"].tolist() == pytest.approx([3.5, 3, 5])
    assert stages_of(costs, 3)["activation"].tolist() == pytest.approx([4 / 3] * 3)  # of the four ranks' ones
    # The embedding and the head are stages of their own.
    alone = measured_layer_costs(steps, durations(F=[0.5, 3, 3, 2], B=[1, 6, 6, 4]), [0, 3, 3, 0])
    assert stages_of(alone, 8)["forward"].tolist() == pytest.approx([0.5, *[1] * 6, 2])


def test_layers_of_two_stages_share_their_times() -> None:
    steps = [penstock.schedule("gpipe", ranks=2, microbatches=2).simulate()]
    costs = measured_layer_costs(steps, durations(F=[2, 4], I=[2, 4], W=[1, 2]), [2, 2])
    assert stages_of(costs, 4)["forward"].tolist() == pytest.approx([1, 1, 2, 2])
    assert stages_of(costs, 2)["backward_input"].tolist() == pytest.approx([2, 4])


def test_refuses_what_cannot_be_recorded(tmp_path: pathlib.Path) -> None:
    with pytest.raises(penstock.Error, match="0 steps"):
        Recorder(tmp_path, steps=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(penstock.Error, match="cannot create the folder"):
        Recorder(tmp_path / "file" / "folder")




def record_and_close(rank: int, folder: str, steps: int, removed: bool) -> str:
    recorder, schedule = Recorder(folder, group=dist.group.WORLD), penstock.schedule("1f1b", ranks=1, microbatches=2)
    for _ in range(steps):
        run_step(recorder, schedule, rank)
    if removed:
        pathlib.Path(folder).rmdir()
    with contextlib.redirect_stderr(io.StringIO()) as said:
        recorder.close()
    return said.getvalue()


@pytest.mark.parametrize(("steps", "removed", "why"), [(SKIPPED, False, "the first 2 training steps"), (SKIPPED + 1, True, "schedule.csv")])
def test_says_what_it_cannot_write_and_lets_training_continue(tmp_path: pathlib.Path, steps: int, removed: bool, why: str) -> None:
    said = run_ranks(1, record_and_close, str(tmp_path / "folder"), steps, removed)[0]
    assert said.startswith("penstock: nothing is recorded in ") and why in said and said.count("\n") == 1


def record_lowered(rank: int, folder: str) -> None:
    schedule = penstock.schedule("zbv", ranks=2, microbatches=MICROBATCHES).lower()
    recorder = Recorder(folder, steps=1, group=dist.group.WORLD)
    for _ in range(SKIPPED + 1):
        run_step(recorder, schedule, rank)
    recorder.close()


def test_records_a_schedule_with_messages(tmp_path: pathlib.Path) -> None:
    run_ranks(2, record_lowered, str(tmp_path))
    assert (tmp_path / "schedule.csv").read_text() == penstock.schedule("zbv", ranks=2, microbatches=MICROBATCHES).to_csv()


EXITING = """
import sys
import torch.distributed as dist
from penstock import OPS, schedule
from penstock.megatron.recording import SKIPPED, Recorder

dist.init_process_group("gloo")
recorder, made = Recorder(sys.argv[1], group=dist.group.WORLD), schedule("1f1b", ranks=2, microbatches=4)
for _ in range(SKIPPED + 2):
    recorder.begin_step(made, False)
    for action in made.lanes[dist.get_rank()]:
        recorder.begin()
        recorder.end(OPS[action["op"]], int(action["stage"]), int(action["microbatch"]))
    recorder.end_step()
if sys.argv[2] == "destroy":
    dist.destroy_process_group()
"""


def test_writes_what_there_is_at_exit(tmp_path: pathlib.Path) -> None:
    ended = run_all(EXITING, str(tmp_path), "keep", GLOO_SOCKET_IFNAME="lo")
    assert [code for code, _, _ in ended] == [0, 0], ended
    assert "2 steps of 1f1b are recorded" in ended[0][1]
    assert (tmp_path / "measured.yaml").exists()


def test_says_what_is_lost_with_the_process_group(tmp_path: pathlib.Path) -> None:
    ended = run_all(EXITING, str(tmp_path), "destroy", GLOO_SOCKET_IFNAME="lo")
    assert [code for code, _, _ in ended] == [0, 0], ended
    assert "the process group was destroyed after 2 of 10 steps; run 13 training steps" in ended[0][2]
    assert "destroyed" not in ended[1][2]
    assert list(tmp_path.iterdir()) == []
