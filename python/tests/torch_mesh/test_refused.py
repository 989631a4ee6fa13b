"""What stages on a mesh cannot do is refused with one line on every process."""

from __future__ import annotations

from torch_mesh.processes import cases_of, expect_on_all

_HEAD = """
import torch, torch.distributed as dist, penstock.torch as pt
from torch import nn
from torch.distributed import _functional_collectives as fc
from torch.distributed.fsdp import fully_shard
from torch_mesh import mlp, parity

mesh = parity.mesh_of("pipeline tensor", 2, 2)
group, mse = mesh["tensor"].get_group(), nn.functional.mse_loss
alone, pipeline = dist.new_group([0]), mesh["pipeline"].get_group()
here = mesh["tensor"].get_local_rank()
x, y = mlp.batches(1)[0]

def train(modules, *batch, mesh=mesh, schedule="1f1b", loss=mse, **others):
    given = {"ranks": 2, "microbatches": 4, "loss": loss, "timeout": 30, **others}
    return pt.Pipeline(modules, schedule, mesh=mesh, **given).step(*(batch or (x, y)))

def linears():
    torch.manual_seed(0)
    return [nn.Linear(32, 32), nn.Linear(32, 32)]

class Calls(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.inner, self.call = nn.Linear(32, 32), call

    def forward(self, x):
        return self.call(self.inner(x))

def calling(call):
    torch.manual_seed(0)
    return [Calls(call), nn.Linear(32, 32)]
"""

# What a stage calls, and a part of the line.
_CALLS = {
    "dist.all_reduce(x.detach()) or x": "all_reduce of torch.distributed exchanges tensors with other processes, which compiled steps do not "
    "repeat: call torch.distributed._functional_collectives",
    "dist.barrier(group) or x": "barrier of torch.distributed exchanges tensors",
    "torch.ops._c10d_functional.all_reduce_(x.detach().clone(), 'sum', group.group_name)": "_c10d_functional::all_reduce_ exchanges tensors",
    "fc.all_reduce(x, 'sum', pipeline)": "all_reduce of torch.distributed uses the group ",
    "fc.all_reduce(x, 'sum', dist.group.WORLD)": "but the tensor and context dimensions of mesh connect the processes [0, 1] here",
    "torch.ops._c10d_functional.all_reduce(x, 'sum', 'nowhere')": "_c10d_functional::all_reduce uses the group 'nowhere'",
    "fc.all_reduce(x.detach(), 'product', group)": "all_reduce of torch.distributed reduces by 'product': reduce by sum, avg, min or max",
    "fc.all_gather_tensor(fc.reduce_scatter_tensor(x, 'max', 0, group), 0, group)": "backward only supports 'sum' reduction, got 'max'",
}


def test_collectives_that_a_graph_cannot_have() -> None:
    cases = "".join(f"cases.append(lambda x: {call})\n" for call in _CALLS)
    found = cases_of(
        _HEAD
        + f"""
cases = []
{cases}
for number, call in enumerate(cases):
    with parity.said(str(number)):
        train(calling(call))
"""
    )
    for number, (call, part) in enumerate(_CALLS.items()):
        lines = found[str(number)]
        assert part in lines[0] and "stage 0" in lines[0], (call, lines)
        assert all(line.removeprefix("process 0: ").removeprefix("process 1: ")[:9] == "stage 0, " or part in line for line in lines), lines


def test_what_planes_compare() -> None:
    found = cases_of(
        _HEAD
        + """
def twice(x):
    for _ in range(1 + here):
        x = fc.all_reduce(x, "sum", group)
    return x

with parity.said("order"):
    train(calling(twice))
with parity.said("schedule"):
    train(linears(), schedule=("1f1b", "gpipe")[here])
with parity.said("microbatches"):
    train(linears(), microbatches=4 * (1 + here))
with parity.said("shape"):
    train(linears(), x[: 8 + 4 * here], y[: 8 + 4 * here])
with parity.said("values"):
    train(linears(), x + here, y)
with parity.said("weights"):
    torch.manual_seed(here)
    train([nn.Linear(32, 32), nn.Linear(32, 32)])
"""
    )
    expect_on_all(
        found,
        {
            "order": "stage 0: the sequence of its collectives is ",
            "schedule": "the schedule",
            "microbatches": "microbatches is 4 on processes 0 and 2, but 8 on processes 1 and 3",
            "shape": "step: the number of samples is 8 on process ",
            "values": "step: the values of tensor 0 of the inputs differ between process ",
            "weights": "stage 0: the values of parameter 'weight' differ between process 0 and process 1",
        },
    )


def test_arguments_that_do_not_fit_a_mesh() -> None:
    found = cases_of(
        _HEAD
        + """
replicas = parity.mesh_of("data tensor", 2, 2)
for name, call in {
    "names": lambda: train(linears(), mesh=dist.device_mesh.init_device_mesh("cpu", (2, 2))),
    "type": lambda: train(linears(), mesh="tensor"),
    "both": lambda: train(linears(), mesh=parity.mesh_of("tp tensor", 2, 2)),
    "replicas": lambda: train(linears(), mesh=replicas),
    "ranks": lambda: train([*linears(), linears()[0]], ranks=3),
    "transport": lambda: train(linears(), transport="c10d"),
    "slices": lambda: train(linears(), schedule="seq1f1b", slices=2),
    "sharded": lambda: train([fully_shard(each, mesh=mesh["pipeline"]) for each in linears()]),
}.items():
    with parity.said(name):
        call()
"""
    )
    expect_on_all(
        found,
        {
            "names": "mesh: pass a DeviceMesh of torch.distributed whose dimensions have names",
            "type": "mesh: pass a DeviceMesh of torch.distributed whose dimensions have names",
            "both": "give one of 'tensor' and 'tp', not both",
            "replicas": "mesh has 2 replicas along its dimensions data, but data_parallel is 1: pass data_parallel=2",
            "ranks": "mesh has 2 processes along its pipeline, which cannot share 3 ranks equally",
            "transport": "transport is 'c10d', but the planes of mesh exchange messages by 'tcp'",
            "slices": "mesh: stages with collectives cannot compute sequence slices",
            "sharded": "is a DTensor on the processes ",
        },
    )
