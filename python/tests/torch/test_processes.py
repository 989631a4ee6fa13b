"""One script as one process, under torchrun, and under mpirun."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys

import pytest

import penstock.torch as pt

# Trains with each schedule in turn: NAME:RANKS, ... "tied" is 1f1b whose first and last stage share
# a weight, which the last process prints.
_SCRIPT = """
import os, sys
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
            sys.stdin.read()  # until the test kills this process
    for loss in pipe.steps([(torch.randn(8, 16), torch.randn(8, 16)) for _ in range(2)]):
        if here == 0:
            say("loss", each, repr(loss))
    if is_tied and here == count - 1:
        say("loss of weight", modules[-1][0].weight.double().sum().item())
"""
_ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


def _losses(text: str) -> list[str]:
    return sorted(line for line in text.splitlines() if line.startswith("loss"))


def _expected(schedules: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns the losses of this process, which runs every rank."""
    assert pt.place() == (0, 1)
    monkeypatch.setattr(sys, "argv", ["train.py", schedules])
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(_SCRIPT, "train.py", "exec"), {})
    losses = _losses(printed.getvalue())
    assert len(losses) == 5 * len(schedules.split(",")) + schedules.count("tied")
    return losses


def _launch(
    tmp_path: pathlib.Path, launcher: list[str], schedules: str, transport: str = "tcp"
) -> list[str]:
    script = tmp_path / "train.py"
    script.write_text(_SCRIPT)
    done = subprocess.run(
        [*launcher, str(script), schedules],
        capture_output=True,
        text=True,
        timeout=200,
        env={**_ENVIRONMENT, "XDG_CONFIG_HOME": str(tmp_path), "TRANSPORT": transport},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return _losses(done.stdout)


@pytest.mark.parametrize("transport", ["tcp", "c10d"])
@pytest.mark.parametrize(
    ("processes", "schedules"), [(2, "1f1b:2,zbv:2,1f1b:4,tied:2"), (4, "1f1b:4,zbv:4")]
)
def test_torchrun_trains_like_one_process(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    processes: int,
    schedules: str,
    transport: str,
) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    torchrun.append(f"--nproc-per-node={processes}")
    launched = _launch(tmp_path, torchrun, schedules, transport)
    assert launched == _expected(schedules, monkeypatch)


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun")
def test_mpirun_trains_like_one_process(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mpirun = ["mpirun", "--oversubscribe", "-n", "2", sys.executable]
    schedules = "1f1b:2,zbv:2"
    assert _launch(tmp_path, mpirun, schedules) == _expected(schedules, monkeypatch)


@pytest.mark.parametrize("transport", ["tcp", "c10d"])
def test_a_killed_process_ends_the_others_with_one_line(
    tmp_path: pathlib.Path, transport: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(_SCRIPT)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Without a launcher, which would end the other process itself.
    world = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    world |= {"XDG_CONFIG_HOME": str(tmp_path), "TRANSPORT": transport}
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), "1f1b:2", "dies"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**_ENVIRONMENT, **world, "MASTER_PORT": str(port), "RANK": str(rank)},
        )
        for rank in range(2)
    ]
    try:
        # A process may end a step before another has received all of it, so this one is killed when
        # both have ended the second.
        for line in (processes[0].stdout.readline() for _ in range(2)):
            assert _losses(line), line
        processes[1].kill()
        output, errors = processes[0].communicate(timeout=150)
        assert processes[1].wait(timeout=60) == -signal.SIGKILL
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert not _losses(output)
    assert processes[0].returncode == 1
    last = errors.strip().splitlines()[-1]
    assert re.fullmatch(r"(\[rank0\]: )?penstock._core.Error: process 1 on \S+ is gone: .*", last), errors
