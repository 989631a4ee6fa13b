"""Compiled stages compute what the code says: casts that narrow, and rules of real numbers that
floating-point numbers do not obey."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import penstock.torch as pt

_Op = Callable[[torch.Tensor], torch.Tensor]


def _quantized(h: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return h + (h.to(dtype).to(h.dtype) - h).detach()


def _error_of_sum(h: torch.Tensor) -> torch.Tensor:
    """Returns what Kahan's summation carries on."""
    term = h * 1e-3
    total = h + term
    return ((total - h) - term) * 2.0**24


_CASES: dict[str, _Op] = {
    "straight_through_bf16": lambda h: _quantized(h, torch.bfloat16),
    "straight_through_fp16": lambda h: _quantized(h, torch.float16),
    "straight_through_int": lambda h: _quantized(h, torch.int32),
    "cast_and_back": lambda h: h.bfloat16().float() - h,
    "cast_of_a_product": lambda h: (h * 1.1).bfloat16().float() * 3 - h,
    "cast_to_int": lambda h: (h * 4).to(torch.int8).to(h.dtype) / 4,
    "cast_to_bool": lambda h: h.relu().bool().to(h.dtype) + h,
    "cast_twice": lambda h: h.bfloat16().half().float() - h,
    "wide_and_back": lambda h: (h.double() * (1 / 3)).float() - h / 3,
    "sum_of_bf16": lambda h: (h.bfloat16() + h.square().bfloat16()).float() - h,
    "error_of_a_sum": _error_of_sum,
    "error_of_a_bf16_sum": lambda h: _error_of_sum(h.bfloat16()).float(),
    "magic_number": lambda h: (h + 12582912.0) - 12582912.0,
    "magic_number_bf16": lambda h: ((h.bfloat16() + 384.0) - 384.0).float(),
    "round": lambda h: (h * 8).round() / 8,
    "clamp": lambda h: h.clamp(-0.5, 0.5) + (h - h.clamp(-0.5, 0.5)).detach(),
    "difference_of_equals": lambda h: (1 / (h - h)) - (1 / (h - h)),  # inf - inf
    "zero_times_infinity": lambda h: (h / 0.0) * 0.0,
    "quotient_of_equals": lambda h: (h - h) / (h - h),
    "negative_zero": lambda h: 1 / (h.square() * -0.0) + 0.0 * h,
    "both_zeros": lambda h: h.square() / 0.0 - h.square() / -0.0,
    "overflow_and_back": lambda h: (h * 1e38 * 1e38) * 1e-38 * 1e-38,
    "root_of_a_square": lambda h: h.square().sqrt() - h,
    "exp_of_a_large_one": lambda h: (h.abs() * 1e4 + 100).exp().reciprocal() + h,
    "not_a_number_to_number": lambda h: (h.log()).nan_to_num(7.0) * 1.0,
    "power_of_one": lambda h: h.pow(1) + h.pow(0) - h.pow(2) / h,
}


class Cases(nn.Module):
    """Multiplies the result of each case by weights, whose gradients are then these results."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.weights = nn.ParameterDict({name: torch.ones(shape) for name in _CASES})

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(())
        for name, case in _CASES.items():
            total = total + (case(h) * self.weights[name]).sum()
        return total


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("exact", [True, False])
def test_results_are_those_of_eager_code(exact: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    h = torch.randn(32, 16).to(dtype)
    model = Cases((32, 16))
    pipe = pt.Pipeline([model], ranks=1, microbatches=1, optimizer=None, exact=exact)
    pipe.step(h)
    different = []
    for name, case in _CASES.items():
        gradient, expected = model.weights[name].grad, case(h).float()
        if not torch.allclose(gradient, expected, rtol=1e-5, atol=1e-6, equal_nan=True):
            different.append(name)
    assert " ".join(different) == ""


class Quantized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ _quantized(self.weight, torch.bfloat16)


def test_quantized_weights_train_as_in_eager_code() -> None:
    torch.manual_seed(0)
    stages: list[nn.Module] = [Quantized(), Quantized()]
    x, y = torch.randn(8, 16), torch.randn(8, 16)
    loss = nn.functional.mse_loss(stages[1](stages[0](x)), y)
    pipe = pt.Pipeline(stages, ranks=2, microbatches=1, loss=nn.functional.mse_loss)
    assert pipe.step(x, y) == pytest.approx(loss.item(), rel=1e-6)
