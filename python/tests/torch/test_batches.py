"""Batches that do not divide, losses weighted by terms, and lists, as autograd of the batch."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from reference import CausalMean, chain, mlp
from torch import nn

import penstock.torch as pt

_mse = nn.functional.mse_loss


def _pipe(stages: list[nn.Module], schedule: str = "1f1b", **arguments: Any) -> pt.Pipeline:
    given = {"loss": _mse, "optimizer": None, "microbatches": 4, "ranks": 2, **arguments}
    return pt.Pipeline(stages, schedule, **given)


def _check_step(
    pipe: pt.Pipeline, stages: list[nn.Module], loss: Any, inputs: Any, targets: Any
) -> None:
    """Compares a step's loss and gradients with autograd of the whole batch's loss."""
    plain = copy.deepcopy(stages)
    for each in (*stages, *plain):
        each.zero_grad()
    actual = pipe.step(inputs, targets)
    value: Any = inputs
    for stage in plain:
        value = stage(*value) if isinstance(value, tuple) else stage(value)
    expected = loss(value, targets)
    expected.backward()
    assert actual == pytest.approx(expected.item(), rel=1e-5)
    for left, right in zip(stages, plain, strict=True):
        for a, b in zip(left.parameters(), right.parameters(), strict=True):
            assert a.grad is not None and b.grad is not None
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("schedule", ["1f1b", "zbv", "interleaved"])
def test_the_last_batch_need_not_divide(schedule: str, exact: bool) -> None:
    stages: list[nn.Module] = [mlp() for _ in range(2 if schedule == "1f1b" else 4)]
    pipe = _pipe(stages, schedule, exact=exact)
    for samples in (8, 9, 8, 7, 4, 5):
        x, y = torch.randn(samples, 16), torch.randn(samples, 16)
        _check_step(pipe, stages, _mse, x, y)


def test_several_steps_of_which_the_last_does_not_divide() -> None:
    stages: list[nn.Module] = [mlp(), mlp()]
    again = copy.deepcopy(stages)
    batches = [(torch.randn(n, 16), torch.randn(n, 16)) for n in (8, 8, 6)]
    one_by_one = _pipe(again, optimizer=pt.AdamW)
    expected = [one_by_one.step(*batch) for batch in batches]
    pipe = _pipe(stages, optimizer=pt.AdamW)
    assert pipe.steps(batches) == pytest.approx(expected, rel=1e-5)


def test_running_statistics_and_dropout_of_unequal_microbatches_are_repeatable() -> None:
    losses = []
    for _ in range(2):
        torch.manual_seed(0)
        stages: list[nn.Module] = [nn.Sequential(mlp(), nn.Dropout(0.5)), mlp()]
        pipe = _pipe(stages, optimizer=pt.AdamW, seed=3)
        losses.append([pipe.step(torch.ones(n, 16), torch.ones(n, 16)) for n in (8, 6, 8)])
    assert losses[0] == losses[1]


@pytest.mark.parametrize("samples", [0, 3])
def test_fewer_samples_than_microbatches_are_refused(samples: int) -> None:
    pipe = _pipe([mlp(), mlp()])
    with pytest.raises(pt.Error, match=f"{samples} samples, fewer than the 4 microbatches"):
        pipe.step(torch.randn(samples, 16), torch.randn(samples, 16))


def test_empty_batches_are_refused() -> None:
    pipe = _pipe([mlp(), mlp()], microbatches=1)
    for run in (pipe.step, pipe.eval_step):
        with pytest.raises(pt.Error, match="0 samples: pass at least 1"):
            run(torch.randn(0, 16), torch.randn(0, 16))


@pytest.mark.parametrize("rows", [1, 4, 16])
def test_targets_of_another_batch_size_are_refused(rows: int) -> None:
    pipe = _pipe([mlp(), mlp()])
    with pytest.raises(pt.Error, match=f"8 samples, but targets contain .*{rows}, 16"):
        pipe.step(torch.randn(8, 16), torch.randn(rows, 16))


def test_targets_may_be_the_flattened_classes_of_sequences() -> None:
    def loss(output: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(output.flatten(0, 1), classes)

    stages = [mlp(), mlp()]
    inputs, classes = torch.randn(8, 5, 16), torch.randint(16, (40,))
    expected = loss(nn.Sequential(*stages)(inputs), classes).item()
    pipe = pt.Pipeline(stages, ranks=2, microbatches=4, loss=loss)
    assert pipe.step(inputs, classes) == pytest.approx(expected, rel=1e-5)


def test_slices_need_equal_microbatches() -> None:
    pipe = _pipe([mlp(), mlp()], "seq1f1b", slices=2)
    with pytest.raises(pt.Error, match="6 samples, which 4 microbatches do not divide"):
        pipe.step(torch.randn(6, 4, 16), torch.randn(6, 4, 16))


def test_schedules_that_update_within_a_batch_have_no_mean() -> None:
    pipe = _pipe([mlp(), mlp()], "pipedream", optimizer=pt.AdamW)
    with pytest.raises(pt.Error, match="updates weights within a batch"):
        pipe.step(torch.randn(6, 16), torch.randn(6, 16))
    for option in ({"loss_weight": len}, {"clip_grad_norm": 1.0}, {"skip_nonfinite": True}):
        with pytest.raises(pt.Error, match=f"{next(iter(option))}: schedule 'pipedream' updates"):
            _pipe([mlp(), mlp()], "pipedream", **option)


def _cross_entropy(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(output.flatten(0, 1), targets.flatten())


def _masked_mean(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """As a user writes it: 0/0 for a microbatch without terms."""
    mask = (targets != -100).float()
    each = nn.functional.cross_entropy(
        output.flatten(0, 1), targets.flatten().clamp(min=0), reduction="none"
    )
    return (each * mask.flatten()).sum() / mask.sum()


def _count(targets: torch.Tensor) -> torch.Tensor:
    return (targets != -100).sum()


def _padded(samples: int, lengths: list[int]) -> torch.Tensor:
    targets = torch.randint(16, (samples, 6))
    for sample, length in enumerate(lengths):
        targets[sample, length:] = -100
    return targets


@pytest.mark.parametrize("loss", [_cross_entropy, _masked_mean])
@pytest.mark.parametrize("exact", [False, True])
def test_losses_weighted_by_tokens(loss: Any, exact: bool) -> None:
    stages: list[nn.Module] = [mlp(), mlp()]
    pipe = _pipe(stages, loss=loss, loss_weight=_count, exact=exact)
    for samples, lengths in (
        (8, [6, 6, 1, 1, 2, 3, 6, 4]),
        (8, [6, 6, 0, 0, 2, 3, 6, 4]),  # a microbatch without any
        (7, [1, 2, 3, 4, 5, 6, 1]),
    ):
        x, y = torch.randn(samples, 6, 16), _padded(samples, lengths)
        _check_step(pipe, stages, loss, x, y)
        assert torch.isfinite(stages[0][0].weight.grad).all()  # type: ignore[index]


def test_losses_weighted_by_tokens_of_slices() -> None:
    stages: list[nn.Module] = [CausalMean(), CausalMean()]
    pipe = _pipe(stages, "seq1f1b", slices=2, loss=_cross_entropy, loss_weight=_count)
    _check_step(
        pipe, stages, _cross_entropy, torch.randn(8, 6, 16), _padded(8, [6, 6, 1, 1, 2, 3, 0, 4])
    )


class OwnLoss(nn.Module):
    """Computes its loss from labels among the inputs, as models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return _cross_entropy(self.inner(x), labels)


class PassesLabels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.inner(x), labels


def test_losses_of_the_last_stage_are_weighted_by_the_inputs() -> None:
    stages: list[nn.Module] = [PassesLabels(), OwnLoss()]
    pipe = _pipe(stages, loss=None, loss_weight=lambda inputs: _count(inputs["labels"]))
    plain = copy.deepcopy(stages)
    x, y = torch.randn(8, 6, 16), _padded(8, [6, 6, 1, 1, 2, 3, 6, 4])
    expected = plain[1](*plain[0](x, y))
    expected.backward()
    assert pipe.step({"x": x, "labels": y}) == pytest.approx(expected.item(), rel=1e-5)
    for a, b in zip(stages[0].parameters(), plain[0].parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("weigh", "text"),
    [
        (lambda y: -1, "returned -1 for microbatch 0"),
        (lambda y: math.nan, "returned nan for microbatch 0"),
        (lambda y: "two", "returned 'two' for microbatch 0"),
        (lambda y: y, "returned a Tensor for microbatch 0"),
        (lambda y: 0, "0 for every microbatch"),
        (lambda y: y.missing, "loss_weight: AttributeError"),
        (lambda: 1, "loss_weight: TypeError"),
    ],
)
def test_weights_that_are_no_number_of_terms_are_refused(weigh: Any, text: str) -> None:
    pipe = _pipe([mlp(), mlp()], loss_weight=weigh)
    with pytest.raises(pt.Error, match=text) as raised:
        pipe.step(torch.randn(8, 16), torch.randn(8, 16))
    assert "\n" not in str(raised.value)


class TakesList(nn.Module):
    """Takes one tensor per sample, as detection models do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, images: list[torch.Tensor]) -> torch.Tensor:
        assert isinstance(images, list) and images[0].shape == (3, 16)
        y: torch.Tensor = self.inner(torch.stack([image.mean(0) for image in images]))
        return y


@pytest.mark.parametrize("in_dict", [False, True])
def test_a_list_of_one_tensor_per_sample_is_divided(in_dict: bool) -> None:
    stages: list[nn.Module] = [TakesList(), mlp()]
    pipe = _pipe(stages)
    plain = copy.deepcopy(stages)
    for samples in (8, 6, 8):
        images, y = torch.randn(samples, 3, 16), torch.randn(samples, 16)
        expected = _mse(plain[1](plain[0](list(images))), y)
        inputs = {"images": list(images)} if in_dict else list(images)
        assert pipe.step(inputs, y) == pytest.approx(expected.item(), rel=1e-5)


def test_targets_in_a_list_are_divided() -> None:
    stages: list[nn.Module] = [mlp(), mlp()]
    pipe = _pipe(stages, loss=lambda output, targets: _mse(output, torch.stack(targets)))
    x, y = torch.randn(8, 16), torch.randn(8, 16)
    expected = _mse(chain(copy.deepcopy(stages))(x), y).item()
    assert pipe.step(x, list(y)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({"x": torch.ones(8, 16), "names": ["a"] * 8}, "a list of 8 str, as many as samples"),
        ({"x": torch.ones(8, 16), "ids": list(range(8))}, "a list of 8 int, as many as samples"),
        ({"x": torch.ones(8, 16), "y": [torch.ones(8, 2)] * 8}, "may be one per sample or each"),
        (
            {"x": torch.ones(8, 16), "y": [torch.ones(1 + i % 2) for i in range(8)]},
            "of several shapes",
        ),
        ({"x": torch.ones(8, 16), "y": [torch.ones(3, 2)] * 3}, "8 samples, but inputs contain"),
        ({"y": [torch.ones(3, 2)] * 3}, "every tensor is in a list"),
    ],
)
def test_lists_that_may_mean_something_else_are_refused(inputs: Any, text: str) -> None:
    pipe = _pipe([mlp(), mlp()], loss=None)
    with pytest.raises(pt.Error, match=text):
        pipe.step(inputs)


def test_lists_of_tensors_of_the_whole_batch_are_containers() -> None:
    stages: list[nn.Module] = [PassesLabels(), OwnLoss()]
    pipe = _pipe(stages, loss=None)
    x, y = torch.randn(8, 6, 16), torch.randint(16, (8, 6))
    expected = pipe.step((x, y))
    other = _pipe(stages, loss=None)
    assert other.step([x, y]) == expected


class Skips(nn.Module):
    """Has a skip connection, so that its graph is cut, and a size that the graph has constant."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        result: torch.Tensor = self.second(hidden) * (x.numel() / 100) + hidden
        return result


def test_stages_cut_from_a_graph_refuse_microbatches_of_another_size() -> None:
    model = Skips()
    pipe = _pipe(pt.split(model, torch.randn(2, 16), ["second"]))
    x, y = torch.randn(8, 16), torch.randn(8, 16)
    expected = sum(_mse(model(a), b).item() for a, b in zip(x.chunk(4), y.chunk(4), strict=True))
    assert pipe.step(x, y) == pytest.approx(expected / 4, rel=1e-5)
    for run in (pipe.eval_step, pipe.step):
        with pytest.raises(pt.Error, match=r"takes a tensor of shape \(2, 16\), not \(1, 16\)"):
            run(x[:7], y[:7])
