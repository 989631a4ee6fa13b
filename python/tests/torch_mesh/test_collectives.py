"""Each functional collective in a stage, with its gradient, gives what it gives outside of stages."""

from __future__ import annotations

from torch_mesh.processes import errors_of

_SCRIPT = """
import torch, penstock.torch as pt
from torch import nn
from torch.distributed import _functional_collectives as fc
from torch_mesh import parity

mesh = parity.mesh_of("pipeline tensor", 1, 2)
group = mesh["tensor"].get_group()

class All(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(6))

    def forward(self, x):
        x = x * self.weight
        fixed = x.detach()
        gathered = fc.all_gather_tensor_autograd(x, 0, group)
        one, other = fc.all_reduce_coalesced([x, 2 * x], "sum", group)
        (twice,) = fc.all_gather_into_tensor_coalesced([x], group)
        (scattered,) = fc.reduce_scatter_tensor_coalesced([twice * twice], "sum", [0], group)
        return torch.stack([
            fc.all_reduce(x, "sum", group),
            fc.reduce_scatter_tensor_autograd(gathered * gathered, "sum", 0, group),
            fc.all_to_all_single_autograd(x, [1, 1], [1, 1], group),
            fc.broadcast(fixed, 1, group),
            fc.all_reduce(fixed, "avg", group) + fc.all_reduce(fixed, "max", group) * fc.all_reduce(fixed, "min", group),
            one * other,
            scattered,
        ])

def loss_of(output, target):
    return (output - target).square().mean()

torch.manual_seed(5)
x, y = torch.randn(8, 6), torch.randn(8, 6)
stage, other = All(), All()
pipe = pt.Pipeline([stage], "1f1b", ranks=1, microbatches=4, loss=loss_of, optimizer=None, mesh=mesh, timeout=60)
loss = pipe.step(x, y)
expected = sum(loss_of(other(a), b) / 4 for a, b in zip(x.chunk(4), y.chunk(4)))
expected.backward()
parity.report("all", {"loss": abs(loss / float(expected) - 1), "gradient": parity.relative(stage.weight.grad, other.weight.grad)})
"""


def test_every_collective_and_its_gradient() -> None:
    found = errors_of(_SCRIPT, processes=2)
    assert len(found) == 2 and max(found.values()) < 1e-6, found
