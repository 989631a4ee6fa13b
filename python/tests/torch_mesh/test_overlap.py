"""Stages compute while their collectives move data, and gather again instead of saving, with the same bits."""

from __future__ import annotations

from torch_mesh.processes import cases_of

_PROGRAM = """
import re
import sys
import torch, penstock.torch as pt
from torch_mesh import language_model as lm, parity

mesh = parity.mesh_of("pipeline tensor", 2, 2)
group = mesh["tensor"].get_group()

def say(name, line):
    sys.stdout.write(f"case {name} {torch.distributed.get_rank()} {line}\\n")
    sys.stdout.flush()

def train(schedule, **options):
    count = parity.stages_of(schedule, 2)
    stages = [parity.copy_parts(part, each, lm.dim_of, group) for part, each in zip(lm.stages(count, group), lm.stages(count))]
    pipe = pt.Pipeline(stages, schedule, ranks=2, microbatches=4, loss=lm.make_loss(group), mesh=mesh, timeout=60, clip_grad_norm=0.5,
                       **options)
    losses = [pipe.step(*batch) for batch in lm.batches(2, 8)]
    weights = [parameter.detach().clone() for index in parity.local_stages(pipe) for parameter in stages[index].parameters()]
    return pipe, losses, weights

def calls(pipe, stage, action):
    return {each.name: (each.calls, each.bytes) for each in pipe.collectives(stage)[action]}
"""


def test_gathering_again_changes_no_bit() -> None:
    found = cases_of(
        _PROGRAM
        + """
for schedule in ("1f1b", "zb-h1", "dualpipev"):
    first, losses, weights = train(schedule)
    again, same_losses, same_weights = train(schedule, gather_again=True)
    assert losses == same_losses and all(torch.equal(*pair) for pair in zip(weights, same_weights)), schedule
    for stage in parity.local_stages(first):
        before, after = (calls(pipe, stage, "W").get("c10d_all_gather", (0, 0)) for pipe in (first, again))
        assert after[0] > before[0] and after[1] > before[1], (stage, before, after)
        assert calls(first, stage, "F") == calls(again, stage, "F"), stage
    local = first.local_stages
    assert all(again.saved_bytes[stage] < first.saved_bytes[stage] for stage in local), (first.saved_bytes, again.saved_bytes)
    say(schedule, "equal")
"""
    )
    assert found == {schedule: ["equal"] * 4 for schedule in ("1f1b", "zb-h1", "dualpipev")}


def test_the_gradients_of_norms_are_summed_once_per_step() -> None:
    found = cases_of(
        _PROGRAM
        + """
pipe, _, _ = train("zb-h1")
for stage in parity.local_stages(pipe):
    of_backward = {name for action in "IW" for name in calls(pipe, stage, action)}
    say("sums", sorted(of_backward))
"""
    )
    assert found == {"sums": ["['c10d_all_gather', 'c10d_reduce_scatter']"] * 4}


def test_backward_graphs_divide_collectives() -> None:
    found = cases_of(
        _PROGRAM
        + """
pipe, _, _ = train("zb-h1")
for stage in parity.local_stages(pipe):
    text = pipe.graph(stage)
    assert len(re.findall(r"_start\\(", text)) == len(re.findall(r"_wait\\(", text)) > 0
    say("halves", "all")
"""
    )
    assert found == {"halves": ["all"] * 4}
