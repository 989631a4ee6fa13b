"""Every weight that a stage or the loss reads is trained as in autograd, or refused by name."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from reference import Around, accumulate, batch, chain, distance, mlp, mlps, mse, pipeline, train_both
from reference import sgd as reference_sgd
from torch import nn
from torch.nn import functional

import penstock.torch as pt

_sgd = functools.partial(reference_sgd, lr=0.05)


def _pipe(stages: list[nn.Module], loss: Any = mse, **options: Any) -> pt.Pipeline:
    return pipeline(stages, loss=loss, **{"optimizer": _sgd, **options})


def _reads(function: Callable[[torch.Tensor], torch.Tensor]) -> nn.Module:
    """Calls a function that reads weights of others."""
    return Around(lambda inner, x: inner(function(x)))


_weight = torch.ones(16, requires_grad=True)  # a global
_frozen = torch.full((16,), 2.0)


def _without_gradient(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        scale = _weight * 2
    return x * scale


def _in_list() -> Callable[[torch.Tensor], torch.Tensor]:
    weights = [nn.Parameter(torch.ones(16)), _weight]
    return lambda x: x * weights[1]


def _computed_outside() -> Callable[[torch.Tensor], torch.Tensor]:
    scale = nn.Linear(1, 16)(torch.ones(1))
    return lambda x: x * scale


_FOREIGN: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], str]] = {
    "global": (lambda x: x * _weight, "'_weight' requires a gradient"),
    "list": (_in_list(), r"'weights\[1\]' requires a gradient"),
    "under no_grad": (_without_gradient, "'_weight' requires a gradient"),
    "detached": (lambda x: x * _weight.detach(), "'_weight' requires a gradient"),
    "computed outside": (_computed_outside(), "'scale' was computed outside of the stage"),
    "as a number": (lambda x: x * _weight[0].item(), "reads a value"),
    "in autocast": (lambda x: functional.linear(x, torch.diag(_weight)), "'_weight' requires a gradient"),
}


@pytest.mark.parametrize("name", list(_FOREIGN))
@pytest.mark.parametrize("stage", [0, 1])
def test_weights_that_no_stage_has_are_refused(name: str, stage: int) -> None:
    function, text = _FOREIGN[name]
    stages: list[nn.Module] = [mlp(), mlp()]
    stages[stage] = _reads(function)
    with pytest.raises(pt.Error) as raised:
        _pipe(stages).step(*batch())
    where = rf"^stage {stage}, forward at .*test_ownership.py:\d+ in .*"
    assert re.search(where + text, str(raised.value))


def test_weights_of_other_stages_are_refused_by_their_name() -> None:
    first = mlp()
    alias = first[2].weight.detach()
    for function in (lambda x: x * first[2].bias.sum(), lambda x: x * alias.sum()):
        with pytest.raises(pt.Error, match=r"parameter '2\.(weight|bias)' of stage 0"):
            _pipe([first, _reads(function)]).step(*batch())


def test_constants_and_unused_weights_are_allowed() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        unused = x * _weight
        return x * _frozen + torch.zeros_like(unused)

    assert train_both([mlp(), _reads(function)], [batch()], optimizer=_sgd) == 0


class Scaled(nn.Module):
    """A loss with a parameter, a frozen weight and a running mean."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.frozen = nn.Parameter(torch.ones(16)), nn.Parameter(torch.ones(16))
        self.frozen.requires_grad_(False)
        self.register_buffer("mean", torch.zeros(16))

    def forward(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.mean.mul_(0.9).add_(output.mean(0), alpha=0.1)
        return mse(output * self.scale * self.frozen - self.mean, target)


def _closure() -> tuple[Any, list[torch.Tensor]]:
    scale = torch.ones(16, requires_grad=True)
    return lambda output, target: mse(output * scale, target), [scale]


def _head() -> tuple[Any, list[torch.Tensor]]:
    """As in a linear-cross-entropy loss, which has the head."""
    head = nn.Linear(16, 5, bias=False)

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(output @ head.weight.t(), target.argmax(1) % 5)

    return loss, list(head.parameters())


def _module() -> tuple[Any, list[torch.Tensor]]:
    loss = Scaled()
    return loss, [loss.scale, loss.mean]


def _bound() -> tuple[Any, list[torch.Tensor]]:
    loss, tensors = _module()

    class Trainer:
        def __init__(self) -> None:
            self.parts = {"scale": loss.scale}

        def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return mse(output * self.parts["scale"], target)

    return Trainer().loss, [loss.scale]


@pytest.mark.parametrize("schedule", ["1f1b", "zbv"])
@pytest.mark.parametrize("make", [_closure, _head, _module, _bound])
def test_a_loss_trains_its_own_parameters(make: Any, schedule: str) -> None:
    stages = mlps(schedule)
    plain = copy.deepcopy(stages)
    torch.manual_seed(1)
    loss, tensors = make()
    torch.manual_seed(1)
    plain_loss, plain_tensors = make()
    pipe = _pipe(stages, loss, schedule=schedule, exact=True)
    trained = [p for stage in plain for p in stage.parameters()]
    optimizer = _sgd([*trained, *(t for t in plain_tensors if t.requires_grad)])
    for _ in range(3):
        x, y = batch()
        actual = pipe.step(x, y)
        optimizer.zero_grad()
        assert actual == pytest.approx(accumulate(chain(plain), plain_loss, x, y, 4), rel=1e-5)
        optimizer.step()
    assert distance(stages, plain) == 0
    for left, right in zip(tensors, plain_tensors, strict=True):
        assert torch.equal(left, right)


def test_a_loss_does_not_read_weights_of_earlier_stages() -> None:
    stages: list[nn.Module] = [mlp(), mlp()]

    def penalty(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        squares = [p.square().sum() for stage in stages for p in stage.parameters()]
        return mse(output, target) + torch.stack(squares).sum()

    with pytest.raises(pt.Error, match=r"^stage 1, loss at .*: parameter '.*' of stage 0"):
        _pipe(stages, penalty).step(*batch())


def test_inputs_that_require_gradients_are_refused() -> None:
    pipe = _pipe([mlp(), mlp()])
    x, y = batch()
    pipe.step(x, y)
    with pytest.raises(pt.Error, match=r"inputs require a gradient.*inputs.detach\(\)"):
        pipe.step(nn.Linear(16, 16)(x), y)
    pipe.step(x, y)


class Branches(nn.Module):
    """Returns what later stages read, and what they ignore."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.unused, self.side = mlp(), nn.Linear(16, 16), nn.Linear(16, 16)
        self.tied = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor, *others: torch.Tensor) -> tuple[torch.Tensor, ...]:
        side = self.side(x) + (others[0] if others else 0)
        return self.inner(x), side


@pytest.mark.parametrize("schedule", ["1f1b", "zbv", "dualpipe"])
@pytest.mark.parametrize("optimizer", [pt.AdamW, torch.optim.AdamW, None])
def test_branches_that_no_stage_reads_have_no_gradient(optimizer: Any, schedule: str) -> None:
    stages: list[nn.Module] = [Branches() for _ in range(2 if schedule == "1f1b" else 4)]
    stages[1].tied = stages[0].tied  # type: ignore[assignment]
    plain = copy.deepcopy(stages)

    def loss(output: Any, target: torch.Tensor) -> torch.Tensor:
        return mse(output[0], target)

    ranks = 4 if schedule == "dualpipe" else 2
    microbatches = 8 if schedule == "dualpipe" else 4
    x, y = torch.randn(16, 16), torch.randn(16, 16)
    pipe = _pipe(stages, loss, schedule=schedule, optimizer=optimizer, ranks=ranks, microbatches=microbatches)
    pipe.step(x, y)

    accumulate(chain(plain), loss, x, y, microbatches)
    pairs = [
        (name, one, other)
        for a, b in zip(stages, plain, strict=True)
        for (name, one), other in zip(a.named_parameters(), b.parameters(), strict=True)
    ]
    if optimizer is None:
        for name, one, other in pairs:
            assert (one.grad is None) == (other.grad is None), name
        return
    optimizer({p for stage in plain for p in stage.parameters()}).step()
    for name, one, other in pairs:
        # Gradients differ by rounding, which AdamW's first step may enlarge.
        torch.testing.assert_close(one, other, rtol=0, atol=5e-5, msg=name)
