"""Any optimizer of torch updates stages, and the native AdamW computes the same."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from reference import Around, accumulate, batch, chain, distance, mlp, mlps, mse, pipeline, sgd, train_both
from torch import nn

import penstock.torch as pt

_Make = Callable[[Any], torch.optim.Optimizer]


class Signs(torch.optim.Optimizer):
    """An optimizer of the user's own, without a closure."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 1e-2})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(group["lr"] * parameter.grad.sign())


def _groups(parameters: Any) -> list[dict[str, Any]]:
    matrices = [each for each in parameters if each.dim() > 1]
    vectors = [each for each in parameters if each.dim() == 1]
    return [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "lr": 1e-3}]


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.Adam(p, lr=1e-2),
        lambda p: torch.optim.AdamW(p, lr=1e-2, amsgrad=True),
        lambda p: Signs(p),
        lambda p: torch.optim.Adagrad(p),
    ],
)
def test_optimizers_of_torch(make: _Make) -> None:
    assert train_both([mlp(), mlp()], optimizer=make) == 0


@pytest.mark.parametrize("groups", [list, _groups])
def test_native_adamw_is_the_fused_one(groups: Any) -> None:
    makes: list[_Make] = [lambda p: pt.AdamW(groups(p), lr=1e-2), lambda p: torch.optim.AdamW(groups(p), lr=1e-2, fused=True)]
    batches = [batch() for _ in range(4)]
    assert train_both([mlp(), mlp()], batches, optimizer=makes[0], plain_optimizer=makes[1]) == 0


def test_clipping_is_that_of_torch() -> None:
    half = functools.partial(sgd, lr=0.5)
    assert train_both([mlp(), mlp()], optimizer=half, clip_grad_norm=0.01) < 1e-6


def test_schedulers_step_after_each_step() -> None:
    pipe = pipeline(
        [mlp(), mlp()],
        optimizer=lambda p: pt.AdamW(p, lr=1.0),
        lr_scheduler=lambda o: torch.optim.lr_scheduler.StepLR(o, 1, gamma=0.5),
    )
    for _ in range(3):
        pipe.step(*batch())
    assert [optimizer.param_groups[0]["lr"] for optimizer in pipe.optimizers] == [0.125, 0.125]


def test_the_state_of_native_adamw_is_saved_and_loaded() -> None:
    x, y = batch()
    stages = [mlp(), mlp()]
    pipe = pipeline(stages, exact=True)
    pipe.step(x, y)
    weights = copy.deepcopy([stage.state_dict() for stage in stages])
    states = copy.deepcopy([optimizer.state_dict() for optimizer in pipe.optimizers])
    pipe.step(x, y)

    again = [mlp(), mlp()]
    other = pipeline(again, exact=True)
    for stage, weight in zip(again, weights, strict=True):
        stage.load_state_dict(weight)
    for optimizer, state in zip(other.optimizers, states, strict=True):
        optimizer.load_state_dict(state)
    other.step(x, y)
    assert distance(stages, again) == 0


def test_a_group_that_is_added_later_is_trained() -> None:
    stages = [mlp(), mlp()]
    plain = copy.deepcopy(stages)
    pipe = pipeline(stages, exact=True, optimizer=lambda p: pt.AdamW(p[:2], lr=1e-2))
    optimizers = [torch.optim.AdamW(list(s.parameters())[:2], lr=1e-2, fused=True) for s in plain]
    for step in range(3):
        x, y = batch()
        if step == 1:
            for of, optimizer in zip((*stages, *plain), (*pipe.optimizers, *optimizers), strict=True):
                optimizer.add_param_group({"params": [of[3].weight], "lr": 0.1})
        pipe.step(x, y)
        for stage in plain:
            stage.zero_grad()
        accumulate(chain(plain), mse, x, y, 4)
        for optimizer in optimizers:
            optimizer.step()
    assert distance(stages, plain) == 0


@pytest.mark.parametrize("option", ["amsgrad", "maximize"])
def test_options_that_only_torchs_code_follows(option: str) -> None:
    makes: list[_Make] = [
        lambda p: pt.AdamW([{"params": p, option: True}], lr=1e-2),
        lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True, **{option: True}),
    ]
    assert train_both([mlp(), mlp()], optimizer=makes[0], plain_optimizer=makes[1]) == 0


def test_what_is_no_optimizer_of_the_stage_is_refused() -> None:
    makes: list[tuple[_Make, str]] = [
        (lambda p: pt.AdamW([*p, nn.Parameter(torch.ones(1))]), "group 0 .* does not train"),
        (lambda p: 3, "optimizer returned int"),  # type: ignore[return-value]
    ]
    for make, text in makes:
        with pytest.raises(pt.Error, match=text):
            pipeline([mlp(), mlp()], optimizer=make).step(*batch())


@pytest.mark.parametrize("native", [True, False])
def test_updates_with_gradients_that_are_not_finite_are_skipped(native: bool) -> None:
    stages = [mlp(), mlp()]
    before = copy.deepcopy(stages)
    make: _Make = pt.AdamW if native else torch.optim.AdamW
    pipe = pipeline(stages, optimizer=make, skip_nonfinite=True)
    x, y = batch()
    bad = x.clone()
    bad[3, 3] = float("inf")
    pipe.step(bad, y)
    assert distance(stages, before) == 0
    pipe.step(x, y)
    assert distance(stages, before) > 0


def test_with_a_limit_gradients_that_are_not_finite_fail() -> None:
    pipe = pipeline([mlp(), mlp()], clip_grad_norm=1.0)
    x = torch.randn(8, 16)
    with pytest.raises(pt.Error, match="is not finite: .*skip_nonfinite=True"):
        pipe.step(x / 0, x)


@pytest.mark.parametrize("native", [True, False])
def test_schedulers_set_the_same_rates_as_in_torch(native: bool) -> None:
    stages = [mlp(), mlp()]
    plain = copy.deepcopy(stages)
    pipe = pipeline(
        stages,
        exact=True,
        optimizer=lambda p: (pt if native else torch.optim).AdamW(p, lr=1e-2),
        lr_scheduler=lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 4),
    )
    optimizer = torch.optim.AdamW([p for s in plain for p in s.parameters()], lr=1e-2, fused=native or None)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
    for _ in range(4):
        x, y = batch()
        pipe.step(x, y)
        optimizer.zero_grad()
        accumulate(chain(plain), mse, x, y, 4)
        optimizer.step()
        scheduler.step()
    assert distance(stages, plain) == 0


def _has_unused() -> nn.Module:
    """A layer that only some shapes use, and one that none does."""

    def forward(inner: nn.Module, unused: nn.Module, wide: nn.Module, x: torch.Tensor) -> Any:
        return wide(inner(x)) if len(x) > 2 else inner(x)

    return Around(forward, mlp(), nn.Linear(16, 16), nn.Linear(16, 16))


@pytest.mark.parametrize("native", [True, False])
def test_weights_without_gradients_are_not_decayed(native: bool) -> None:
    stages: list[nn.Module] = [_has_unused(), _has_unused()]
    both = [(pt if native else torch.optim).AdamW, torch.optim.AdamW]
    ours, torchs = (functools.partial(make, weight_decay=0.5) for make in both)
    torchs = functools.partial(torchs, fused=native or None)
    for sizes in ((8,), (8, 16)):  # the second shape uses more layers
        of = copy.deepcopy(stages)
        batches = [batch(samples) for samples in sizes]
        assert train_both(of, batches, optimizer=ours, plain_optimizer=torchs) == 0


def test_without_an_optimizer_unused_weights_have_no_gradient() -> None:
    stages: list[nn.Module] = [_has_unused(), mlp()]
    pipeline(stages, optimizer=None).step(*batch())
    has = {name for name, each in stages[0].named_parameters() if each.grad is not None}
    assert has == {f"inner.0.{name}" for name, _ in mlp().named_parameters()}


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("loaded_after", [0, 2])
def test_a_resumed_pipeline_computes_the_same(native: bool, loaded_after: int) -> None:
    """With dropout and a scheduler, whether the state is loaded before or after first steps."""

    def make() -> tuple[list[nn.Module], pt.Pipeline]:
        stages: list[nn.Module] = [nn.Sequential(mlp(), nn.Dropout(0.3)), mlp()]
        pipe = pipeline(
            stages,
            "zb-h1",
            seed=3,
            optimizer=lambda p: (pt if native else torch.optim).AdamW(p, lr=1e-2),
            lr_scheduler=lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 6),
        )
        return stages, pipe

    batches = [batch() for _ in range(6)]
    stages, pipe = make()
    for each in batches[:3]:
        pipe.step(*each)
    saved = copy.deepcopy([pipe.state_dict(), *[stage.state_dict() for stage in stages]])
    losses = [pipe.step(*each) for each in batches[3:]]

    again, resumed = make()
    for each in batches[:loaded_after]:
        resumed.step(*each)
    resumed.load_state_dict(saved[0])
    for stage, state in zip(again, saved[1:], strict=True):
        stage.load_state_dict(state)
    assert [resumed.step(*each) for each in batches[3:]] == losses
    assert distance(stages, again) == 0


def test_a_state_of_other_stages_is_refused() -> None:
    def make(count: int, **options: Any) -> pt.Pipeline:
        return pipeline([mlp() for _ in range(count)], ranks=count, **options)

    state = make(2).state_dict()
    for other, message in (
        (make(4), "optimizers belong to 2 stages, but the Pipeline has 4"),
        (make(2, optimizer=None), "optimizers: this Pipeline has none of stage 0"),
    ):
        with pytest.raises(pt.Error, match=message):
            other.load_state_dict(state)
    with pytest.raises(pt.Error, match="keys are .*: pass what state_dict returned"):
        make(2).load_state_dict({"0.weight": torch.ones(1)})


@pytest.mark.parametrize("make", [pt.AdamW, sgd])
@pytest.mark.parametrize("schedule", ["1f1b", "zbv", "dualpipev", "pipedream"])
def test_several_steps_at_once_are_those_one_by_one(schedule: str, make: _Make) -> None:
    """With learning rates that change in each step, dropout, and updates that are skipped."""
    batches = [batch() for _ in range(6)]
    can_skip = schedule != "pipedream"
    if can_skip:
        batches[2][0][0, 0] = float("nan")
    results: list[tuple[list[float], Any]] = []
    for together in (False, True):
        torch.manual_seed(0)
        stages = [nn.Sequential(each, nn.Dropout(0.1)) for each in mlps(schedule)]
        pipe = pipeline(
            stages,
            schedule,
            optimizer=make,
            lr_scheduler=lambda each: torch.optim.lr_scheduler.ExponentialLR(each, 0.5),
            skip_nonfinite=can_skip,
            threads=1,
            seed=0,
        )
        losses = [pipe.step(*batches[0])]
        if together:
            losses += pipe.steps(batches[1:4]) + pipe.steps(iter(batches[4:]))
        else:
            losses += [pipe.step(*batch) for batch in batches[1:]]
        results.append((losses, (nn.ModuleList(stages).state_dict(), pipe.state_dict())))
    (losses_one, state_one), (losses_two, state_two) = results
    torch.testing.assert_close(losses_two, losses_one, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(state_two, state_one, rtol=0, atol=0)


def _by_name(make: Callable[..., torch.optim.Optimizer]) -> Callable[[Any], torch.optim.Optimizer]:
    def factory(named_parameters: Any, lr: float = 1e-2) -> torch.optim.Optimizer:
        decayed = [p for name, p in named_parameters if not name.endswith("bias")]
        others = [p for name, p in named_parameters if name.endswith("bias")]
        groups = [{"params": decayed, "weight_decay": 0.3}, {"params": others, "weight_decay": 0}]
        return make(groups, lr=lr)

    return factory


@pytest.mark.parametrize("make", [pt.AdamW, torch.optim.AdamW, torch.optim.SGD])
def test_a_factory_of_named_parameters_decays_by_name(make: Any) -> None:
    stages: list[nn.Module] = [mlp(), mlp()]
    named = list(copy.deepcopy(nn.ModuleList(stages)).named_parameters())

    def plain(parameters: Any) -> torch.optim.Optimizer:
        pairs = [(name, p) for (name, _), p in zip(named, parameters, strict=True)]
        return _by_name(make)(pairs, lr=2e-2)

    ours = functools.partial(_by_name(make), lr=2e-2)
    assert train_both(stages, optimizer=ours, plain_optimizer=plain) == 0


def test_named_parameters_are_passed_on_to_torchs_optimizers() -> None:
    pipe = pipeline([mlp(), mlp()], optimizer=lambda named_parameters: pt.AdamW(named_parameters))
    names = [name for name, _ in mlp().named_parameters()]
    assert [o and o.param_groups[0]["param_names"] for o in pipe.optimizers] == [names, names]
    pipe.step(*batch())
