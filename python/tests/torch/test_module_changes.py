"""A step trains the modules of now: their tensors, settings, hooks and modes, and what is replaced in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from reference import Around, assert_equal, gradients, mlp, mse, pipeline, sgd
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import penstock.torch as pt

CHANGES: dict[str, Callable[[nn.Module], Any]] = {
    "activation replaced": lambda stage: stage.__setitem__(1, nn.Tanh()),  # type: ignore[operator]
    "layer replaced": lambda stage: stage.__setitem__(0, nn.Linear(16, 24)),  # type: ignore[operator]
    "layer appended": lambda stage: stage.append(nn.Linear(16, 16)),  # type: ignore[operator]
    "layer removed": lambda stage: stage.__delitem__(2),  # type: ignore[operator]
    "weight replaced": lambda stage: setattr(stage[0], "weight", nn.Parameter(torch.randn(24, 16))),  # type: ignore[index]
    "memory replaced": lambda stage: setattr(stage[0].weight, "data", torch.randn(24, 16)),  # type: ignore[index]
    "frozen": lambda stage: stage[0].requires_grad_(False),  # type: ignore[index]
    "forward replaced": lambda stage: setattr(stage[1], "forward", torch.tanh),  # type: ignore[index]
    "forward hook": lambda stage: stage[0].register_forward_hook(lambda _, __, output: output * 2),  # type: ignore[index]
    "setting of a layer": lambda stage: setattr(stage[2], "eps", 0.5),  # type: ignore[index]
    "class": lambda stage: setattr(stage[1], "__class__", nn.Tanh),  # type: ignore[index]
    "parameter added": lambda stage: setattr(stage[1], "scale", nn.Parameter(torch.full((24,), 2.0))),  # type: ignore[index]
}


class Scaled(nn.GELU):
    """Reads a parameter that it may have."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * getattr(self, "scale", 1.0)


@pytest.mark.parametrize("change", CHANGES)
def test_modules_are_the_ones_of_now(change: str) -> None:
    stages: list[nn.Module] = [mlp(), mlp()]
    stages[1][1] = Scaled()  # type: ignore[index, operator]
    pipe = pipeline(stages, optimizer=None)
    assert_equal(pipe, stages, mse, torch.randn(8, 16), torch.randn(8, 16))
    CHANGES[change](stages[1])
    for _ in range(2):
        assert_equal(pipe, stages, mse, torch.randn(8, 16), torch.randn(8, 16))
    assert len(pipe.changes) == 1


_IN_TORCH: dict[str, Callable[[pytest.MonkeyPatch], Any]] = {
    "a function that modules call": lambda patch: patch.setattr(nn.functional, "gelu", lambda x, approximate="none": torch.sin(x)),
    "forward of a class": lambda patch: patch.setattr(nn.GELU, "forward", lambda self, x: torch.sin(x)),
    "a call of a class": lambda patch: patch.setattr(nn.GELU, "__call__", lambda self, x: torch.sin(x), raising=False),
    "a method of tensors": lambda patch: patch.setattr(torch.Tensor, "mul", lambda x, y: x + y, raising=False),
}


@pytest.mark.parametrize("what", _IN_TORCH)
def test_what_is_replaced_in_torch_is_the_one_of_now(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stages: list[nn.Module] = [Around(lambda inner, x: inner(x).mul(x)), mlp()]
    pipe = pipeline(stages, optimizer=None)
    assert_equal(pipe, stages, mse, torch.randn(8, 16), torch.randn(8, 16))
    with monkeypatch.context() as patch:
        _IN_TORCH[what](patch)
        assert_equal(pipe, stages, mse, torch.randn(8, 16), torch.randn(8, 16))
    assert_equal(pipe, stages, mse, torch.randn(8, 16), torch.randn(8, 16))


def test_hooks_of_all_modules() -> None:
    hooks: Any = torch.nn.modules.module
    stages: list[nn.Module] = [mlp(), mlp()]
    pipe = pipeline(stages, optimizer=None)
    x = torch.randn(8, 16)
    assert_equal(pipe, stages, mse, x, x)
    for register in (hooks.register_module_forward_hook, hooks.register_module_forward_pre_hook):
        handle = register(lambda module, inputs, *_: inputs[0] * 2 if isinstance(module, nn.GELU) else None)
        try:
            assert_equal(pipe, stages, mse, x, x)
        finally:
            handle.remove()
    for register in (hooks.register_module_full_backward_hook, hooks.register_module_full_backward_pre_hook):
        handle = register(lambda *_: None)
        try:
            with pytest.raises(pt.Error, match="stage 0: torch.nn.modules.module, for all modules, has the hook .*<lambda>"):
                pipe.step(x, x)
        finally:
            handle.remove()
    assert_equal(pipe, stages, mse, x, x)


class Doubled(TorchFunctionMode):
    def __torch_function__(self, function: Any, _: Any, arguments: Any = (), named: Any = None) -> Any:
        result = function(*arguments, **(named or {}))
        return result * 2 if function is torch.tanh else result


class Dispatched(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, _: Any, arguments: Any = (), named: Any = None) -> Any:
        return function(*arguments, **(named or {}))


def test_modes_of_torch_around_a_step() -> None:
    stages: list[nn.Module] = [Around(lambda inner, x: torch.tanh(inner(x))), mlp()]
    pipe = pipeline(stages, optimizer=None)
    x = torch.randn(8, 16)
    assert_equal(pipe, stages, mse, x, x)
    with Doubled():
        assert_equal(pipe, stages, mse, x, x)
    saved = torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
    for mode, text in ((Dispatched(), "a TorchDispatchMode is on"), (saved, "saved_tensors_hooks is on")):
        with mode, pytest.raises(pt.Error, match=text):
            pipe.step(x, x)
    assert_equal(pipe, stages, mse, x, x)


def test_parameters_that_the_optimizer_does_not_know_are_refused_by_name() -> None:
    stages: list[nn.Module] = [mlp(), mlp()]
    pipe = pipeline(stages, optimizer=sgd)
    x = torch.randn(8, 16)
    pipe.step(x, x)
    before, stages[1][0] = stages[1][0], nn.Linear(16, 24)  # type: ignore[index, operator]
    for _ in range(2):
        with pytest.raises(pt.Error, match="stage 1: the optimizer does not know the parameter '0.weight', '0.bias'"):
            pipe.step(x, x)
    stages[1][0] = before  # type: ignore[operator]
    pipe.step(x, x)


def test_modes_of_stages_are_the_ones_of_now() -> None:
    stages: list[nn.Module] = [nn.Sequential(mlp(), nn.Dropout(0.9)), mlp()]
    pipe = pipeline(stages, optimizer=None)
    x = torch.randn(8, 16)
    pipe.step(x, x)
    for stage in stages:
        stage.eval()
    gradients(stages)
    assert_equal(pipe, stages, mse, x, x)
    for stage in stages:
        stage.train()
    one = pipe.step(x, x)
    assert one != pipe.step(x, x)
