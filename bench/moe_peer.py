"""The peers of bench/moe_speed.cpp: a stage of two Mixtral blocks in plain PyTorch, by three implementations of experts.

bench/moe.py runs it in an environment with PyPI torch. For each line of its input, the name of a variant, it runs the
stage's forward and backward for half a second and prints the mean milliseconds of one.
"""
import argparse
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

from peer_torch import RMSNorm, rotary_table, rotate


def by_loop(x, weights, chosen, experts):
    """As the transformers package does by default: one expert after the other."""
    result = torch.zeros_like(x)
    mask = F.one_hot(chosen, experts.count).permute(2, 1, 0)
    for expert in range(experts.count):
        choice, token = torch.where(mask[expert])
        if token.numel() == 0:
            continue
        rows = x[token]
        inner = F.silu(F.linear(rows, experts.w1[expert])) * F.linear(rows, experts.w3[expert])
        outer = F.linear(inner, experts.w2[expert]) * weights[token, choice, None]
        result.index_add_(0, token, outer.to(x.dtype))
    return result


def by_grouped_mm(x, weights, chosen, experts):
    """By torch._grouped_mm over rows that are sorted by expert."""
    count, choices = experts.count, chosen.shape[1]
    flat = chosen.flatten()
    order = flat.argsort(stable=True)
    ends = (flat[None] == torch.arange(count)[:, None]).sum(1).cumsum(0).to(torch.int32)
    rows = x[order // choices]
    inner = F.silu(torch._grouped_mm(rows, experts.w1.transpose(1, 2), ends)) * \
        torch._grouped_mm(rows, experts.w3.transpose(1, 2), ends)
    outer = torch._grouped_mm(inner, experts.w2.transpose(1, 2), ends) * weights.flatten()[order, None].to(x.dtype)
    return torch.zeros_like(x).index_add(0, order // choices, outer)


class Experts(nn.Module):
    def __init__(self, args, run):
        super().__init__()
        self.count, self.top_k, self.run = args.experts, args.top_k, run
        self.router = nn.Linear(args.dim, args.experts, bias=False)
        self.w1, self.w3 = (nn.Parameter(torch.randn(args.experts, args.hidden, args.dim) * 0.02) for _ in range(2))
        self.w2 = nn.Parameter(torch.randn(args.experts, args.dim, args.hidden) * 0.02)

    def forward(self, x):
        tokens = x.flatten(0, 1)
        scores = F.linear(tokens.float(), self.router.weight.float()).softmax(-1)
        weights, chosen = scores.topk(self.top_k)
        return self.run(tokens, weights / weights.sum(-1, keepdim=True), chosen, self).view_as(x)


class Block(nn.Module):
    def __init__(self, args, run):
        super().__init__()
        d, self.heads = args.dim, args.heads
        self.attention_norm, self.ffn_norm = RMSNorm(d), RMSNorm(d)
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.experts = Experts(args, run)
        cos, sin = rotary_table(args.sequence, d // args.heads)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, x):
        b, s, d = x.shape
        h = self.attention_norm(x)
        q, k, v = (w(h).view(b, s, self.heads, d // self.heads).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        q, k = rotate(q, self.cos, self.sin).to(x.dtype), rotate(k, self.cos, self.sin).to(x.dtype)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.wo(a.transpose(1, 2).reshape(b, s, d))
        return x + self.experts(self.ffn_norm(x))


def main():
    parser = argparse.ArgumentParser()
    for name in ("tokens", "dim", "hidden", "experts", "top_k", "heads"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--dtype", required=True)
    args = parser.parse_args()
    args.sequence = 256
    batch = args.tokens // args.sequence
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[args.dtype]
    x = torch.randn(batch, args.sequence, args.dim).to(dtype).requires_grad_(True)
    gradient = torch.randn(batch, args.sequence, args.dim).to(dtype)
    stages = {}
    compiled = by_loop if dtype == torch.float32 else by_grouped_mm  # it refuses torch._grouped_mm in fp32
    for name, run in (("loop", by_loop), ("grouped", by_grouped_mm), ("compiled", compiled)):
        stage = nn.Sequential(Block(args, run), Block(args, run)).to(dtype)
        stages[name] = torch.compile(stage) if name == "compiled" else stage
    for line in sys.stdin:
        stage = stages[line.strip()]
        runs, end = 0, 0.0
        while end == 0.0 or time.perf_counter() < end:
            stage(x).backward(gradient)
            if end == 0.0:  # the first run compiles
                start = time.perf_counter()
                end = start + 0.5
            else:
                runs += 1
        print(1e3 * (time.perf_counter() - start) / max(runs, 1), flush=True)


if __name__ == "__main__":
    main()
