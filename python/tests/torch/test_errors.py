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
    "eval": lambda stage: stage.eval(),
    "freeze": lambda stage: stage[0].weight.requires_grad_(False),
    "replace": lambda stage: setattr(stage[0].weight, "data", torch.zeros(24, 16)),
    "assign": lambda stage: stage.load_state_dict(copy.deepcopy(stage.state_dict()), assign=True),
    "hook": lambda stage: stage[0].register_forward_hook(_print_norm),
    "hook of a weight": lambda stage: stage[0].weight.register_hook(_print_norm),
    "change a constant": lambda stage: stage.get_buffer("offset").zero_(),
    "change a tensor": lambda stage: stage.scale.mul_(2),
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
        (lambda: [_changed("hook"), mlp()], {}, "stage 0: module '0' has the hook .*print_norm"),
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


class HasConstants(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(*mlp())
        self.register_buffer("offset", torch.ones(16), persistent=False)
        self.scale = torch.ones(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.scale + self.offset


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("eval", "module 'HasConstants' is in eval mode, but was captured in train mode"),
        ("change a constant", "buffer 'offset' was changed, but it is a constant of compiled steps"),
        ("change a tensor", "tensor 'scale' was changed, but it is a constant of compiled steps"),
        ("freeze", "parameter '0.weight' has requires_grad=False"),
        ("replace", "parameter '0.weight' was replaced"),
        ("assign", "parameter '0.weight' was replaced"),
        ("hook", "module '0' has the hook _print_norm"),
        ("hook of a weight", "parameter '0.weight' has the hook _print_norm"),
    ],
)
def test_changes_that_compiled_stages_would_ignore_are_refused(change: str, text: str) -> None:
    stages: list[nn.Module] = [mlp(), HasConstants()]
    pipe = pipeline(stages)
    x = torch.randn(8, 16)
    pipe.step(x, x)
    _CHANGES[change](stages[1])
    with pytest.raises(pt.Error, match=f"stage 1: {re.escape(text)}"):
        pipe.step(x, x)


@pytest.mark.parametrize("change", ["freeze", "replace", "assign"])
def test_tensors_that_are_replaced_before_the_first_step_are_refused(change: str) -> None:
    stages: list[nn.Module] = [mlp(), mlp()]
    pipe = pipeline(stages)
    _CHANGES[change](stages[1])
    x = torch.randn(8, 16)
    with pytest.raises(pt.Error, match="stage 1: parameter '0.weight' .*make a new Pipeline"):
        pipe.step(x, x)


def test_the_same_tensors_in_other_containers_are_refused() -> None:
    stages: list[nn.Module] = [mlp(), mlp()]
    pipe = pipeline(stages)
    x = torch.randn(8, 16)
    pipe.step({"input": x}, x)
    with pytest.raises(pt.Error, match="another structure"):
        pipe.step(x, x)
    pipe.step({"input": x}, x)


def test_graphs_are_text() -> None:
    pipe = pipeline([mlp(), mlp()])
    with pytest.raises(pt.Error, match="stage 1 is not compiled: call step first"):
        pipe.graph(1)
    x = torch.randn(8, 16)
    pipe.step(x, x)
    assert re.findall(r"^graph (\w+)", pipe.graph(1), re.M) == ["forward", "backward_input", "backward_weight"]
    with pytest.raises(pt.Error, match="no stage 2: give one from 0 to 1"):
        pipe.graph(2)


def test_attributes_that_change_are_reported() -> None:
    stages: list[nn.Module] = [nn.Sequential(mlp(), nn.Dropout(0.1)), mlp()]
    pipe = pipeline(stages)
    x = torch.randn(8, 16)
    pipe.step(x, x)
    stages[0][1].p = 0.2  # type: ignore[index]
    with pytest.warns(UserWarning, match="stage 0: 'p' of module '1' changed from 0.1 to 0.2"):
        pipe.step(x, x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipe.step(x, x)  # says so once


def test_another_autocast_than_in_the_first_step_is_refused() -> None:
    pipe = pipeline([mlp(), mlp()])
    x = torch.randn(8, 16)
    with torch.autocast(x.device.type, dtype=torch.bfloat16):
        pipe.step(x, x)
    with pytest.raises(pt.Error, match="torch.autocast is off, but was torch.bfloat16"):
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
