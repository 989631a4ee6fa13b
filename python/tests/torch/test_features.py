"""What models do apart from matrix products: dropout, masks, shared and frozen weights, shapes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from reference import accumulate, chain, distance, mlp
from torch import nn

import penstock.torch as pt

_mse = nn.functional.mse_loss


def _sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def _pipe(stages: list[nn.Module], **arguments: Any) -> pt.Pipeline:
    given = {"loss": _mse, "optimizer": _sgd, "exact": True, "microbatches": 4, **arguments}
    return pt.Pipeline(stages, "1f1b", ranks=len(stages), **given)


def _same_as_plain(stages: list[nn.Module], x: Any, y: torch.Tensor, steps: int = 3) -> None:
    plain = copy.deepcopy(stages)
    pipe = _pipe(stages)
    optimizer = _sgd([p for stage in plain for p in stage.parameters()])
    for _ in range(steps):
        loss = pipe.step(x, y)
        optimizer.zero_grad()
        assert loss == pytest.approx(accumulate(chain(plain), _mse, x, y, 4), rel=1e-6)
        optimizer.step()
    assert distance(stages, plain) == 0


def test_dropout_differs_by_microbatch_and_repeats_with_the_seed() -> None:
    losses = []
    for seed in (1, 1, 2):
        torch.manual_seed(0)
        stages: list[nn.Module] = [nn.Sequential(mlp(), nn.Dropout(0.5)), mlp()]
        x, y = torch.randn(8, 16), torch.randn(8, 16)
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
            [first, nn.Identity()],
            optimizer=None,
            microbatches=2,
            seed=5,
            loss=lambda output, chosen: (output * chosen).sum(),
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


class TwoTensors(nn.Module):
    """Sends a tensor and an integer mask, in a dict with a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> dict[str, Any]:
        return {"hidden": self.inner(x) * mask, "mask": mask, "scale": 2.0}


class FromDict(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
        return self.inner(hidden) * mask * scale


def test_several_inputs_masks_and_constants() -> None:
    stages: list[nn.Module] = [TwoTensors(), FromDict()]
    plain = copy.deepcopy(stages)
    x, mask, y = torch.randn(8, 16), torch.randint(2, (8, 16)), torch.randn(8, 16)
    loss = _pipe(stages).step({"x": x, "mask": mask}, y)
    expected = [
        _mse(plain[1](**plain[0](x=a, mask=b)), c).item()
        for a, b, c in zip(x.chunk(4), mask.chunk(4), y.chunk(4), strict=True)
    ]
    assert loss == pytest.approx(sum(expected) / 4, rel=1e-6)


def test_weights_that_stages_share_stay_equal() -> None:
    first, last = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)
    last.weight = first.weight
    plain = copy.deepcopy(nn.ModuleList([first, last]))
    pipe = _pipe([first, last])
    optimizer = _sgd(plain.parameters())
    for _ in range(3):
        x, y = torch.randn(8, 16), torch.randn(8, 16)
        pipe.step(x, y)
        optimizer.zero_grad()
        accumulate(chain(list(plain)), _mse, x, y, 4)
        optimizer.step()
    assert last.weight is first.weight
    torch.testing.assert_close(first.weight, plain[0].weight, rtol=0, atol=1e-6)


def test_loaded_weights_are_used_also_by_stages_that_share_them() -> None:
    first, last = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)
    last.weight = first.weight
    pipe = _pipe([first, last], optimizer=None)
    x, y = torch.randn(8, 16), torch.randn(8, 16)
    pipe.step(x, y)
    first.load_state_dict({"weight": torch.eye(16)})
    assert pipe.step(x, y) == pytest.approx(float(_mse(x, y)), rel=1e-5)


def test_frozen_weights_do_not_change_and_are_read_anew() -> None:
    frozen = nn.Linear(16, 16).requires_grad_(False)
    stages: list[nn.Module] = [nn.Sequential(frozen, mlp()), mlp()]
    before = frozen.weight.clone()
    pipe = _pipe(stages)
    x, y = torch.randn(8, 16), torch.randn(8, 16)
    pipe.step(x, y)
    assert torch.equal(frozen.weight, before)
    with torch.no_grad():
        frozen.weight.zero_()
    expected = accumulate(chain(copy.deepcopy(stages)), _mse, x, y, 4)
    assert pipe.step(x, y) == pytest.approx(expected, rel=1e-6)


def test_running_statistics() -> None:
    stages: list[nn.Module] = [nn.Sequential(mlp(), nn.BatchNorm1d(16)), mlp()]
    _same_as_plain(stages, torch.randn(16, 16), torch.randn(16, 16))


def test_other_shapes_in_later_steps() -> None:
    stages: list[nn.Module] = [mlp(), mlp()]
    plain = copy.deepcopy(stages)
    pipe = _pipe(stages, optimizer=None)
    for samples in (8, 16, 4):
        x, y = torch.randn(samples, 16), torch.randn(samples, 16)
        assert pipe.step(x, y) == pytest.approx(accumulate(chain(plain), _mse, x, y, 4), rel=1e-6)


class Doubled(torch.autograd.Function):
    """The identity, with twice the gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


class UsesDoubled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Doubled.apply(self.inner(x))


def test_custom_autograd_functions() -> None:
    _same_as_plain([UsesDoubled(), mlp()], torch.randn(8, 16), torch.randn(8, 16))


class PartlyFp32(nn.Module):
    """Computes a constant and a layer without autocast, as models do for positions and routers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = mlp(), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        with torch.autocast(x.device.type, enabled=False):
            table = torch.arange(16.0)[:, None] @ torch.full((1, 16), 0.1)
            return self.second(x.float()) + table[1]


class SeveralReaders(nn.Module):
    """Reads its input several times, once without a cast."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.norm = nn.Linear(16, 16), nn.Linear(16, 16), nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.one(x) + x + self.other(x))


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("stage", [mlp, PartlyFp32, SeveralReaders])
@pytest.mark.parametrize("exact", [True, False])
def test_autocast(stage: Callable[[], nn.Module], ranks: int, exact: bool) -> None:
    stages = [stage() for _ in range(ranks)]
    plain = copy.deepcopy(stages)

    def run(value: torch.Tensor) -> torch.Tensor:
        # Autocast keeps converted weights until it ends, so it must end before they are updated.
        with torch.autocast(torch.get_default_device().type, dtype=torch.bfloat16):
            return chain(plain)(value)

    pipe = _pipe(stages, exact=exact)
    optimizer = _sgd([p for stage in plain for p in stage.parameters()])
    for _ in range(3):
        x, y = torch.randn(8, 16), torch.randn(8, 16)
        with torch.autocast(torch.get_default_device().type, dtype=torch.bfloat16):
            loss = pipe.step(x, y)
        optimizer.zero_grad()
        expected = accumulate(run, lambda a, b: _mse(a.float(), b), x, y, 4)
        optimizer.step()
        assert loss == pytest.approx(expected, rel=1e-6 if exact else 1e-2)
    assert distance(stages, plain) <= (0 if exact else 1e-3)


def test_bf16_weights() -> None:
    for microbatches, tolerance in ((1, 0.0), (4, 2**-8)):  # gradients are accumulated in fp32
        stages: list[nn.Module] = [mlp().bfloat16(), mlp().bfloat16()]
        plain = copy.deepcopy(stages)
        pipe = _pipe(stages, microbatches=microbatches)
        optimizer = _sgd([p for stage in plain for p in stage.parameters()])
        for _ in range(3):
            x, y = torch.randn(8, 16).bfloat16(), torch.randn(8, 16).bfloat16()
            pipe.step(x, y)
            optimizer.zero_grad()
            accumulate(chain(plain), _mse, x, y, microbatches)
            optimizer.step()
        assert distance(stages, plain) <= tolerance


def test_without_an_optimizer_gradients_are_left_and_added() -> None:
    stages: list[nn.Module] = [mlp(), mlp()]
    plain = copy.deepcopy(stages)
    pipe = _pipe(stages, optimizer=None)
    for _ in range(2):
        x, y = torch.randn(8, 16), torch.randn(8, 16)
        pipe.step(x, y)
        accumulate(chain(plain), _mse, x, y, 4)
    for stage, other in zip(stages, plain, strict=True):
        for left, right in zip(stage.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(left.grad, right.grad, rtol=1e-5, atol=1e-7)


def test_weights_that_a_stage_uses_twice() -> None:
    shared = nn.Linear(16, 16)
    _same_as_plain(
        [nn.Sequential(shared, nn.GELU(), shared), mlp()], torch.randn(8, 16), torch.randn(8, 16)
    )


class LowRank(nn.Module):
    """A frozen layer with a trained correction of low rank."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(16, 16).requires_grad_(False)
        self.down, self.up = nn.Linear(16, 2, bias=False), nn.Linear(2, 16, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))


def test_low_rank_adapters_train_alone() -> None:
    stages: list[nn.Module] = [nn.Sequential(LowRank(), nn.GELU()), LowRank()]
    before = copy.deepcopy(stages[1])
    _same_as_plain(stages, torch.randn(8, 16), torch.randn(8, 16))
    assert torch.equal(stages[1].base.weight, before.base.weight)
    assert not torch.equal(stages[1].up.weight, before.up.weight)


@pytest.mark.parametrize("frozen", [0, 1])
def test_a_stage_may_be_frozen_as_a_whole(frozen: int) -> None:
    stages: list[nn.Module] = [mlp(), mlp()]
    stages[frozen].requires_grad_(False)
    plain = copy.deepcopy(stages)
    pipe = _pipe(stages)
    optimizer = _sgd(plain[1 - frozen].parameters())
    x, y = torch.randn(8, 16), torch.randn(8, 16)
    for _ in range(2):
        pipe.step(x, y)
        optimizer.zero_grad()
        accumulate(chain(plain), _mse, x, y, 4)
        optimizer.step()
    assert distance(stages, plain) == 0


class Scales(nn.Module):
    """Reads a buffer that the caller may change."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()
        self.register_buffer("scale", torch.ones(16))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.inner(x) * self.scale, x


class AddsBoth(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + residual


def test_buffers_that_the_caller_changes_and_tuples_between_stages() -> None:
    stages: list[nn.Module] = [Scales(), AddsBoth()]
    plain = copy.deepcopy(stages)
    pipe = _pipe(stages, optimizer=None)
    x, y = torch.randn(8, 16), torch.randn(8, 16)
    for factor in (1.0, 0.5):
        for of in (stages, plain):
            of[0].scale.fill_(factor)
        expected = accumulate(lambda value: plain[1](*plain[0](value)), _mse, x, y, 4)
        assert pipe.step(x, y) == pytest.approx(expected, rel=1e-6)


def test_evaluation_between_steps_sees_the_trained_weights() -> None:
    stages: list[nn.Module] = [nn.Sequential(mlp(), nn.BatchNorm1d(16)), mlp()]
    plain = copy.deepcopy(stages)
    pipe = _pipe(stages)
    optimizer = _sgd([p for stage in plain for p in stage.parameters()])
    for _ in range(3):
        x, y = torch.randn(8, 16), torch.randn(8, 16)
        pipe.step(x, y)
        optimizer.zero_grad()
        accumulate(chain(plain), _mse, x, y, 4)
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


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False)


def test_activation_checkpointing_of_torch() -> None:
    _same_as_plain([Checkpointed(), mlp()], torch.randn(8, 16), torch.randn(8, 16))


def test_inputs_of_inference_mode_train() -> None:
    with torch.inference_mode():
        x, y = torch.randn(8, 16), torch.randn(8, 16)
    stages: list[nn.Module] = [mlp(), mlp()]
    expected = accumulate(chain(copy.deepcopy(stages)), _mse, x.clone(), y.clone(), 4)
    assert _pipe(stages).step(x, y) == pytest.approx(expected, rel=1e-6)
