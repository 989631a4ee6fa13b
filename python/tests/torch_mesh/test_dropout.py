"""Dropout on a mesh: replicated tensors draw equal numbers on all planes, parts different ones."""

from __future__ import annotations

from torch_mesh.processes import cases_of

_SCRIPT = """
import os
import torch, torch.distributed as dist, penstock.torch as pt
from torch import nn
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch_mesh import parity

mesh = parity.mesh_of("pipeline tensor", 1, 2)
rank = mesh["tensor"].get_local_rank()

class Drops(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how, self.weight = how, nn.Parameter(torch.ones(64))

    def forward(self, x):
        x = x * self.weight
        if self.how == "part":
            with pt.part_of_random(rank):
                return nn.functional.dropout(x)
        if self.how == "plain":
            return nn.functional.dropout(x)
        placement = Shard(1) if self.how == "shard" else Replicate()
        return nn.functional.dropout(DTensor.from_local(x, mesh["tensor"], [placement])).to_local()

for how in ("plain", "part", "replicate", "shard"):
    pipe = pt.Pipeline([Drops(how)], "1f1b", ranks=1, microbatches=2, loss=nn.functional.mse_loss, mesh=mesh, outputs=True, timeout=60)
    pipe.step(torch.ones(4, 64), torch.ones(4, 64))
    mask = (pipe.last.outputs > 0).to(torch.int64)
    of_all = [torch.empty_like(mask) for _ in range(2)]
    dist.all_gather(of_all, mask)
    with parity.said(how):
        raise pt.Error(f"{torch.equal(*of_all)} {float(mask.float().mean()):.1f}")
"""


def test_dropout_of_replicated_and_divided_tensors() -> None:
    found = cases_of(_SCRIPT, processes=2)
    for how, is_equal in {"plain": "True", "part": "False", "replicate": "True", "shard": "False"}.items():
        assert all(line.startswith(is_equal) and line.endswith(("0.4", "0.5", "0.6")) for line in found[how]), (how, found)
