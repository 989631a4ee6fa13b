"""Plain modules with functional collectives on 2 x 2 processes train as one process does."""

from __future__ import annotations

from torch_mesh.processes import errors_of

_MLP = """
import torch, penstock.torch as pt
from torch_mesh import mlp, parity

mse = torch.nn.functional.mse_loss

def train(schedule, mesh, ranks=2, clip=0.05, **options):
    group = mesh["tensor"].get_group()
    whole = mlp.blocks(parity.stages_of(schedule, ranks))
    parts = [parity.copy_parts(mlp.Block(mlp.HIDDEN // 2, group), each, mlp.dim_of, group) for each in whole]
    def sgd(parameters):
        return torch.optim.SGD(parameters, lr=0.5, momentum=0.9)
    pipe = pt.Pipeline(parts, schedule, ranks=ranks, microbatches=4, loss=mse, optimizer=sgd, clip_grad_norm=clip, mesh=mesh,
                       timeout=60, **options)
    optimizer = sgd(torch.nn.Sequential(*whole).parameters())
    errors = parity.errors_of(pipe, whole, mse, optimizer, mlp.batches(4), clip=clip)
    errors |= parity.weight_errors(pipe, parts, whole, mlp.dim_of, group)
    x, y = mlp.batches(1)[0]
    errors["eval"] = abs(pipe.eval_step(x, y) / float(mse(torch.nn.Sequential(*whole)(x), y).detach()) - 1)
    parity.report(f"{schedule}-{clip}", errors)
"""


def test_an_mlp() -> None:
    found = errors_of(
        _MLP
        + """
mesh = parity.mesh_of("pipeline tensor", 2, 2)
for schedule, clip in (("1f1b", 0.0), ("1f1b", 0.05), ("zb-h1", 0.05), ("zbv", 0.05)):
    train(schedule, mesh, clip=clip)
"""
    )
    assert max(found.values()) < 1e-5, found
    assert len(found) == 4 * 4


def test_two_ranks_of_a_pipeline_as_threads_of_each_process() -> None:
    found = errors_of(_MLP + 'train("zbv", parity.mesh_of("pp tensor", 1, 2))\n', processes=2)
    assert max(found.values()) < 1e-5, found


_LANGUAGE_MODEL = """
import torch, penstock.torch as pt
from torch_mesh import language_model as lm, parity

def train(schedule, limit=0, data=1, **options):
    names, sizes = ("data pipeline tensor", (data, 2, 2)) if data > 1 else ("pipeline tensor", (2, 2))
    mesh = parity.mesh_of(names, *sizes)
    group, count = mesh["tensor"].get_group(), parity.stages_of(schedule, 2)
    whole = lm.stages(count)
    parts = [parity.copy_parts(part, each, lm.dim_of, group) for part, each in zip(lm.stages(count, group), whole)]
    def adamw(parameters):
        return pt.AdamW(parameters, lr=1e-2, eps=1e-3)
    pipe = pt.Pipeline(parts, schedule, ranks=2, microbatches=4 * data, loss=lm.make_loss(group), optimizer=adamw, clip_grad_norm=0.5,
                       mesh=mesh, data_parallel=data, timeout=60, **options)
    optimizer = torch.optim.AdamW(torch.nn.Sequential(*whole).parameters(), lr=1e-2, eps=1e-3, weight_decay=1e-2)
    errors = parity.errors_of(pipe, whole, lm.make_loss(None), optimizer, lm.batches(3, 8 * data), clip=0.5)
    errors |= parity.weight_errors(pipe, parts, whole, lm.dim_of, group)
    parity.report("-".join([schedule, *options]), errors)
"""


def test_a_language_model_with_sequence_parallelism() -> None:
    found = errors_of(
        _LANGUAGE_MODEL
        + """
train("1f1b")
train("zbv", recompute={"hold": "least"})
train("dualpipev")
train("zb-h1", precision=torch.bfloat16)
"""
    )
    in_bf16 = {name for name in found if "precision" in name}
    assert max(found[name] for name in in_bf16) < 3e-2, found
    assert max(value for name, value in found.items() if name not in in_bf16) < 2e-5, found


def test_replicas_divide_weights() -> None:
    found = errors_of(_LANGUAGE_MODEL + 'train("zb-h1", data=2, zero=3)\n', processes=8)
    assert max(found.values()) < 2e-5, found
