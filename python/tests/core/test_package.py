"""The package as users see it: types, version, documentation."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
import sysconfig

import pytest

import penstock

ROOT = pathlib.Path(__file__).resolve().parents[3]

PROGRAM = """
import numpy as np
import penstock

schedule: penstock.Schedule = penstock.schedule("zbv", ranks=4, microbatches=8, chunks=2)
schedule.lanes[0]["microbatch"][0] = 0
schedule.lanes[1] = ["1F0"]
faults: list[penstock.Fault] = schedule.validate()
reasons: list[str] = [fault.reason for fault in faults]
costs = penstock.Costs.per_stage(forward=np.ones(8), comm=0.1)
run: penstock.Simulation = schedule.simulate(costs)
starts = run.times(0)[:, 0]
total: float = float(starts.sum()) + run.makespan
run.report("x.html")
measured: penstock.Timeline = penstock.Timeline.from_times(schedule, [run.times(0)])
table: str = str(penstock.compare({"predicted": run, "measured": measured}))
names: list[str] = [entry.name for entry in penstock.schedules()]
plan: penstock.Plan = penstock.plan(model="gpt2", nodes="1x4", global_batch=8, chunks=[1, 2])
best: penstock.Schedule = penstock.plan(ranks=2, microbatches=4, cost=(1, 1, 1)).schedule
"""


def mypy(program: pathlib.Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(program.parent), str(program)]
    return subprocess.run(command, text=True, capture_output=True, cwd=program.parent)


def test_types(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    checked = mypy(program)
    assert checked.returncode == 0, checked.stdout
    program.write_text(
        PROGRAM
        + "names = run.makespan\nschedule.simulate(3)\npenstock.Costs.per_stage(forwards=[1])\n"
        + "penstock.plan(modle='gpt2')\n"
    )
    assert mypy(program).stdout.count("error:") == 4


def test_the_package_itself_is_typed(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path)]
    for module in ("actions", "arguments", "catalog", "costs", "display", "plans", "scenarios", "schedule_data", "simulation"):
        command += ["-m", f"penstock.{module}"]
    checked = subprocess.run(command, text=True, capture_output=True, cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout


def test_version_is_that_of_the_project() -> None:
    text = (ROOT / "CMakeLists.txt").read_text()
    version = re.search(r"project\(penstock VERSION ([0-9.]+)", text)
    assert version is not None and penstock.__version__ == version[1]


def test_the_command_is_installed(tmp_path: pathlib.Path) -> None:
    program = pathlib.Path(sysconfig.get_path("scripts")) / "penstock"
    command = [program, "schedule", "zbv", "--ranks", "2", "--microbatches", "4", "-o", "zbv.csv"]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    expected = penstock.schedule("zbv", ranks=2, microbatches=4).to_csv()
    assert (tmp_path / "zbv.csv").read_text() == expected


def test_everything_public_has_a_docstring() -> None:
    for name in penstock.__all__:
        value = getattr(penstock, name)
        if not isinstance(value, type):
            continue
        assert value.__doc__, name
        for attribute, member in vars(value).items():
            if not attribute.startswith("_") and (callable(member) or isinstance(member, property)):
                assert member.__doc__, f"{name}.{attribute}"


def test_examples_of_the_page_run(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) > 4
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), names)  # noqa: S102


def test_parts_that_need_torch_say_so() -> None:
    code = "import sys; sys.modules['torch'] = None; import {}"
    for module in ("penstock.torch", "penstock.transformers", "penstock.torchtitan"):
        done = subprocess.run([sys.executable, "-c", code.format(module)], capture_output=True, text=True, check=False)
        last = done.stderr.strip().splitlines()[-1]
        assert last.startswith(f"ModuleNotFoundError: {module} needs torch, which is not installed: run pip install torch, then pip install"), last
