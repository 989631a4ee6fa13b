"""Divides the modules of stages among tensor ranks, by a plan: which modules, and how."""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch import nn
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, SequenceParallel, parallelize_module

from penstock import Error
from penstock.torch.mesh.planes import TENSOR

# The ways to divide a module, with transformers' names of them. By `heads`, ranks have a norm's whole weight, which each applies to
# its own heads (dimension 2), so that gradients are added.
_STYLES: dict[str, Callable[[], ParallelStyle]] = {
    "column": ColwiseParallel,
    "row": RowwiseParallel,
    "column_gathered": lambda: ColwiseParallel(output_layouts=Replicate()),
    "row_of_whole": lambda: RowwiseParallel(input_layouts=Replicate()),
    "heads": lambda: SequenceParallel(sequence_dim=2, use_local_output=True),
}
_OF_TRANSFORMERS = {
    "colwise": "column",
    "rowwise": "row",
    "colwise_gather_output": "column_gathered",
    "rowwise_split_input": "row_of_whole",
    "replicated_with_grad_allreduce": "heads",
}

Plan = Mapping[str, str]


def checked_plan(name: str, plan: Any) -> Plan | str | None:
    """Returns the plan that a Pipeline was given. Raises Error for another form."""
    if plan is None or (isinstance(plan, str) and plan == "auto"):
        return plan
    texts = (*plan, *plan.values()) if isinstance(plan, Mapping) else (None,)
    if not all(isinstance(each, str) for each in texts) or not set(plan.values()) <= set(_STYLES):
        ways = ", ".join(_STYLES)
        raise Error(f"{name}: give 'auto', or a dict from patterns of modules' names to one of {ways}: {{'*.q_proj': 'column'}}")
    return dict(plan)


def divide(stages: Sequence[nn.Module | None], plan: Plan | str | None, mesh: Any) -> None:
    """Divides the stages' modules in place, by `parallelize_module`. Raises Error, and changes nothing, for what does not fit."""
    if plan is None:
        return
    name = next((name for name in getattr(mesh, "mesh_dim_names", None) or () if name in TENSOR), None)
    if name is None:
        raise Error("tensor: its ranks are a dimension of mesh: pass a mesh with a dimension 'tensor'")
    here = [(index, stage) for index, stage in enumerate(stages) if stage is not None]
    if isinstance(plan, str):
        plan = _of_transformers([stage for _, stage in here])
    found = [(index, stage, list(_matches(stage, plan))) for index, stage in here]
    if len(here) == len(stages):
        matched = {pattern for _, _, matches in found for _, _, pattern in matches}
        if unmatched := [pattern for pattern in plan if pattern not in matched]:
            raise Error(f"tensor: no module of the stages has a name like {unmatched[0]!r}")
    names = _names_of_parameters(here)
    for index, stage, matches in found:
        for path, module, pattern in matches:
            _check(f"tensor: stage {index}, {path}", stage, path, plan[pattern], mesh[name].size(), names)
    for _, stage, matches in found:
        for path, module, pattern in matches:
            trained = {name: each.requires_grad for name, each in module.named_parameters()}
            parallelize_module(stage, mesh[name], {path: _STYLES[plan[pattern]]()})
            for parameter, requires_grad in trained.items():
                module.get_parameter(parameter).requires_grad_(requires_grad)


def _of_transformers(stages: Sequence[nn.Module]) -> Plan:
    """Returns the plan that the configuration of a model of transformers has, without the names of what holds its layers."""
    modules = itertools.chain.from_iterable(stage.modules() for stage in stages)
    found = next((plan for each in modules if (plan := getattr(getattr(each, "config", None), "base_model_tp_plan", None))), None)
    if found is None:
        raise Error("tensor: the stages have no module of transformers whose configuration has a plan (base_model_tp_plan): pass a dict")
    for pattern, style in found.items():
        if style not in _OF_TRANSFORMERS:
            raise Error(f"tensor: the plan of transformers divides {pattern!r} by {style!r}, which stages cannot: pass a dict")
    return {f"*{pattern.rpartition('*.')[2]}": _OF_TRANSFORMERS[style] for pattern, style in found.items()}


def _matches(stage: nn.Module, plan: Plan) -> Iterator[tuple[str, nn.Module, str]]:
    for path, module in stage.named_modules():
        pattern = next((each for each in plan if fnmatch.fnmatchcase(path, each)), None)
        if pattern is not None:
            yield path, module, pattern


def _names_of_parameters(stages: Sequence[tuple[int, nn.Module]]) -> dict[int, list[str]]:
    names: dict[int, list[str]] = {}
    for index, stage in stages:
        for name, parameter in stage.named_parameters(remove_duplicate=False):
            names.setdefault(id(parameter), []).append(f"{name} of stage {index}")
    return names


def _check(where: str, stage: nn.Module, path: str, style: str, ranks: int, names: Mapping[int, Sequence[str]]) -> None:
    module, holder = stage.get_submodule(path), stage.get_submodule(path.rpartition(".")[0])
    for parameter in module.parameters():
        if isinstance(parameter, DTensor):
            raise Error(f"{where}: it is divided already: leave it out")
        if len(tied := names[id(parameter)]) > 1:
            raise Error(f"{where}: {' and '.join(tied)} are one tensor, which cannot be divided for each: leave it out")
    if style == "heads":
        return
    if not isinstance(module, nn.Linear):
        raise Error(f"{where}: it is a {type(module).__name__}, but {style!r} divides a Linear: leave it out")
    size = module.out_features if style.startswith("column") else module.in_features
    head = getattr(holder, "head_dim", 1) if style in ("column", "row") else 1
    if not isinstance(head, int) or size % head != 0:
        head = 1
    if (size // head) % ranks != 0:
        what = f"{size // head} heads" if head > 1 else f"{'outputs' if style.startswith('column') else 'inputs'}, {size},"
        raise Error(f"{where}: {ranks} tensor ranks do not divide its {what} evenly: leave it out, or change the mesh")
