"""``verify_every`` finds what no guard knows."""

from __future__ import annotations

import decimal

import pytest
import torch
from reference import Around, mlp, pipeline
from torch import nn

import penstock.torch as pt


def test_a_verification_finds_what_no_guard_knows() -> None:
    before = decimal.getcontext().prec
    stages: list[nn.Module] = [Around(lambda inner, x: inner(x) * decimal.getcontext().prec), mlp()]
    pipe = pipeline(stages, verify_every=2)
    x = torch.randn(8, 16)
    pipe.step(x, x)
    try:
        decimal.getcontext().prec = before + 1
        pipe.step(x, x)
        with pytest.raises(pt.Error, match=r"stage 0, forward at .*test_verification.py:\d+ in <lambda>: two captures of the same code differ"):
            pipe.step(x, x)
    finally:
        decimal.getcontext().prec = before
    pipe.step(x, x)


def test_a_verification_compares_batches_of_any_shape_with_their_own_graphs() -> None:
    before = decimal.getcontext().prec
    stages: list[nn.Module] = [Around(lambda inner, x: inner(x) * decimal.getcontext().prec), mlp()]
    pipe = pipeline(stages, verify_every=1)
    batches = [torch.randn(samples, 16) for samples in (8, 16, 8, 16, 24, 24)]
    for x in batches:
        pipe.step(x, x)
    decimal.getcontext().prec = before + 1
    try:
        for x in batches[:2]:
            with pytest.raises(pt.Error, match="two captures of the same code differ"):
                pipe.step(x, x)
    finally:
        decimal.getcontext().prec = before


def test_values_that_captures_do_not_see_are_never_constants() -> None:
    """Since 2.15, quantile writes indices where captures do not see it, which one sample has to show, too."""
    stages: list[nn.Module] = [Around(lambda inner, x: inner(x).quantile(0.3, dim=1, keepdim=True).expand(1, 16)), mlp()]
    pipe = pipeline(stages, microbatches=1, optimizer=None)
    for seed in range(3):
        x = torch.randn(1, 16, generator=torch.Generator().manual_seed(seed))
        try:
            loss = pipe.step(x, x)
        except pt.Error as error:
            assert "two captures of the same code differ" in str(error)
            return
        assert loss == pytest.approx(float(nn.functional.mse_loss(stages[1](stages[0](x)), x)), rel=1e-5)
