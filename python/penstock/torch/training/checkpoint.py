"""The state of a Pipeline in the format of torch.distributed.checkpoint, by the names of the model's parameters."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from penstock import Error
from penstock.torch.arguments import in_code_of, line_of
from penstock.torch.model import Model
from penstock.torch.training import checkpoint_reader
from penstock.torch.training.run import Run
from penstock.torch.weights.stage_optimizer import StageOptimizer

_SCHEDULER, _SEED, _STEP, _EPOCH = "penstock.lr_scheduler", "penstock.seed", "train_state.step", "lr_scheduler.last_epoch"

_LISTS = ("params", "param_names")  # of a group of parameters


def save(run: Run, folder: str | os.PathLike[str], model: str, optimizer: str) -> None:
    """Pipeline documents it."""
    if not run.model.processes.are_alone and not dist.is_initialized():
        raise Error("save_checkpoint: several processes need torch.distributed: call init_process_group before")
    run.graphs.gather()
    state, made = run.state_dict(), dict[str, Any]()
    made.update({_joined(model, name): tensor for name, tensor in _tensors(run.model).items()})
    groups: list[dict[str, Any]] = []
    for stage, stepper in run.model.updates.here:
        if stepper.optimizer is not None:
            made.update({_joined(optimizer, key): value for key, value in _of_optimizer(run.model, stage, stepper, state, groups)})
    for number, group in enumerate(groups):  # as optimizers that are not flattened have them
        made.update({_joined(optimizer, f"param_groups.{number}.{key}"): value for key, value in group.items()})
    scheduler = next((each for each in state["lr_schedulers"] if each is not None), None)
    if scheduler is not None:
        made[_SCHEDULER] = _as_text(scheduler)  # one key
    made[_EPOCH] = (scheduler or {}).get("last_epoch", state["steps"])
    made.update({_SEED: state["seed"], _STEP: state["steps"], "train_state.ntokens_seen": 0})
    with in_code_of("save_checkpoint"):
        _dcp().save(made, checkpoint_id=os.fspath(folder))


def load(run: Run, folder: str | os.PathLike[str], model: str, optimizer: str | None) -> None:
    """Pipeline documents it."""
    file = _File(os.fspath(folder))
    tensors = {_joined(model, name): tensor for name, tensor in _tensors(run.model).items()}
    file.require(tensors, "pass model= with the key of the weights there")
    run.graphs.gather()
    file.read(tensors)
    if optimizer is None:
        return
    own = run.state_dict()
    steppers = [(stage, each) for stage, each in run.model.updates.here if each.optimizer is not None]
    if steppers and not any(key.startswith(f"{optimizer}.") for key in file.known):
        file.require([optimizer], "pass optimizer= with its key there, or None to load weights only")
    optimizers: list[Any] = [None] * len(own["optimizers"])
    for stage, stepper in steppers:
        optimizers[stage] = _optimizer_state(file, optimizer, run.model, stage, stepper)
    others = file.read({key: None for key in (_SCHEDULER, _SEED, _STEP, _EPOCH) if key in file.known})
    schedulers = [each and _scheduler_state(each, others) for each in own["lr_schedulers"]]
    steps, seed = others.get(_STEP, own["steps"]), others.get(_SEED, own["seed"])
    run.load_state_dict({"steps": int(steps), "seed": int(seed), "optimizers": optimizers, "lr_schedulers": schedulers})


class _File:
    """A checkpoint, which each process reads by itself."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        with in_code_of("load_checkpoint"):
            self._reader, self._planner = checkpoint_reader.of_folder(folder)
            self.known: Mapping[str, Any] = self._reader.read_metadata().state_dict_metadata
        self._below: dict[str, dict[str, str]] = {}
        for key in self.known:
            prefix, _, last = key.rpartition(".")
            self._below.setdefault(prefix, {})[last] = key

    def require(self, keys: Iterable[str], what_to_do: str) -> None:
        """Raises Error if the checkpoint lacks a key."""
        for key in keys:
            if key not in self.known:
                raise Error(f"load_checkpoint: '{key}' is missing in {self._folder!r}: {what_to_do}")

    def below(self, prefix: str) -> dict[str, str]:
        """Returns the keys right below a prefix, by their last part."""
        return self._below.get(prefix, {})

    def read(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Fills tensors in place, and puts other values in place of None."""
        dcp = _dcp()
        try:
            with in_code_of("load_checkpoint"):
                dcp.load(wanted, storage_reader=self._reader, planner=self._planner(), no_dist=True)
        except dcp.api.CheckpointException as error:  # no Exception
            reason = next((each for each, _ in error.failures.values()), error)
            raise Error(f"load_checkpoint: {line_of(reason)}") from error
        return wanted

    def empty(self, key: str) -> torch.Tensor | None:
        found = self.known[key]
        return torch.empty(found.size, dtype=found.properties.dtype) if hasattr(found, "size") else None


def _dcp() -> Any:
    return importlib.import_module("torch.distributed.checkpoint")  # takes a while


def _joined(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _name(model: Model, stage: int, name: str) -> str:
    """Returns the name of a stage's tensor in the model: that of `split`'s model, or of a ModuleList of the stages."""
    of_split = getattr(model.modules[stage], "name_in_model", None)
    if of_split is not None and not name.startswith("loss"):
        return str(of_split(name))
    return name if name.startswith("loss") else f"{stage}.{name}"


def _tensors(model: Model) -> dict[str, torch.Tensor]:
    """Returns the tensors of this process's stages and of the loss, by name."""
    found = {}
    for stage in model.placement.here:
        found.update({_name(model, stage, name): each for name, each in model.module(stage).state_dict().items()})
    if len(model.modules) - 1 in model.placement.here:
        found.update({name: each.detach() for name, each in (*model.loss_tensors.parameters, *model.loss_tensors.state)})
    return found


def _names(model: Model, stage: int, stepper: StageOptimizer) -> list[str]:
    """Returns the names of an optimizer's parameters, in the order of its state."""
    assert stepper.optimizer is not None
    own = {id(known): _name(model, stage, name) for name, known in stepper.named()}
    return [own[id(each)] for group in stepper.optimizer.param_groups for each in group["params"]]


def _of_optimizer(
    model: Model, stage: int, stepper: StageOptimizer, state: dict[str, Any], groups: list[dict[str, Any]]
) -> Iterable[tuple[str, Any]]:
    """Yields the state of an optimizer by parameter, and adds its groups to those that others have."""
    names, of_stage = _names(model, stage, stepper), state["optimizers"][stage]
    for number, values in of_stage["state"].items():
        for key, value in values.items():
            yield f"state.{names[number]}.{key}", value
    for group in of_stage["param_groups"]:
        settings, params = {key: value for key, value in group.items() if key not in _LISTS}, [names[each] for each in group["params"]]
        settings.setdefault("initial_lr", settings.get("lr"))  # torchtitan's always have it
        for name in params:
            yield from ((f"param_groups.{name}.{key}", value) for key, value in settings.items())
        same = next((each for each in groups if {**each, "params": None} == {**settings, "params": None}), None)
        if same is None:
            groups.append({**settings, "params": params})
        else:
            same["params"] += params


def _optimizer_state(file: _File, prefix: str, model: Model, stage: int, stepper: StageOptimizer) -> dict[str, Any]:
    """Returns the ``state_dict`` of a stage's optimizer from a checkpoint, which may have other stages and groups."""
    assert stepper.optimizer is not None
    names, template, aliases = _names(model, stage, stepper), stepper.optimizer.state_dict(), _aliases(model)
    places: dict[int, dict[str, str]] = {}
    for number, name in enumerate(names):
        found = (file.below(f"{prefix}.state.{alias}") for alias in (name, *aliases.get(name, ())))
        if keys := next(filter(None, found), None):
            places[number] = keys
    values = file.read({key: file.empty(key) for keys in places.values() for key in keys.values()})
    state = {number: {last: values[key] for last, key in keys.items()} for number, keys in places.items()}
    for group in template["param_groups"]:
        keys = file.below(_group_of(file, prefix, names[group["params"][0]]))
        settings = file.read({keys[last]: file.empty(keys[last]) for last in group if last in keys and last not in _LISTS})
        group.update({last: settings[key] for last, key in keys.items() if key in settings})
    return {**template, "state": state}


def _group_of(file: _File, prefix: str, name: str) -> str:
    """Returns where the settings of a parameter are: by its name, or by the number of its group."""
    by_name, number = f"{prefix}.param_groups.{name}", 0
    while not file.below(by_name) and "params" in (keys := file.below(group := f"{prefix}.param_groups.{number}")):
        if name in file.read({keys["params"]: None})[keys["params"]]:
            return group
        number += 1
    return by_name


def _aliases(model: Model) -> dict[str, list[str]]:
    """Returns the names of parameters that several stages have, by each of them."""
    by_id: dict[int, list[str]] = {}
    for index, named in enumerate(model.parameters()):
        for name, parameter in named:
            by_id.setdefault(id(parameter), []).append(_name(model, index, name))
    return {name: names for names in by_id.values() if len(names) > 1 for name in names}


def _as_text(scheduler: dict[str, Any]) -> str:
    try:
        return json.dumps(scheduler)
    except TypeError as error:
        raise Error(f"save_checkpoint: the state of the lr_scheduler has more than numbers, texts and lists ({error}): save it yourself") from error


def _scheduler_state(own: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Returns the state of a scheduler at the step of a checkpoint. Lists by parameter group stay its own if the groups differ."""
    if _SCHEDULER in found:
        loaded = json.loads(found[_SCHEDULER])
        lists = {key: each for key, each in own.items() if isinstance(each, list) and len(each) != len(loaded.get(key, each))}
        return {**own, **loaded, **lists}
    if _EPOCH in found:
        return {**own, "last_epoch": int(found[_EPOCH]), "_step_count": int(found[_EPOCH]) + 1}
    return own
