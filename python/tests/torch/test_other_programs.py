"""TorchScript, compiled functions, control flow of torch, containers of other libraries, float64 and distributions."""

from __future__ import annotations

import collections
import dataclasses
import re
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from reference import Around, batch, mlp, mse, pipeline, train_both
from torch import nn
from torch.distributions import Bernoulli, Categorical, Gamma, Normal, kl_divergence

import penstock.torch as pt


@torch.jit.script
def scripted(x: torch.Tensor) -> torch.Tensor:
    y = torch.tanh(x) * 2 + 1
    if y.dim() == 2:
        y = torch.sigmoid(y) * y
    return y


@pytest.mark.parametrize("runs_before", [0, 4])
def test_functions_of_torchscript(runs_before: int) -> None:
    for _ in range(runs_before):  # after which they are optimized
        scripted(torch.randn(2, 16, requires_grad=True)).sum().backward()
    assert train_both([Around(lambda inner, x: scripted(inner(x))), mlp()]) <= 3e-7  # weights are near 1, and the JIT fuses otherwise


def test_functions_of_torch_compile() -> None:
    doubled = torch.compile(lambda x: torch.tanh(x) * 2, backend="eager")
    assert train_both([Around(lambda inner, x: doubled(inner(x))), mlp()], loss=torch.compile(mse, backend="eager")) == 0


def test_modules_compiled_in_place() -> None:
    stages = [mlp(), mlp()]
    x, y = batch()
    expected = pipeline(stages, optimizer=None).step(x, y)
    stages[0].compile(backend="eager")
    assert pipeline(stages, optimizer=None).step(x, y) == expected


def test_anomaly_mode() -> None:
    with torch.autograd.set_detect_anomaly(True):
        assert train_both([mlp(), mlp()]) == 0
    assert not torch.is_anomaly_enabled()


_REFUSED: dict[str, tuple[Callable[[Any, torch.Tensor], Any], str]] = {
    "cond": (
        lambda inner, x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (inner(x),)),
        r"stage 0, forward at .*: cond of torch runs functions that a graph cannot contain: call them directly, with torch.where",
    ),
    "while_loop": (
        lambda inner, x: torch.while_loop(lambda n, _: n < 3, lambda n, y: (n + 1, y * 2), (torch.tensor(0), inner(x)))[1],
        r"stage 0, forward at .*: while_loop of torch runs functions that a graph cannot contain",
    ),
    "dataclass": (
        lambda inner, x: Pair(inner(x), x),
        r"stage 0 returns a Pair, whose tensors compiled steps do not pass on: return them in a tuple or a dict, or call "
        r"torch.export.register_dataclass\(Pair\) before",
    ),
}


@dataclasses.dataclass
class Pair:
    x: torch.Tensor
    mask: torch.Tensor


@dataclasses.dataclass
class Registered(Pair):
    pass


torch.export.register_dataclass(Registered)


@pytest.mark.parametrize("case", _REFUSED)
def test_what_stages_do_is_refused_with_one_line(case: str) -> None:
    function, line = _REFUSED[case]
    with pytest.raises(pt.Error, match=line) as caught:
        pipeline([Around(function), mlp()]).step(*batch())
    assert "\n" not in str(caught.value)


def test_modules_of_torchscript_are_refused() -> None:
    traced = torch.jit.trace(mlp(), torch.randn(2, 16))
    for stage in (traced, nn.Sequential(traced)):
        with pytest.raises(pt.Error, match="stage 0: module '.*' is TorchScript, .* pass the module that torch.jit.script or"):
            pipeline([stage, mlp()])


def test_constant_conditions() -> None:
    assert train_both([Around(lambda inner, x: torch.cond(x.dim() == 2, torch.sin, torch.cos, (inner(x),))), mlp()]) == 0


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * mask


def _encoding(values: dict[str, torch.Tensor]) -> Any:
    return pytest.importorskip("transformers").BatchEncoding(values)


_MAPPINGS = [collections.OrderedDict, collections.UserDict, types.MappingProxyType, _encoding]


@pytest.mark.parametrize("mapping", [*_MAPPINGS, lambda values: collections.defaultdict(int, values)])
def test_mappings_are_batches(mapping: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    pipe = pipeline([Masked(), mlp()], optimizer=None, loss=lambda output, of: mse(output, of["y"]))
    values, targets = {"x": torch.randn(8, 16), "mask": torch.rand(8, 16)}, {"y": torch.randn(8, 16)}
    loss = pipe.step(values, targets)
    assert pipe.eval_step(mapping(values), mapping(targets)) == pytest.approx(loss, rel=1e-6)
    other = pipeline([pipe._stages[0], pipe._stages[1]], optimizer=None, loss=lambda output, of: mse(output, of["y"]))
    assert [other.step(mapping(values), mapping(targets)) for _ in range(2)] == [loss, loss]


def test_mappings_between_stages() -> None:
    x, y = batch()
    first = Around(lambda inner, x: {"x": inner(x), "mask": x})
    second = Masked()
    expected = pipeline([first, second], optimizer=None).step(x, y)
    ordered = Around(lambda inner, x: collections.OrderedDict(x=inner(x), mask=x), first.inner[0])
    assert pipeline([ordered, second], optimizer=None).step(x, y) == expected


def _of_pair(inner: Any, pair: Any) -> torch.Tensor:
    return inner(pair.x) * pair.mask  # type: ignore[no-any-return]


def test_registered_dataclasses_are_batches_and_outputs() -> None:
    x, mask, y = torch.randn(8, 16), torch.rand(8, 16), torch.randn(8, 16)
    inner, last = mlp(), mlp()
    expected = pipeline([Around(lambda inner, x, mask: inner(x) * mask, inner), last], optimizer=None).step((x, mask), y)
    assert pipeline([Around(_of_pair, inner), last], optimizer=None).step(Registered(x, mask), y) == expected
    first = Around(lambda inner, x: Registered(inner(x), x), mlp())
    assert pipeline([first, Around(_of_pair, inner)], optimizer=None).step(x, y) > 0


@pytest.mark.parametrize("where", ["inputs", "a tuple", "targets"])
@pytest.mark.parametrize("kind", [Pair, lambda x, mask: types.SimpleNamespace(x=x, mask=mask)])
def test_objects_that_hold_tensors_are_no_batches(kind: Any, where: str) -> None:
    x, y = batch()
    pair = kind(x, torch.rand(8, 16))
    inputs, targets = {"inputs": (pair, y), "a tuple": ((x, pair), y), "targets": (x, pair)}[where]
    name = "targets" if where == "targets" else "inputs"
    line = rf"{name} contain a (Pair|SimpleNamespace), whose tensors would not be divided: pass a tuple or a dict of them"
    pipe = pipeline([mlp(), mlp()])
    for call in (pipe.step, pipe.eval_step):
        with pytest.raises(pt.Error, match=line):
            call(inputs, targets)


_FLOAT64: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "inside": lambda inner, x: (inner(x).double() * 2).float(),
    "between": lambda inner, x: inner(x.float()).double(),
}


@pytest.mark.parametrize("case", _FLOAT64)
def test_float64_in_computations(case: str) -> None:
    assert train_both([Around(_FLOAT64[case]), Around(lambda inner, x: inner(x.float()))]) == 0


def test_float64_weights_are_refused() -> None:
    with pytest.raises(pt.Error, match=re.escape("'0.weight' is torch.float64, but the engine trains float32")):
        pipeline([mlp().double(), mlp()])


def test_randperm_permutes_anew_in_each_step_and_microbatch() -> None:
    def permuted(x: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
        return x[:, order]

    first = Around(lambda x: permuted(x * 1, torch.randperm(16)), nn.Identity())
    first.function = lambda identity, x: identity(permuted(x * 1, torch.randperm(16)))
    pipe = pipeline([first, nn.Linear(16, 16)], outputs=True, seed=3, optimizer=None)
    rows = torch.arange(16.0).repeat(8, 1)
    weight = pipe._stages[1]
    assert isinstance(weight, nn.Linear)
    with torch.no_grad():
        weight.weight.copy_(torch.eye(16))
        weight.bias.zero_()
    seen = []
    for _ in range(2):
        pipe.step(rows, torch.zeros(8, 16))
        outputs = pipe.last.outputs
        assert torch.equal(outputs.sort(1).values, rows)
        seen.extend(tuple(outputs[index].tolist()) for index in range(0, 8, 2))
    assert len(set(seen)) == 8


_DISTRIBUTIONS: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "Normal": lambda inner, x: Normal(inner(x), torch.exp(inner(x))).rsample(),
    "log_prob": lambda inner, x: Normal(inner(x), 1.0).log_prob(x),
    "kl": lambda inner, x: kl_divergence(Normal(inner(x), 1.0), Normal(torch.zeros(16), torch.ones(16))),
    "Categorical": lambda inner, x: inner(x) * Categorical(logits=inner(x)).sample()[:, None],
    "Bernoulli": lambda inner, x: inner(x) * Bernoulli(torch.sigmoid(inner(x))).sample(),
    "Gamma": lambda inner, x: inner(x) * Gamma(torch.exp(inner(x)), 2.0).rsample(),
}


@pytest.mark.parametrize("case", _DISTRIBUTIONS)
def test_distributions_draw_anew_in_each_step(case: str) -> None:
    x, y = batch()
    pipe = pipeline([Around(_DISTRIBUTIONS[case]), mlp()], seed=3, optimizer=None)
    losses = [pipe.step(x, y) for _ in range(3)]
    assert len(set(losses)) == (1 if case in ("log_prob", "kl") else 3)


@pytest.mark.parametrize("case", ["log_prob", "kl"])
def test_densities_train_as_in_torch(case: str) -> None:
    assert train_both([Around(_DISTRIBUTIONS[case]), mlp()]) <= 3e-7
