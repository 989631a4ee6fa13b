"""Optimizers that need whole tensors update divided parameters as one process does."""

from __future__ import annotations

from torch_mesh.processes import cases_of, errors_of, expect_on_all

_HEAD = """
import copy
import torch, torch.distributed as dist, penstock.torch as pt
from torch import nn
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch_mesh import mlp, parity

class Block(nn.Module):
    '''Column and row parallel with uneven parts, and parameters that all ranks have.'''

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 33), nn.Linear(33, 32)

    def forward(self, x):
        return x + self.down(nn.functional.silu(self.up(self.norm(x))))

def divided(block, mesh):
    return parallelize_module(block, mesh["tensor"], {
        "up": ColwiseParallel(use_local_output=False), "down": RowwiseParallel()})

class Whole(torch.optim.Optimizer):
    '''What classes of users do: state of another shape, norms of whole tensors, and values that are read at the beginning.'''

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["first"] = p.detach().clone()

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                g = p.grad if p.dim() == 2 else p.grad.unsqueeze(0)
                state["rows"] = state.get("rows", torch.eye(g.shape[0])) + g @ g.T
                g = torch.linalg.solve(state["rows"], g).view_as(p)
                g = g + 0.1 * (p - state["first"])
                p -= group["lr"] * g * (p.norm() / g.norm().clamp(min=1e-6)).clamp(0.1, 10)

class Both(torch.optim.Optimizer):
    '''Muon in fp32 for matrices, and another optimizer for the others.'''

    def __init__(self, params, lr=0.05):
        params = list(params)
        self.other = torch.optim.SGD([p for p in params if p.dim() != 2], lr=lr)
        super().__init__([p for p in params if p.dim() == 2], {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        self.other.step()
        for p in self.param_groups[0]["params"]:
            momentum = self.state[p].setdefault("momentum", torch.zeros_like(p)).mul_(0.9).add_(p.grad)
            x = momentum / momentum.norm().clamp(min=1e-6)
            for _ in range(5):
                square = x @ x.T
                x = 3.4445 * x - 4.775 * square @ x + 2.0315 * square @ square @ x
            p -= self.param_groups[0]["lr"] * x

class Derived(torch.optim.SGD):
    def _init_group(self, group, params, grads, momentum_buffer_list):
        result = super()._init_group(group, params, grads, momentum_buffer_list)
        grads[:] = [each / each.norm().clamp(min=1e-6) for each in grads]
        return result

def scaled(params):
    made = torch.optim.SGD(params, lr=0.2, momentum=0.9)
    def scale(optimizer, *_):
        for p in (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
            p.grad = p.grad / p.grad.norm().clamp(min=1e-6)
    made.register_step_pre_hook(scale)
    return made

MAKERS = {
    "muon": lambda params: torch.optim.Muon([p for p in params if p.dim() == 2], lr=0.05, weight_decay=0.1),
    "adafactor": lambda params: torch.optim.Adafactor(params, lr=0.05),
    "whole": lambda params: Whole(params, lr=0.05),
    "both": Both,
    "derived": lambda params: Derived(params, lr=0.2, momentum=0.9),
    "hook": scaled,
}

def train(name, mesh, make, whole, parts_of, schedule="1f1b", dim_of=lambda name: None, steps=4, **options):
    mse, decay = nn.functional.mse_loss, lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    options = {"ranks": 2, "microbatches": 4, "clip_grad_norm": 0.5, **options}
    def build(parts):
        return pt.Pipeline(parts, schedule, loss=mse, optimizer=make, lr_scheduler=decay, mesh=mesh, timeout=60, **options)
    parts = parts_of()
    pipe, optimizer = build(parts), make(nn.Sequential(*whole).parameters())
    scheduler, errors = decay(optimizer), {}
    for step, batch in enumerate(mlp.batches(steps)):
        if step == steps // 2:  # continue in another Pipeline
            state, values = pipe.state_dict(), {i: parts[i].state_dict() for i in parity.local_stages(pipe)}
            parts = parts_of()
            pipe = build(parts)
            for index, of in values.items():
                parts[index].load_state_dict(of)
            pipe.load_state_dict(state)
        errors |= {f"{key} {step}": e for key, e in parity.errors_of(pipe, whole, mse, optimizer, [batch], clip=0.5).items()}
        scheduler.step()
    errors |= parity.weight_errors(pipe, parts, whole, dim_of, mesh["tensor"].get_group())
    parity.report(name, errors)
    return pipe

def dtensors(name, schedule="1f1b", mesh=None, pipeline=2, **options):
    mesh = mesh or parity.mesh_of("pipeline tensor", 2, 2)
    torch.manual_seed(1)
    whole = [Block() for _ in range(parity.stages_of(schedule, pipeline))]
    first = copy.deepcopy(whole)
    def parts_of():
        return [divided(copy.deepcopy(each), mesh) for each in first]
    return train("-".join([name, schedule, *options]), mesh, MAKERS[name], whole, parts_of, schedule, **options)
"""


def test_dtensors_of_uneven_parts() -> None:
    found = errors_of(
        _HEAD
        + """
for name in MAKERS:
    pipe = dtensors(name)
    state = pipe.state_dict()["optimizers"]
    of = next(each for each in state if each)["state"]
    if name == "muon":
        assert all(isinstance(each["momentum_buffer"], DTensor) for each in of.values()), of
dtensors("muon", "zbv", precision=torch.bfloat16)
"""
    )
    in_bf16 = {name for name in found if "precision" in name}
    # torch's Muon rounds directions to bf16.
    assert max(value for name, value in found.items() if "muon" in name and name not in in_bf16) < 5e-3, found
    assert max(value for name, value in found.items() if "muon" not in name) < 2e-5, found
    assert max(found[name] for name in in_bf16) < 5e-2, found


def test_stages_of_one_process_and_replicas() -> None:
    found = errors_of(
        _HEAD
        + """
dtensors("both", "zbv", mesh=parity.mesh_of("data pipeline tensor", 2, 1, 2), data_parallel=2, microbatches=8)
"""
    )
    assert max(found.values()) < 2e-5, found


def test_plain_parts_say_their_dimension() -> None:
    found = errors_of(
        _HEAD
        + """
mesh = parity.mesh_of("pipeline tensor", 2, 2)
group, whole = mesh["tensor"].get_group(), mlp.blocks(2)
def parts_of():
    parts = [parity.copy_parts(mlp.Block(mlp.HIDDEN // 2, group), each, mlp.dim_of, group) for each in mlp.blocks(2)]
    for name, parameter in ((name, each) for part in parts for name, each in part.named_parameters()):
        if mlp.dim_of(name) is not None:
            parameter.partition_dim = mlp.dim_of(name)
    return parts
train("plain", mesh, MAKERS["whole"], whole, parts_of, dim_of=mlp.dim_of)
"""
    )
    assert max(found.values()) < 2e-5, found


def test_what_cannot_have_whole_tensors_is_refused() -> None:
    found = cases_of(
        _HEAD
        + """
mesh = parity.mesh_of("pipeline tensor", 2, 2)
def pipeline(make, **options):
    return pt.Pipeline([divided(Block(), mesh) for _ in range(2)], ranks=2, microbatches=4, loss=nn.functional.mse_loss, optimizer=make, mesh=mesh,
                       timeout=30, **options)

def plain(module):
    module.weight.tensor_model_parallel = True
    return module

x, y = mlp.batches(1)[0]
pipe = pipeline(lambda params: torch.optim.SGD(params, lr=0.1))
with parity.said("hook"):
    for each in filter(None, pipe.optimizers):
        each.register_step_pre_hook(lambda *_: None)
    pipe.step(x, y)
pipe = pipeline(lambda params: torch.optim.SGD(params, lr=0.1))
with parity.said("replaced"):
    for index in pipe.local_stages:
        pipe.optimizers[index] = torch.optim.Adafactor(pipe.optimizers[index].param_groups[0]["params"])
    pipe.step(x, y)
with parity.said("one"):
    pipeline(MAKERS["whole"] if dist.get_rank() == 3 else lambda params: torch.optim.SGD(params, lr=0.1))
with parity.said("plain"):
    pt.Pipeline([plain(nn.Linear(32, 32)), plain(nn.Linear(32, 32))], ranks=2, microbatches=4, loss=nn.functional.mse_loss, mesh=mesh, timeout=30,
                optimizer=MAKERS["muon"])
"""
    )
    parts = {
        "hook": "or a hook of its step, may need whole tensors, but has parts of 'up.weight'",
        "replaced": "Adafactor, or a hook of its step, may need whole tensors",
        "one": "the optimizer is ",
        "plain": "parameter 'weight' is a part of a larger one, whose optimizer needs whole tensors: set partition_dim on it",
    }
    expect_on_all(found, parts)
