"""One script as one process, under torchrun, and under mpirun."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import pytest
from forks import Fork, lines_of, world

import penstock.torch as pt

# Trains with each schedule in turn: NAME:RANKS, ... "tied" is 1f1b whose first and last stage share
# a weight, which the last process prints.
_SCRIPT = """
import os, signal, sys
import torch, penstock, penstock.torch as pt
from torch import nn

def say(*words):  # in one write, because processes share the output
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()

def build(stage):
    torch.manual_seed(stage)
    return nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16))

here, count = pt.place()
transport = os.environ.get("TRANSPORT", "tcp")
if transport == "c10d" and count > 1:
    torch.distributed.init_process_group("gloo")
for each in sys.argv[1].split(","):
    name, ranks = each.split(":")
    is_tied = name == "tied"
    schedule = penstock.schedule("1f1b" if is_tied else name, ranks=int(ranks), microbatches=4)
    local = [rank * count // schedule.ranks == here for rank in schedule.rank_of_stage]
    modules = [build(s) if is_tied or local[s] else None for s in range(schedule.stages)]
    if is_tied:
        modules[-1][0].weight = modules[0][0].weight
    pipe = pt.Pipeline(modules, schedule, loss=nn.functional.mse_loss, exact=True, timeout=60, transport=transport)
    torch.manual_seed(99)
    for step in range(3):
        loss = pipe.step(torch.randn(8, 16), torch.randn(8, 16))
        if here == 0:
            say("loss", each, repr(loss))
        if step == 0:
            pipe.load_state_dict(pipe.state_dict())
        if step == 1 and "dies" in sys.argv and here == count - 1:
            signal.pause()  # until the test kills this process
    for loss in pipe.steps([(torch.randn(8, 16), torch.randn(8, 16)) for _ in range(2)]):
        if here == 0:
            say("loss", each, repr(loss))
    if is_tied and here == count - 1:
        say("loss of weight", modules[-1][0].weight.double().sum().item())
"""
_LAUNCHERS = {
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"],
    "mpirun": ["mpirun", "--oversubscribe", "-n", "2", sys.executable],
}


def _expected(schedules: str) -> list[str]:
    """Returns the losses of this process, which runs every rank."""
    assert pt.place() == (0, 1)
    losses = lines_of(_SCRIPT, schedules, prefix="loss")
    assert len(losses) == 5 * len(schedules.split(",")) + schedules.count("tied")
    return losses


@pytest.mark.parametrize("launcher", _LAUNCHERS)
def test_launchers_train_like_one_process(tmp_path: pathlib.Path, launcher: str) -> None:
    if shutil.which(_LAUNCHERS[launcher][0]) is None:
        pytest.skip("there is no mpirun")
    script, schedules = tmp_path / "train.py", "1f1b:2,zbv:2"
    script.write_text(_SCRIPT)
    allowed = {f"OMPI_ALLOW_RUN_AS_ROOT{end}": "1" for end in ("", "_CONFIRM")}
    done = subprocess.run(
        [*_LAUNCHERS[launcher], str(script), schedules],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, **allowed, "OMP_NUM_THREADS": "1", "XDG_CONFIG_HOME": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    losses = sorted(line for line in done.stdout.splitlines() if line.startswith("loss"))
    assert losses == _expected(schedules)


@pytest.mark.parametrize("transport", ["tcp", "c10d"])
@pytest.mark.parametrize(("processes", "schedules"), [(2, "1f1b:2,zbv:2,1f1b:4,tied:2"), (4, "1f1b:4,zbv:4")])
def test_processes_train_like_one(tmp_path: pathlib.Path, processes: int, schedules: str, transport: str) -> None:
    given = {"XDG_CONFIG_HOME": str(tmp_path), "TRANSPORT": transport}
    launched = lines_of(_SCRIPT, schedules, prefix="loss", processes=processes, **given)
    assert launched == _expected(schedules)


@pytest.mark.parametrize("transport", ["tcp", "c10d"])
def test_a_killed_process_ends_the_others_with_one_line(tmp_path: pathlib.Path, transport: str) -> None:
    given = {"XDG_CONFIG_HOME": str(tmp_path), "TRANSPORT": transport}
    first, second = (Fork(_SCRIPT, "1f1b:2", "dies", **of, **given) for of in world(2))
    with first, second:
        # A process may end a step before another has received all of it, so this one is killed when
        # both have ended the second.
        lines = first.lines()
        assert [next(lines)[:4], next(lines)[:4]] == ["loss", "loss"]
        second.process.kill()
        code, output, errors = first.ended()
        second.process.join()
        assert second.process.exitcode == -signal.SIGKILL
    assert output.count("loss") == 2
    assert code == 1
    last = errors.strip().splitlines()[-1]
    assert re.fullmatch(r"(\[rank0\]: )?penstock._core.Error: process 1 on \S+ is gone: .*", last), errors
