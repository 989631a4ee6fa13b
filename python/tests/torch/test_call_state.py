"""Outputs with objects that belong to one call, such as transformers' caches of keys and values."""

from __future__ import annotations

import copy
import dataclasses
import types
from typing import Any

import pytest
import torch
from reference import Around, accumulate, batch, mlp, mse, pipeline, token_loss, train_both
from torch import nn

import penstock.torch as pt


def _model(name: str) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    if name == "GPT2":
        config = transformers.GPT2Config(
            vocab_size=97, n_positions=64, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0,
        )  # fmt: skip
        return transformers.GPT2LMHeadModel(config)  # type: ignore[no-any-return]
    config = getattr(transformers, f"{name}Config")(
        vocab_size=97, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2,
    )  # fmt: skip
    return getattr(transformers, f"{name}ForCausalLM")(config)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["Llama", "GPT2", "Mistral"])
@pytest.mark.parametrize("stages", [1, 2])
def test_models_with_their_default_cache_train_several_lengths(name: str, stages: int) -> None:
    model = _model(name)
    plain = copy.deepcopy(model)
    parts = [model] if stages == 1 else pt.split(model, torch.zeros(1, 8, dtype=torch.long), 2)
    pipe = pt.Pipeline(parts, "1f1b", ranks=stages, microbatches=2, loss=token_loss, optimizer=None)
    for tokens in (8, 12, 8, 5):
        x, y = torch.randint(0, 97, (2, 4, tokens))
        expected = accumulate(plain, token_loss, x, y, 2)
        assert pipe.step(x, y) == pytest.approx(expected, rel=1e-5)
    for left, right in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(left.grad, right.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["Llama", "GPT2"])
@pytest.mark.parametrize("stages", [1, 2])
def test_labels_may_be_the_inputs(name: str, stages: int) -> None:
    model = _model(name)
    plain = copy.deepcopy(model)
    example = torch.zeros(1, 8, dtype=torch.long)
    parts = [model]
    if stages == 2:
        parts = pt.split(model, {"input_ids": example, "labels": example}, 2)
    pipe = pt.Pipeline(parts, "1f1b", ranks=stages, microbatches=2, optimizer=None)
    for tokens in (8, 12):
        x = torch.randint(0, 97, (4, tokens))
        losses = [plain(input_ids=part, labels=part).loss for part in x.chunk(2)]
        (sum(losses) / 2).backward()
        expected = sum(each.item() for each in losses) / 2
        assert pipe.step({"input_ids": x, "labels": x}) == pytest.approx(expected, rel=1e-5)
    for left, right in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(left.grad, right.grad, rtol=1e-4, atol=1e-6)


class Cache:
    def __init__(self, value: torch.Tensor) -> None:
        self.layers = [[value]]


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: torch.Tensor) -> None:
        self.value = value


@dataclasses.dataclass
class Record:
    value: torch.Tensor


_OBJECTS: dict[str, Any] = {
    "object": Cache,
    "slots": Slotted,
    "dataclass": Record,
    "namespace": lambda value: types.SimpleNamespace(value=value),
    "nested": lambda value: types.SimpleNamespace(inner=Cache(value)),
    "set": lambda value: frozenset([value]),
}


def _keeps(kind: str) -> nn.Module:
    def forward(inner: nn.Module, x: torch.Tensor) -> Any:
        y = inner(x)
        return y, _OBJECTS[kind](y)

    return Around(forward)


_BATCHES = (4, 8, 4)


@pytest.mark.parametrize("kind", list(_OBJECTS))
def test_objects_of_a_call_may_be_returned_but_not_used(kind: str) -> None:
    ignores = Around(lambda inner, x, state: -inner(x) if state is None else inner(x))
    batches = [batch(samples) for samples in _BATCHES]
    stages = [_keeps(kind), ignores]
    assert train_both(stages, batches, optimizer=None, microbatches=2, rel=1e-5) < 1e-5
    stages[1] = Around(lambda inner, x, state: inner(x) + state.value.mean())
    with pytest.raises(pt.Error, match=r"that stage 0 returns holds tensors of one call"):
        pipeline(stages, optimizer=None, microbatches=2).step(*batches[0])


def test_an_object_of_a_call_is_not_used_by_the_loss() -> None:
    def loss(output: Any, targets: torch.Tensor) -> torch.Tensor:
        return mse(output[0], targets) + output[1].layers[0][0].square().mean()

    pipe = pipeline([mlp(), _keeps("object")], microbatches=2, loss=loss)
    x = torch.randn(4, 16)
    with pytest.raises(pt.Error, match=r"the Cache that stage 1 returns holds tensors of one call"):
        pipe.step(x, x)


def test_plain_objects_pass_between_stages() -> None:
    stages = [
        Around(lambda inner, x: (inner(x), types.SimpleNamespace(scale=float(len(x))))),
        Around(lambda inner, x, config: inner(x) * config.scale),
    ]
    batches = [batch(samples) for samples in _BATCHES]
    assert train_both(stages, batches, optimizer=None, microbatches=2, rel=1e-5) < 1e-4
