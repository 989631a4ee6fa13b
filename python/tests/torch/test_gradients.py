"""Without an optimizer, gradients are added to ``parameter.grad`` as autograd adds them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from reference import Around, accumulate, batch, chain, distance, distance_of_gradients, mlp, mlps, mse, pipeline, sgd
from torch import nn

_SCHEDULES = ["1f1b", "zb-h1", "zbv", "dualpipe"]


def _parameters(stages: list[nn.Module]) -> list[nn.Parameter]:
    return list(nn.ModuleList(stages).parameters())


@pytest.mark.parametrize("schedule", _SCHEDULES)
def test_gradients_that_the_caller_changes_are_added_to(schedule: str) -> None:
    """Two microbatches of gradients with decay: each step starts from half of the last sum."""
    stages = mlps(schedule)
    plain = copy.deepcopy(stages)
    pipe = pipeline(stages, schedule, optimizer=None)
    trained = [(_parameters(each), sgd(_parameters(each))) for each in (stages, plain)]
    for _ in range(3):
        x, y = batch()
        assert pipe.step(x, y) == pytest.approx(accumulate(chain(plain), mse, x, y, 4), rel=1e-5)
        for parameters, optimizer in trained:
            for parameter in parameters:
                assert parameter.grad is not None
                parameter.grad.mul_(0.5)
            optimizer.step()
    assert distance(stages, plain) < 1e-5


def _flat(parameters: list[nn.Parameter]) -> torch.Tensor:
    """Makes the gradients views of one tensor, which it returns."""
    flat, begin = torch.zeros(sum(p.numel() for p in parameters)), 0
    for parameter in parameters:
        parameter.grad = flat[begin : begin + parameter.numel()].view_as(parameter)
        begin += parameter.numel()
    return flat


@pytest.mark.parametrize("schedule", _SCHEDULES)
def test_gradients_may_be_views_of_a_flat_buffer(schedule: str) -> None:
    stages = mlps(schedule)
    plain = copy.deepcopy(stages)
    pipe = pipeline(stages, schedule, optimizer=None)
    flats = [_flat(_parameters(each)) for each in (stages, plain)]
    for _ in range(2):
        x, y = batch()
        pipe.step(x, y)
        accumulate(chain(plain), mse, x, y, 4)
        torch.testing.assert_close(flats[0], flats[1], rtol=0, atol=1e-6)
    flats[0].zero_()
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in _parameters(stages))


_GRADIENTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": torch.ones_like,
    "transposed": lambda p: torch.ones(p.shape[::-1]).t(),
    "with gaps": lambda p: torch.ones(*p.shape, 2)[..., 0],
    "fp32 of a view": lambda p: torch.ones(2, *p.shape)[1],
}


@pytest.mark.filterwarnings("ignore:grad and param do not obey")
@pytest.mark.parametrize("kind", _GRADIENTS)
def test_an_existing_gradient_stays_the_same_tensor(kind: str) -> None:
    stages = mlps()
    plain = copy.deepcopy(stages)
    given = [_GRADIENTS[kind](parameter.detach()) for parameter in _parameters(stages)]
    layouts = [(each.data_ptr(), each.stride()) for each in given]
    for own, other, gradient in zip(_parameters(stages), _parameters(plain), given, strict=True):
        own.grad, other.grad = gradient, gradient.clone()
    x, y = batch()
    pipeline(stages, optimizer=None).step(x, y)
    accumulate(chain(plain), mse, x, y, 4)
    assert all(p.grad is gradient for p, gradient in zip(_parameters(stages), given, strict=True))
    assert [(each.data_ptr(), each.stride()) for each in given] == layouts
    assert distance_of_gradients(stages, plain) < 1e-6


_WEIGHTS: dict[str, Callable[[], torch.Tensor]] = {
    "contiguous": lambda: torch.randn(16, 16),
    "transposed": lambda: torch.randn(16, 16).t(),
    "permuted": lambda: torch.randn(4, 16, 4).permute(1, 0, 2),
}


@pytest.mark.parametrize("kind", _WEIGHTS)
def test_a_new_gradient_has_the_layout_that_autograd_gives_it(kind: str) -> None:
    def forward(inner: nn.Module, x: torch.Tensor) -> torch.Tensor:
        weight: Any = inner.weight
        return torch.tanh(x @ weight.reshape(16, 16))

    stages: list[nn.Module] = [Around(forward, nn.Module()), mlp()]
    stages[0].inner[0].weight = nn.Parameter(_WEIGHTS[kind]())  # type: ignore[index, union-attr]
    plain: list[nn.Module] = [Around(forward, nn.Module()), copy.deepcopy(stages[1])]
    plain[0].inner[0].weight = nn.Parameter(stages[0].inner[0].weight.detach())  # type: ignore[index, union-attr]
    x, y = batch()
    pipeline(stages, optimizer=None).step(x, y)
    accumulate(chain(plain), mse, x, y, 4)
    strides = [[p.grad.stride() for p in _parameters(each) if p.grad is not None] for each in (stages, plain)]
    assert strides[0] == strides[1]
    assert distance_of_gradients(stages, plain) < 1e-6


def test_a_weight_without_gradient_keeps_its_own() -> None:
    """In each step: what one shape does not use, another one does."""

    def forward(inner: nn.Module, wide: nn.Module, unused: nn.Module, x: torch.Tensor) -> Any:
        return wide(inner(x)) if len(x) > 2 else inner(x)

    stages: list[nn.Module] = [Around(forward, mlp(), nn.Linear(16, 16), nn.Linear(16, 16)), mlp()]
    plain = copy.deepcopy(stages)
    pipe = pipeline(stages, optimizer=None)
    for samples in (8, 16, 8):
        for each in (*_parameters(stages), *_parameters(plain)):
            each.grad = None
        x, y = batch(samples)
        pipe.step(x, y)
        accumulate(chain(plain), mse, x, y, 4)
        for own, other in zip(_parameters(stages), _parameters(plain), strict=True):
            assert (own.grad is None) == (other.grad is None)
    given = torch.ones(16, 16)
    stages[0].inner[2].weight.grad = given  # type: ignore[index, union-attr]
    pipe.step(*batch())
    assert stages[0].inner[2].weight.grad is given and given.eq(1).all()  # type: ignore[index, union-attr]


@pytest.mark.parametrize("zero", [0, 1])
def test_the_norm_counts_parameters_of_any_name(zero: int) -> None:
    """The engine's own models leave out what they call router.bias."""
    stages: list[nn.Module] = [nn.ModuleDict({"router": mlp(), "embedding": mlp(), "head": mlp()}) for _ in range(2)]
    for stage in stages:
        stage["router"].bias = nn.Parameter(torch.randn(16))  # type: ignore[index]

    def forward(stage: Any, x: torch.Tensor) -> torch.Tensor:
        return sum(part(x) for part in stage.values()) + stage["router"].bias  # type: ignore[no-any-return]

    stages = [Around(forward, each) for each in stages]
    plain = copy.deepcopy(stages)
    pipe = pipeline(stages, clip_grad_norm=float("inf"), data_parallel=1 + zero, zero=zero)
    x, y = batch()
    pipe.step(x, y)
    mse(nn.Sequential(*plain)(x), y).backward()
    expected = torch.nn.utils.get_total_norm([each.grad for each in nn.Sequential(*plain).parameters() if each.grad is not None])
    assert pipe.last.grad_norm == pytest.approx(float(expected), rel=1e-6)
