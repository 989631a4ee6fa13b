"""Errors are one line that names what the user wrote."""

from __future__ import annotations

import copy
import os
import re
import signal
import warnings
from typing import Any

import pytest
import torch
from forks import Fork
from reference import Around, batch, distance, mlp, mlps, pipeline, sgd
from torch import nn

import penstock.torch as pt


def _step(stages: list[nn.Module], **arguments: Any) -> str:
    """Returns the one-line error of a step."""
    with pytest.raises(pt.Error) as raised:
        pipeline(stages, **arguments).step(*batch())
    text = str(raised.value)
    assert "\n" not in text
    return text


def _fails(_: nn.Module, x: torch.Tensor) -> torch.Tensor:
    raise ValueError("the user's own error\nwith a second line")


def _failing_loss(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    raise ValueError("no such class")


def _print_norm(*_: object) -> None: ...


# What a caller may do to a stage.
_CHANGES: dict[str, Any] = {
    "freeze": lambda stage: stage[0].weight.requires_grad_(False),
    "assign": lambda stage: stage.load_state_dict(copy.deepcopy(stage.state_dict()), assign=True),
    "backward hook": lambda stage: stage[0].register_full_backward_hook(_print_norm),
    "hook of a weight": lambda stage: stage[0].weight.register_hook(_print_norm),
}


def _changed(change: str) -> nn.Module:
    module = mlp()
    _CHANGES[change](module)
    return module


_IN_FORWARD = r"stage 1, forward at .*test_errors\.py:\d+ in "


@pytest.mark.parametrize(
    ("stages", "arguments", "text"),
    [
        (lambda: [mlp(), Around(lambda _, x: x * x.sum().item())], {}, _IN_FORWARD + "<lambda>: .*reads a value"),
        (lambda: [mlp(), Around(lambda _, x: x[x > 0])], {}, _IN_FORWARD + "<lambda>: .*depends on data"),
        (lambda: [mlp(), Around(_fails)], {}, _IN_FORWARD + "_fails: the user's own error$"),
        (lambda: [_changed("backward hook"), mlp()], {}, "stage 0: module '0' has the hook .*print_norm"),
        (lambda: [_changed("hook of a weight"), mlp()], {}, "parameter '0.weight'"),
        (lambda: [mlp().to("meta"), mlp()], {}, "parameter '0.weight' is on meta"),
        (lambda: [mlp().double(), mlp()], {}, "parameter '0.weight' is torch.float64"),
        (lambda: [nn.Sequential(torch.compile(mlp())), mlp()], {}, "'0' is a result of torch.compile"),  # type: ignore[arg-type]
        (mlps, {"loss": lambda a, b: a - b}, "no scalar"),
        (mlps, {"loss": _failing_loss}, r"stage 1, loss at .*test_errors\.py:\d+ in _failing_loss: no such class$"),
        (mlps, {"optimizer": torch.optim.LBFGS}, "missing 1 required positional argument: 'closure'"),
    ],
)
def test_what_a_step_cannot_do_is_refused(stages: Any, arguments: dict[str, Any], text: str) -> None:
    assert re.search(text, _step(stages(), **arguments))


def test_the_number_of_stages_must_fit() -> None:
    with pytest.raises(pt.Error, match="3 modules"):
        pipeline([mlp(), mlp(), mlp()])


def test_a_failed_step_ends_the_pipeline() -> None:
    def fail(parameters: Any) -> torch.optim.Optimizer:
        class Broken(torch.optim.SGD):
            def step(self, closure: Any = None) -> None:
                raise RuntimeError("disk full")

        return Broken(parameters, lr=0.1)

    pipe = pipeline([mlp(), mlp()], optimizer=fail)
    x = torch.randn(8, 16)
    with pytest.raises(pt.Error, match="disk full"):
        pipe.step(x, x)
    with pytest.raises(pt.Error, match="an earlier step failed: make a new Pipeline"):
        pipe.step(x, x)


def test_ctrl_c_ends_a_step() -> None:
    script = """
import signal, torch, penstock.torch as pt
from torch import nn
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's jobs ignore it
pipe = pt.Pipeline([nn.Linear(64, 64), nn.Linear(64, 64)], ranks=2, microbatches=4, loss=nn.functional.mse_loss)
x = torch.randn(8, 64)
pipe.step(x, x)
print("ready", flush=True)
while True:
    pipe.step(x, x)
"""
    with Fork(script) as process:
        assert next(process.lines()) == "ready\n"
        assert process.process.pid is not None
        os.kill(process.process.pid, signal.SIGINT)
        assert "KeyboardInterrupt" in process.ended()[2]


class AssignsBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls = self.calls + 1
        return self.inner(x) * self.calls


@pytest.mark.parametrize("stage", [0, 1])
def test_in_place_changes_of_inputs_are_refused(stage: int) -> None:
    stages: list[nn.Module] = [mlp(), mlp()]
    stages[stage] = Around(lambda _, x: x.add_(1))
    text = _step(stages)
    assert re.search(r"test_errors\.py:\d+ in <lambda>: .*: compute a new tensor instead", text)


def test_assigned_buffers_are_refused_and_stay() -> None:
    module = AssignsBuffer()
    assert "new tensor to the buffer 'calls'" in _step([module, mlp()])
    assert module.calls.item() == 0


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda x: x.to("meta"), "inputs are on meta"),
        (lambda x: x.to_sparse(), "inputs are torch.sparse_coo"),
        (lambda x: x[:0], "0 samples, fewer than the 4 microbatches"),
        (lambda x: x.numpy(), "inputs contain a numpy.ndarray"),
        (lambda x: 3, "inputs contain no tensor"),
    ],
)
def test_inputs_that_are_no_batch_are_refused(make: Any, text: str) -> None:
    pipe = pipeline([mlp(), mlp()])
    x = torch.randn(8, 16)
    with pytest.raises(pt.Error, match=text):
        pipe.step(make(x), x)
    pipe.step(x, x)  # nothing has run, so the pipeline can be used


def test_a_refused_batch_of_several_steps_runs_none() -> None:
    stages = [mlp(), mlp()]
    pipe = pipeline(stages)
    x = torch.randn(8, 16)
    assert pipe.steps([]) == []
    pipe.step(x, x)
    before = copy.deepcopy(stages)
    for each, text in (((x[:6], x), "6 samples"), (x, "batch 1 is not a pair"), ((), "batch 1")):
        with pytest.raises(pt.Error, match=text):
            pipe.steps([(x, x), each])  # type: ignore[list-item]
    assert distance(stages, before) == 0
    assert len(pipe.steps([(x, x), [x, x]])) == 2


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"ranks": 0}, "ranks is 0"),
        ({"threads": 0}, "threads is 0"),
        ({"timeout": 0}, "timeout is 0"),
        ({"clip_grad_norm": -1.0}, "clip_grad_norm is -1.0"),
        ({"clip_grad_norm": float("nan")}, "clip_grad_norm is nan"),
        ({"optimizer": None, "lr_scheduler": lambda o: o}, "lr_scheduler needs an optimizer"),
        ({"schedule": 7}, "schedule is 7: give a name"),
        ({"schedule": "none"}, "no schedule is called 'none'"),
        ({"stages": []}, "0 modules"),
        ({"stages": [None, mlp()]}, r"stages\[0\] is None"),
        ({"data_parallel": 0}, "data_parallel is 0: give at least 1"),
        ({"data_parallel": 3}, "microbatches is 4, which the 3 replicas .* do not divide"),
        ({"zero": 4}, "zero is 4: give 0 to 3"),
        ({"zero": 1, "optimizer": None}, "zero shards what an optimizer updates"),
        ({"data_parallel": 2, "zero": 1, "optimizer": sgd}, r"optimizer: torch.optim.sgd.SGD cannot .* penstock.torch.AdamW"),
        ({"precision": torch.float16}, "precision is .*: give torch.bfloat16"),
        ({"gradient_dtype": torch.float64}, "gradient_dtype is .*: give torch.float32 or"),
        ({"schedule": "pipedream", "data_parallel": 2}, "data_parallel: .*does not flush"),
        ({"recompute": "least"}, "recompute is 'least': give a dict with the keys hold and hold_for_weight"),
        ({"recompute": {"modules": "mlp"}}, "give a dict with the keys hold and hold_for_weight"),
        ({"recompute": {"hold": 5}}, "recompute: hold is 5: give 'all', 'least' or a size"),
        ({"recompute": {"hold": "some"}}, "recompute: hold: 'some' is none of: all, least, or bytes"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: dict[str, Any], text: str) -> None:
    given = {"stages": [mlp(), mlp()], "ranks": 2, "microbatches": 4, "loss": nn.functional.mse_loss, **arguments}
    with pytest.raises(pt.Error, match=text) as raised:
        pt.Pipeline(**given)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("change", ["backward hook", "hook of a weight"])
def test_hooks_that_compiled_steps_would_not_call_are_refused(change: str) -> None:
    stages: list[nn.Module] = [mlp(), mlp()]
    pipe = pipeline(stages)
    x = torch.randn(8, 16)
    pipe.step(x, x)
    _CHANGES[change](stages[1])
    with pytest.raises(pt.Error, match="stage 1: .*'0.*' has the hook _print_norm"):
        pipe.step(x, x)


@pytest.mark.parametrize("zero", [1, 3])
@pytest.mark.parametrize("change", ["freeze", "assign"])
def test_tensors_that_replicas_divide_may_not_be_replaced(change: str, zero: int) -> None:
    stages: list[nn.Module] = [mlp(), mlp()]
    pipe = pipeline(stages, data_parallel=2, zero=zero)
    x = torch.randn(8, 16)
    pipe.step(x, x)
    pipe.gather()
    _CHANGES[change](stages[1])
    with pytest.raises(pt.Error, match="stage 1: parameter '0.weight' .*make a new Pipeline"):
        pipe.step(x, x)


def test_graphs_are_text() -> None:
    pipe = pipeline([mlp(), mlp()])
    with pytest.raises(pt.Error, match="stage 1 is not compiled: call step first"):
        pipe.graph(1)
    x = torch.randn(8, 16)
    pipe.step(x, x)
    assert re.findall(r"^graph (\w+)", pipe.graph(1), re.M) == ["forward", "backward_input", "backward_weight"]
    with pytest.raises(pt.Error, match="no stage 2: give one from 0 to 1"):
        pipe.graph(2)


def test_inference_mode_is_refused() -> None:
    pipe = pipeline([mlp(), mlp()])
    x = torch.randn(8, 16)
    pipe.step(x, x)
    with torch.inference_mode(), pytest.raises(pt.Error, match="inference_mode is on"):
        pipe.step(x, x)


def test_a_new_shape_that_fails_is_reported_with_its_line() -> None:
    def long(inner: nn.Module, x: torch.Tensor) -> Any:
        if len(x) > 2:
            raise KeyError("too long\nfor me")
        return inner(x)

    pipe = pipeline([mlp(), Around(long)])
    pipe.step(*batch())
    x = torch.randn(16, 16)
    expected = r"^stage 1, forward at .*test_errors\.py:\d+ in long: KeyError"
    for _ in range(2):
        with pytest.raises(pt.Error, match=expected) as raised:
            pipe.step(x, x)
        assert "\n" not in str(raised.value)
    pipe.step(*batch())
