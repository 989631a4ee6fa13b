"""Divides the modules of stages among tensor ranks, by a plan: which modules, and how."""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import parallelize_module

from penstock import Error
from penstock.torch.mesh import styles
from penstock.torch.mesh.planes import TENSOR

# transformers' names of the ways to divide a module.
_OF_TRANSFORMERS = {
    "colwise": "column",
    "rowwise": "row",
    "colwise_gather_output": "column_gathered",
    "rowwise_split_input": "row_of_whole",
    "replicated_with_grad_allreduce": "heads",
    "embedding_rowwise": "embedding",
    "moe_tp_experts": "experts",
    "mla_kv_a_proj": "latent",
    "replicate": "",
}

Plan = Mapping[str, str]
#: The number of a stage, the stage, and what the plan divides of it: path, module, pattern.
_Found = tuple[int, nn.Module, list[tuple[str, nn.Module, str]]]


def checked_plan(name: str, plan: Any) -> Plan | str | None:
    """Returns the plan that a Pipeline was given. Raises Error for another form."""
    if plan is None or (isinstance(plan, str) and plan == "auto"):
        return plan
    texts = (*plan, *plan.values()) if isinstance(plan, Mapping) else (None,)
    if not all(isinstance(each, str) for each in texts) or not set(plan.values()) <= set(styles.STYLES):
        ways = ", ".join(styles.STYLES)
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
    is_auto = isinstance(plan, str)
    if isinstance(plan, str):
        plan = _of_transformers([stage for _, stage in here])
    found = [(index, stage, list(_matches(stage, plan))) for index, stage in here]
    if len(here) == len(stages) and not is_auto:
        matched = {pattern for _, _, matches in found for _, _, pattern in matches}
        if unmatched := [pattern for pattern in plan if pattern not in matched]:
            raise Error(f"tensor: no module of the stages has a name like {unmatched[0]!r}")
    tied = _tied(found, plan)
    for index, stage, matches in found:
        for path, module, pattern in matches:
            where, holder = f"tensor: stage {index}, {path}", stage.get_submodule(path.rpartition(".")[0])
            if any(isinstance(each, DTensor) for each in module.parameters()):
                raise Error(f"{where}: it is divided already: leave it out")
            styles.check(where, plan[pattern], module, holder, mesh[name].size())
    for _, stage, matches in found:
        for path, module, pattern in matches:
            if any(isinstance(each, DTensor) for each in module.parameters()):
                continue  # a module of two stages
            trained = {name: each.requires_grad for name, each in module.named_parameters()}
            style = styles.STYLES[plan[pattern]](stage.get_submodule(path.rpartition(".")[0]))
            parallelize_module(stage, mesh[name], {path: style})
            for parameter, requires_grad in trained.items():
                module.get_parameter(parameter).requires_grad_(requires_grad)
    for (first, name_of_first), *others in tied:
        for module, parameter in others:
            module.register_parameter(parameter, first.get_parameter(name_of_first))


def _of_transformers(stages: Sequence[nn.Module]) -> Plan:
    """Returns the plan that the configuration of a model of transformers has, without the names of what holds its layers.

    The embedding and the head, which most plans leave out, are divided along the vocabulary.
    """
    modules = list(itertools.chain.from_iterable(stage.modules() for stage in stages))
    configs: list[Any] = [getattr(each, "config", None) for each in modules]
    config = next((each for each in configs if getattr(each, "base_model_tp_plan", None)), None)
    if config is None:
        raise Error("tensor: the stages have no module of transformers whose configuration has a plan (base_model_tp_plan): pass a dict")
    found = dict(config.base_model_tp_plan)
    experts = [pattern for pattern, style in found.items() if style == "moe_tp_experts"]
    plan = {}
    for pattern, style in found.items():
        if pattern.rpartition(".")[0] in experts:
            continue  # a parameter of experts, which ranks have whole
        if style not in _OF_TRANSFORMERS:
            raise Error(f"tensor: the plan of transformers divides {pattern!r} by {style!r}, which stages cannot: pass a dict")
        if _OF_TRANSFORMERS[style]:
            plan[f"*{pattern.rpartition('*.')[2]}"] = _OF_TRANSFORMERS[style]
    return {**_of_vocabulary(modules, getattr(config, "vocab_size", None)), **plan}


def _of_vocabulary(modules: Sequence[nn.Module], size: int | None) -> Plan:
    """Returns the plan of embeddings and heads that have a row for each token of the vocabulary."""
    children = [(name, each) for holder in modules for name, each in holder.named_children()]
    embeddings = [(name, each) for name, each in children if isinstance(each, nn.Embedding) and each.num_embeddings == size]
    plan = {f"*{name}": "embedding" for name, each in embeddings if not styles.why_whole(each)}
    whole = {id(each.weight) for _, each in embeddings if styles.why_whole(each)}
    for name, each in children:
        if type(each) is nn.Linear and each.out_features == size and name.endswith(("head", "embed_out")) and id(each.weight) not in whole:
            plan[f"*{name}"] = "column_gathered"
    return plan


def _matches(stage: nn.Module, plan: Plan) -> Iterator[tuple[str, nn.Module, str]]:
    for path, module in stage.named_modules():
        pattern = next((each for each in plan if fnmatch.fnmatchcase(path, each)), None)
        if pattern is not None:
            yield path, module, pattern


def _tied(found: Sequence[_Found], plan: Plan) -> list[list[tuple[nn.Module, str]]]:
    """Returns the places of each parameter that several modules have, all of which the plan divides along the vocabulary.

    Raises Error for other ones that the plan divides.
    """
    divided = {id(module): plan[pattern] for _, _, matches in found for _, module, pattern in matches}
    of_all: dict[int, list[tuple[str, nn.Module, str]]] = {}
    for index, stage, _ in found:
        for path, module in stage.named_modules():
            for name, parameter in module.named_parameters(recurse=False):
                of_all.setdefault(id(parameter), []).append((f"{path}.{name} of stage {index}".lstrip("."), module, name))
    tied = [each for each in of_all.values() if len(each) > 1 and any(id(module) in divided for _, module, _ in each)]
    for places in tied:
        ways = [divided.get(id(module)) for _, module, _ in places]
        if "embedding" not in ways or not set(ways) <= {"embedding", "column_gathered"}:
            names = " and ".join(name for name, _, _ in places)
            raise Error(f"tensor: {names} are one tensor, which cannot be divided for each: leave them out")
    return [[(module, name) for _, module, name in places] for places in tied]
