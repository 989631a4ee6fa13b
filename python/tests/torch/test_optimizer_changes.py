"""States, groups, hooks and optimizers that the caller changes count from the next step on."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from reference import Around, accumulate, batch, chain, distance, mlp, mlps, mse, pipeline, train_both
from torch import nn

import penstock.torch as pt

_Change = Callable[[torch.optim.Optimizer], Any]


def _first(optimizer: torch.optim.Optimizer) -> torch.Tensor:
    parameter: torch.Tensor = optimizer.param_groups[0]["params"][0]
    return parameter


def _replace_state(optimizer: torch.optim.Optimizer) -> None:
    parameter = _first(optimizer)
    optimizer.state[parameter] = {key: value * 2 for key, value in optimizer.state[parameter].items()}


def _replace_moment(optimizer: torch.optim.Optimizer) -> None:
    parameter = _first(optimizer)
    optimizer.state[parameter]["exp_avg"] = torch.full_like(parameter, 0.5)


def _replace_all(optimizer: torch.optim.Optimizer) -> None:
    state = copy.deepcopy(optimizer.state_dict()["state"])
    optimizer.state = type(optimizer.state)(dict)
    for number, parameter in enumerate(optimizer.param_groups[0]["params"]):
        optimizer.state[parameter] = state[number]


def _halve(optimizer: torch.optim.Optimizer) -> None:
    state = copy.deepcopy(optimizer.state_dict())
    for of_parameter in state["state"].values():
        of_parameter["exp_avg"] /= 2
    optimizer.load_state_dict(state)


def _replace_group(optimizer: torch.optim.Optimizer) -> None:
    optimizer.param_groups[0] = {**optimizer.param_groups[0], "lr": 0.2}


def _drop_parameter(optimizer: torch.optim.Optimizer) -> None:
    del optimizer.param_groups[0]["params"][0]


def _swap_parameters(optimizer: torch.optim.Optimizer) -> None:
    """The same number of parameters in each group, but others."""
    last = optimizer.param_groups[0]["params"].pop()
    optimizer.add_param_group({"params": [last], "lr": 0.3})


def _scale_gradients(optimizer: torch.optim.Optimizer, *_: object) -> None:
    for parameter in (each for group in optimizer.param_groups for each in group["params"]):
        parameter.grad.add_(0.1)


def _scale_weights(optimizer: torch.optim.Optimizer, *_: object) -> None:
    for parameter in (each for group in optimizer.param_groups for each in group["params"]):
        parameter.data.mul_(0.9)


def _shrink_after(optimizer: torch.optim.Optimizer) -> None:
    step = optimizer.step

    def shrinking() -> None:
        step()
        _scale_weights(optimizer)

    optimizer.step = shrinking  # type: ignore[assignment]


def _shrinking_class(optimizer: torch.optim.Optimizer) -> None:
    optimizer.__class__ = type("Shrinking", (type(optimizer),), {"step": lambda self: _scale_weights(self)})


_CHANGES: dict[str, _Change] = {
    "a step": _shrink_after,
    "a class": _shrinking_class,
    "coupled decay": lambda o: o.param_groups[0].update(decoupled_weight_decay=False, weight_decay=0.1),
    "state.clear": lambda o: o.state.clear(),
    "state.pop": lambda o: o.state.pop(_first(o)),
    "a state": _replace_state,
    "a moment": _replace_moment,
    "a moment in place": lambda o: o.state[_first(o)]["exp_avg"].fill_(0.5),
    "a count of steps": lambda o: o.state[_first(o)].update(step=torch.tensor(40.0)),
    "all states": _replace_all,
    "load_state_dict": _halve,
    "lr": lambda o: o.param_groups[0].update(lr=0.2),
    "betas": lambda o: o.param_groups[0].update(betas=(0.5, 0.5)),
    "a group": _replace_group,
    "fewer parameters": _drop_parameter,
    "other groups": _swap_parameters,
    "maximize": lambda o: o.param_groups[0].update(maximize=True),
    "a hook before": lambda o: o.register_step_pre_hook(_scale_gradients),
    "a hook after": lambda o: o.register_step_post_hook(_scale_weights),
}


def _train(
    pipe: pt.Pipeline, plain: list[nn.Module], plain_optimizers: list[Any], changes: list[_Change], *, together: bool
) -> None:
    """Trains two steps before each of the changes, and after the last one."""
    for change in [*changes, None]:
        batches = [batch() for _ in range(2)]
        losses = pipe.steps(batches) if together else [pipe.step(*each) for each in batches]
        for (x, y), loss in zip(batches, losses, strict=True):
            assert loss == pytest.approx(accumulate(chain(plain), mse, x, y, 4), rel=1e-6)
            for optimizer in plain_optimizers:
                optimizer.step()
            for stage in plain:
                stage.zero_grad()
        if change is not None:
            for optimizer in (*pipe.optimizers, *plain_optimizers):
                change(optimizer)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("name", _CHANGES)
def test_changes_of_an_optimizer_count_from_the_next_step(name: str, together: bool) -> None:
    for make in (pt.AdamW, functools.partial(torch.optim.AdamW, fused=True)):
        stages = mlps()
        plain = copy.deepcopy(stages)
        pipe = pipeline(stages, optimizer=functools.partial(make, lr=0.01), exact=True)  # type: ignore[arg-type]
        optimizers = [torch.optim.AdamW(each.parameters(), lr=0.01, fused=True) for each in plain]
        _train(pipe, plain, optimizers, [_CHANGES[name]], together=together)
        assert distance(stages, plain) == 0, make


def test_many_changes_of_one_optimizer() -> None:
    stages = mlps()
    plain = copy.deepcopy(stages)
    pipe = pipeline(stages, optimizer=functools.partial(pt.AdamW, lr=0.01), exact=True)
    optimizers = [torch.optim.AdamW(each.parameters(), lr=0.01, fused=True) for each in plain]
    hooks: list[Any] = []

    def add_hook(optimizer: torch.optim.Optimizer) -> None:
        hooks.append(optimizer.register_step_pre_hook(_scale_gradients))

    def remove_hooks(_: object) -> None:
        while hooks:
            hooks.pop().remove()

    names = ["state.clear", "a moment", "lr", "load_state_dict", "a group"]
    changes: list[_Change] = [add_hook, remove_hooks, *(_CHANGES[name] for name in names)]
    _train(pipe, plain, optimizers, changes, together=False)
    assert distance(stages, plain) == 0


_OTHERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.02, fused=True),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
}


@pytest.mark.parametrize("as_list", [False, True])
@pytest.mark.parametrize("together", [False, True])
def test_an_optimizer_in_place_of_another_updates_from_the_next_step(together: bool, as_list: bool) -> None:
    stages = mlps("zb-h1")
    plain = copy.deepcopy(stages)
    pipe = pipeline(stages, "zb-h1", exact=True)
    optimizers = [torch.optim.AdamW(each.parameters(), fused=True) for each in plain]
    _train(pipe, plain, optimizers, [], together=together)
    for name, make in [*_OTHERS.items(), *_OTHERS.items()]:
        own = pt.AdamW(stages[1].parameters(), lr=0.02) if name == "AdamW" else make(stages[1].parameters())
        if as_list:
            pipe.optimizers = [pipe.optimizers[0], own]
        else:
            pipe.optimizers[1] = own
        optimizers[1] = make(plain[1].parameters())  # type: ignore[call-overload]
        _train(pipe, plain, optimizers, [_CHANGES["lr"]], together=together)
        assert distance(stages, plain) == 0, name
    assert [type(each) for each in pipe.optimizers] == [pt.AdamW, torch.optim.Adagrad]


def test_what_cannot_replace_an_optimizer_is_refused_before_the_step() -> None:
    stages = mlps()
    pipe = pipeline(stages)
    pipe.step(*batch())
    before, own = copy.deepcopy(stages), pipe.optimizers[0]
    others: list[tuple[Any, str]] = [
        (None, "optimizers: stage 0 has None, not a torch.optim.Optimizer: set lr=0"),
        (pt.AdamW, "optimizers: stage 0 has a type, not a torch.optim.Optimizer"),
        (torch.optim.SGD(stages[1].parameters(), lr=0.1), "stage 0: parameter group 0 of the optimizer has a tensor that"),
    ]
    for other, text in others:
        pipe.optimizers[0] = other
        for call in (lambda: pipe.step(*batch()), pipe.state_dict):
            with pytest.raises(pt.Error, match=text):
                call()
    pipe.optimizers[0] = own
    pipe.optimizers.append(own)
    with pytest.raises(pt.Error, match="optimizers has 3 entries"):
        pipe.step(*batch())
    assert distance(stages, before) == 0
    pipe.optimizers.pop()
    pipe.step(*batch())


def test_replicas_that_divide_states_refuse_what_their_update_would_ignore() -> None:
    def sharded() -> pt.Pipeline:
        return pipeline(mlps(), optimizer=pt.AdamW, data_parallel=2, zero=1)

    pipe = sharded()
    pipe.step(*batch())
    pipe.optimizers[0].register_step_pre_hook(_scale_gradients)  # type: ignore[union-attr]
    with pytest.raises(pt.Error, match="stage 0: penstock.torch.AdamW has the hook _scale_gradients"):
        pipe.step(*batch())
    pipe = sharded()
    pipe.optimizers[0] = torch.optim.SGD(pipe.optimizers[0].param_groups[0]["params"])  # type: ignore[union-attr]
    with pytest.raises(pt.Error, match="SGD cannot be divided among the replicas"):
        pipe.step(*batch())


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_states_in_shards_that_are_cleared_begin_anew(zero: int) -> None:
    stages = mlps()
    plain = copy.deepcopy(stages)
    make = functools.partial(pt.AdamW, eps=1e-3)
    pipe = pipeline(stages, optimizer=make, data_parallel=2, zero=zero)
    optimizers = [torch.optim.AdamW(each.parameters(), eps=1e-3) for each in plain]
    _train(pipe, plain, optimizers, [lambda o: o.state.clear()], together=False)
    pipe.gather()
    assert distance(stages, plain) < 1e-5


def _partly_used() -> nn.Module:
    """A layer that only some shapes use, and one that none does."""

    def forward(inner: nn.Module, wide: nn.Module, unused: nn.Module, x: torch.Tensor) -> Any:
        return wide(inner(x)) if x.shape[0] > 1 else inner(x)

    return Around(forward, mlp(), nn.Linear(16, 16), nn.Linear(16, 16))


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("data", [1, 2])
def test_a_weight_without_gradient_is_not_touched(zero: int, data: int) -> None:
    """In each step: what one shape does not use, another one does."""
    stages: list[nn.Module] = [_partly_used(), _partly_used()]
    for native in (True, False) if zero == 0 else (True,):
        own = copy.deepcopy(stages)
        plain = copy.deepcopy(stages)
        make: Any = functools.partial((pt if native else torch.optim).AdamW, lr=0.1, weight_decay=0.1, eps=1e-3)
        pipe = pipeline(own, optimizer=make, data_parallel=data, zero=zero)
        optimizer = torch.optim.AdamW(nn.ModuleList(plain).parameters(), lr=0.1, weight_decay=0.1, eps=1e-3)
        for samples in (4, 8, 4, 4):
            x, y = batch(samples)
            assert pipe.step(x, y) == pytest.approx(accumulate(chain(plain), mse, x, y, 4), rel=1e-5)
            optimizer.step()
            optimizer.zero_grad()
        pipe.gather()
        assert distance(own, plain) < 1e-4
        for one, other in zip(own, stages, strict=True):
            assert distance([one.inner[2]], [other.inner[2]]) == 0  # type: ignore[index]


def test_a_weight_that_only_some_steps_use_is_updated_in_these() -> None:
    stages: list[nn.Module] = [_partly_used(), _partly_used()]
    plain = copy.deepcopy(stages)
    pipe = pipeline(stages, optimizer=functools.partial(pt.AdamW, lr=0.1), exact=True)
    optimizer = torch.optim.AdamW(nn.ModuleList(plain).parameters(), lr=0.1, fused=True)
    batches = [batch(samples) for samples in (4, 8, 4, 8, 8, 4, 4)]
    pipe.steps(batches)
    for x, y in batches:
        accumulate(chain(plain), mse, x, y, 4)
        optimizer.step()
        optimizer.zero_grad()
    assert distance(stages, plain) == 0


@pytest.mark.parametrize("before", [0, 2])
def test_a_resume_draws_the_random_numbers_of_the_run(before: int) -> None:
    def make(seed: int) -> tuple[list[nn.Module], pt.Pipeline]:
        torch.manual_seed(seed)
        stages: list[nn.Module] = [nn.Sequential(mlp(), nn.Dropout(0.3)), mlp()]
        return stages, pipeline(stages)

    batches = [batch() for _ in range(4)]
    stages, pipe = make(1)
    for each in batches[:2]:
        pipe.step(*each)
    saved = copy.deepcopy([pipe.state_dict(), *(stage.state_dict() for stage in stages)])
    losses = [pipe.step(*each) for each in batches[2:]]

    again, resumed = make(2)
    for each in batches[:before]:
        resumed.step(*each)
    for stage, state in zip(again, saved[1:], strict=True):
        stage.load_state_dict(state)
    resumed.load_state_dict(saved[0])
    assert [resumed.step(*each) for each in batches[2:]] == losses
    assert distance(stages, again) == 0
    assert resumed.state_dict()["seed"] == saved[0]["seed"]


def test_states_without_a_seed_are_loaded_and_unlike_seeds_are_refused() -> None:
    pipe = pipeline(mlps(), seed=3)
    pipe.step(*batch())
    state = pipe.state_dict()
    assert state["seed"] == 3
    older = {key: value for key, value in state.items() if key != "seed"}
    other = pipeline(mlps(), seed=4)
    other.load_state_dict(older)
    assert other.state_dict()["seed"] == 4
    with pytest.raises(pt.Error, match=r"the states have the seeds \[3, 5\]"):
        other.load_state_dict([state, {**state, "seed": 5}])
    with pytest.raises(pt.Error, match="seed is 'a': pass a whole number from 0 on"):
        other.load_state_dict({**state, "seed": "a"})
    assert train_both(mlps()) == 0
