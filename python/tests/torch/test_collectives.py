"""Communication inside of stages and losses, and weights that torch.distributed divides: refused by name, without a hang."""

from __future__ import annotations

from forks import run_all

_HEAD = """
import os, sys
import torch, penstock, penstock.torch as pt
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable
from torch import nn

here, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo")
name = dist.distributed_c10d._get_default_group().group_name
ops, x, y = torch.ops, torch.randn(8, 6), torch.randn(8, 6)
mse = nn.functional.mse_loss

class Around(nn.Module):
    def __init__(self, inner, call):
        super().__init__()
        self.inner, self.call = inner, call

    def forward(self, x):
        x = self.inner(x)
        found = self.call(x)
        return found if isinstance(found, torch.Tensor) else x

class InBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        dist.all_reduce(gradient)
        return gradient

@torch.library.custom_op("penstock_tests::summed", mutates_args=())
def summed(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    dist.all_reduce(x)
    return x

@summed.register_fake
def _(x):
    return x.clone()

summed.register_autograd(lambda ctx, gradient: gradient)

def listed(x):
    return [torch.empty_like(x) for _ in range(count)]

def attempt(name, call):
    try:
        found = repr(call())
    except pt.Error as error:
        found = str(error)
    sys.stdout.write(f"case {name} {here} {found}\\n")
    sys.stdout.flush()

def pipeline(modules, **others):
    given = {"ranks": 2, "microbatches": 4, "loss": mse, "timeout": 60, **others}
    return pt.Pipeline(modules, "1f1b", **given)

def linears():
    torch.manual_seed(0)
    return [nn.Linear(6, 6), nn.Linear(6, 6)]
"""


def _run(script: str) -> dict[tuple[str, int], str]:
    """Returns what each case of a script printed, by name and process; both processes must end well."""
    ended = run_all(_HEAD + script)
    assert all(code == 0 for code, _, _ in ended), ended
    lines = [line.split(" ", 3) for _, out, _ in ended for line in out.splitlines() if line.startswith("case ")]
    return {(name, int(process)): text for _, name, process, text in lines}


# What a stage calls, and the function that the line names.
_CALLS = {
    "dist.all_reduce(x.detach())": "all_reduce of torch.distributed",
    "dist.all_reduce(x.detach(), async_op=True)": "all_reduce of torch.distributed",
    "dist.broadcast(x.detach(), 0)": "broadcast of torch.distributed",
    "dist.reduce(x.detach(), 0)": "reduce of torch.distributed",
    "dist.all_gather(listed(x), x.detach())": "all_gather of torch.distributed",
    "dist.all_gather_into_tensor(torch.empty(4, 6), x.detach())": "all_gather_into_tensor of torch.distributed",
    "dist.reduce_scatter_tensor(torch.empty(1, 6), x.detach())": "reduce_scatter_tensor of torch.distributed",
    "dist.all_to_all_single(torch.empty(2, 6), x.detach())": "all_to_all_single of torch.distributed",
    "dist.gather(x.detach(), listed(x) if here == 0 else None)": "gather of torch.distributed",
    "dist.scatter(x.detach(), listed(x) if here == 0 else None)": "scatter of torch.distributed",
    "dist.send(x.detach(), 1 - here)": "send of torch.distributed",
    "dist.isend(x.detach(), 1 - here)": "isend of torch.distributed",
    "dist.recv(x.detach(), 1 - here)": "recv of torch.distributed",
    "dist.recv(x.detach())": "recv of torch.distributed",
    "dist.batch_isend_irecv([dist.P2POp(dist.isend, x.detach(), 1 - here)])": "batch_isend_irecv of torch.distributed",
    "dist.barrier()": "barrier of torch.distributed",
    "dist.monitored_barrier()": "monitored_barrier of torch.distributed",
    "dist.new_group([0])": "new_group of torch.distributed",
    "dist.all_gather_object([None, None], 5)": "all_gather_object of torch.distributed",
    "dist.broadcast_object_list([5], 0)": "broadcast_object_list of torch.distributed",
    "dist.group.WORLD.allreduce([x.detach()])": "allreduce",
    "dist.group.WORLD._get_backend(x.device).allreduce([x.detach()])": "allreduce",
    "differentiable.all_reduce(x)": "all_reduce of torch.distributed",
    "differentiable.all_gather(x)[0]": "all_gather of torch.distributed",
    "functional.all_reduce(x, 'sum', dist.group.WORLD)": "all_reduce of torch.distributed",
    "functional.all_gather_tensor(x, 0, dist.group.WORLD)": "all_gather_tensor of torch.distributed",
    "functional.all_to_all_single_autograd(x, None, None, dist.group.WORLD)": "all_to_all_single_autograd of torch.distributed",
    "ops._c10d_functional.wait_tensor(ops._c10d_functional.all_reduce(x, 'sum', name))": "_c10d_functional::all_reduce",
    "ops._c10d_functional.all_reduce_(x.detach().clone(), 'sum', name)": "_c10d_functional::all_reduce_",
    "summed(x)": "all_reduce of torch.distributed",
}


def test_collectives_in_a_stage_are_refused() -> None:
    cases = "".join(f"cases.append(lambda x: {call})\n" for call in _CALLS)
    found = _run(
        f"""
cases = []
{cases}
for number, call in enumerate(cases):
    first, last = linears()
    attempt(number, lambda: pipeline([Around(first, call), last], seed=1).step(x, y))
"""
    )
    for number, (call, named) in enumerate(_CALLS.items()):
        own, other = found[str(number), 0], found[str(number), 1]
        assert own.startswith("stage 0, forward at script.py:") and f": {named} " in own, (call, own)
        assert other == f"process 0: {own}", (call, other)


def test_collectives_in_losses_and_backwards_are_refused() -> None:
    found = _run(
        """
def summing(output, target):
    loss = mse(output, target)
    return differentiable.all_reduce(loss)

def checked(output, target):
    dist.barrier()
    return mse(output, target)

first, last = linears()
attempt("loss", lambda: pipeline(linears(), loss=summing).step(x, y))
attempt("barrier", lambda: pipeline(linears(), loss=checked).step(x, y))
attempt("backward", lambda: pipeline([Around(first, InBackward.apply), last]).step(x, y))
attempt("weight", lambda: pipeline([first, Around(last, InBackward.apply)], recompute={"hold": "least"}).step(x, y))
sliced = Around(linears()[0], lambda x: dist.all_reduce(x.detach()))
tokens = torch.randn(8, 4, 6)
attempt("sliced", lambda: pt.Pipeline([sliced, last], "seq1f1b", ranks=2, microbatches=4, slices=2, loss=mse).step(tokens, tokens))
value = torch.ones(2)
dist.all_reduce(value)  # outside of captures, as before
attempt("outside", lambda: value.tolist())
attempt("groups", lambda: dist.get_world_size(dist.new_group([0, 1])))
attempt("evaluation", lambda: pipeline(linears()).eval_step(x, y) > 0)
"""
    )
    for process, prefix in ((0, "process 1: "), (1, "")):
        assert found["loss", process].startswith(f"{prefix}stage 1, loss at script.py:")
        assert " in summing: all_reduce of torch.distributed exchanges tensors" in found["loss", process]
        assert " in checked: barrier of torch.distributed exchanges tensors" in found["barrier", process]
        sliced = found["sliced", process].removeprefix("process 0: ")
        assert sliced.startswith("stage 0, forward at script.py:") and ": all_reduce of torch.distributed exchanges" in sliced
        assert found["outside", process] == "[2.0, 2.0]"
        assert found["groups", process] == "2"
        assert found["evaluation", process] == "True"
    for name, own in (("backward", 0), ("weight", 1)):
        line = found[name, own]
        assert line.startswith(f"stage {own}: all_reduce of torch.distributed at script.py:"), line
        assert " in backward exchanges tensors with other processes" in line
        assert found[name, 1 - own] == f"process {own}: {line}"


def test_weights_that_torch_divides_are_refused_by_name() -> None:
    found = _run(
        """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

class Wrapped(DistributedDataParallel):
    pass

mesh = init_device_mesh("cpu", (2,))
def made(change):
    modules = [nn.Sequential(nn.Linear(6, 6)), nn.Linear(6, 6)]
    modules[0] = change(modules[0]) or modules[0]
    return modules
cases = {
    "fsdp": lambda m: fully_shard(m, mesh=mesh),
    "tensor": lambda m: parallelize_module(m, mesh, {"0": ColwiseParallel()}),
    "distributed": lambda m: setattr(m[0], "bias", nn.Parameter(distribute_tensor(m[0].bias.detach(), mesh, [Shard(0)]))),
    "ddp": DistributedDataParallel,
    "subclass": lambda m: nn.Sequential(Wrapped(m)),
}
for name, change in cases.items():
    modules = made(change)
    attempt(name, lambda: pipeline(modules).step(x, y))
    if name in ("fsdp", "tensor"):
        attempt("split-" + name, lambda: pt.split(nn.Sequential(*modules), x, 2))
attempt("batch", lambda: pipeline(linears()).step(distribute_tensor(x, mesh, [Shard(0)]), y))
made_inside = Around(nn.Linear(6, 6), lambda x: DTensor.from_local(x, mesh, [Shard(0)]).full_tensor())
attempt("inside", lambda: pipeline([made_inside, linears()[1]]).step(x, y))
"""
    )
    for name, parameter in (("fsdp", "0.weight"), ("tensor", "0.weight"), ("distributed", "0.bias")):
        assert f"stage 0: parameter '{parameter}' is a DTensor, as fully_shard" in found[name, 0]
        assert found[name, 1].removeprefix("process 0: ") == found[name, 0]
    assert "split: the model: parameter '0.0.weight' is a DTensor" in found["split-fsdp", 0]
    assert "split: the model: parameter '0.0.weight' is a DTensor" in found["split-tensor", 1]
    assert "stage 0: module 'stage' is a DistributedDataParallel" in found["ddp", 0]
    assert "stage 0: module '0' is a Wrapped" in found["subclass", 0]
    assert "a tensor of the inputs is a DTensor" in found["batch", 0]
    assert found["inside", 0].startswith("stage 0, forward at script.py:")
