"""Models that nobody here wrote train unmodified, like in plain PyTorch."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from reference import accumulate, pipeline, sgd, token_loss
from torch import nn

import penstock.torch as pt

transformers.logging.set_verbosity_error()
_VOCABULARY, _TOKENS, _MICROBATCHES, _SAMPLES, _STEPS = 96, 16, 4, 2, 10
_SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4}
_DECODER = {**_SIZES, "vocab_size": _VOCABULARY, "num_key_value_heads": 2, "use_cache": False}


def _llama(tied: bool = False) -> nn.Module:
    config = transformers.LlamaConfig(**_DECODER, tie_word_embeddings=tied)
    return transformers.LlamaForCausalLM(config)


def _qwen3() -> nn.Module:
    config = transformers.Qwen3Config(**_DECODER, head_dim=8, tie_word_embeddings=False)
    return transformers.Qwen3ForCausalLM(config)


def _gpt2() -> nn.Module:
    config = transformers.GPT2Config(
        n_embd=32,
        n_layer=4,
        n_head=4,
        vocab_size=_VOCABULARY,
        n_positions=64,
        use_cache=False,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    return transformers.GPT2LMHeadModel(config)


def _modernbert() -> nn.Module:
    config = transformers.ModernBertConfig(
        **_SIZES, vocab_size=_VOCABULARY, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2
    )
    return transformers.ModernBertForMaskedLM(config)


def _mixture_of_experts(experts: str | None = None) -> nn.Module:
    config = transformers.Qwen3MoeConfig(
        **_DECODER, head_dim=8, moe_intermediate_size=32, num_experts=4, num_experts_per_tok=2, experts_implementation=experts
    )
    return transformers.Qwen3MoeForCausalLM(config)


def _vit() -> nn.Module:
    config = transformers.ViTConfig(**_SIZES, image_size=32, patch_size=8, num_labels=10)
    return transformers.ViTForImageClassification(config)


def _resnet50() -> nn.Module:
    import torchvision

    return torchvision.models.resnet50(num_classes=10)


class UNet(nn.Module):
    """Skip connections from each level down to the same level up."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, 2, padding=1)
        self.middle, self.norm = nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.up2 = nn.ConvTranspose2d(32, 8, 2, 2)
        self.up1 = nn.Conv2d(16, 8, 3, padding=1)
        self.head = nn.Linear(8, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        first = self.down1(image).relu()
        second = self.down2(first).relu()
        middle = self.norm(self.middle(second)).relu()
        up = self.up2(torch.cat([middle, second], 1)).relu()
        up = self.up1(torch.cat([up, first], 1)).relu()
        return self.head(up.mean((2, 3)))


def _class_loss(output: Any, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(getattr(output, "logits", output), targets)


def _tokens() -> tuple[torch.Tensor, torch.Tensor]:
    shape = (_MICROBATCHES * _SAMPLES, _TOKENS)
    return torch.randint(_VOCABULARY, shape), torch.randint(_VOCABULARY, shape)


def _masked_tokens() -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Tokens, and a mask of sequences of several lengths."""
    tokens, targets = _tokens()
    lengths = torch.randint(_TOKENS // 2, _TOKENS + 1, (len(tokens), 1))
    mask = (torch.arange(_TOKENS) < lengths).long()
    return {"input_ids": tokens, "attention_mask": mask}, targets


def _images() -> tuple[torch.Tensor, torch.Tensor]:
    samples = _MICROBATCHES * _SAMPLES
    return torch.randn(samples, 3, 32, 32), torch.randint(10, (samples,))


_Case = tuple[Callable[[], nn.Module], Any, Any, list[str] | None, float]
_CASES: dict[str, _Case] = {
    "llama": (_llama, _tokens, token_loss, None, 0),
    "llama tied": (lambda: _llama(tied=True), _tokens, token_loss, None, 1e-6),
    "qwen3": (_qwen3, _tokens, token_loss, None, 0),
    "gpt2": (_gpt2, _tokens, token_loss, None, 1e-6),
    "modernbert": (_modernbert, _tokens, token_loss, None, 1e-6),
    "modernbert masked": (_modernbert, _masked_tokens, token_loss, None, 1e-6),
    "mixture of experts": (_mixture_of_experts, _tokens, token_loss, None, 0),
    "experts by batched_mm": (lambda: _mixture_of_experts("batched_mm"), _tokens, token_loss, None, 0),
    "vit": (_vit, _images, _class_loss, None, 0),
    "resnet50": (_resnet50, _images, _class_loss, ["layer2", "layer3", "layer4"], 0),
    "unet": (UNet, _images, _class_loss, ["down2", "middle", "up1"], 0),
}


_sgd = functools.partial(sgd, lr=0.02)


@pytest.mark.parametrize(("schedule", "autocast"), [("1f1b", False), ("zbv", False), ("zbv", True)])
@pytest.mark.parametrize("name", list(_CASES))
def test_trains_like_plain_pytorch(name: str, schedule: str, autocast: bool) -> None:
    make, data, loss, begins, tolerance = _CASES[name]
    model = make().train()
    plain = copy.deepcopy(model)
    stages: Any = 4 if schedule == "zbv" else 2
    if begins is not None:
        stages = begins if schedule == "zbv" else begins[1:2]
    example = torch.utils._pytree.tree_map(lambda tensor: tensor[:_SAMPLES], data()[0])
    device = torch.get_default_device().type
    casting = functools.partial(torch.autocast, device, torch.bfloat16, enabled=autocast)
    with casting():
        parts = pt.split(model, example, stages)
    pipe = pipeline(parts, schedule, loss=loss, optimizer=_sgd, exact=True)
    optimizer = _sgd(plain.parameters())
    for _ in range(2 if autocast else _STEPS):
        x, y = data()
        with casting():
            actual = pipe.step(x, y)
        optimizer.zero_grad()
        expected = accumulate(casting()(plain), casting()(loss), x, y, _MICROBATCHES)
        optimizer.step()
        assert actual == pytest.approx(expected, rel=1e-5)
    for (parameter, left), right in zip(model.state_dict().items(), plain.state_dict().values(), strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=tolerance, msg=parameter)


@pytest.mark.parametrize("name", ["llama", "qwen3", "gpt2", "mixture of experts"])
def test_causal_models_train_in_sequence_slices(name: str) -> None:
    make, data, loss, _, _ = _CASES[name]
    model = make().train()
    plain = copy.deepcopy(model)
    parts = pt.split(model, data()[0][:_SAMPLES], 2)
    pipe = pipeline(parts, "seq1f1b", slices=2, loss=loss, optimizer=_sgd)
    optimizer = _sgd(plain.parameters())
    for _ in range(_STEPS):
        x, y = data()
        actual = pipe.step(x, y)
        optimizer.zero_grad()
        expected = accumulate(plain, loss, x, y, _MICROBATCHES)
        optimizer.step()
        assert actual == pytest.approx(expected, rel=1e-5)
    for left, right in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("kind", "layers"), [("Mixtral", 2), ("Qwen2", 11), ("Qwen3", 9), ("Phi3", 12)])
def test_graphs_of_any_size_compile(kind: str, layers: int) -> None:
    """At these sizes, lists of values grew while a pass used an element."""
    sizes = {**_DECODER, "num_hidden_layers": layers, "pad_token_id": 0}
    if kind == "Qwen3":
        sizes["head_dim"] = 8
    config = getattr(transformers, f"{kind}Config")(**sizes)
    model = getattr(transformers, f"{kind}ForCausalLM")(config)
    parts = pt.split(model, _tokens()[0][:_SAMPLES], 2)
    pipe = pipeline(parts, loss=token_loss)
    assert 0 < pipe.step(*_tokens()) < 10


def test_equal_costs_balance_unequal_layers() -> None:
    layers = nn.Sequential(*[nn.Linear(256, 256) for _ in range(6)], nn.Linear(256, 4096))
    names = [next(iter(s.state_dict())) for s in pt.split(layers, torch.randn(64, 256), 2, by="cost")]
    assert names[1].startswith(("5.", "6."))


def test_names_that_the_model_does_not_have_are_refused() -> None:
    with pytest.raises(pt.Error, match="no module 'layers.9'"):
        pt.split(_llama(), _tokens()[0][:2], ["layers.9"])


class Negated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return -gradient


class NegatesAndSkips(UNet):
    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return super().forward(Negated.apply(image))


def test_autograd_functions_in_traced_models_are_refused() -> None:
    with pytest.raises(pt.Error, match="calls the autograd function Negated, whose backward"):
        pt.split(NegatesAndSkips(), torch.randn(2, 3, 32, 32), ["middle"])
    model = NegatesAndSkips()
    model(torch.randn(2, 3, 32, 32)).sum().backward()  # unchanged outside of split
