"""Measured costs of stages: what they count, and that measuring changes nothing."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
import small_transformer as model
import torch
from torch import nn

import penstock
import penstock.torch


def measure(**options: object) -> penstock.Costs:
    tokens, targets = model.batch(0)
    return penstock.torch.profile(model.split(4), tokens[:2], loss_fn=model.loss_fn, target=targets[:2], repeat=3, **options)


def test_measures_what_simulate_reads(tmp_path: pathlib.Path) -> None:
    costs = measure(comm=1e-5)
    assert (costs.time_unit, costs.memory_unit) == ("s", "B")
    for name in ("1f1b", "zb-h1"):
        schedule = penstock.schedule(name, ranks=4, microbatches=8, costs=costs)
        run = schedule.simulate(costs)
        assert run.makespan > 0 and run.peak_memory > 0
    path = tmp_path / "costs.yaml"
    costs.save(path)
    assert penstock.Costs.load(path) == costs


def test_counts_bytes_and_times() -> None:
    schedule = penstock.schedule("1f1b", ranks=4, microbatches=8)
    of_stage = measure().stages(schedule)
    assert (of_stage["forward"] > 0).all()
    # torch's first stage computes everything in W.
    assert of_stage["backward_input"][0] == 0
    assert (of_stage["backward_input"][1:] > 0).all() and (of_stage["backward_weight"] > 0).all()
    assert (of_stage["activation_after_i"] <= of_stage["activation"]).all()
    weights = [sum(p.nbytes for p in stage.parameters()) for stage in model.split(4)]
    np.testing.assert_array_equal(of_stage["weights"], weights)


class Cube(nn.Module):
    """x * x * x: autograd keeps x and x * x."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x.pow(2) * x * self.scale


def test_counts_each_storage_once() -> None:
    example = torch.randn(10, 10)
    costs = penstock.torch.profile([Cube()], example, repeat=1)
    of_stage = costs.stages(penstock.schedule("gpipe", ranks=1, microbatches=1))
    # The input, its square, the cube and the output, of 400 bytes each, less what is shared.
    assert of_stage["activation"][0] in (1200, 1600)
    assert of_stage["weights"][0] == 4


def test_changes_nothing() -> None:
    stages = [nn.Sequential(nn.Linear(4, 4), nn.Dropout()), Cube()]
    stages[0][0].weight.grad = torch.ones(4, 4)
    before = torch.random.get_rng_state()
    penstock.torch.profile(stages, torch.randn(2, 4, generator=torch.Generator()), repeat=2)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(stages[0][0].weight.grad, torch.ones(4, 4))
    assert stages[1].scale.grad is None and stages[1].calls == 0


class Viewed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).view(2, 2, 2)


def test_whole_backwards_only() -> None:
    stages = [nn.Linear(4, 4), Viewed(), nn.Flatten()]
    example = torch.randn(2, 4)
    with pytest.raises(penstock.Error, match="stage 1: torch cannot split its backward") as caught:
        penstock.torch.profile(stages[:2], example, repeat=1)
    assert "\n" not in str(caught.value)
    costs = penstock.torch.profile(stages[:2], example, repeat=1, split=False)
    of_stage = costs.stages(penstock.schedule("1f1b", ranks=2, microbatches=2))
    np.testing.assert_array_equal(of_stage["backward_input"], of_stage["backward_weight"])


def test_refuses_nothing_to_measure() -> None:
    with pytest.raises(penstock.Error, match="0 stages"):
        penstock.torch.profile([])


class Pair(nn.Module):
    """Passes on two tensors: (x, y) to (f(x), y)."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.inner(x), y * 2


def test_stages_with_several_inputs_and_outputs() -> None:
    costs = penstock.torch.profile([Pair(), Pair()], torch.ones(8, 4), torch.ones(2), repeat=1)
    of_stage = costs.stages(penstock.schedule("1f1b", ranks=2, microbatches=2))
    assert (of_stage["backward_weight"] > 0).all()
    assert "message_bytes: 136" in costs.to_yaml()  # 8 * 4 + 2 floats
