"""What models do apart from matrix products: dropout, masks, shared and frozen weights, shapes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from reference import Around, accumulate, batch, chain, distance, mlp, mse, pipeline, sgd, train_both
from torch import nn


def _pipe(stages: list[nn.Module], **options: Any) -> Any:
    return pipeline(stages, **{"optimizer": sgd, "exact": True, **options})


def test_dropout_differs_by_microbatch_and_repeats_with_the_seed() -> None:
    losses = []
    for seed in (1, 1, 2):
        torch.manual_seed(0)
        stages: list[nn.Module] = [nn.Sequential(mlp(), nn.Dropout(0.5)), mlp()]
        x, y = batch()
        losses.append(_pipe(stages, seed=seed).step(x, y))
    assert losses[0] == losses[1] != losses[2]


def test_dropout_masks_differ_between_microbatches_and_keep_the_mean() -> None:
    def mask(of: int, samples: int = 64) -> torch.Tensor:
        """Returns the scaled mask of a microbatch: the gradient of the sum of dropout(weight)."""
        torch.manual_seed(0)
        first = nn.Sequential(nn.Linear(samples, samples, bias=False), nn.Dropout(0.25))
        selected = torch.zeros(2 * samples, 1)
        selected[of * samples : (of + 1) * samples] = 2  # the loss is the mean of 2 microbatches
        pipe = _pipe(
            [first, nn.Identity()], optimizer=None, microbatches=2, seed=5, loss=lambda output, chosen: (output * chosen).sum()
        )
        pipe.step(torch.eye(samples).repeat(2, 1), selected)
        gradient = first[0].weight.grad
        assert gradient is not None
        return gradient

    masks = [mask(0), mask(1)]
    assert torch.equal(masks[0], mask(0))
    assert not torch.equal(masks[0], masks[1])
    for each in masks:
        assert each.unique().tolist() == pytest.approx([0, 1 / 0.75])
        assert each.mean().item() == pytest.approx(1, abs=0.05)  # 5 standard deviations


def test_several_inputs_masks_and_constants() -> None:
    stages: list[nn.Module] = [
        Around(lambda inner, x, mask: {"hidden": inner(x) * mask, "mask": mask, "scale": 2.0}),
        Around(lambda inner, hidden, mask, scale: inner(hidden) * mask * scale),
    ]
    x, y = batch()
    assert train_both(stages, [({"x": x, "mask": torch.randint(2, (8, 16))}, y)]) == 0


def _tied() -> list[nn.Module]:
    first, last = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)
    last.weight = first.weight
    return [first, last]


def test_weights_that_stages_share_stay_equal() -> None:
    stages = _tied()
    assert train_both(stages) <= 1e-6
    assert stages[1].weight is stages[0].weight


def test_loaded_weights_are_used_also_by_stages_that_share_them() -> None:
    first, last = _tied()
    pipe = _pipe([first, last], optimizer=None)
    x, y = batch()
    pipe.step(x, y)
    first.load_state_dict({"weight": torch.eye(16)})
    assert pipe.step(x, y) == pytest.approx(float(mse(x, y)), rel=1e-5)


def test_frozen_weights_do_not_change_and_are_read_anew() -> None:
    frozen = nn.Linear(16, 16).requires_grad_(False)
    stages: list[nn.Module] = [nn.Sequential(frozen, mlp()), mlp()]
    before = frozen.weight.clone()
    pipe = _pipe(stages)
    x, y = batch()
    pipe.step(x, y)
    assert torch.equal(frozen.weight, before)
    with torch.no_grad():
        frozen.weight.zero_()
    expected = accumulate(chain(copy.deepcopy(stages)), mse, x, y, 4)
    assert pipe.step(x, y) == pytest.approx(expected, rel=1e-6)


def test_running_statistics() -> None:
    x, y = batch(16)
    assert train_both([nn.Sequential(mlp(), nn.BatchNorm1d(16)), mlp()], [(x, y)] * 3) == 0


def test_other_shapes_in_later_steps() -> None:
    batches = [batch(samples) for samples in (8, 16, 4)]
    assert train_both([mlp(), mlp()], batches, optimizer=None) < 1e-5


class Doubled(torch.autograd.Function):
    """The identity, with twice the gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


def test_custom_autograd_functions() -> None:
    assert train_both([Around(lambda inner, x: Doubled.apply(inner(x))), mlp()]) == 0


def _partly_fp32() -> nn.Module:
    """Computes a constant and a layer without autocast, as models do for positions and routers."""

    def forward(first: nn.Module, second: nn.Module, x: torch.Tensor) -> torch.Tensor:
        x = first(x)
        with torch.autocast(x.device.type, enabled=False):
            table = torch.arange(16.0)[:, None] @ torch.full((1, 16), 0.1)
            return second(x.float()) + table[1]

    return Around(forward, mlp(), nn.Linear(16, 16))


def _several_readers() -> nn.Module:
    """Reads its input several times, once without a cast."""
    modules = nn.Linear(16, 16), nn.Linear(16, 16), nn.LayerNorm(16)
    return Around(lambda one, other, norm, x: norm(one(x) + x + other(x)), *modules)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("stage", [mlp, _partly_fp32, _several_readers])
@pytest.mark.parametrize("exact", [True, False])
def test_autocast(stage: Callable[[], nn.Module], ranks: int, exact: bool) -> None:
    stages = [stage() for _ in range(ranks)]
    plain = copy.deepcopy(stages)

    def run(value: torch.Tensor) -> torch.Tensor:
        # Autocast keeps converted weights until it ends, so it must end before they are updated.
        with torch.autocast(torch.get_default_device().type, dtype=torch.bfloat16):
            return chain(plain)(value)

    pipe = _pipe(stages, exact=exact)
    optimizer = sgd([p for stage in plain for p in stage.parameters()])
    for _ in range(3):
        x, y = batch()
        with torch.autocast(torch.get_default_device().type, dtype=torch.bfloat16):
            loss = pipe.step(x, y)
        optimizer.zero_grad()
        expected = accumulate(run, lambda a, b: mse(a.float(), b), x, y, 4)
        optimizer.step()
        assert loss == pytest.approx(expected, rel=1e-6 if exact else 1e-2)
    assert distance(stages, plain) <= (0 if exact else 1e-3)


def test_bf16_weights() -> None:
    for microbatches, tolerance in ((1, 0.0), (4, 2**-8)):  # gradients are accumulated in fp32
        stages: list[nn.Module] = [mlp().bfloat16(), mlp().bfloat16()]
        batches = [[each.bfloat16() for each in batch()] for _ in range(3)]
        assert train_both(stages, batches, microbatches=microbatches, rel=1e-2) <= tolerance


def test_without_an_optimizer_gradients_are_left_and_added() -> None:
    assert train_both([mlp(), mlp()], optimizer=None) < 1e-5


def test_weights_that_a_stage_uses_twice() -> None:
    shared = nn.Linear(16, 16)
    assert train_both([nn.Sequential(shared, nn.GELU(), shared), mlp()]) == 0


def _low_rank() -> nn.Module:
    """A frozen layer with a trained correction of low rank."""
    base = nn.Linear(16, 16).requires_grad_(False)
    modules = base, nn.Linear(16, 2, bias=False), nn.Linear(2, 16, bias=False)
    return Around(lambda base, down, up, x: base(x) + up(down(x)), *modules)


def test_low_rank_adapters_train_alone() -> None:
    stages: list[nn.Module] = [nn.Sequential(_low_rank(), nn.GELU()), _low_rank()]
    before = copy.deepcopy(stages[1])
    assert train_both(stages) == 0
    changed = [not torch.equal(a, b) for a, b in zip(stages[1].parameters(), before.parameters(), strict=True)]
    assert changed == [False, False, True, True]  # weight and bias of the frozen layer, then down and up


@pytest.mark.parametrize("frozen", [0, 1])
def test_a_stage_may_be_frozen_as_a_whole(frozen: int) -> None:
    stages: list[nn.Module] = [mlp(), mlp()]
    stages[frozen].requires_grad_(False)
    assert train_both(stages) == 0


def test_buffers_that_the_caller_changes_and_tuples_between_stages() -> None:
    scaled = Around(lambda inner, x: (inner(x) * scaled.get_buffer("scale"), x))
    scaled.register_buffer("scale", torch.ones(16))
    stages: list[nn.Module] = [scaled, Around(lambda inner, x, residual: inner(x) + residual)]
    pipe = _pipe(stages, optimizer=None)
    x, y = batch()
    for factor in (1.0, 0.5):
        scaled.get_buffer("scale").fill_(factor)
        loss = pipe.step(x, y)
        assert loss == pytest.approx(accumulate(chain(stages), mse, x, y, 4), rel=1e-6)


def test_evaluation_between_steps_sees_the_trained_weights() -> None:
    stages: list[nn.Module] = [nn.Sequential(mlp(), nn.BatchNorm1d(16)), mlp()]
    plain = copy.deepcopy(stages)
    pipe = _pipe(stages)
    optimizer = sgd([p for stage in plain for p in stage.parameters()])
    for _ in range(3):
        x, y = batch()
        pipe.step(x, y)
        optimizer.zero_grad()
        accumulate(chain(plain), mse, x, y, 4)
        optimizer.step()
        with torch.no_grad():
            for stage in (*stages, *plain):
                stage.eval()
            assert torch.equal(chain(stages)(x), chain(plain)(x))
            for stage in (*stages, *plain):
                stage.train()
    assert distance(stages, plain) == 0


def test_a_checkpoint_is_loaded_between_steps() -> None:
    stages: list[nn.Module] = [mlp(), mlp()]
    pipe = _pipe(stages)
    batches = [(torch.randn(8, 16), torch.randn(8, 16)) for _ in range(3)]
    pipe.step(*batches[0])
    saved = copy.deepcopy([stage.state_dict() for stage in stages])
    losses = [pipe.step(*batch) for batch in batches[1:]]
    for stage, state in zip(stages, saved, strict=True):
        stage.load_state_dict(state)
    assert [pipe.step(*batch) for batch in batches[1:]] == losses


def test_activation_checkpointing_of_torch() -> None:
    checkpoint = torch.utils.checkpoint.checkpoint
    assert train_both([Around(lambda inner, x: checkpoint(inner, x, use_reentrant=False)), mlp()]) == 0


def test_inputs_of_inference_mode_train() -> None:
    with torch.inference_mode():
        x, y = batch()
    stages: list[nn.Module] = [mlp(), mlp()]
    expected = accumulate(chain(copy.deepcopy(stages)), mse, x.clone(), y.clone(), 4)
    assert _pipe(stages).step(x, y) == pytest.approx(expected, rel=1e-6)
