"""Recorded steps of megatron-core, from 1F1B to the schedule that is found for its measured costs."""

from __future__ import annotations

import os
import pathlib
import subprocess
from typing import Any

import pytest
import worlds
from tiny_gpt import Case, train

import penstock
import penstock.megatron.installation
from penstock.megatron.recording import SKIPPED

PROGRAM = os.environ.get("PENSTOCK_PROGRAM") or str(pathlib.Path(__file__).parents[3] / "build/penstock")
STEPS = SKIPPED + 11  # the last one writes what the ten before it took


def record(case: Case, folder: str) -> dict[str, Any]:
    """Runs a case that is recorded, in one of its processes."""
    install = penstock.megatron.installation.install
    penstock.megatron.installation.install = lambda schedule: install(schedule, record=folder)
    return train(case)


def command(*words: Any) -> str:
    if not pathlib.Path(PROGRAM).exists():
        pytest.skip(f"{PROGRAM} is not built")
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, check=True).stdout


def test_from_recorded_1f1b_to_the_schedule_for_its_costs(tmp_path: pathlib.Path) -> None:
    first, second = tmp_path / "1f1b", tmp_path / "best"
    worlds.run(Case("1f1b", pp=2, steps=STEPS), "test_recording.record", (str(first),))
    assert "measured" in command("show", first, "--explain")
    assert "layers: 4" in (first / "measured.yaml").read_text()
    command("schedule", "v-auto", first / "measured.yaml", "-p", 2, "-m", 8, "-o", tmp_path / "best.csv")
    best = penstock.Schedule.from_csv(tmp_path / "best.csv")
    worlds.run(Case(str(tmp_path / "best.csv"), pp=2, vp=2, steps=STEPS), "test_recording.record", (str(second),))
    assert (second / "schedule.csv").read_text() == best.to_csv()
    assert "2 ranks, 2 chunks, 8 microbatches" in command("show", second, "--explain")


def test_costs_are_an_option_of_the_schedule(tmp_path: pathlib.Path) -> None:
    worlds.run(Case("zb-h1", pp=2, steps=STEPS), "test_recording.record", (str(tmp_path / "zb-h1"),))
    found = f"zb-auto,costs={tmp_path / 'zb-h1' / 'measured.yaml'}"
    assert len(worlds.run(Case(found, pp=2, steps=1))) == 2
