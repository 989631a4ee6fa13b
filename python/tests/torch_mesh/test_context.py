"""Parts of sequences on processes of a context dimension: losses, norms and weights are those of whole sequences."""

from __future__ import annotations

from torch_mesh.processes import cases_of, errors_of, expect_on_all

_HEAD = """
import contextlib
import torch, torch.distributed as dist, penstock.torch as pt
from torch import nn
from torch.distributed import _functional_collectives as fc
from torch_mesh import parity

DIM, TOKENS = 16, 13

class Attention(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.group, self.norm = group, nn.LayerNorm(DIM)
        self.q, self.kv, self.o = nn.Linear(DIM, DIM), nn.Linear(DIM, 2 * DIM), nn.Linear(DIM, DIM)

    def forward(self, x):
        h = self.norm(x)
        kv, first = self.kv(h), 0
        if self.group is not None:  # keys and values of the whole sequence, of which the first part is the larger one
            first, most = dist.get_rank(self.group) * (TOKENS - x.shape[1]), -(-TOKENS // 2)
            kv = nn.functional.pad(kv.transpose(0, 1), (0, 0, 0, 0, 0, most - x.shape[1]))
            kv = fc.all_gather_tensor_autograd(kv.contiguous(), 0, self.group).transpose(0, 1)[:, :TOKENS]
        k, v = kv.chunk(2, -1)
        is_later = torch.arange(k.shape[1]) > torch.arange(first, first + x.shape[1]).unsqueeze(1)
        scores = (self.q(h) @ k.transpose(1, 2)).masked_fill(is_later, float("-inf"))
        return x + self.o(scores.softmax(-1) @ v)

def build(count, group=None):
    torch.manual_seed(1)
    return [Attention(group) for _ in range(count)]

def loss(output, target):
    error = (output - target).square()
    return error.mean(), {"largest": error.mean().sqrt()}

def only(output, target):
    return loss(output, target)[0]

def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

def train(name, build, schedule="1f1b", clip=0.0, tokens=TOKENS, mesh=None, divided=lambda stage: stage):
    mesh = mesh or parity.mesh_of("pipeline context", 2, 2)
    group, count = mesh["context"].get_group(), parity.stages_of(schedule, 2)
    whole, parts = build(count), [divided(each) for each in build(count, group)]
    pipe = pt.Pipeline(parts, schedule, ranks=2, microbatches=4, loss=loss, optimizer=sgd, mesh=mesh, timeout=60, clip_grad_norm=clip)
    torch.manual_seed(2)
    batches = [(torch.randn(8, tokens, DIM), torch.randn(8, tokens, DIM)) for _ in range(3)]
    def own(batch):
        return tuple(parity.slice_of(each, 1, group) for each in batch)
    errors = parity.errors_of(pipe, whole, only, sgd(nn.Sequential(*whole).parameters()), batches, clip=clip, own=own)
    errors |= parity.weight_errors(pipe, parts, whole, lambda name: None, None)
    expected = only(nn.Sequential(*whole)(batches[0][0]), batches[0][1]).detach()
    evaluated = pipe.eval_step(*own(batches[0]))
    errors["eval"] = abs(evaluated / float(expected) - 1)
    parity.report(name, errors)
"""


def test_keys_and_values_of_the_whole_sequence() -> None:
    """Of 13 tokens, one process has 7."""
    found = errors_of(
        _HEAD
        + """
train("1f1b", build)
train("zb-h1", build, "zb-h1", clip=0.1)
train("zbv", build, "zbv", clip=0.1)
"""
    )
    assert max(found.values()) < 2e-5, found
    assert len(found) == 3 * 4


def test_tensor_ranks_of_parts_of_a_sequence() -> None:
    """DTensors of one dimension of a mesh of three. Of 33 hidden features and 13 tokens, processes have different numbers."""
    found = errors_of(
        _HEAD
        + """
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

class Block(Attention):
    def __init__(self, group=None):
        super().__init__(group)
        self.up, self.down = nn.Linear(DIM, 33), nn.Linear(33, DIM)

    def forward(self, x):
        x = super().forward(x)
        return x + self.down(nn.functional.silu(self.up(x)))

def blocks(count, group=None):
    torch.manual_seed(1)
    return [Block(group) for _ in range(count)]

mesh = parity.mesh_of("pipeline context tensor", 2, 2, 2)
plan = {"up": ColwiseParallel(use_local_output=False), "down": RowwiseParallel()}
train("three", blocks, "zbv", clip=0.1, mesh=mesh, divided=lambda stage: parallelize_module(stage, mesh["tensor"], plan))
""",
        processes=8,
    )
    assert len(found) == 8 and max(found.values()) < 2e-5, found


_RING = """
class Ring(nn.Module):
    '''Keys and values go around; sums of exponentials are added.'''

    def __init__(self, group=None, rotate=None):
        super().__init__()
        self.q, self.kv, self.group, self.rotate = nn.Linear(DIM, DIM), nn.Linear(DIM, 2 * DIM), group, rotate

    def forward(self, x):
        q, kv, tokens = self.q(x), self.kv(x), x.shape[1]
        ranks, rank = (1, 0) if self.group is None else (self.group.size(), self.group.rank())
        result, total, places = 0, 0, torch.arange(tokens)
        for turn in range(ranks):
            k, v = kv.chunk(2, -1)
            is_later = places + (rank - turn) % ranks * tokens > (places + rank * tokens).unsqueeze(1)
            weights = (q @ k.transpose(1, 2) / 4).masked_fill(is_later, float("-inf")).exp()
            result, total = result + weights @ v, total + weights.sum(-1, keepdim=True)
            kv = self.rotate(kv, self.group) if turn < ranks - 1 else kv
        return x + result / total

def by_all_to_all(kv, group):
    flat, after, before = kv.reshape(-1), (group.rank() + 1) % group.size(), (group.rank() - 1) % group.size()
    sizes = [[flat.numel() if rank == place else 0 for rank in range(group.size())] for place in (before, after)]
    return fc.all_to_all_single_autograd(flat, *sizes, group).view_as(kv)

def by_messages(kv, group):
    ranks, result = dist.get_process_group_ranks(group), torch.empty_like(kv)
    after, before = ranks[(group.rank() + 1) % group.size()], ranks[group.rank() - 1]
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, kv, after, group), dist.P2POp(dist.irecv, result, before, group)]):
        work.wait()
    return result

def rings(rotate):
    def build(count, group=None):
        torch.manual_seed(1)
        return [Ring(group, rotate) for _ in range(count)]
    return build
"""


def test_a_ring_of_keys_and_values() -> None:
    found = errors_of(_HEAD + _RING + 'train("ring", rings(by_all_to_all), "zb-h1", clip=0.1, tokens=12)\n')
    assert max(found.values()) < 2e-5, found


def test_what_a_context_dimension_cannot_have() -> None:
    found = cases_of(
        _HEAD
        + _RING
        + """
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import context_parallel

mesh = parity.mesh_of("pipeline context", 2, 2)
x = torch.randn(8, 12, DIM)

def step(x, y, stages=None, context=None):
    pipe = pt.Pipeline(stages or build(2, mesh["context"].get_group()), ranks=2, microbatches=4, loss=only, mesh=mesh, timeout=30)
    with context_parallel(mesh["context"], buffers=(x, y), buffer_seq_dims=(1, 1)) if context else contextlib.nullcontext():
        return pipe.step(x, y)

class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(distribute_tensor(torch.ones(DIM), mesh["context"], [Replicate()]))

class Causal(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(DIM, DIM)

    def forward(self, x):
        q = self.q(x).unsqueeze(1)
        return x + nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).squeeze(1)

with parity.said("messages"):
    train("messages", rings(by_messages), tokens=12)
with parity.said("dtensor"):
    step(x, x, [Scaled(), Scaled()])
with parity.said("context_parallel"):
    step(x.clone(), x.clone(), [Causal(), Causal()], context=True)
with parity.said("targets"):  # of another length than the inputs' part
    part = parity.slice_of(x[:, :11], 1, mesh["context"].get_group())
    step(part, x[:, :6])
"""
    )
    parts = {
        "messages": "batch_isend_irecv of torch.distributed exchanges tensors with other processes",
        "dtensor": "parameter 'weight' is a DTensor of the dimensions ('context',) of mesh: distribute it along the tensor dimension only",
        "context_parallel": "does not have a sharding strategy registered",
        "targets": "step: the shape of tensor 0 of the inputs is [8, ",
    }
    expect_on_all(found, parts)
