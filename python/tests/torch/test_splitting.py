"""`split` of models whose stages share more than one tensor: trained as the whole, unchanged."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
import transformers
from reference import accumulate, pipeline, sgd, token_loss
from torch import nn
from torch.nn import functional

import penstock
import penstock.torch as pt

transformers.logging.set_verbosity_error()
_WIDTH, _VOCABULARY, _TOKENS, _MICROBATCHES = 16, 32, 6, 4


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(_WIDTH, _WIDTH), nn.LayerNorm(_WIDTH)

    def forward(self, x: torch.Tensor, extra: torch.Tensor | None = None) -> torch.Tensor:
        return x + torch.tanh(self.linear(self.norm(x if extra is None else x + extra)))


class Decoder(nn.Module):
    """Hands one tensor from layer to layer; variants read other tensors in or after layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(_VOCABULARY, _WIDTH)
        self.layers = nn.ModuleList([Layer() for _ in range(4)])
        self.norm, self.head = nn.LayerNorm(_WIDTH), nn.Linear(_WIDTH, _VOCABULARY)
        self.extra = nn.Linear(_WIDTH, _WIDTH)
        self.table = nn.Parameter(torch.randn(4, _WIDTH))
        self.tables = nn.ParameterList([nn.Parameter(torch.randn(_WIDTH)) for _ in range(4)])
        self.scale = nn.Parameter(torch.ones(_WIDTH))

    def start(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.embedding(tokens)

    def of_layer(self, index: int, x: torch.Tensor, first: torch.Tensor) -> torch.Tensor | None:
        return None

    def end(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(x))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = first = self.start(tokens)
        shared = self.of_all(first)
        for index, layer in enumerate(self.layers):
            x = layer(x, self.of_layer(index, x, first) if shared is None else shared)
        return self.end(x)

    def of_all(self, first: torch.Tensor) -> torch.Tensor | None:
        return None


_sgd = functools.partial(sgd, lr=0.05)


def _check_training(model: nn.Module, batch: Any, loss: Any, schedule: str, exact: bool, targets: torch.Tensor) -> None:
    """Trains stages of the model as the model."""
    plain = copy.deepcopy(model)
    example = torch.utils._pytree.tree_map(lambda each: each.chunk(_MICROBATCHES)[0], batch)
    stages = pt.split(model, example, 2 if schedule == "1f1b" else 4)
    pipe = pipeline(stages, schedule, loss=loss, optimizer=_sgd, exact=exact)
    optimizer = _sgd(plain.parameters())
    for _ in range(2):
        actual = pipe.step(batch, targets)
        optimizer.zero_grad()
        assert actual == pytest.approx(accumulate(plain, loss, batch, targets, _MICROBATCHES), rel=1e-4)
        optimizer.step()
    trained = dict(model.named_parameters())
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(trained[name], parameter, rtol=0, atol=2e-6, msg=f"{schedule}: {name}")


# What several stages read: methods of a Decoder.
_PATTERNS: dict[str, dict[str, Any]] = {
    "root parameter after layers": {"end": lambda self, x: self.head(self.norm(x) * self.scale)},
    "tied head": {"end": lambda self, x: functional.linear(self.norm(x), self.embedding.weight)},
    "row per layer": {"of_layer": lambda self, index, x, first: self.table[index]},
    "table per layer": {"of_layer": lambda self, index, x, first: self.tables[index]},
    "position table": {"of_all": lambda self, first: self.extra(self.table[:1]).expand(_TOKENS, _WIDTH)},
    "conditioning": {"of_all": lambda self, first: torch.tanh(self.extra(first.mean(1, keepdim=True)))},
    "norm before and after": {"start": lambda self, tokens: self.norm(self.embedding(tokens))},
    "shared block": {"of_layer": lambda self, index, x, first: self.extra(x)},
    "detached weight": {"of_layer": lambda self, index, x, first: self.norm.weight.detach()},
    "skip": {"of_layer": lambda self, index, x, first: first},
}


@pytest.mark.parametrize(("schedule", "exact"), [("1f1b", False), ("zbv", True)])
@pytest.mark.parametrize("pattern", _PATTERNS)
def test_stages_train_what_several_of_them_read(pattern: str, schedule: str, exact: bool) -> None:
    tokens = torch.randint(_VOCABULARY, (8, _TOKENS))
    _check_training(type("Variant", (Decoder,), _PATTERNS[pattern])(), tokens, token_loss, schedule, exact, tokens.roll(1, 1))


def _clip() -> tuple[nn.Module, Any, Any, torch.Tensor]:
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "projection_dim": 16}
    text = {"vocab_size": 64, "max_position_embeddings": 16, "bos_token_id": 0, "eos_token_id": 63}
    config = transformers.CLIPConfig(
        text_config={**sizes, **text, "pad_token_id": 1},
        vision_config={**sizes, "image_size": 16, "patch_size": 8},
        projection_dim=16,
    )
    batch = {"input_ids": torch.randint(2, 63, (8, 8)), "pixel_values": torch.randn(8, 3, 16, 16)}

    def loss(output: Any, targets: torch.Tensor) -> torch.Tensor:
        logits = output.logits_per_text
        return functional.cross_entropy(logits, torch.arange(len(logits))) + 0 * targets.sum()

    return transformers.CLIPModel(config), batch, loss, torch.zeros(8)


def _seq2seq(kind: str) -> tuple[nn.Module, Any, Any, torch.Tensor]:
    sizes = {
        "vocab_size": 64,
        "d_model": 16,
        "encoder_layers": 4,
        "decoder_layers": 4,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 32,
        "dropout": 0.0,
        "use_cache": False,
    }
    tokens = torch.randint(3, 64, (8, 6))
    if kind == "bart":
        config = transformers.BartConfig(**sizes, max_position_embeddings=32)
        batch = {"input_ids": torch.randint(3, 64, (8, 8)), "decoder_input_ids": tokens}
        return transformers.BartForConditionalGeneration(config), batch, token_loss, tokens
    config = transformers.WhisperConfig(
        **sizes,
        num_mel_bins=8,
        max_source_positions=16,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    batch = {"input_features": torch.randn(8, 8, 32), "decoder_input_ids": tokens}
    return transformers.WhisperForConditionalGeneration(config), batch, token_loss, tokens


def _deberta() -> tuple[nn.Module, Any, Any, torch.Tensor]:
    config = transformers.DebertaV2Config(
        vocab_size=64,
        hidden_size=16,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=32,
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    tokens = torch.randint(3, 64, (8, 8))
    return transformers.DebertaV2ForMaskedLM(config), {"input_ids": tokens}, token_loss, tokens


@pytest.mark.parametrize(
    ("name", "schedule", "exact"),
    [("clip", "zbv", False), ("whisper", "1f1b", True), ("bart", "interleaved", False), ("deberta", "1f1b", False)],
)
def test_models_of_transformers_with_shared_tensors(name: str, schedule: str, exact: bool) -> None:
    makes = {"clip": _clip, "deberta": _deberta}
    model, batch, loss, targets = makes[name]() if name in makes else _seq2seq(name)
    _check_training(model.train(), batch, loss, schedule, exact, targets)


class Stateful(Decoder):
    """Updates running statistics, draws random numbers, and counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.batch_norm, self.dropout, self.calls = nn.BatchNorm1d(_TOKENS), nn.Dropout(0.2), 0

    def start(self, tokens: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.dropout(self.batch_norm(self.embedding(tokens)))


@pytest.mark.parametrize("by", ["even", "cost"])
@pytest.mark.parametrize("pattern", [Stateful, Decoder])
def test_split_leaves_the_model_as_it_was(pattern: Any, by: str) -> None:
    model = pattern()
    model.layers[2].eval()
    model.head.weight.grad = torch.ones_like(model.head.weight)
    before = copy.deepcopy(model)
    tokens, state = torch.randint(_VOCABULARY, (2, _TOKENS)), torch.get_rng_state()
    pt.split(model, tokens, 2, by=by)
    assert torch.equal(torch.get_rng_state(), state)
    for (name, one), other in zip(model.state_dict().items(), before.state_dict().values(), strict=True):
        assert torch.equal(one, other), name
    assert [m.training for m in model.modules()] == [m.training for m in before.modules()]
    assert getattr(model, "calls", 0) == 0
    assert [name for name, each in model.named_parameters() if each.grad is not None] == ["head.weight"]


class Changing(Decoder):
    """Not the same function in every call."""

    calls = 0

    def of_all(self, first: torch.Tensor) -> torch.Tensor:
        Changing.calls += 1
        return self.extra(first) * Changing.calls


@pytest.mark.parametrize(
    ("autocast", "differs"), [(False, "output 0 of the stages"), (True, "the gradient of 'embedding.weight' in the stages")]
)
def test_models_whose_stages_do_not_train_like_them_are_refused(autocast: bool, differs: str) -> None:
    tokens = torch.randint(_VOCABULARY, (2, _TOKENS))
    Changing.calls = 0
    with torch.autocast(tokens.device.type, torch.bfloat16, enabled=autocast):
        with pytest.raises(pt.Error, match=f"{differs} differs"):
            pt.split(Changing(), tokens, 2)


class Varying(torch.autograd.Function):
    """The identity, whose gradients vary like a GPU's, whose kernels add in any order."""

    generator = torch.Generator("cpu").manual_seed(0)

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, noise: float) -> torch.Tensor:
        ctx.noise = noise
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        noise = torch.randn(gradient.shape, generator=Varying.generator, device="cpu") * ctx.noise
        return gradient * (1 + noise).to(gradient.device), None


class VaryingLayer(Layer):
    def __init__(self, noise: float) -> None:
        super().__init__()
        self.noise = noise

    def forward(self, x: torch.Tensor, extra: torch.Tensor | None = None) -> torch.Tensor:
        return Varying.apply(super().forward(x, extra), self.noise)


@pytest.mark.parametrize(
    ("noise", "autocast", "is_refused"), [(0.004, True, False), (0.004, False, True), (0.5, True, True), (0.0, True, False)]
)
def test_gradients_may_vary_by_the_precision_of_autocast(noise: float, autocast: bool, is_refused: bool) -> None:
    model = Decoder()
    model.layers[2] = VaryingLayer(noise)
    tokens = torch.randint(_VOCABULARY, (2, _TOKENS))
    with torch.autocast(tokens.device.type, torch.bfloat16, enabled=autocast):
        if is_refused:
            with pytest.raises(pt.Error, match="the gradient of .* in the stages differs"):
                pt.split(model, tokens, 2)
        else:
            assert len(pt.split(model, tokens, 2)) == 2


_SETTINGS = {"factor": 1.0}


class Configured(Decoder):
    """Reads values that are no tensors of its modules. Its graph is cut, because all layers read the table."""

    def __init__(self) -> None:
        super().__init__()
        self.factor, self.repeats, self.plain = 1.0, 1, torch.ones(_WIDTH)

    def of_all(self, first: torch.Tensor) -> torch.Tensor:
        return first * self.factor * _SETTINGS["factor"] * self.plain + self.table[0]

    def end(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.repeats):
            x = torch.tanh(x)
        return super().end(x)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda model: setattr(model, "factor", 2.0), "model.factor"),
        (lambda model: setattr(model, "repeats", 2), "model.repeats"),
        (lambda model: setattr(model, "plain", torch.full((_WIDTH,), 2.0)), "model.plain"),
        (lambda model: setattr(model, "end", model.norm), "model"),
        (lambda model: setattr(model.norm, "eps", 0.1), "model.norm.eps"),
        (lambda model: _SETTINGS.update(factor=2.0), "factor"),
        (lambda model: model.plain.mul_(2), ""),
        (lambda model: setattr(model, "unread", 1), ""),
        (lambda model: setattr(model, "factor", 1.0 * model.repeats), ""),
    ],
)
@pytest.mark.parametrize("steps_before", [0, 1])
def test_stages_of_a_graph_train_what_the_model_says_now(change: Any, place: str, steps_before: int, monkeypatch: Any) -> None:
    monkeypatch.setitem(_SETTINGS, "factor", 1.0)
    model = Configured()
    tokens, targets = torch.randint(_VOCABULARY, (2 * _MICROBATCHES, _TOKENS)), torch.randint(_VOCABULARY, (2 * _MICROBATCHES, _TOKENS))
    parts = pt.split(model, tokens[:2], 2)
    assert hasattr(parts[0], "graph")
    pipe = pipeline(parts, loss=token_loss, optimizer=None)
    for _ in range(steps_before):
        pipe.step(tokens, targets)
    change(model)
    if place:
        with pytest.raises(penstock.Error, match=f"'.*{place}.*' has changed after the model was split.*call split again"):
            pipe.step(tokens, targets)
    else:
        loss = pipe.step(tokens, targets)
        assert loss == pytest.approx(accumulate(copy.deepcopy(model), token_loss, tokens, targets, _MICROBATCHES), rel=1e-5)


@pytest.mark.parametrize("schedule", ["1f1b", "zbv"])
def test_models_of_transformers_compute_in_bf16(schedule: str) -> None:
    """What runs before the layers, such as rotary positions, has the dtype of the hidden states in all stages."""
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4}
    model = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**sizes, num_key_value_heads=2, head_dim=8))
    layer = model.model.layers[0]
    layer.forward = own = functools.partial(type(layer).forward, layer)  # as wrappers of users do
    tokens = torch.randint(64, (8, 12))
    expected = float(token_loss(model(tokens), tokens).detach())
    stages = pt.split(model, tokens, 4 if schedule == "zbv" else 2)
    pipe = pipeline(stages, schedule, loss=token_loss, precision=torch.bfloat16)
    assert pipe.step(tokens, tokens) == pytest.approx(expected, rel=1e-2)
    assert pipe.step(tokens, tokens) < expected
    assert layer.forward is own
