"""Buffers and parameters that stages share, and buffers that a step changes while others read them."""

from __future__ import annotations

import copy
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from forks import run_all
from reference import Around, batch, mlp, mlps, pipeline, train_both
from torch import nn

import penstock
import penstock.torch as pt


class Centered(nn.Module):
    """A layer that subtracts a running mean of its inputs, which is in a buffer."""

    def __init__(self, mean: torch.Tensor | None = None, *, updates: bool = True, persistent: bool = True) -> None:
        super().__init__()
        self.inner, self.updates = mlp(), updates
        self.register_buffer("mean", torch.zeros(16) if mean is None else mean, persistent=persistent)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean: Any = self.mean
        if self.updates:
            mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return self.inner(x) - (mean if mean.dim() == 1 else mean.mean(0))


def _same_module() -> list[nn.Module]:
    norm = nn.BatchNorm1d(16)
    return [nn.Sequential(mlp(), norm), nn.Sequential(mlp(), norm)]


def _writer_and_reader(**of_reader: Any) -> list[nn.Module]:
    first = Centered()
    return [first, Centered(first.mean, updates=False, **of_reader)]  # type: ignore[arg-type]


def _overlapping() -> list[nn.Module]:
    memory = torch.zeros(24)
    return [Centered(memory[:16]), Centered(memory[8:], updates=False)]


def _other_storage() -> list[nn.Module]:
    memory = torch.zeros(16).numpy()
    return [Centered(torch.from_numpy(memory), updates=False), Centered(torch.from_numpy(memory))]


class Peeking(nn.Module):
    """Reads a tensor that it does not own."""

    def __init__(self, read: Callable[[], Any]) -> None:
        super().__init__()
        self.inner, self.read = mlp(), read

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + self.read()


def _constant() -> list[nn.Module]:
    first = Centered()
    return [first, Peeking(lambda: first.mean)]


def _view_of_a_weight() -> list[nn.Module]:
    first = mlp()
    return [first, Centered(first[3].weight.detach()[0, :16], updates=False)]  # type: ignore[index]


_SHARED: dict[str, tuple[Callable[[], list[nn.Module]], str]] = {
    "the same module": (_same_module, r"buffer '1\.\w+' of stage 0 and buffer '1\.\w+' of stage 1 .* stages 0 and 1 change"),
    "one reads": (_writer_and_reader, "buffer 'mean' of stage 0 and buffer 'mean' of stage 1 share memory that stage 0 changes"),
    "one reads a constant": (lambda: _writer_and_reader(persistent=False), "buffer 'mean' of stage 0 and buffer 'mean'"),
    "overlapping": (_overlapping, "buffer 'mean' of stage 0 and buffer 'mean' of stage 1 share memory that stage 0 changes"),
    "other storage": (_other_storage, "buffer 'mean' of stage 0 and buffer 'mean' of stage 1 share memory that stage 1 changes"),
    "not registered": (_constant, "buffer 'mean' of stage 0 and a tensor that it does not own of stage 1 share memory that"),
    "a weight": (_view_of_a_weight, r"parameter '3.weight' of stage 0 and buffer 'mean' of stage 1 share memory that stage 0"),
}


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb-h1"])
@pytest.mark.parametrize("kind", _SHARED)
def test_memory_that_one_stage_changes_is_no_other_stages(kind: str, schedule: str) -> None:
    make, text = _SHARED[kind]
    stages = make()
    before = copy.deepcopy(nn.ModuleList(stages).state_dict())
    with pytest.raises(pt.Error, match=text):
        pipeline(stages, schedule).step(*batch())
    torch.testing.assert_close(nn.ModuleList(stages).state_dict(), before, rtol=0, atol=0)


def test_memory_that_becomes_shared_by_another_shape_is_refused_before_its_step() -> None:
    first = Centered()

    class Sometimes(Peeking):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) if len(x) > 2 else self.inner(x)

    stages = [first, Sometimes(lambda: first.mean)]
    pipe = pipeline(stages)
    pipe.step(*batch())
    before = copy.deepcopy(first.state_dict())
    with pytest.raises(pt.Error, match="buffer 'mean' of stage 0"):
        pipe.step(*batch(16))
    torch.testing.assert_close(first.state_dict(), before, rtol=0, atol=0)
    pipe.step(*batch())


def _in_rows() -> list[nn.Module]:
    memory = torch.zeros(3, 16)
    return [Centered(memory[1]), Centered(memory[::2], updates=False)]


def _in_halves() -> list[nn.Module]:
    memory = torch.zeros(32)
    return [Centered(memory[:16]), Centered(memory[16:])]


def _reading() -> list[nn.Module]:
    mean = torch.ones(16)
    return [Centered(mean, updates=False), Centered(mean, updates=False)]


def _unused() -> list[nn.Module]:
    """The second stage has the module of the first one, but does not call it."""
    first = Centered()
    return [first, Around(lambda inner, _, x: inner(x), mlp(), first)]


def _evaluating() -> list[nn.Module]:
    stages = _same_module()
    for stage in stages:
        stage[1].eval()  # type: ignore[index]
    return stages


_ALLOWED: dict[str, Callable[[], list[nn.Module]]] = {
    "all read": _reading,
    "eval mode": _evaluating,
    "rows": _in_rows,
    "halves": _in_halves,
    "unused": _unused,
}


@pytest.mark.parametrize("kind", _ALLOWED)
def test_memory_that_only_one_stage_needs_is_trained_as_in_torch(kind: str) -> None:
    assert train_both(_ALLOWED[kind]()) < 1e-6


def _halves() -> tuple[nn.Parameter, nn.Parameter]:
    memory = torch.randn(24, 16)
    return nn.Parameter(memory[:16]), nn.Parameter(memory[8:])


def _twice() -> tuple[nn.Parameter, nn.Parameter]:
    memory = torch.randn(16, 16)
    return nn.Parameter(memory), nn.Parameter(memory)


class Weights(nn.Module):
    def __init__(self, *weights: nn.Parameter) -> None:
        super().__init__()
        self.weights = nn.ParameterList(weights)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight in self.weights:
            x = torch.tanh(x @ weight)
        return x


@pytest.mark.parametrize("make", [_halves, _twice])
@pytest.mark.parametrize("optimizer", [None, pt.AdamW])
def test_parameters_that_overlap_are_refused_by_name(make: Callable[[], Any], optimizer: Any) -> None:
    one, other = make()
    with pytest.raises(pt.Error, match=r"parameter 'weights.0' of stage 0 and parameter 'weights.0' of stage 1 are different"):
        pipeline([Weights(one), Weights(other)], optimizer=optimizer)
    with pytest.raises(pt.Error, match=r"parameter 'weights.0' of stage 0 and parameter 'weights.1' of stage 0 are different"):
        pipeline([Weights(one, other), mlp()], optimizer=optimizer)


_PROCESS = """
import torch, penstock.torch as pt
from torch import nn

norm = nn.BatchNorm1d(16)
modules = [nn.Sequential(nn.Linear(16, 16), norm), nn.Sequential(nn.Linear(16, 16), norm)]
pipe = pt.Pipeline(modules, "1f1b", microbatches=2, loss=nn.functional.mse_loss, timeout=60)
pipe.step(torch.randn(8, 16), torch.randn(8, 16))
"""


def test_processes_refuse_a_buffer_of_two_stages_together(tmp_path: pathlib.Path) -> None:
    ended = run_all(_PROCESS, processes=2, XDG_CONFIG_HOME=str(tmp_path))
    for code, _, errors in ended:
        assert code == 1
        assert "of stage 0 and buffer '1.num_batches_tracked' of stage 1 share memory that stages 0 and 1 change" in errors


class Running(nn.Module):
    """Forward reads buffers that it updates, before and after."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 16)
        self.register_buffer("mean", torch.zeros(16))
        self.register_buffer("calls", torch.zeros(()))
        self.mean: torch.Tensor
        self.calls: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = 1 + 0.1 * self.mean.clone() + 0.05 * self.calls
        self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        self.calls += 1
        return torch.tanh(self.inner(x - self.mean)) * scale * (1 + 0.05 * self.calls)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zbv"])
def test_buffers_that_forward_updates_are_read_as_in_torch(schedule: str) -> None:
    stages: list[nn.Module] = [Running() for _ in mlps(schedule)]
    x, y = batch(16)
    assert train_both(stages, [(x, y)] * 2, schedule=schedule) < 1e-6


class Sometimes(nn.Module):
    """Updates a buffer for some shapes only."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()
        self.register_buffer("scale", torch.ones(16))
        self.scale: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) < 3:
            self.scale.mul_(0.5)
        return self.inner(x) * self.scale


def test_a_buffer_that_only_some_shapes_update_is_refused() -> None:
    stages: list[nn.Module] = [Sometimes(), mlp()]
    pipe = pipeline(stages, microbatches=2)
    pipe.step(*batch(6))
    before = copy.deepcopy(stages[0].state_dict())
    for samples in (5, 4):
        with pytest.raises(pt.Error, match="stage 0: forward reads buffer 'scale', which it updates for some shapes"):
            pipe.step(*batch(samples))
        torch.testing.assert_close(stages[0].state_dict(), before, rtol=0, atol=0)
    pipe.step(*batch(6))
    assert train_both([Sometimes(), Sometimes()], [batch(4)] * 2, microbatches=2) == 0


_POLICIES: list[tuple[str, dict[str, str]]] = [
    ("1f1b", {"hold": "least"}),
    ("gpipe", {"hold": "3KiB"}),
    ("zb-h1", {"hold_for_weight": "least"}),
]


@pytest.mark.parametrize(("schedule", "policy"), _POLICIES, ids=str)
def test_recomputation_of_what_reads_an_updated_buffer_is_refused(schedule: str, policy: dict[str, str]) -> None:
    pipe = pipeline([mlp(), Running()], schedule, recompute=policy)
    with pytest.raises(pt.Error, match=r"stage 1: forward reads buffer 'calls', which it updates, so recompute=\{'hold"):
        pipe.step(*batch())


class Counting(nn.Module):
    """Updates a buffer that it does not read."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.inner(x)


@pytest.mark.parametrize("policy", [each for _, each in _POLICIES], ids=str)
def test_recomputation_beside_a_buffer_that_is_not_read_is_exact(policy: dict[str, str]) -> None:
    assert train_both([Counting(), Counting()], recompute=policy) == 0


def test_recompute_actions_of_a_schedule() -> None:
    schedule = penstock.schedule("gpipe", ranks=2, microbatches=4).apply("recompute")
    options: Any = {"ranks": None, "microbatches": None, "schedule": schedule}
    with pytest.raises(pt.Error, match="buffer 'calls', which it updates, so the RECOMPUTE actions of the schedule"):
        pipeline([Running(), mlp()], **options).step(*batch())
    norms: list[nn.Module] = [nn.Sequential(mlp(), nn.BatchNorm1d(16)), nn.Sequential(mlp(), nn.BatchNorm1d(16))]
    assert train_both(norms, [batch(16)] * 2, **options) < 1e-6
