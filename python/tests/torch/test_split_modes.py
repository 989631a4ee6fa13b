"""Stages of `split` follow train() and eval() as the whole model does."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import pytest
import torch
import transformers
from reference import accumulate, batch, mse, pipeline, sgd, token_loss
from torch import nn
from torch.nn import functional

import penstock.torch as pt

transformers.logging.set_verbosity_error()
_WIDTH, _MICROBATCHES = 16, 4


class Layer(nn.Module):
    def __init__(self, what: str) -> None:
        super().__init__()
        self.linear = nn.Linear(_WIDTH, _WIDTH)
        self.norm = nn.BatchNorm1d(_WIDTH) if "norm" in what else nn.Identity()
        self.drop = nn.Dropout(0.3) if "dropout" in what else nn.Identity()

    def forward(self, x: torch.Tensor, skip: torch.Tensor | None = None) -> torch.Tensor:
        y = self.drop(torch.tanh(self.norm(self.linear(x))))
        return x + y if skip is None else x + y + skip


class Model(nn.Module):
    """Layers that are divided as they are, or with a skip connection, which needs a graph."""

    def __init__(self, by: str, what: str) -> None:
        super().__init__()
        self.by, self.what = by, what
        self.first, self.drop = nn.Linear(_WIDTH, _WIDTH), nn.Dropout(0.2 if "dropout" in what else 0.0)
        self.layers = nn.ModuleList([Layer(what) for _ in range(4)])
        self.head = nn.Linear(_WIDTH, _WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = first = self.drop(self.first(x))
        for layer in self.layers:
            x = layer(x, first if self.by == "graph" else None)
        # A mode that only the model's own code reads.
        return self.head(functional.dropout(x, 0.2 if "dropout" in self.what else 0.0, self.training))


def _split(model: Model) -> list[nn.Module]:
    parts = pt.split(model, torch.randn(4, _WIDTH), 2)
    assert hasattr(parts[0], "graph") is (model.by == "graph")
    return parts


def _modes(modules: Iterable[nn.Module]) -> set[bool]:
    return {each.training for module in modules for each in module.modules()}


def _expect_loss(pipe: pt.Pipeline, model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """Expects eval_step to be the loss of the model, which has the same weights, microbatch by microbatch."""
    twin = copy.deepcopy(model)
    pairs = zip(x.chunk(_MICROBATCHES), y.chunk(_MICROBATCHES), strict=True)
    with torch.no_grad():
        expected = sum(mse(twin(part), of).item() for part, of in pairs) / _MICROBATCHES
    assert pipe.eval_step(x, y) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("split_in", ["train", "eval"])
@pytest.mark.parametrize("switch", ["parts", "model"])
@pytest.mark.parametrize("what", ["dropout", "norm", "dropout and norm"])
@pytest.mark.parametrize("by", ["layers", "graph"])
def test_training_and_evaluation_take_turns(by: str, what: str, switch: str, split_in: str) -> None:
    model = Model(by, what).train(split_in == "train")
    parts = _split(model)
    switched: Any = parts if switch == "parts" else [model]
    for each in switched:
        each.train()
    plain = copy.deepcopy(model)
    pipe, optimizer = pipeline(parts, optimizer=sgd), sgd(plain.parameters())
    for _ in range(2):
        for each in switched:
            assert each.train() is each
        assert _modes([model, *parts]) == {True}
        for _ in range(2):
            x, y = batch(16)
            loss = pipe.step(x, y)
            if "dropout" in what:
                with torch.no_grad():
                    assert loss != pytest.approx(mse(copy.deepcopy(model).eval()(x), y).item(), rel=1e-3)
                continue
            optimizer.zero_grad()
            assert loss == pytest.approx(accumulate(plain.train(), mse, x, y, _MICROBATCHES), rel=1e-4)
            optimizer.step()
        for each in switched:
            assert each.eval() is each
        assert _modes([model, *parts]) == {False}
        x, y = batch(16)
        _expect_loss(pipe, model, x, y)
        if "dropout" not in what:
            _expect_loss(pipe, plain.eval(), x, y)


@pytest.mark.parametrize("by", ["layers", "graph"])
def test_gradients_in_evaluation_mode(by: str) -> None:
    """As for a model that is trained in the mode in which from_pretrained returns it."""
    model = Model(by, "dropout and norm")
    with torch.no_grad():
        model(torch.randn(64, _WIDTH))  # statistics that matter
    parts, (x, y) = _split(model), batch(16)
    for part in parts:
        part.eval()
    plain = copy.deepcopy(model)
    loss = pipeline(parts, optimizer=None).step(x, y)
    assert loss == pytest.approx(accumulate(plain, mse, x, y, _MICROBATCHES), rel=1e-5)
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.parametrize("switch", ["parts", "model"])
@pytest.mark.parametrize("by", ["layers", "graph"])
def test_steps_follow_the_mode(by: str, switch: str) -> None:
    model = Model(by, "norm")
    parts = _split(model)
    pipe = pipeline(parts, optimizer=None)
    for mode in (True, False, True):
        for each in parts if switch == "parts" else [model]:
            each.train(mode)
        model.zero_grad()
        plain, (x, y) = copy.deepcopy(model), batch(16)
        loss = pipe.step(x, y)
        assert loss == pytest.approx(accumulate(plain, mse, x, y, _MICROBATCHES), rel=1e-5)
        for one, other in zip(model.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.parametrize("by", ["layers", "graph"])
def test_half_of_a_model_in_evaluation_mode_stays_there(by: str) -> None:
    model = Model(by, "norm")
    for layer in model.layers[:2]:
        layer.eval()
    before = [each.training for each in model.modules()]
    parts = _split(model)
    assert [each.training for each in model.modules()] == before
    plain, (x, y) = copy.deepcopy(model), batch(16)
    loss = pipeline(parts, optimizer=None).step(x, y)
    assert loss == pytest.approx(accumulate(plain, mse, x, y, _MICROBATCHES), rel=1e-5)
    for (name, one), other in zip(model.state_dict().items(), plain.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, msg=name)
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


class Frozen(Model):
    """Keeps its first normalization in evaluation mode."""

    def train(self, mode: bool = True) -> Frozen:
        super().train(mode)
        self.layers[0].norm.eval()
        return self


@pytest.mark.parametrize("by", ["layers", "graph"])
def test_an_own_train_method_counts(by: str) -> None:
    model = Frozen(by, "norm").eval()
    parts = _split(model)
    for part in parts:
        part.train()
    assert [name for name, each in model.named_modules() if not each.training] == ["layers.0.norm"]
    plain, (x, y) = copy.deepcopy(model), batch(16)
    loss = pipeline(parts, optimizer=None).step(x, y)
    assert loss == pytest.approx(accumulate(plain, mse, x, y, _MICROBATCHES), rel=1e-5)


def test_a_stage_sets_only_the_modes_of_modules_that_it_runs() -> None:
    model = Model("layers", "dropout and norm")
    parts = _split(model)
    parts[1].eval()
    still = {name for name, each in model.named_modules() if each.training}
    assert {"first", "drop", "layers.0", "layers.1.drop"} <= still
    assert not still & {"", "layers", "layers.2", "layers.3.norm", "head"}


def test_a_dropout_between_layers_is_seen_in_evaluation_mode() -> None:
    class Between(Model):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = self.drop(layer(x))  # the same tensor in evaluation mode
            return self.head(x)

    parts = pt.split(Between("graph", "dropout").eval(), torch.randn(4, _WIDTH), 2)
    assert hasattr(parts[0], "graph")


@pytest.mark.parametrize(
    ("by", "change", "expected"),
    [
        ("graph", lambda model: model.layers[1].norm.eval(), r"module 'layers.1.norm' is in eval mode.*in train mode and in eval mode"),
        ("graph", lambda model: model.layers.__setitem__(1, Layer("norm")), "module 'layers.1' was replaced"),
        ("layers", lambda model: model.layers.__setitem__(1, Layer("norm")), "module 'layers.1' was replaced"),
    ],
)
def test_what_stages_cannot_follow_is_refused(by: str, change: Any, expected: str) -> None:
    model = Model(by, "norm")
    parts = _split(model)
    change(model)
    with pytest.raises(pt.Error, match=expected) as raised:
        pipeline(parts).step(*batch(16))
    assert "\n" not in str(raised.value)


def test_a_module_that_is_replaced_in_a_layer_is_trained() -> None:
    model = Model("layers", "norm")
    parts = _split(model)
    model.layers[1].linear = nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.Dropout(0.5))
    for part in parts:
        part.eval()
    assert _modes([model, *parts]) == {False}
    plain, (x, y) = copy.deepcopy(model), batch(16)
    loss = pipeline(parts, optimizer=None).step(x, y)
    assert loss == pytest.approx(accumulate(plain, mse, x, y, _MICROBATCHES), rel=1e-5)


@pytest.mark.parametrize("by", ["layers", "graph"])
def test_a_mode_in_which_the_model_does_not_run_is_refused(by: str) -> None:
    model = Model(by, "norm").eval()
    parts = pt.split(model, torch.randn(1, _WIDTH), 2)  # too few samples to normalize
    x, y = batch(4)
    _expect_loss(pipeline(parts), model, x, y)
    for part in parts:
        part.train()
    with pytest.raises(pt.Error, match="in train mode, but .* in eval mode .not in train mode: ValueError: Expected more than 1 value"):
        pipeline(parts).step(x, y)


def test_gpt2_by_the_recipe_of_the_page() -> None:
    config = transformers.GPT2Config(n_embd=32, n_layer=4, n_head=2, vocab_size=64, n_positions=32)
    model = transformers.GPT2LMHeadModel(config).eval()
    tokens, targets = torch.randint(64, (2, 8, 12))
    parts = pt.split(model, tokens[:1], 2)
    pipe = pipeline(parts, loss=token_loss, optimizer=lambda parameters: torch.optim.Adam(parameters, lr=1e-2))
    for _ in range(2):
        for part in parts:
            part.train()
        losses = [pipe.step(tokens, targets) for _ in range(3)]
        for part in parts:
            part.eval()
        assert not model.training
        with torch.no_grad():
            expected = token_loss(model(tokens), targets).item()
        assert pipe.eval_step(tokens, targets) == pytest.approx(expected, rel=1e-5)
        assert expected < losses[0]
