"""Batches that do not divide, losses weighted by terms, and lists, as autograd of the batch."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from reference import Around, CausalMean, batch, chain, mlp, mlps, mse, pipeline
from torch import nn

import penstock.torch as pt


def _pipe(stages: list[nn.Module], schedule: str = "1f1b", **arguments: Any) -> pt.Pipeline:
    return pipeline(stages, schedule, **{"optimizer": None, **arguments})


def _check_step(pipe: pt.Pipeline, stages: list[nn.Module], loss: Any, inputs: Any, targets: Any) -> None:
    """Compares a step's loss and gradients with autograd of the whole batch's loss."""
    plain = copy.deepcopy(stages)
    for each in (*stages, *plain):
        each.zero_grad()
    actual = pipe.step(inputs, targets)
    expected = loss(chain(plain)(*inputs if isinstance(inputs, tuple) else (inputs,)), targets)
    expected.backward()
    assert actual == pytest.approx(expected.item(), rel=1e-5)
    for left, right in zip(stages, plain, strict=True):
        for a, b in zip(left.parameters(), right.parameters(), strict=True):
            assert a.grad is not None and b.grad is not None
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("schedule", ["1f1b", "zbv", "interleaved"])
def test_the_last_batch_need_not_divide(schedule: str, exact: bool) -> None:
    stages = mlps(schedule)
    pipe = _pipe(stages, schedule, exact=exact)
    for samples in (8, 9, 8, 7, 4, 5):
        x, y = batch(samples)
        _check_step(pipe, stages, mse, x, y)


def test_several_steps_of_which_the_last_does_not_divide() -> None:
    stages: list[nn.Module] = [mlp(), mlp()]
    again = copy.deepcopy(stages)
    batches = [batch(n) for n in (8, 8, 6)]
    one_by_one = _pipe(again, optimizer=pt.AdamW)
    expected = [one_by_one.step(*each) for each in batches]
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


@pytest.mark.parametrize(
    ("inputs", "targets", "options", "text"),
    [
        ((0, 16), (0, 16), {}, "0 samples, fewer than the 4 microbatches"),
        ((3, 16), (3, 16), {}, "3 samples, fewer than the 4 microbatches"),
        ((0, 16), (0, 16), {"microbatches": 1}, "0 samples: pass at least 1"),
        ((8, 16), (1, 16), {}, "8 samples, but targets contain .*1, 16"),
        ((8, 16), (4, 16), {}, "8 samples, but targets contain .*4, 16"),
        ((8, 16), (16, 16), {}, "8 samples, but targets contain .*16, 16"),
        ((6, 4, 16), (6, 4, 16), {"schedule": "seq1f1b", "slices": 2}, "6 samples, which 4 micro"),
        ((6, 16), (6, 16), {"schedule": "pipedream", "optimizer": pt.AdamW}, "updates weights wi"),
    ],
)
def test_batches_that_do_not_fit_are_refused(
    inputs: tuple[int, ...], targets: tuple[int, ...], options: dict[str, Any], text: str
) -> None:
    pipe = _pipe([mlp(), mlp()], **options)
    with pytest.raises(pt.Error, match=text):
        pipe.step(torch.randn(inputs), torch.randn(targets))
    if options == {"microbatches": 1}:
        with pytest.raises(pt.Error, match=text):
            pipe.eval_step(torch.randn(inputs), torch.randn(targets))


def test_targets_may_be_the_flattened_classes_of_sequences() -> None:
    def loss(output: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(output.flatten(0, 1), classes)

    stages = [mlp(), mlp()]
    inputs, classes = torch.randn(8, 5, 16), torch.randint(16, (40,))
    expected = loss(nn.Sequential(*stages)(inputs), classes).item()
    pipe = pt.Pipeline(stages, ranks=2, microbatches=4, loss=loss)
    assert pipe.step(inputs, classes) == pytest.approx(expected, rel=1e-5)


def test_schedules_that_update_within_a_batch_have_no_mean() -> None:
    for option in ({"loss_weight": len}, {"clip_grad_norm": 1.0}, {"skip_nonfinite": True}):
        with pytest.raises(pt.Error, match=f"{next(iter(option))}: schedule 'pipedream' updates"):
            _pipe([mlp(), mlp()], "pipedream", **option)


def _cross_entropy(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(output.flatten(0, 1), targets.flatten())


def _masked_mean(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """As a user writes it: 0/0 for a microbatch without terms."""
    mask = (targets != -100).float()
    each = nn.functional.cross_entropy(output.flatten(0, 1), targets.flatten().clamp(min=0), reduction="none")
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
    _check_step(pipe, stages, _cross_entropy, torch.randn(8, 6, 16), _padded(8, [6, 6, 1, 1, 2, 3, 0, 4]))


def _with_own_loss() -> list[nn.Module]:
    """The last stage computes its loss from labels among the inputs, as models of transformers do."""
    passes_labels = Around(lambda inner, x, labels: (inner(x), labels))
    return [passes_labels, Around(lambda inner, x, labels: _cross_entropy(inner(x), labels))]


def test_losses_of_the_last_stage_are_weighted_by_the_inputs() -> None:
    stages = _with_own_loss()
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
        pipe.step(*batch())
    assert "\n" not in str(raised.value)


def _takes_list() -> nn.Module:
    """Takes one tensor per sample, as detection models do."""

    def forward(inner: nn.Module, images: list[torch.Tensor]) -> Any:
        assert isinstance(images, list) and images[0].shape == (3, 16)
        return inner(torch.stack([image.mean(0) for image in images]))

    return Around(forward)


@pytest.mark.parametrize("in_dict", [False, True])
def test_a_list_of_one_tensor_per_sample_is_divided(in_dict: bool) -> None:
    stages: list[nn.Module] = [_takes_list(), mlp()]
    pipe = _pipe(stages)
    plain = copy.deepcopy(stages)
    for samples in (8, 6, 8):
        images, y = torch.randn(samples, 3, 16), torch.randn(samples, 16)
        expected = mse(plain[1](plain[0](list(images))), y)
        inputs = {"images": list(images)} if in_dict else list(images)
        assert pipe.step(inputs, y) == pytest.approx(expected.item(), rel=1e-5)


def test_targets_in_a_list_are_divided() -> None:
    stages: list[nn.Module] = [mlp(), mlp()]
    pipe = _pipe(stages, loss=lambda output, targets: mse(output, torch.stack(targets)))
    x, y = batch()
    expected = mse(chain(copy.deepcopy(stages))(x), y).item()
    assert pipe.step(x, list(y)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({"x": torch.ones(8, 16), "names": ["a"] * 8}, "a list of 8 str, as many as samples"),
        ({"x": torch.ones(8, 16), "ids": list(range(8))}, "a list of 8 int, as many as samples"),
        ({"x": torch.ones(8, 16), "y": [torch.ones(8, 2)] * 8}, "may be one per sample or each"),
        ({"x": torch.ones(8, 16), "y": [torch.ones(1 + i % 2) for i in range(8)]}, "of several shapes"),
        ({"x": torch.ones(8, 16), "y": [torch.ones(3, 2)] * 3}, "8 samples, but inputs contain"),
        ({"y": [torch.ones(3, 2)] * 3}, "every tensor is in a list"),
    ],
)
def test_lists_that_may_mean_something_else_are_refused(inputs: Any, text: str) -> None:
    pipe = _pipe([mlp(), mlp()], loss=None)
    with pytest.raises(pt.Error, match=text):
        pipe.step(inputs)


def test_lists_of_tensors_of_the_whole_batch_are_containers() -> None:
    stages = _with_own_loss()
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

    def forward(self, x: torch.Tensor) -> Any:
        hidden = self.first(x)
        return self.second(hidden) * (x.numel() / 100) + hidden


def test_stages_cut_from_a_graph_refuse_microbatches_of_another_size() -> None:
    model = Skips()
    pipe = _pipe(pt.split(model, torch.randn(2, 16), ["second"]))
    x, y = batch()
    expected = sum(mse(model(a), b).item() for a, b in zip(x.chunk(4), y.chunk(4), strict=True))
    assert pipe.step(x, y) == pytest.approx(expected / 4, rel=1e-5)
    for run in (pipe.eval_step, pipe.step):
        with pytest.raises(pt.Error, match=r"takes a tensor of shape \(2, 16\), not \(1, 16\)"):
            run(x[:7], y[:7])
