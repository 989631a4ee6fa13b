"""The same script as one process, under torchrun, and under mpirun."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

_SCRIPT = """
import sys, torch, penstock, penstock.torch as pt
from torch import nn

name, ranks, stages = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

def build(stage):
    torch.manual_seed(stage)
    return nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16))

schedule = penstock.schedule(name, ranks=ranks, microbatches=4)
here, count = pt.place()
modules = [build(s) if schedule.rank_of_stage[s] * count // ranks == here else None for s in range(stages)]
pipe = pt.Pipeline(modules, schedule, loss=nn.functional.mse_loss, exact=True, timeout=60)
torch.manual_seed(99)
for _ in range(3):
    loss = pipe.step(torch.randn(8, 16), torch.randn(8, 16))
    if here == 0:
        print("loss", repr(loss), flush=True)
"""


def _losses(tmp_path: pathlib.Path, launcher: list[str], *arguments: str) -> list[str]:
    script = tmp_path / "train.py"
    script.write_text(_SCRIPT)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(
        [*launcher, str(script), *arguments], capture_output=True, text=True, timeout=200,
        env=environment, check=False,
    )
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("loss")]


def _torchrun(processes: int) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]


@pytest.mark.parametrize(("name", "ranks", "stages"), [("1f1b", 2, 2), ("zbv", 2, 4), ("1f1b", 4, 4)])
def test_torchrun_trains_like_one_process(
    tmp_path: pathlib.Path, name: str, ranks: int, stages: int
) -> None:
    arguments = (name, str(ranks), str(stages))
    single = _losses(tmp_path, [sys.executable], *arguments)
    assert len(single) == 3
    assert _losses(tmp_path, _torchrun(2), *arguments) == single


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun")
def test_mpirun_trains_like_one_process(tmp_path: pathlib.Path) -> None:
    single = _losses(tmp_path, [sys.executable], "zbv", "2", "4")
    mpirun = ["mpirun", "--oversubscribe", "-n", "2", sys.executable]
    assert _losses(tmp_path, mpirun, "zbv", "2", "4") == single
