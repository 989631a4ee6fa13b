"""The engine's graphs in torch's runtime give the gradients of autograd for any use of a weight, and follow what the code says."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import pytest
import torch
from gloo_ranks import run_ranks
from split_patterns import PATTERNS, WIDTH, Stage
from torch import nn
from torch.distributed.pipelining import PipelineStage

import penstock
import penstock.torch

_MICROBATCHES = 4
_loss = nn.functional.mse_loss


def _batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(100 + step)
    x, y = torch.randn(2, 4 * _MICROBATCHES, WIDTH)
    return x, y


def _stages(pattern: str, count: int) -> list[nn.Module]:
    torch.manual_seed(3)
    return [Stage(PATTERNS[pattern]) for _ in range(count)]


def _step(runtime: Any, own: Any, last: int, step: int) -> list[torch.Tensor]:
    x, y = _batch(step)
    losses: list[torch.Tensor] = []
    runtime.step(*((x,) if 0 in own else ()), **({"target": y, "losses": losses} if last in own else {}))
    return [each.detach() for each in losses]


def _plain(stages: list[nn.Module], step: int) -> list[torch.Tensor]:
    """Adds the gradients of the mean loss over the microbatches. Returns their losses."""
    x, y = _batch(step)
    losses = []
    for part, target in zip(x.chunk(_MICROBATCHES), y.chunk(_MICROBATCHES), strict=True):
        for stage in stages:
            part = stage(part)
        losses.append(_loss(part, target))
        (losses[-1] / _MICROBATCHES).backward()
    return [each.detach() for each in losses]


def _error(found: torch.Tensor | None, expected: torch.Tensor | None) -> float:
    if found is None or expected is None:
        given = found if expected is None else expected
        return 0.0 if given is None else float(given.norm())
    return float((found - expected).norm() / max(float(expected.norm()), 1e-4))


def _errors(rank: int, name: str, passes: list[str], patterns: list[str], options: dict[str, Any]) -> dict[str, float]:
    """Returns the largest relative error of losses and gradients after two steps, by pattern."""
    found = {}
    for pattern in patterns:
        schedule = penstock.schedule(name, ranks=2, microbatches=_MICROBATCHES).apply(*passes)
        stages, whole = _stages(pattern, schedule.stages), _stages(pattern, schedule.stages)
        own = {stage: stages[stage] for stage, of in enumerate(schedule.rank_of_stage) if of == rank}
        runtime = penstock.torch.runtime(own, schedule, _loss, **options)
        errors = []
        for step in range(2):
            for each in (*stages, *whole):
                each.zero_grad()
            losses, expected = _step(runtime, own, schedule.stages - 1, step), _plain(whole, step)
            errors += [_error(*each) for each in zip(losses, expected, strict=False)]
        for number, stage in own.items():
            of_whole = dict(whole[number].named_parameters())
            errors += [_error(each.grad, of_whole[key].grad) for key, each in stage.named_parameters()]
        found[pattern] = max(errors)
    return found


def _require_autograds(*arguments: Any) -> None:
    for of_rank in run_ranks(2, _errors, *arguments, seconds=240):
        assert max(of_rank.values()) < 1e-5, {name: each for name, each in of_rank.items() if each >= 1e-5}


def test_every_pattern_equals_autograd() -> None:
    _require_autograds("zbv", [], list(PATTERNS), {"split": "captured"})


def test_compiled_patterns_equal_autograd() -> None:
    _require_autograds("zb-h1", [], ["twice on a path", "attention"], {"compile": True})


@pytest.mark.parametrize(("name", "passes"), [("zb-h1", ["recompute"]), ("gpipe", ["offload=2"]), ("gpipe", ["offload=3", "recompute=2"])])
def test_memory_actions_equal_autograd(name: str, passes: list[str]) -> None:
    _require_autograds(name, passes, ["twice on a path", "layer norm"], {})


def _drop(rank: int, passes: list[str], split: str) -> list[torch.Tensor | None]:
    """Returns the gradients and the buffers of a stage with dropout and running statistics."""
    schedule = penstock.schedule("1f1b", ranks=2, microbatches=_MICROBATCHES).apply(*passes)
    torch.manual_seed(5)
    norm = nn.Identity if passes else nn.BatchNorm1d  # RECOMPUTE would read updated buffers
    stages = [nn.Sequential(nn.Linear(WIDTH, WIDTH), norm(WIDTH), nn.Dropout(0.5), nn.Linear(WIDTH, WIDTH)) for _ in range(2)]
    runtime = penstock.torch.runtime({rank: stages[rank]}, schedule, _loss, split=split)
    for step in range(2):
        _step(runtime, {rank}, 1, step)
    return [*(each.grad for each in stages[rank].parameters()), *stages[rank].buffers()]


def test_draws_the_random_numbers_of_autograd() -> None:
    torch.testing.assert_close(run_ranks(2, _drop, [], "captured"), run_ranks(2, _drop, [], "torch"))
    torch.testing.assert_close(run_ranks(2, _drop, ["recompute"], "captured"), run_ranks(2, _drop, ["recompute=2"], "captured"))


class _Two(nn.Module):
    """Passes on two tensors, of which the next stage perhaps reads one, and takes a named argument."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None, *, factor: torch.Tensor) -> Any:
        z = torch.tanh(self.linear(x)) * factor
        return z if y is not None else (z, torch.tanh(self.linear(z)))


def _several(rank: int) -> float:
    schedule = penstock.schedule("zb-h1", ranks=2, microbatches=_MICROBATCHES)
    torch.manual_seed(3)
    stages = [_Two(), _Two()]
    runtime = penstock.torch.runtime({rank: stages[rank]}, schedule, _loss, split="captured")
    (x, y), factor = _batch(0), torch.full((4 * _MICROBATCHES, 1), 0.5)
    runtime.step(*((x,) if rank == 0 else ()), **({"target": y} if rank == 1 else {}), factor=factor)
    found = stages[rank].linear.weight.grad
    stages[rank].zero_grad()
    _loss(stages[1](*stages[0](x, factor=factor), factor=factor), y).backward()
    return _error(found, stages[rank].linear.weight.grad)


_gradients = getattr(PipelineStage, "_compute_input_grads", None)


@pytest.mark.skipif(
    _gradients is not None and "allow_unused" not in inspect.getsource(_gradients), reason="torch 2.12 has no stages that leave a tensor unread"
)
def test_several_outputs_and_named_arguments() -> None:
    assert max(run_ranks(2, _several)) < 1e-5


class _Switched(nn.Module):
    """Computes something else when an attribute changes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.factor = nn.Linear(WIDTH, WIDTH), 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.factor * torch.tanh(self.linear(x))


def _follow(rank: int) -> list[float]:
    schedule = penstock.schedule("zb-h1", ranks=2, microbatches=_MICROBATCHES)
    torch.manual_seed(3)
    stages, whole = [_Switched() for _ in range(2)], [_Switched() for _ in range(2)]
    for one, other in zip(whole, stages, strict=True):
        one.load_state_dict(other.state_dict())
    runtime = penstock.torch.runtime({rank: stages[rank]}, schedule, _loss)
    errors = []
    for step, factor in enumerate((1.0, 3.0, 1.0, -2.0)):
        for each in (*stages, *whole):
            each.factor = factor
            each.zero_grad()
            if step == 2:
                each.linear.weight = nn.Parameter(each.linear.weight.detach().flip(0))
        _step(runtime, {rank}, 1, step)
        _plain(list(whole), step)
        errors.append(_error(stages[rank].linear.weight.grad, whole[rank].linear.weight.grad))
    return errors


def test_follows_changes_of_the_code() -> None:
    for of_rank in run_ranks(2, _follow):
        assert max(of_rank) < 1e-5, of_rank


def _mixed(rank: int) -> tuple[list[str], float]:
    """The second rank's stage has a hook of autograd, which graphs do not call."""
    schedule = penstock.schedule("zb-h1", ranks=2, microbatches=_MICROBATCHES)
    stages, whole = _stages("once", 2), _stages("once", 2)
    if rank == 1:
        stages[1].a.register_full_backward_hook(lambda *_: None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        runtime = penstock.torch.runtime({rank: stages[rank]}, schedule, _loss)
        _step(runtime, {rank}, 1, 0)
    _plain(whole, 0)
    error = _error(stages[rank].a.weight.grad, whole[rank].a.weight.grad)
    return [str(each.message) for each in caught if "captured" in str(each.message)], error


def test_a_stage_that_cannot_be_captured_is_left_to_torch() -> None:
    (none, first), (said, second) = run_ranks(2, _mixed)
    assert max(first, second) < 1e-5
    assert none == [] and len(said) == 1
    assert said[0].startswith("stage 1 is not captured, so torch divides its backward, which the first step checks: ")
