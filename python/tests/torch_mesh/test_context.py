"""Parts of sequences on processes of a context dimension: losses, norms and weights are those of whole sequences."""

from __future__ import annotations

from torch_mesh.processes import errors_of

_SCRIPT = """
import torch, torch.distributed as dist, penstock.torch as pt
from torch import nn
from torch.distributed import _functional_collectives as fc
from torch_mesh import parity

DIM, TOKENS = 16, 12

class Attention(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.group, self.norm = group, nn.LayerNorm(DIM)
        self.q, self.kv, self.o = nn.Linear(DIM, DIM), nn.Linear(DIM, 2 * DIM), nn.Linear(DIM, DIM)

    def forward(self, x):
        h = self.norm(x)
        kv, first = self.kv(h), 0
        if self.group is not None:  # keys and values of the whole sequence
            first = dist.get_rank(self.group) * x.shape[1]
            kv = fc.all_gather_tensor_autograd(kv.transpose(0, 1).contiguous(), 0, self.group).transpose(0, 1)
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

for schedule, options in (("1f1b", {}), ("zb-h1", {"clip_grad_norm": 0.1}), ("zbv", {"clip_grad_norm": 0.1})):
    mesh = parity.mesh_of("pipeline context", 2, 2)
    group, count = mesh["context"].get_group(), parity.stages_of(schedule, 2)
    whole, parts = build(count), build(count, group)
    def sgd(parameters):
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    pipe = pt.Pipeline(parts, schedule, ranks=2, microbatches=4, loss=loss, optimizer=sgd, mesh=mesh, timeout=60, **options)
    torch.manual_seed(2)
    batches = [(torch.randn(8, TOKENS, DIM), torch.randn(8, TOKENS, DIM)) for _ in range(3)]
    def own(batch):
        return tuple(parity.slice_of(each, 1, group) for each in batch)
    clip = options.get("clip_grad_norm", 0.0)
    errors = parity.errors_of(pipe, whole, only, sgd(nn.Sequential(*whole).parameters()), batches, clip=clip, own=own)
    errors |= parity.weight_errors(pipe, parts, whole, lambda name: None, None)
    expected = float(only(nn.Sequential(*whole)(batches[0][0]), batches[0][1]).detach())
    errors["eval"] = abs(pipe.eval_step(*own(batches[0])) / expected - 1)
    parity.report(schedule, errors)
"""


def test_keys_and_values_of_the_whole_sequence() -> None:
    found = errors_of(_SCRIPT)
    assert max(found.values()) < 2e-5, found
    assert len(found) == 3 * 4
