"""Plain modules whose collectives are those of the package spmd_types train as one process does."""

from __future__ import annotations

import pathlib

import pytest
from torch_mesh.processes import errors_of

# tools/setup.sh installs it.
_SITES = [str(site) for site in (pathlib.Path(__file__).parents[3] / "build").glob("readers-venv/lib/python3*/site-packages")]

_SCRIPT = f"""
import sys
sys.path += {_SITES!r}
""" + """
import torch, penstock.torch as pt, spmd_types as spmd
from torch import nn
from torch_mesh import mlp, parity

class Block(nn.Module):
    def __init__(self, group=None, ranks=1, sequence=False):
        super().__init__()
        size, hidden = mlp.SIZE, mlp.HIDDEN // ranks
        self.norm, self.up, self.down = nn.LayerNorm(size), nn.Linear(size, hidden), nn.Linear(hidden, size, bias=False)
        self.bias = nn.Parameter(torch.zeros(size))
        self.group, self.sequence = group, sequence

    def forward(self, x):
        g = self.group
        if g is None:
            return x + self.compute(self.norm(x)) + self.bias
        if not self.sequence:
            h = spmd.convert(self.norm(x), g, src=spmd.I, dst=spmd.R)
            return x + spmd.all_reduce(self.compute(h), g, src=spmd.P, dst=spmd.I) + self.bias
        # Each rank has some of the samples outside of the matrices.
        weight, bias, last = (spmd.convert(p, g, src=spmd.I, dst=spmd.R) for p in (self.norm.weight, self.norm.bias, self.bias))
        x = spmd.convert(x, g, src=spmd.I, dst=spmd.S(0))
        h = spmd.all_gather(nn.functional.layer_norm(x, (mlp.SIZE,), weight, bias), g, src=spmd.S(0), dst=spmd.R)
        h = spmd.reduce_scatter(self.compute(h), g, src=spmd.P, dst=spmd.S(0))
        return spmd.all_gather(x + h + last, g, src=spmd.S(0), dst=spmd.I)

    def compute(self, h):
        return self.down(nn.functional.gelu(self.up(h)))

mesh = parity.mesh_of("pipeline tensor", 2, 2)
group, mse = mesh["tensor"].get_group(), nn.functional.mse_loss

def train(schedule, sequence):
    def sgd(parameters):
        return torch.optim.SGD(parameters, lr=0.5, momentum=0.9)
    torch.manual_seed(1)
    whole = [Block() for _ in range(parity.stages_of(schedule, 2))]
    parts = [parity.copy_parts(Block(group, 2, sequence), each, mlp.dim_of, group) for each in whole]
    pipe = pt.Pipeline(parts, schedule, ranks=2, microbatches=4, loss=mse, optimizer=sgd, clip_grad_norm=0.05, mesh=mesh, timeout=60)
    errors = parity.errors_of(pipe, whole, mse, sgd(nn.Sequential(*whole).parameters()), mlp.batches(3), clip=0.05)
    errors |= parity.weight_errors(pipe, parts, whole, mlp.dim_of, group)
    parity.report(f"{schedule}-{sequence}", errors)

train("1f1b", False)
with spmd.set_current_mesh(mesh):
    train("zbv", True)
"""


@pytest.mark.skipif(not any(pathlib.Path(site, "spmd_types").exists() for site in _SITES), reason="spmd_types is not installed")
def test_all_reduce_and_sequence_parallelism() -> None:
    found = errors_of(_SCRIPT)
    assert len(found) == 2 * 4 and max(found.values()) < 1e-5, found
