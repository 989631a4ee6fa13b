"""Stages that compute something else in sequence slices are refused by name."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from reference import Around, CausalMean, accumulate, chain, distance_of_gradients, token_loss
from torch import nn
from torch.nn import functional

import penstock.torch as pt
from penstock.torch import slices

_WIDTH, _TOKENS, _VOCABULARY = 16, 8, 13


class Attention(nn.Module):
    """What user code may get right or wrong."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        self.wrong = wrong
        self.qkv = nn.Linear(_WIDTH, 3 * _WIDTH)
        self.out = nn.Linear(_WIDTH, _WIDTH)
        self.position = nn.Embedding(64, _WIDTH)
        self.dropout = nn.Dropout(0.1)
        nn.init.zeros_(self.out.weight)  # as many models begin, which hides attention

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        current = slices.current()
        start = 0 if current is None or self.wrong == "positions" else current.start
        tokens = x.shape[1]
        y = x + self.position(torch.arange(start, start + tokens))
        q, k, v = self.qkv(y).view(*x.shape[:2], 3, 2, _WIDTH // 2).permute(2, 0, 3, 1, 4)
        if current is not None and self.wrong != "forgets":
            k, v = current.extend(k, v)
        mask = torch.ones(tokens, k.shape[2], dtype=torch.bool).tril(k.shape[2] - tokens)
        if self.wrong == "sees all":
            mask = torch.ones_like(mask)
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return x + self.dropout(self.out(y.transpose(1, 2).flatten(2)))


def _linear(function: Any, *modules: nn.Module) -> nn.Module:
    return Around(function, nn.Linear(_WIDTH, _WIDTH), *modules)


def _conv(*padding: int) -> nn.Module:
    """A convolution along the sequence: over earlier tokens, or around each."""

    def forward(conv: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return x + conv(functional.pad(x.transpose(1, 2), padding)).transpose(1, 2)

    return Around(forward, nn.Conv1d(_WIDTH, _WIDTH, 3))


def _normed() -> nn.Module:
    norm = nn.BatchNorm1d(_WIDTH)
    return _linear(lambda inner, norm, x: norm(inner(x).transpose(1, 2)).transpose(1, 2), norm)


def _undropped() -> Attention:
    attention = Attention()
    attention.dropout.p = 0.0
    return attention


def _stages(middle: nn.Module) -> list[nn.Module]:
    return [nn.Sequential(nn.Embedding(_VOCABULARY, _WIDTH), middle), nn.Sequential(_undropped(), nn.Linear(_WIDTH, _VOCABULARY))]


def _step(stages: list[nn.Module], loss: Any = token_loss, count: int = 2) -> float:
    torch.manual_seed(1)
    pipe = pt.Pipeline(stages, "seq1f1b", ranks=2, microbatches=2, slices=count, loss=loss, optimizer=None)
    x, y = torch.randint(0, _VOCABULARY, (2, 4, _TOKENS))
    return pipe.step(x, y)


_WRONG: dict[str, tuple[Any, str]] = {
    "attention sees all": (lambda: Attention("sees all"), "is not causal"),
    "convolution sees the next token": (lambda: _conv(1, 1), "is not causal"),
    "mean over tokens": (lambda: _linear(lambda f, x: f(x) - f(x).mean(1, keepdim=True)), "is not causal"),
    "batch normalization": (_normed, "is not causal"),
    "attention forgets earlier slices": (lambda: Attention("forgets"), "returns other numbers"),
    "positions start anew": (lambda: Attention("positions"), "returns other numbers"),
    "convolution over earlier tokens": (lambda: _conv(2, 0), "returns other numbers"),
    "sum of earlier tokens": (lambda: _linear(lambda f, x: x + f(x).cumsum(1)), "returns other numbers"),
}


@pytest.mark.parametrize("kind", list(_WRONG))
@pytest.mark.parametrize("count", [2, 4])
def test_stages_that_differ_in_slices_are_refused(kind: str, count: int) -> None:
    make, expected = _WRONG[kind]
    stages = _stages(make())
    before = copy.deepcopy([each.state_dict() for each in stages])
    with pytest.raises(pt.Error, match=f"^stage 0: Sequential {expected}"):
        _step(stages, count=count)
    torch.testing.assert_close([each.state_dict() for each in stages], before, rtol=0, atol=0)
    assert all(each.training for stage in stages for each in stage.modules())


@pytest.mark.parametrize("count", [2, 4])
def test_causal_attention_is_accepted_and_nothing_changes(count: int) -> None:
    stages = _stages(nn.Sequential(_undropped(), nn.LayerNorm(_WIDTH)))
    plain = copy.deepcopy(stages)
    loss = _step(stages, count=count)
    torch.manual_seed(1)
    x, y = torch.randint(0, _VOCABULARY, (2, 4, _TOKENS))
    assert loss == pytest.approx(accumulate(chain(plain), token_loss, x, y, 2), rel=1e-5)
    for left, right in zip(stages, plain, strict=True):
        torch.testing.assert_close(left.state_dict(), right.state_dict(), rtol=0, atol=0)


def test_dropout_in_a_stage_is_accepted() -> None:
    _step(_stages(Attention()))


def _shifted(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return token_loss(output[:, :-1], targets[:, 1:])


def _summed(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(output.flatten(0, 1), targets.flatten(), reduction="sum")


def _last_token(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(output[:, -1], targets[:, -1])


@pytest.mark.parametrize("loss", [_shifted, _summed, _last_token])
def test_losses_that_are_no_means_over_tokens_are_refused(loss: Any) -> None:
    with pytest.raises(pt.Error, match="stage 1: Sequential has a loss that is not the mean"):
        _step(_stages(Attention()), loss)


def test_ignored_targets_are_accepted() -> None:
    def loss(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(output.flatten(0, 1), targets.flatten(), ignore_index=_VOCABULARY - 13)

    _step(_stages(Attention()), loss)


def test_other_shapes_are_refused_and_training_goes_on() -> None:
    pipe = pt.Pipeline(_stages(Attention()), "seq1f1b", ranks=2, microbatches=2, slices=2, loss=token_loss)
    x, y = torch.randint(0, _VOCABULARY, (2, 4, 2 * _TOKENS))
    pipe.step(x[:, :_TOKENS], y[:, :_TOKENS])
    with pytest.raises(pt.Error, match="with slices, all batches have the shape of the first one"):
        pipe.step(x, y)
    pipe.step(x[:, :_TOKENS], y[:, :_TOKENS])


def _transformers_model(name: str) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    sizes = {
        "vocab_size": 97,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    if name in ("Bert", "Roberta", "Electra", "ModernBert"):
        sizes |= {"max_position_embeddings": 64, "pad_token_id": 0}
        config = getattr(transformers, f"{name}Config")(**sizes)
        return getattr(transformers, f"{name}ForMaskedLM")(config)  # type: ignore[no-any-return]
    if name == "Mamba":
        config = transformers.MambaConfig(vocab_size=97, hidden_size=32, num_hidden_layers=4)
    elif name == "Qwen3Next":
        config = transformers.Qwen3NextConfig(
            **sizes,
            head_dim=8,
            moe_intermediate_size=32,
            shared_expert_intermediate_size=32,
            num_experts=4,
            num_experts_per_tok=2,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            linear_key_head_dim=8,
            linear_value_head_dim=8,
        )
    else:
        config = getattr(transformers, f"{name}Config")(**sizes)
    return getattr(transformers, f"{name}ForCausalLM")(config)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["Bert", "Roberta", "ModernBert", "Mamba", "Qwen3Next"])
def test_models_of_transformers_that_slices_do_not_fit_are_refused(name: str) -> None:
    model = _transformers_model(name).train()
    tokens = torch.randint(3, 97, (4, 16))
    parts = pt.split(model, tokens[:2], 2)
    pipe = pt.Pipeline(parts, "seq1f1b", ranks=2, microbatches=2, slices=2, loss=token_loss)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(pt.Error, match=r"^stage 0") as raised:
        pipe.step(tokens, tokens)
    text = str(raised.value)
    assert name in text or name.lower() in text, text
    assert "train it without slices" in text
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["Mistral", "Gemma"])
def test_causal_models_of_transformers_are_accepted(name: str) -> None:
    model = _transformers_model(name).train()
    tokens = torch.randint(3, 97, (4, 16))
    parts = pt.split(model, tokens[:2], 2)
    pipe = pt.Pipeline(parts, "seq1f1b", ranks=2, microbatches=2, slices=2, loss=token_loss)
    pipe.step(tokens, tokens.roll(-1, 1))


def _positions(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    current = slices.current()
    start = 0 if current is None else current.start
    return layer(x) + torch.arange(start, start + x.shape[1])[:, None] / 8


@pytest.mark.parametrize("attends", [False, True])
def test_stages_without_attention_train_in_slices(attends: bool) -> None:
    stages: list[nn.Module] = [_linear(_positions), CausalMean(_WIDTH) if attends else nn.Linear(_WIDTH, _WIDTH)]
    plain = copy.deepcopy(stages)
    pipe = pt.Pipeline(stages, "seq1f1b", ranks=2, microbatches=4, slices=2, loss=nn.functional.mse_loss, optimizer=None)
    x, y = torch.randn(2, 4, _TOKENS, _WIDTH)
    expected = accumulate(chain(plain), nn.functional.mse_loss, x, y, 4)
    assert pipe.step(x, y) == pytest.approx(expected, rel=1e-5)
    assert distance_of_gradients(stages, plain) < 1e-6
