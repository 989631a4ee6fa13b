"""Between steps: threads, other processes, several pipelines."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from typing import Any

import torch
from torch import nn

import penstock.torch as pt


def make_pipe(**options: Any) -> tuple[pt.Pipeline, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    stages = [nn.Sequential(nn.Linear(8, 8), nn.GELU()), nn.Linear(8, 8)]
    pipe = pt.Pipeline(stages, ranks=2, microbatches=4, loss=nn.functional.mse_loss, threads=1, **options)
    return pipe, torch.randn(8, 8), torch.randn(8, 8)


def count_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def test_ranks_threads_end_with_the_pipeline() -> None:
    torch.ones(1) + 1
    pipe, x, y = make_pipe()
    before = count_threads()
    pipe.step(x, y)
    assert count_threads() > before
    del pipe
    assert count_threads() == before


def test_a_program_that_ends_prints_nothing() -> None:
    for program in ("import penstock.torch", "import torch, penstock; penstock.schedule('1f1b', ranks=2, microbatches=4)"):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert (done.stdout, done.stderr) == ("", ""), program


def test_pipelines_alternate() -> None:
    alone = []
    pipe, x, y = make_pipe()
    for _ in range(4):
        alone.append(pipe.step(x, y))
    (one, *_), (two, *_) = make_pipe(), make_pipe(schedule="gpipe", exact=True)
    for loss in alone:
        assert one.step(x, y) == loss
        torch.testing.assert_close(two.step(x, y), loss)


def test_modules_change_between_steps() -> None:
    pipe, x, y = make_pipe(optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.0))
    first = pipe.step(x, y)
    with torch.no_grad():
        for parameter in pipe.optimizers[1].param_groups[0]["params"]:
            parameter.zero_()
    zeroed = pipe.step(x, y)
    assert zeroed != first
    torch.testing.assert_close(zeroed, float((y**2).mean()))


def _step_in_child(pipe: pt.Pipeline, x: torch.Tensor, y: torch.Tensor, pipe_end: Any) -> None:
    pipe_end.send(pipe.step(x, y))


def test_forked_processes_may_drop_and_step_a_pipeline() -> None:
    pipe, x, y = make_pipe()
    pipe.step(x, y)
    dataset = torch.utils.data.TensorDataset(x, y)
    loader = torch.utils.data.DataLoader(dataset, batch_size=8, num_workers=2, multiprocessing_context="fork")
    for inputs, targets in loader:
        pipe.step(inputs, targets)
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe()
    child = context.Process(target=_step_in_child, args=(pipe, x, y, theirs))
    child.start()
    assert mine.poll(60)
    assert mine.recv() == pipe.step(x, y)
    child.join(60)
    assert child.exitcode == 0


def test_process_exits_with_a_pipeline_that_is_never_collected() -> None:
    code = """
import sys
from test_sessions import make_pipe
pipe, x, y = make_pipe()
pipe.step(x, y)
pipe.itself = pipe       # a cycle
sys.kept = pipe          # and alive until the end
print("done")
"""
    folder = os.path.dirname(__file__)
    path = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": path}
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
