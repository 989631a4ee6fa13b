"""Every wrong argument of runtime and record is an Error of one line."""

from __future__ import annotations

import pathlib
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from wrong_values import complaints

import penstock
import penstock.torch


def _stages() -> list[nn.Module]:
    return [nn.Linear(4, 4), nn.Linear(4, 4)]


def test_arguments_of_runtime_and_record(tmp_path: pathlib.Path) -> None:
    schedule = penstock.schedule("interleaved", ranks=1, microbatches=2, chunks=2)
    good: dict[str, Any] = {
        "schedule": schedule,
        "loss_fn": nn.functional.mse_loss,
        "group": None,
        "device": "cpu",
        "scale_grads": True,
    }
    assert complaints(penstock.torch.runtime, {"stages": _stages(), "schedule": schedule}) == []
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        assert complaints(penstock.torch.runtime, lambda: {"stages": _stages(), **good}) == []
        runtime = penstock.torch.runtime(_stages(), **good)
        assert complaints(penstock.torch.record, {"runtime": runtime}) == []
        with penstock.torch.record(runtime) as run:
            runtime.step(torch.ones(4, 4), target=torch.ones(4, 4))
        assert complaints(run.predict, {"costs": run.costs}) == []
        report = {"path": tmp_path / "a.html", "title": "a", "costs": run.costs}
        assert complaints(run.report, report, only=("title", "costs")) == []
    finally:
        dist.destroy_process_group()
