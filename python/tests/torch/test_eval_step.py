"""Forward-only steps compute what the modules do, and change nothing."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import pytest
import torch
from forks import lines_of
from reference import Around, batch, chain, mlp, mlps, mse, pipeline
from torch import nn

import penstock.torch as pt


@pytest.mark.parametrize("schedule", ["1f1b", "zbv", "dualpipe"])
def test_outputs_and_losses_are_those_of_the_model(schedule: str) -> None:
    stages = mlps(schedule)
    pipe = pipeline(stages, schedule)
    for samples in (8, 9, 3, 1):  # before any training step, and of any size
        x, y = batch(samples)
        with torch.no_grad():
            expected = chain(stages)(x)
        outputs = pipe.eval_step(x)
        assert not outputs.requires_grad
        torch.testing.assert_close(outputs, expected)
        loss = pipe.eval_step(x, y)
        assert isinstance(loss, float)
        assert loss == pytest.approx(mse(expected, y).item(), rel=1e-5)
    x, y = batch()
    evaluated = pipe.eval_step(x, y)
    assert pipe.step(x, y) == pytest.approx(evaluated, rel=1e-5)
    with torch.no_grad():  # the updated weights
        torch.testing.assert_close(pipe.eval_step(x), chain(stages)(x))


class Counts(nn.Module):
    """Has running statistics, and buffers that each forward changes or assigns."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(mlp(), nn.BatchNorm1d(16), nn.Dropout(0.5))
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("scratch", torch.zeros(()), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.inner.training:
            self.get_buffer("calls").add_(1)
            self.get_buffer("scratch").add_(1)
            self.scratch: torch.Tensor = self.scratch + 1
        y: torch.Tensor = self.inner(x)
        return y


@pytest.mark.parametrize("mode", [True, False])
def test_nothing_is_changed(mode: bool) -> None:
    results = []
    for evaluates in (False, True):
        torch.manual_seed(0)
        stages: list[nn.Module] = [Counts(), mlp()]
        pipe = pipeline(stages, seed=1)
        x, y = batch()
        losses = [pipe.step(x, y)]
        if evaluates:
            before = copy.deepcopy(nn.ModuleList(stages).state_dict())
            state = torch.random.get_rng_state()
            for stage in stages:
                stage.train(mode)
            pipe.eval_step(x, y)
            pipe.eval_step(x)
            for stage in stages:
                assert all(each.training is mode for each in stage.modules())
                assert all(p.grad is None for p in stage.parameters())
                stage.train()
            after = nn.ModuleList(stages).state_dict()
            assert all(torch.equal(before[name], after[name]) for name in before)
            assert torch.equal(state, torch.random.get_rng_state())
            assert stages[0].scratch.item() == 0  # type: ignore[operator]
            assert pipe.state_dict()["steps"] == 1
        losses.append(pipe.step(x, y))
        results.append(losses)
    assert results[0] == results[1]


def test_the_mode_of_the_modules_decides_on_dropout() -> None:
    stages: list[nn.Module] = [nn.Sequential(mlp(), nn.Dropout(0.5)), mlp()]
    pipe = pipeline(stages)
    x = torch.randn(8, 16)
    for stage in stages:
        stage.eval()
    with torch.no_grad():
        without = chain(stages)(x)
        torch.testing.assert_close(pipe.eval_step(x), without)
    for stage in stages:
        stage.train()
    assert not torch.equal(pipe.eval_step(x), without)


class Output(NamedTuple):
    loss: torch.Tensor


@pytest.mark.parametrize("wrap", [Output, lambda loss: loss])
def test_losses_of_the_last_stage(wrap: Any) -> None:
    passes = Around(lambda _, x, y: {"x": x * 2, "y": y}, nn.Identity())
    own_loss = Around(lambda inner, x, y: wrap(mse(inner(x), y)))
    pipe = pipeline([passes, own_loss], loss=None)
    for samples in (8, 6):
        batch = {"x": torch.randn(samples, 16), "y": torch.randn(samples, 16)}
        loss = pipe.eval_step(batch)
        assert pipe.step(batch) == pytest.approx(loss, rel=1e-5)
        assert pipe.last.loss == pytest.approx(loss, rel=1e-5)


def test_metrics_outputs_and_weights_are_those_of_a_step() -> None:
    def loss(output: torch.Tensor, targets: torch.Tensor) -> Any:
        found = nn.functional.cross_entropy(output.flatten(0, 1), targets.flatten())
        return found, {"largest": output.max()}

    pipe = pipeline([mlp(), mlp()], loss=loss, outputs=True, optimizer=None, loss_weight=lambda targets: (targets != -100).sum())
    x, y = torch.randn(8, 6, 16), torch.randint(16, (8, 6))
    y[2:4] = -100
    y[5, 1:] = -100
    pipe.step(x, y)
    of_step = pipe.last
    assert pipe.eval_step(x, y) == pytest.approx(of_step.loss, rel=1e-5)
    assert pipe.last.metrics == pytest.approx(of_step.metrics, rel=1e-5)
    torch.testing.assert_close(pipe.last.outputs, of_step.outputs)
    assert pipe.last.grad_norm is None


def test_a_failing_stage_is_named_and_the_pipeline_goes_on() -> None:
    class Fails(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.shape[-1] != 16:
                raise KeyError("another width\nthan usual")
            return x * 2

    pipe = pipeline([mlp(), nn.Sequential(Fails(), mlp())])
    x = torch.randn(8, 16)
    with pytest.raises(pt.Error, match=r"stage 0, forward.*shapes cannot be multiplied") as raised:
        pipe.eval_step(torch.randn(8, 17))
    assert "\n" not in str(raised.value)
    other = pipeline([nn.Identity(), Fails()], optimizer=None)
    expected = r"stage 1, forward at .*test_eval_step\.py:\d+ in forward: KeyError"
    with pytest.raises(pt.Error, match=expected):
        other.eval_step(torch.randn(8, 17))
    pipe.eval_step(x)
    pipe.step(x, x)
    with pytest.raises(pt.Error, match="0 samples"):
        pipe.eval_step(x[:0])
    with pytest.raises(pt.Error, match="the Pipeline has no loss"):
        pipeline([mlp(), mlp()], loss=None).eval_step(x, x)


_SCRIPT = """
import sys
import torch, penstock, penstock.torch as pt
from torch import nn

here, count = pt.place()
def build(stage):
    torch.manual_seed(stage)
    return nn.Sequential(nn.Linear(16, 24), nn.BatchNorm1d(24), nn.Linear(24, 16))

def loss(output, targets):
    return nn.functional.mse_loss(output, targets), {"mae": (output - targets).abs().mean()}

def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")

for name in sys.argv[1].split(","):
    schedule = penstock.schedule(name, ranks=2, microbatches=4)
    local = [rank * count // schedule.ranks == here for rank in schedule.rank_of_stage]
    stages = schedule.stages // schedule.replicas
    modules = [build(s) if local[s] or schedule.replicas > 1 else None for s in range(stages)]
    if schedule.replicas > 1:
        for module in modules:
            module[1] = nn.Identity()
    pipe = pt.Pipeline(modules, schedule, loss=loss, exact=True, timeout=60, clip_grad_norm=1.0)
    torch.manual_seed(99)
    x, y = torch.randn(8, 16), torch.randn(8, 16)
    for step in range(2):
        value = pipe.eval_step(x, y)
        say("value", name, here, "eval", value, pipe.last.metrics["mae"])
        value = pipe.eval_step(torch.cat([x, x[:1]])).double().sum().item()
        say("value", name, here, "outputs", value)
        value = pipe.step(x, y)
        last = pipe.last
        say("value", name, here, "step", value, last.losses, last.metrics, last.grad_norm)
    try:
        pipe.eval_step(torch.randn(8, 17))
    except pt.Error as error:
        say("value", name, here, "error", error)
    say("value", name, here, "after", pipe.eval_step(x, y))
    if schedule.replicas == 1:  # microbatches of 3, 2, 2 and 2 samples, and equal ones again
        longer = torch.cat([x, x[:1]]), torch.cat([y, y[:1]])
        for batch in (longer, (x, y), longer):
            say("value", name, here, "unequal", pipe.step(*batch), pipe.last)
"""


def test_processes_evaluate_like_one() -> None:
    alone = lines_of(_SCRIPT, "1f1b,zbv,dualpipe", prefix="value")
    both = lines_of(_SCRIPT, "1f1b,zbv,dualpipe", prefix="value", processes=2)
    for here in ("0", "1"):
        of_process = [line for line in both if line.split()[2] == here]
        assert len(of_process) == len(alone) == 30
        for expected, actual in zip(alone, of_process, strict=True):
            if " error " in expected:
                assert "stage 0, forward: " in actual
            else:
                assert actual == expected.replace(" 0 ", f" {here} ", 1)
