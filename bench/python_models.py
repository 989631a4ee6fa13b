"""The models that bench/python.py trains, in several sizes: the same for every engine.

`make(name, size)` returns a Job. Unmodified models of transformers and torchvision, a U-Net, and "blocks": the Llama-style model
of bench/peer_torch.py and of `penstock train`, written as stages.
"""
import argparse
import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import nn
from torch.nn import functional as F

import peer_torch


@dataclasses.dataclass
class Size:
    dim: int
    hidden: int
    tokens: int
    samples: int  # of a microbatch
    microbatches: int
    vocabulary: int = 256
    layers: int = 8
    heads: int = 4
    kv_heads: int = 4


# The first two are the sizes of bench/compare_train.py.
SIZES = {
    "compute-bound": Size(dim=256, hidden=688, tokens=256, samples=1, microbatches=8),
    "overhead-bound": Size(dim=32, hidden=96, tokens=16, samples=1, microbatches=16),
    "table": Size(dim=256, hidden=688, tokens=128, samples=2, microbatches=8, vocabulary=1024, kv_heads=2),
}


@dataclasses.dataclass
class Job:
    model: nn.Module  # or a list of two stages
    inputs: torch.Tensor  # of a whole batch
    targets: torch.Tensor
    loss: Callable[[Any, torch.Tensor], torch.Tensor]  # of the output's logits
    begin: str | None = None  # the module that begins stage 1; None: the middle layer


class UNet(nn.Module):
    """Skip connections from each level down to the same level up, across the stages."""

    def __init__(self, width=32):
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 2 * width, 3, 2, padding=1)
        self.middle, self.norm = nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width)
        self.up2, self.up1 = nn.ConvTranspose2d(4 * width, width, 2, 2), nn.Conv2d(2 * width, width, 3, padding=1)
        self.head = nn.Linear(width, 10)

    def forward(self, image):
        first = self.down1(image).relu()
        second = self.down2(first).relu()
        middle = self.norm(self.middle(second)).relu()
        up = self.up2(torch.cat([middle, second], 1)).relu()
        up = self.up1(torch.cat([up, first], 1)).relu()
        return self.head(up.mean((2, 3)))


def widths(size):
    return dict(hidden_size=size.dim, intermediate_size=size.hidden, num_hidden_layers=size.layers,
                num_attention_heads=size.heads)


def decoder(size):
    return dict(widths(size), vocab_size=size.vocabulary, num_key_value_heads=size.kv_heads, use_cache=False,
                tie_word_embeddings=False, max_position_embeddings=size.tokens)


def blocks(size):
    of_peer = argparse.Namespace(**dataclasses.asdict(size), sequence=size.tokens)
    return [peer_torch.StageModule(of_peer, stage, 2) for stage in range(2)]


def llama(size):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**decoder(size)))


def qwen3(size):
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**decoder(size), head_dim=size.dim // size.heads))


def gpt2(size):
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_embd=size.dim, n_layer=size.layers, n_head=size.heads, vocab_size=size.vocabulary, n_positions=size.tokens,
        use_cache=False, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, tie_word_embeddings=False))


def modernbert(size):
    return transformers.ModernBertForMaskedLM(transformers.ModernBertConfig(
        **widths(size), vocab_size=size.vocabulary, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1,
        sep_token_id=2))


def qwen3_moe(size):
    return transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(
        **decoder(size), head_dim=size.dim // size.heads, moe_intermediate_size=size.dim // 2, num_experts=8,
        num_experts_per_tok=2))


def vit(size):
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(**widths(size), image_size=64, patch_size=8, num_labels=10))


def resnet50(size):
    import torchvision

    return torchvision.models.resnet50(num_classes=10)


def unet(size):
    return UNet()


def tokens(size):
    shape = (size.microbatches * size.samples, size.tokens)
    return torch.randint(3, size.vocabulary, shape), torch.randint(3, size.vocabulary, shape)


def images(size):
    samples = size.microbatches * size.samples
    return torch.randn(samples, 3, 64, 64), torch.randint(10, (samples,))


def token_loss(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


MODELS = {
    "blocks": (blocks, tokens, token_loss),
    "llama": (llama, tokens, token_loss),
    "qwen3": (qwen3, tokens, token_loss),
    "gpt2": (gpt2, tokens, token_loss),
    "modernbert": (modernbert, tokens, token_loss),
    "qwen3-moe": (qwen3_moe, tokens, token_loss),
    "vit": (vit, images, F.cross_entropy),
    "resnet50": (resnet50, images, F.cross_entropy, "layer3"),
    "unet": (unet, images, F.cross_entropy, "middle"),
}


def make(name, size):
    model, data, loss, *begin = MODELS[name]
    torch.manual_seed(0)
    inputs, targets = data(size)
    made = model(size)
    return Job(made if isinstance(made, list) else made.train(), inputs, targets, loss, *begin)
