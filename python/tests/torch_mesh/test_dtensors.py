"""Stages made by parallelize_module on 2 x 2 processes train as one process does."""

from __future__ import annotations

import pathlib

from torch_mesh.processes import errors_of

_TRAIN = """
import contextlib, copy
import torch, torch.distributed.checkpoint, penstock.torch as pt
from torch import nn
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module
from torch_mesh import dtensor_model as model, parity

mesh = parity.mesh_of("pipeline tensor", 2, 2)

def train(name, schedule, whole, parts, batches, loss=model.loss_of, around=contextlib.nullcontext, **options):
    def adamw(parameters):
        return pt.AdamW(parameters, lr=1e-2, eps=1e-3)
    pipe = pt.Pipeline(parts, schedule, ranks=2, microbatches=4, loss=loss, optimizer=adamw, clip_grad_norm=0.5, mesh=mesh, timeout=60,
                       **options)
    optimizer = torch.optim.AdamW(nn.Sequential(*whole).parameters(), lr=1e-2, eps=1e-3, weight_decay=1e-2)
    errors = parity.errors_of(pipe, whole, loss, optimizer, batches, clip=0.5, around=around)
    errors |= parity.weight_errors(pipe, parts, whole, lambda name: None, None)
    parity.report(name, errors)
    return pipe

def plan(schedule, sequence, loss, **options):
    whole = model.stages(parity.stages_of(schedule, 2))
    parts = [model.parallelize(copy.deepcopy(each), mesh["tensor"], sequence=sequence, loss=loss) for each in whole]
    around = loss_parallel if loss else contextlib.nullcontext
    name = "-".join([schedule, str(sequence), str(loss), *options])
    return train(name, schedule, whole, parts, model.batches(3), around=around, **options)
"""


def test_a_plan_like_torchtitans() -> None:
    found = errors_of(
        _TRAIN
        + """
plan("1f1b", False, False)
plan("zbv", True, True)
plan("dualpipev", True, False, recompute={"hold": "least"})
plan("zb-h1", True, True, precision=torch.bfloat16)
"""
    )
    in_bf16 = {name for name in found if "precision" in name}
    assert max(found[name] for name in in_bf16) < 3e-2, found
    assert max(value for name, value in found.items() if name not in in_bf16) < 2e-5, found


def test_uneven_parts_and_dtensors_that_pass_from_stage_to_stage(tmp_path: pathlib.Path) -> None:
    """Of 33 hidden features, one process has 17. Between stages, tensors are divided along the batch's last dimension."""
    found = errors_of(
        _TRAIN
        + f"folder = {str(tmp_path)!r}"
        + """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(32, 33), nn.Linear(33, 32)

    def forward(self, x):
        return self.down(nn.functional.silu(self.up(x)))

def divided(block, is_first, is_last):
    return parallelize_module(block, mesh["tensor"], {
        "up": ColwiseParallel(input_layouts=Replicate() if is_first else Shard(-1), use_local_output=False),
        "down": RowwiseParallel(output_layouts=Replicate() if is_last else Shard(-1), use_local_output=is_last)})

torch.manual_seed(1)
whole = [Block(), Block()]
parts = [divided(copy.deepcopy(each), index == 0, index == 1) for index, each in enumerate(whole)]
batches = [(torch.randn(8, 32), torch.randn(8, 32)) for _ in range(3)]
pipe = train("uneven", "zb-h1", whole, parts, batches, loss=nn.functional.mse_loss)
x, y = batches[0]
after = float(nn.functional.mse_loss(nn.Sequential(*whole)(x), y).detach())
parity.report("evaluation", {"loss": abs(pipe.eval_step(x, y) / after - 1)})

# The states of a run are loaded into another one, as DTensors and as whole tensors.
def mapped(state, change):
    def of(each):
        return each and {**each, "state": {n: {k: change(v) for k, v in of.items()} for n, of in each["state"].items()}}
    return {**state, "optimizers": [of(each) for each in state["optimizers"]]}

state = mapped(pipe.state_dict(), torch.clone)  # later steps change the tensors
parameters = {index: {k: v.clone() for k, v in parts[index].state_dict().items()} for index in parity.local_stages(pipe)}
found = [t for each in state["optimizers"] if each for of in each["state"].values() for t in of.values() if isinstance(t, DTensor)]
assert found and all(isinstance(each["up.weight"], DTensor) for each in parameters.values())
def full(value):
    return value.full_tensor() if isinstance(value, DTensor) else value
pipe.save_checkpoint(folder)
names = [f"{index}.{name}" for index, block in enumerate(whole) for name in block.state_dict()]
in_file = {f"model.{name}": torch.zeros_like(nn.ModuleList(whole).get_parameter(name)) for name in names}
torch.distributed.checkpoint.load(in_file, checkpoint_id=folder, no_dist=True)
parity.report("file", {name: parity.relative(each, nn.ModuleList(whole).get_parameter(name[6:])) for name, each in in_file.items()})
expected = pipe.step(x, y), pipe.step(x, y)
for which, given in (("dtensors", state), ("whole", mapped(state, full)), ("file", None)):
    torch.manual_seed(1)
    others = [divided(Block(), index == 0, index == 1) for index in range(2)]
    other = pt.Pipeline(others, "zb-h1", ranks=2, microbatches=4, loss=nn.functional.mse_loss, clip_grad_norm=0.5, mesh=mesh,
                        optimizer=lambda p: pt.AdamW(p, lr=1e-2, eps=1e-3), timeout=60)
    if given is None:
        other.load_checkpoint(folder)
    else:
        for index, of in parameters.items():
            others[index].load_state_dict(of)
        other.load_state_dict(given)
    got = other.step(x, y), other.step(x, y)
    parity.report(which, {"first": abs(got[0] / expected[0] - 1), "second": abs(got[1] / expected[1] - 1)})
"""
    )
    assert max(found.values()) < 2e-5, found
