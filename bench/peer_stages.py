"""The models of python_models.py in two stages for torch.distributed.pipelining, as its users write them: each stage has its own
layers and calls them itself. torch.compile takes these; it refuses the stages of penstock.torch.split, which run the model's own code.
"""
import torch
from torch import nn
from transformers.masking_utils import create_bidirectional_mask, create_bidirectional_sliding_window_mask


class Decoder(nn.Module):
    """Llama, Qwen3 and Qwen3-MoE."""

    def __init__(self, model, stage):
        super().__init__()
        inner, half = model.model, len(model.model.layers) // 2
        self.embed = inner.embed_tokens if stage == 0 else None
        self.layers = inner.layers[:half] if stage == 0 else inner.layers[half:]
        self.rotary, self.norm, self.head = inner.rotary_emb, *((inner.norm, model.lm_head) if stage else (None, None))

    def forward(self, x):
        x = x if self.embed is None else self.embed(x)
        positions = torch.arange(x.shape[1])[None]
        rotary = self.rotary(x, positions)
        for layer in self.layers:
            x = layer(x, attention_mask=None, position_embeddings=rotary, position_ids=positions)
        return x if self.head is None else self.head(self.norm(x))


class Gpt2(nn.Module):
    def __init__(self, model, stage):
        super().__init__()
        inner, half = model.transformer, len(model.transformer.h) // 2
        self.tokens, self.positions = (None, None) if stage else (inner.wte, inner.wpe)
        self.blocks = inner.h[half:] if stage else inner.h[:half]
        self.norm, self.head = (inner.ln_f, model.lm_head) if stage else (None, None)

    def forward(self, x):
        if self.tokens is not None:
            x = self.tokens(x) + self.positions(torch.arange(x.shape[1])[None])
        for block in self.blocks:
            x = block(x)
        return x if self.head is None else self.head(self.norm(x))


class ModernBert(nn.Module):
    def __init__(self, model, stage):
        super().__init__()
        inner, half = model.model, len(model.model.layers) // 2
        self.config, self.rotary = inner.config, inner.rotary_emb
        self.embed = inner.embeddings if stage == 0 else None
        self.layers = inner.layers[half:] if stage else inner.layers[:half]
        self.norm, self.head, self.decoder = (inner.final_norm, model.head, model.decoder) if stage else (None, None, None)

    def forward(self, x):
        x = x if self.embed is None else self.embed(input_ids=x)
        positions = torch.arange(x.shape[1])[None]
        asked = dict(config=self.config, inputs_embeds=x, attention_mask=None)
        masks = {"full_attention": create_bidirectional_mask(**asked),
                 "sliding_attention": create_bidirectional_sliding_window_mask(**asked)}
        rotary = {kind: self.rotary(x, positions, kind) for kind in masks}
        for layer in self.layers:
            x = layer(x, attention_mask=masks[layer.attention_type], position_embeddings=rotary[layer.attention_type])
        return x if self.head is None else self.decoder(self.head(self.norm(x)))


class Vit(nn.Module):
    def __init__(self, model, stage):
        super().__init__()
        inner, half = model.vit, len(model.vit.layers) // 2
        self.embed = inner.embeddings if stage == 0 else None
        self.layers = inner.layers[half:] if stage else inner.layers[:half]
        self.norm, self.head = (inner.layernorm, model.classifier) if stage else (None, None)

    def forward(self, x):
        x = x if self.embed is None else self.embed(x)
        for layer in self.layers:
            x = layer(x, None)
        return x if self.head is None else self.head(self.norm(x)[:, 0])


class Unet(nn.Module):
    def __init__(self, model, stage):
        super().__init__()
        self.stage = stage
        for name in ("middle", "norm", "up2", "up1", "head") if stage else ("down1", "down2"):
            self.add_module(name, getattr(model, name))

    def forward(self, *x):
        if self.stage == 0:
            first = self.down1(x[0]).relu()
            return first, self.down2(first).relu()
        first, second = x
        middle = self.norm(self.middle(second)).relu()
        up = self.up2(torch.cat([middle, second], 1)).relu()
        return self.head(self.up1(torch.cat([up, first], 1)).relu().mean((2, 3)))


def resnet(model, stage):
    if stage:
        return nn.Sequential(model.layer3, model.layer4, model.avgpool, nn.Flatten(), model.fc)
    return nn.Sequential(model.conv1, model.bn1, model.relu, model.maxpool, model.layer1, model.layer2)


STAGES = {"llama": Decoder, "qwen3": Decoder, "qwen3-moe": Decoder, "gpt2": Gpt2, "modernbert": ModernBert, "vit": Vit,
          "unet": Unet, "resnet50": resnet, "blocks": lambda stages, stage: stages[stage]}


def make(name, model, stage):
    return STAGES[name](model, stage)
