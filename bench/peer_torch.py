"""The peer: torch.distributed.pipelining on CPU processes over Gloo, with the same model and data shape.

bench/run runs it in an environment with PyPI torch. It has one process per rank with one intra-op thread, as penstock
has. Prints one JSON object: the tokens per second of every measured step.
"""
import argparse
import json
import os
import resource
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.pipelining import (
    PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble)
from torch.distributed.pipelining.schedules import ScheduleDualPipeV

SCHEDULES = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe, "interleaved": ScheduleInterleaved1F1B,
             "zb1p": ScheduleInterleavedZeroBubble, "zbv": ScheduleZBVZeroBubble, "dualpipev": ScheduleDualPipeV}
VEE = ("zbv", "dualpipev")  # rank r holds stages r and 2p-1-r
ONE_STAGE = ("1f1b", "gpipe")  # take the stage itself, not a list


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def rotary_table(seq, head_dim, theta=10000.0):
    inv = 1.0 / theta ** (torch.arange(0, head_dim, 2).float() / head_dim)
    angle = torch.outer(torch.arange(seq).float(), inv)
    return torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Block(nn.Module):
    def __init__(self, args):
        super().__init__()
        d, self.heads = args.dim, args.heads
        self.attention_norm, self.ffn_norm = RMSNorm(d), RMSNorm(d)
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.w1, self.w3 = nn.Linear(d, args.hidden, bias=False), nn.Linear(d, args.hidden, bias=False)
        self.w2 = nn.Linear(args.hidden, d, bias=False)
        cos, sin = rotary_table(args.sequence, d // args.heads)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, x):
        b, s, d = x.shape
        h = self.attention_norm(x)
        q, k, v = (w(h).view(b, s, self.heads, d // self.heads).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        q, k = rotate(q, self.cos, self.sin), rotate(k, self.cos, self.sin)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.wo(a.transpose(1, 2).reshape(b, s, d))
        h = self.ffn_norm(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class StageModule(nn.Module):
    def __init__(self, args, stage, stages):
        super().__init__()
        count = args.layers // stages
        self.embedding = nn.Embedding(args.vocabulary, args.dim) if stage == 0 else None
        self.blocks = nn.ModuleList(Block(args) for _ in range(count))
        self.norm = RMSNorm(args.dim) if stage == stages - 1 else None
        self.head = nn.Linear(args.dim, args.vocabulary, bias=False) if stage == stages - 1 else None

    def forward(self, x):
        if self.embedding is not None:
            x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return x if self.head is None else self.head(self.norm(x))


def loss_fn(logits, target):
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def worker(rank, args, port, queue):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    stages = args.ranks * args.chunks
    mine = [rank, stages - 1 - rank] if args.schedule in VEE else list(range(rank, stages, args.ranks))
    modules = [StageModule(args, s, stages) for s in mine]
    if args.dtype == "bfloat16":
        modules = [m.to(torch.bfloat16) for m in modules]
    parameters = [p for m in modules for p in m.parameters()]
    if args.compile:
        modules = [torch.compile(m) for m in modules]
    pipe = [PipelineStage(m, s, stages, torch.device("cpu")) for m, s in zip(modules, mine)]
    schedule = SCHEDULES[args.schedule](pipe[0] if args.schedule in ONE_STAGE else pipe, args.microbatches, loss_fn=loss_fn)
    if args.schedule in VEE:
        # torch's warm-up sends messages between neighboring stages. The middle stages of a vee share a rank, and Gloo
        # refuses messages to the own rank.
        for stage in pipe:
            stage._get_init_p2p_neighbors_ops = lambda: []
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)
    shape = (args.microbatches, args.sequence)
    x, y = torch.randint(args.vocabulary, shape), torch.randint(args.vocabulary, shape)

    times = []
    for _ in range(args.warmup + args.steps):
        dist.barrier()
        start = time.perf_counter()
        inputs = (x,) if 0 in mine else ()
        kwargs = {"target": y, "losses": []} if stages - 1 in mine else {}
        schedule.step(*inputs, **kwargs)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        dist.barrier()
        times.append(time.perf_counter() - start)
    tokens = args.microbatches * args.sequence
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    queue.put((rank, [tokens / t for t in times[args.warmup:]], resident))
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("ranks", 2), ("chunks", 1), ("microbatches", 8), ("dim", 256), ("layers", 8),
                          ("heads", 4), ("hidden", 688), ("sequence", 256), ("vocabulary", 256),
                          ("steps", 10), ("warmup", 3)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--schedule", choices=SCHEDULES, default="1f1b")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = mp.get_context("spawn")
    queue = context.SimpleQueue()
    ranks = [context.Process(target=worker, args=(r, args, port, queue)) for r in range(args.ranks)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    if any(process.exitcode for process in ranks):
        raise SystemExit("a rank of the peer failed")
    results = sorted(queue.get() for _ in ranks)
    print(json.dumps({"tokens_per_second": results[0][1], "resident": max(result[2] for result in results)}))


if __name__ == "__main__":
    main()
