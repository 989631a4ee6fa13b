"""Every wrong argument of penstock.torch is an Error of one line."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import pathlib
import pickle
import re
import tempfile
import threading
from typing import Any

import pytest
import torch
from reference import distance, mlp
from torch import nn
from wrong_values import complaints

import penstock.torch as pt
from penstock.torch import slices

_mse = nn.functional.mse_loss


def _three() -> nn.Module:
    return nn.Sequential(mlp(), mlp(), mlp())


_OPTIONS = inspect.signature(pt.Pipeline).parameters


def _arguments() -> dict[str, Any]:
    """Returns all arguments of a Pipeline."""
    given = {"stages": [mlp(), mlp()], "ranks": 2, "microbatches": 2, "loss": _mse, "threads": 1}
    return {**{name: each.default for name, each in _OPTIONS.items()}, **given, "timeout": 60.0}


def test_every_option_is_documented() -> None:
    assert re.findall(r"^        (\w+): ", pt.Pipeline.__doc__ or "", re.M) == [*_OPTIONS, "Error"]


def test_arguments_of_pipelines() -> None:
    # These many ranks or microbatches take long to be generated, but are no error.
    assert complaints(pt.Pipeline, _arguments) == []


def test_arguments_that_are_noticed_in_the_first_step() -> None:
    def step(**given: Any) -> None:
        pt.Pipeline(**given).step(torch.randn(4, 16), torch.randn(4, 16))

    assert complaints(step, _arguments, only=("loss", "loss_weight", "optimizer")) == []


def test_a_dropped_pipeline_warns_of_nothing(recwarn: pytest.WarningsRecorder, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pipe = pt.Pipeline(**_arguments())
    assert len(list(tmp_path.iterdir())) == 1
    del pipe
    gc.collect()
    assert not list(tmp_path.iterdir())
    assert not [each for each in recwarn if each.category is ResourceWarning]


def test_unknown_keywords() -> None:
    pipe = pt.Pipeline(**_arguments())
    x = torch.randn(4, 16)
    for call, text in {
        lambda: pt.Pipeline(**_arguments(), lr=1e-3): "no keyword 'lr'; it is of the optimizer: optimizer=lambda parameters",
        lambda: pt.Pipeline([mlp()], rank=1): "Pipeline: there is no keyword 'rank'; did you mean 'ranks'?",
        lambda: pt.Pipeline([mlp()], dp=2): "did you mean 'data_parallel'?",
        lambda: pipe.step(x, target=x): "step: there is no keyword 'target'; did you mean 'targets'?",
        lambda: pipe.eval_step(input=x): "did you mean 'inputs'?",
        lambda: pt.split(_three(), x, stage=2): "split: there is no keyword 'stage'; did you mean 'stages'?",
        lambda: pt.AdamW(mlp().parameters(), learning_rate=1): "AdamW: there is no keyword 'learning_rate'",
        lambda: pt.record(runtimes=None): "record: there is no keyword 'runtimes'; did you mean 'runtime'?",
    }.items():
        with pytest.raises(pt.Error, match=re.escape(text)):
            call()  # type: ignore[no-untyped-call]


def test_arguments_of_methods() -> None:
    pipe = pt.Pipeline(**_arguments())
    x = torch.randn(4, 16)
    pipe.step(x, x)
    state = pipe.state_dict()
    batch = {"inputs": x, "targets": x}
    assert complaints(pipe.step, batch) == []
    assert complaints(pipe.eval_step, batch) == []
    assert complaints(pipe.steps, {"batches": [(x, x)]}) == []
    assert complaints(pipe.load_state_dict, {"state": state}) == []
    for key in state:
        assert complaints(lambda **of: pipe.load_state_dict(of), state, only=(key,)) == []

    def load(of: Any) -> None:
        pipe.load_state_dict({**state, "optimizers": [of, of]})

    assert complaints(load, {"of": {}}) == []
    pipe.load_state_dict(state)
    assert complaints(pipe.graph, {"stage": 0}) == []
    pipe.step(x, x)


def test_wrong_first_batches() -> None:
    x = torch.randn(4, 16)

    def first(**batch: Any) -> None:
        pt.Pipeline(**_arguments()).step(**batch)

    assert complaints(first, {"inputs": x, "targets": x}) == []
    tensors = {
        "int": lambda: torch.ones(4, 16, dtype=torch.int64),
        "bool": lambda: torch.ones(4, 16, dtype=torch.bool),
        "complex": lambda: torch.ones(4, 16, dtype=torch.complex64),
        "scalar": lambda: torch.ones(()),
        "empty": lambda: torch.ones(0),
        "vector": lambda: torch.ones(4),
        "wide": lambda: torch.ones(4, 17),
        "other batch": lambda: torch.ones(6, 16),
        "meta": lambda: torch.ones(4, 16, device="meta"),
        "sparse": lambda: torch.ones(4, 16).to_sparse(),
    }
    assert complaints(first, {"inputs": x, "targets": x}, makers=tensors) == []


@pytest.mark.parametrize(
    ("stages", "text"),
    [
        (-1, "stages is -1: give at least 1"),
        (0, "stages is 0: give at least 1"),
        (2.0, "stages is 2.0: give the number of stages, or a list of the names"),
        ("1", "stages is '1': give the number"),
        (["1", "1"], "'1' begins two stages"),
        (["0"], "stage 0 is empty, because nothing runs before '0'"),
        (["2", "1"], "does not call '1' after"),
        (["9"], "no module '9'"),
        (4, "3 layers cannot form 4 stages"),
    ],
)
def test_stages_that_a_model_does_not_have(stages: Any, text: str) -> None:
    with pytest.raises(pt.Error, match=text):
        pt.split(_three(), torch.randn(2, 16), stages)


def _profile(stages: Any, inputs: Any, **given: Any) -> Any:
    return pt.profile(stages, inputs, **given)


def _ones() -> torch.Tensor:
    return torch.ones(2, 16)


@pytest.mark.parametrize(
    ("function", "good"),
    [
        (pt.split, lambda: {"model": _three(), "inputs": _ones(), "stages": 2, "by": "even"}),
        (
            functools.partial(_profile, inputs=_ones()),
            lambda: {
                "stages": [mlp(), mlp()], "loss_fn": _mse, "target": _ones(), "repeat": 1,
                "warmup": 0, "split": False,
            },
        ),
        (functools.partial(_profile, [mlp()], repeat=1), lambda: {"inputs": _ones()}),
        (
            pt.AdamW,
            lambda: {
                "params": [nn.Parameter(torch.ones(2))], "lr": 1e-3, "betas": (0.9, 0.99),
                "eps": 1e-8, "weight_decay": 0.0,
            },
        ),
        (slices.Slice().extend, lambda: dict.fromkeys(("keys", "values"), torch.ones(1, 1, 2, 4))),
    ],
    ids=["split", "profile", "inputs of profile", "AdamW", "extend"],
)  # fmt: skip
def test_arguments_of_other_functions(function: Any, good: Any) -> None:
    assert complaints(function, good) == []


def test_slices_need_a_stage_that_runs() -> None:
    keys = torch.ones(1, 1, 2, 4)
    with pytest.raises(pt.Error, match="no stage is captured for a slice"):
        slices.Slice().extend(keys, keys)
    with pytest.raises(pt.Error, match="no stage runs a slice"):
        slices.Slice().start  # noqa: B018


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, pickle.dumps])
def test_pipelines_are_not_copied(copier: Any) -> None:
    pipe = pt.Pipeline(**_arguments())
    with pytest.raises(pt.Error, match="a Pipeline cannot be copied or pickled: copy its modules"):
        copier(pipe)


def test_modules_that_are_not_ready() -> None:
    lazy = nn.Sequential(nn.LazyLinear(16))
    with pytest.raises(pt.Error, match="stage 1: '0.weight' is not initialized.*run the modules"):
        pt.Pipeline(**{**_arguments(), "stages": [mlp(), lazy]})
    lazy(torch.randn(2, 16))
    x = torch.randn(4, 16)
    pt.Pipeline(**{**_arguments(), "stages": [mlp(), lazy]}).step(x, x)


class Wants:
    def step(self, loss: float, epoch: Any = None) -> None: ...


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (torch.optim.lr_scheduler.ReduceLROnPlateau, "ReduceLROnPlateau.step needs metrics"),
        (lambda o: Wants(), "Wants.step needs loss"),
        (lambda o: None, "lr_scheduler returned None"),
        (lambda: None, "lr_scheduler: TypeError"),
    ],
)
def test_schedulers_that_cannot_step_alone_are_refused_at_once(make: Any, text: str) -> None:
    stages = [mlp(), mlp()]
    before = copy.deepcopy(stages)
    with pytest.raises(pt.Error, match=text) as raised:
        pt.Pipeline(**{**_arguments(), "stages": stages, "lr_scheduler": make})
    assert "\n" not in str(raised.value)
    assert distance(stages, before) == 0


def test_only_one_thread_at_a_time_steps() -> None:
    pipe = pt.Pipeline(**{**_arguments(), "stages": [mlp(64), mlp(64)]})
    x = torch.randn(256, 64)
    pipe.step(x, x)
    counts = {"steps": 1, "errors": 0}
    lock = threading.Lock()

    def train() -> None:
        for number in range(60):
            try:
                if number % 3 == 0:
                    pipe.eval_step(x)
                    pipe.timeline()
                    continue
                pipe.step(x, x) if number % 3 == 1 else pipe.steps([(x, x)])
                with lock:
                    counts["steps"] += 1
            except pt.Error as error:
                assert "another call on this Pipeline has not ended" in str(error)
                with lock:
                    counts["errors"] += 1

    threads = [threading.Thread(target=train) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pipe.state_dict()["steps"] == counts["steps"]
    pipe.step(x, x)
