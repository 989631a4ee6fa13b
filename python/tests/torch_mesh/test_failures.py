"""A failure on one plane of a mesh ends all of them with one line."""

from __future__ import annotations

import contextlib
import re
import time

from forks import Fork, world
from torch_mesh.processes import cases_of

_HEAD = """
import os, signal, sys, time
import torch, penstock.torch as pt
from torch_mesh import mlp, parity

mesh = parity.mesh_of("pipeline tensor", 2, 2)
group, mse = mesh["tensor"].get_group(), torch.nn.functional.mse_loss
here = int(os.environ["RANK"])

def pipeline(happens, timeout=10, **others):
    def make(parameters):
        made = torch.optim.SGD(parameters, lr=0.1)
        made.register_step_pre_hook(lambda *_: happens() if here == 3 else None)
        return made
    whole = mlp.blocks(2)
    parts = [parity.copy_parts(mlp.Block(mlp.HIDDEN // 2, group), each, mlp.dim_of, group) for each in whole]
    return pt.Pipeline(parts, "1f1b", ranks=2, microbatches=4, loss=mse, optimizer=make, mesh=mesh, timeout=timeout, **others)
"""


def test_an_exception_ends_all_planes() -> None:
    began = time.monotonic()
    found = cases_of(
        _HEAD
        + """
def fail():
    raise RuntimeError("the disk is full")

x, y = mlp.batches(1)[0]
with parity.said("exception"):
    pipe = pipeline(fail)
    for _ in range(3):
        pipe.step(x, y)
with parity.said("later"):
    pipe.step(x, y)
"""
    )
    assert all("the disk is full" in line for line in found["exception"]), found
    assert all("the disk is full" in line for line in found["later"]), found
    assert time.monotonic() - began < 60


def test_a_nan_fails_on_all_planes() -> None:
    found = cases_of(
        _HEAD
        + """
x, y = mlp.batches(1)[0]
with parity.said("nan"):
    pipe = pipeline(lambda: None, clip_grad_norm=1.0)
    pipe.step(x, y)
    with torch.no_grad():
        if here == 1:
            pipe._stages[0].up.weight[0, 0] = float("nan")
    pipe.step(x, y)
"""
    )
    # Any rank may be the first to see it.
    assert all(re.search(r"\dSTEP: the gradient of bias is not finite", line) for line in found["nan"]), found


def test_a_hung_or_lost_process_ends_all_planes() -> None:
    for how, part in (("time.sleep(600)", "no rank made progress for 4 s"), ("os.kill(os.getpid(), signal.SIGKILL)", "process 3")):
        script = _HEAD + f"""
x, y = mlp.batches(1)[0]
with parity.said("end"):
    pipe = pipeline(lambda: {how}, timeout=4)
    for _ in range(3):
        pipe.step(x, y)
os._exit(0)
"""
        began = time.monotonic()
        with contextlib.ExitStack() as stack:
            forks = [stack.enter_context(Fork(script, **of, OMP_NUM_THREADS="1")) for of in world(4)]
            lines = [next((line for line in fork.lines() if line.startswith("case ")), "") for fork in forks[:3]]
        assert all(part in line for line in lines), (how, lines)
        assert time.monotonic() - began < 60
