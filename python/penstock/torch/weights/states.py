"""States of optimizers, whichever replicas and processes divide them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import torch

from penstock import Error
from penstock.torch.arguments import shown, whole
from penstock.torch.placement import Placement
from penstock.torch.processes import agreement
from penstock.torch.processes.processes import Processes

STATEFUL = ("optimizers", "lr_schedulers")  # the attributes of a Pipeline that a checkpoint has


@dataclasses.dataclass(frozen=True)
class Part:
    """What one replica of a stage has of its optimizer's state."""

    #: By number of the parameter, as in a state_dict of torch.
    state: dict[int, dict[str, torch.Tensor]]
    #: Likewise, the whole shape, and where the replica's flat range of it begins.
    places: dict[int, tuple[list[int], int]]


def joined(
    parts: dict[int, Part], processes: Processes, timeout: float, placement: Placement
) -> dict[int, dict[int, dict[str, torch.Tensor]]]:
    """Returns the states of whole parameters, by those stages of the model that ``parts`` have.

    Every process calls it.

    Args:
        parts: this process's, by stage of the schedule.
    """
    stages = sorted({placement.model_stage(stage) for stage in parts})
    if processes.processes > 1:
        needed: list[dict[int, Part]] = [{} for _ in range(processes.processes)]
        for stage, process in enumerate(placement.process_of):
            replicas = placement.replicas(placement.model_stage(stage))
            needed[process].update((s, part) for s, part in parts.items() if s in replicas)
        received = agreement.exchange(processes, timeout, "state_dict", needed)
        parts = {stage: part for each in received for stage, part in each.items()}
    return {index: _join(parts[stage] for stage in placement.replicas(index) if stage in parts) for index in stages}


def _join(parts: Iterable[Part]) -> dict[int, dict[str, torch.Tensor]]:
    """Returns the state of whole parameters from the parts of all replicas."""
    whole: dict[int, dict[str, torch.Tensor]] = {}
    for part in parts:
        for number, values in part.state.items():
            shape, begin = part.places[number]
            joined = whole.setdefault(number, {})
            for name, tensor in values.items():
                is_whole = name == "step" or list(tensor.shape) == shape
                if name not in joined:
                    joined[name] = tensor.clone() if is_whole else tensor.new_zeros(shape)
                if not is_whole:
                    joined[name].view(-1)[begin : begin + tensor.numel()] = tensor
    return {number: whole[number] for number in sorted(whole)}


def slice_of(whole: torch.Tensor, values: torch.Tensor, begin: int, shape: torch.Size) -> torch.Tensor | None:
    """Returns what belongs to ``values`` of the state of a parameter.

    ``values`` is the parameter or a flat range of it, from element ``begin`` on. Returns None if
    the state is neither of all of the parameter, which has ``shape``, nor of the range.
    """
    if whole.shape == values.shape:
        return whole
    if whole.shape != shape or begin + values.numel() > math.prod(shape):
        return None
    return whole.reshape(-1)[begin : begin + values.numel()].view_as(values)


def merge(states: Any, stages: int) -> dict[str, Any]:
    """Returns what Pipeline.state_dict would return if this process ran all stages.

    Args:
        states: what it has returned on a process, or a list of what it has returned on several.
        stages: of the model.

    Raises:
        Error: the states are not what state_dict returns, or do not belong to the same step.
    """
    listed = list(states) if isinstance(states, (list, tuple)) and states else [states]
    for state in listed:
        _check(state)
    merged: dict[str, Any] = {"steps": listed[0]["steps"]}
    seeds = sorted({state["seed"] for state in listed if "seed" in state})
    if len(seeds) > 1:
        raise Error(
            f"load_state_dict: the states have the seeds {seeds}, but all stages of a model use one: pass seed= to the "
            "Pipeline on all processes, and delete 'seed' from these states"
        )
    merged["seed"] = seeds[0] if seeds else None
    if any(state["steps"] != merged["steps"] for state in listed):
        counts = sorted({state["steps"] for state in listed})
        raise Error(f"load_state_dict: the states are of different steps, {counts}: pass states of one step")
    for name in STATEFUL:
        columns = [state[name] for state in listed]
        for column in columns:
            if len(column) not in (0, stages) or len(column) != len(columns[0]):
                raise Error(
                    f"load_state_dict: {name} belong to {len(column)} stages, but the Pipeline "
                    f"has {stages}: load the state into a Pipeline of as many stages"
                )
        merged[name] = [next((each for each in of_stage if each is not None), None) for of_stage in zip(*columns, strict=True)]
    return merged


def _check(state: Any) -> None:
    """Raises Error unless a state has the form of what state_dict returns. States of earlier versions have no seed."""
    if not isinstance(state, dict):
        raise Error(f"load_state_dict: the state is {shown(state)}: pass what state_dict returned")
    keys = {"steps", *STATEFUL}
    if not keys <= set(state) <= keys | {"seed"}:
        raise Error(f"load_state_dict: the keys are {shown(sorted(map(str, state)))}: pass what state_dict returned")
    whole(0)("load_state_dict: steps", state["steps"])
    seed = state.get("seed", 0)
    if not (type(seed) is int and 0 <= seed < 2**63):
        raise Error(f"load_state_dict: seed is {shown(seed)}: pass a whole number from 0 on")
    for name in STATEFUL:
        if not isinstance(state[name], list):
            raise Error(f"load_state_dict: {name} is {shown(state[name])}: pass a list by stage")
