"""Pipeline.last: losses by microbatch, metrics, the norm of gradients and outputs of a step."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from reference import Around, CausalMean, accumulate, batch, chain, mlp, mlps, mse, pipeline
from torch import nn

import penstock.torch as pt


def _pipe(stages: list[nn.Module], schedule: str = "1f1b", **arguments: Any) -> pt.Pipeline:
    return pipeline(stages, schedule, **{"optimizer": None, **arguments})


def _with_metrics(output: torch.Tensor, targets: torch.Tensor) -> Any:
    metrics = {"mae": (output - targets).abs().mean(), "largest": output.max().detach(), "one": 1}
    return mse(output, targets), metrics


@pytest.mark.parametrize("schedule", ["1f1b", "zbv", "dualpipe"])
@pytest.mark.parametrize("samples", [8, 10])
def test_metrics_and_losses_are_those_of_the_microbatches(schedule: str, samples: int) -> None:
    if schedule == "dualpipe" and samples != 8:
        pytest.skip("one shape")
    stages = mlps(schedule)
    plain = copy.deepcopy(stages)
    pipe = _pipe(stages, schedule, loss=_with_metrics)
    with pytest.raises(pt.Error, match="no step has run"):
        pipe.last  # noqa: B018
    x, y = batch(samples)
    loss = pipe.step(x, y)
    last = pipe.last
    parts = list(zip(x.tensor_split(4), y.tensor_split(4), strict=True))
    outputs = [chain(plain)(a) for a, _ in parts]
    expected = [mse(o, b).item() for o, (_, b) in zip(outputs, parts, strict=True)]
    assert last.losses == pytest.approx(expected, rel=1e-5)
    assert last.loss == loss
    whole = (chain(plain)(x) - y).abs().mean().item()
    assert last.metrics["mae"] == pytest.approx(whole, rel=1e-5)
    sizes = [len(a) for a, _ in parts]
    largest = sum(n * o.max().item() for n, o in zip(sizes, outputs, strict=True)) / samples
    assert last.metrics["largest"] == pytest.approx(largest, rel=1e-5)
    assert last.metrics["one"] == 1
    assert last.outputs is None and last.grad_norm is None
    assert pipe.steps([(x, y), (y, x)])[1] == pipe.last.loss


def test_metrics_do_not_change_the_gradients() -> None:
    results = []
    for loss in (mse, _with_metrics):
        torch.manual_seed(0)
        stages: list[nn.Module] = [mlp(), mlp()]
        pipe = _pipe(stages, loss=loss, exact=True)
        value = pipe.step(*batch())
        results.append((value, [p.grad for s in stages for p in s.parameters()]))
    assert results[0][0] == results[1][0]
    for a, b in zip(results[0][1], results[1][1], strict=True):
        assert a is not None and b is not None and torch.equal(a, b)


@pytest.mark.parametrize(
    ("metrics", "text"), [({"a": torch.ones(2)}, r"the metric 'a' is of shape \(2,\)"), ({"a": "b"}, "the metric 'a' is 'b'")]
)
def test_metrics_that_are_no_scalars_are_refused(metrics: Any, text: str) -> None:
    pipe = _pipe([mlp(), mlp()], loss=lambda o, y: (mse(o, y), metrics))
    with pytest.raises(pt.Error, match=text):
        pipe.step(*batch())


@pytest.mark.parametrize("clip", [math.inf, 0.01])
@pytest.mark.parametrize("schedule", ["1f1b", "zbv"])
def test_the_norm_of_the_gradients_is_torchs(clip: float, schedule: str) -> None:
    stages = mlps(schedule)
    plain = copy.deepcopy(stages)
    pipe = _pipe(stages, schedule, clip_grad_norm=clip)
    x, y = batch()
    pipe.step(x, y)
    accumulate(chain(plain), mse, x, y, 4)
    every = [p for stage in plain for p in stage.parameters()]
    norm = nn.utils.clip_grad_norm_(every, clip).item()
    assert pipe.last.grad_norm == pytest.approx(norm, rel=1e-5)
    for a, b in zip([p for stage in stages for p in stage.parameters()], every, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-7)


def test_a_norm_that_is_not_finite_is_reported_if_it_is_skipped() -> None:
    stages: list[nn.Module] = [mlp(), mlp()]
    pipe = _pipe(stages, optimizer=pt.AdamW, skip_nonfinite=True)
    x = torch.randn(8, 16)
    pipe.step(x * math.inf, x)
    assert pipe.last.grad_norm is not None and not math.isfinite(pipe.last.grad_norm)


def _to_dict() -> nn.Module:
    def forward(inner: nn.Module, x: torch.Tensor) -> dict[str, Any]:
        hidden = inner(x)
        return {"logits": hidden, "both": [hidden.mean(), hidden > 0], "kind": "dict"}

    return Around(forward)


def _loss_of_dict(output: Any, targets: torch.Tensor) -> torch.Tensor:
    return mse(output["logits"], targets)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("samples", [8, 10])
def test_outputs_are_those_of_the_whole_batch(exact: bool, samples: int) -> None:
    stages: list[nn.Module] = [mlp(), _to_dict()]
    plain = copy.deepcopy(stages)
    pipe = _pipe(stages, loss=_loss_of_dict, outputs=True, exact=exact, optimizer=pt.AdamW)
    for step in range(2):
        x, y = batch(samples)
        expected = chain(plain)(x)
        pipe.step(x, y)
        actual = pipe.last.outputs
        if step == 0:
            torch.testing.assert_close(actual["logits"], expected["logits"])
            torch.testing.assert_close(actual["both"][0], expected["both"][0])
            assert torch.equal(actual["both"][1], expected["both"][1])
        assert actual["kind"] == "dict" and actual["logits"].shape == (samples, 16)
        assert not actual["logits"].requires_grad
    kept = actual["logits"].clone()
    pipe.step(*batch(samples))
    assert torch.equal(actual["logits"], kept)


@pytest.mark.parametrize("option", [{"outputs": True}, {"loss": _with_metrics}])
def test_reports_of_slices_are_refused(option: dict[str, Any]) -> None:
    pipe = _pipe([CausalMean(), CausalMean()], "seq1f1b", slices=2, **option)
    with pytest.raises(pt.Error, match="metrics and outputs of slices are not reported"):
        pipe.step(torch.randn(8, 4, 16), torch.randn(8, 4, 16))


def test_the_learning_rate_and_the_text_of_a_pipeline() -> None:
    pipe = _pipe(
        [mlp(), mlp()],
        optimizer=lambda p: pt.AdamW(p, lr=1e-2),
        lr_scheduler=lambda o: torch.optim.lr_scheduler.StepLR(o, 1, gamma=0.5),
    )
    assert pipe.lr == 1e-2
    pipe.step(*batch())
    assert pipe.lr == 5e-3
    assert repr(pipe) == ("Pipeline('1f1b', stages=2, ranks=2, microbatches=4, optimizer=AdamW, lr=0.005, steps=1)")
    without = _pipe([mlp(), mlp()])
    assert repr(without) == "Pipeline('1f1b', stages=2, ranks=2, microbatches=4, steps=0)"
    with pytest.raises(pt.Error, match="lr: no stage of this process has an optimizer"):
        without.lr  # noqa: B018
