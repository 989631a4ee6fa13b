"""What the processes of a Pipeline tell each other about it, so that all have the same, or fail with one line."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from penstock import Schedule
from penstock.torch import arguments, devices
from penstock.torch.arguments import shown
from penstock.torch.mesh.planes import Plane, plane_of
from penstock.torch.model import Model
from penstock.torch.processes import agreement, processes
from penstock.torch.processes.place import place
from penstock.torch.processes.sameness import Digest, Facts, checksum, compare
from penstock.torch.training import options
from penstock.torch.weights.stage_optimizer import StageOptimizer
from penstock.torch.weights.weights import SharedParameter

_SAME_ARGUMENTS = "pass the same arguments to Pipeline on every process"
_SAME_MODEL = "build the same model on every process, or pass None for stages that it does not run"
_SAME_OPTIMIZER = "weights that several processes update need the same optimizer on each"
_PLAIN = (bool, int, float, str, type(None))


_Init = TypeVar("_Init", bound=Callable[..., None])


def made_on_all(init: _Init) -> _Init:
    """Makes a Pipeline's constructor fail on all processes if it fails on one, or if what they make differs.

    Without an argument ``seed``, all get process 0's.
    """
    signature, own, require_known = inspect.signature(init), arguments.own_of(init), arguments.known_to(init)

    @functools.wraps(init)
    def make(pipeline: Any, *given: Any, **named: Any) -> None:
        if place()[1] == 1:
            return init(pipeline, *given, **named)

        def device_of() -> torch.device:
            stages = options.stage_list("stages", named.get("stages", given[0] if given else ()))
            return devices.of_stages(stages, named.get("device"))[0]

        def bind() -> tuple[tuple[inspect.BoundArguments, Plane | None], Any]:
            require_known(named)
            bound = signature.bind(pipeline, *given, **named)
            bound.apply_defaults()
            mesh = bound.arguments["mesh"]
            plane = None if mesh is None else plane_of(mesh)
            return (bound, plane), (torch.initial_seed(), [_arguments(bound.arguments, {"self", *own})])

        def construct() -> tuple[None, list[Facts]]:
            init(*bound.args, **bound.kwargs)
            return None, list(_facts(pipeline._run.model))

        transport = "c10d" if named.get("transport") == "c10d" else "tcp"
        members = processes.connected() or processes.join(transport, device_of)
        (bound, plane), of_all = agreement.agree(members, agreement.COMPILE_S, bind, "Pipeline")
        compare([facts for _, facts in of_all])
        if bound.arguments["seed"] is None:
            bound.arguments["seed"] = of_all[0][0]
        members = processes.join(transport, device_of)
        if plane is not None:
            processes.join_plane(plane)
        _, facts_of_all = agreement.agree(members, agreement.COMPILE_S, construct, "Pipeline")
        compare(facts_of_all)
        updates = pipeline._run.model.updates
        if plane is not None:  # Its collectives need equal optimizers on all planes.
            agreement.agree(members, agreement.COMPILE_S, lambda: (updates.make_whole(), None), "Pipeline")

    return make  # type: ignore[return-value]


def _arguments(given: Mapping[str, Any], own: set[str]) -> Facts:
    return Facts("", _SAME_ARGUMENTS, {name: _text(value) for name, value in given.items() if name not in own})


def _text(value: Any) -> str:
    if isinstance(value, (torch.dtype, Mapping)):
        return str(value)
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "given" if callable(value) else shown(value)


def _facts(model: Model) -> Iterator[Facts]:
    yield _schedule(model.schedule)
    plane = None if model.processes.plane is None else model.processes.plane.name  # Others have other parts of parameters.
    local, steppers = model.placement.here, dict(model.updates.here)
    if model.placement.chain_length - 1 in local:
        yield Facts("", "pass the same loss on every process that runs the last stage", {"loss": _loss(model.given.loss)})
    for index, module in enumerate(model.modules):
        if module is None:
            continue
        shapes = {f"parameter '{name}'": str(list(each.shape)) for name, each in module.named_parameters()}
        if shapes or index in local:
            yield Facts(f"stage {index}: ", _SAME_MODEL, shapes, plane)
        if index in local:
            remedy = "its replicas must be alike: build the same on every process"
            yield Facts(f"stage {index}: ", remedy, _replica(module), plane)
            yield Facts(f"stage {index}: ", _SAME_OPTIMIZER, _optimizer(steppers[index], None))
    for shared in model.shared():
        for index in (each for each in shared.stages if each in local):
            weights = model.weights[local[index]]
            assert weights is not None
            of_own = zip(weights.own, steppers[index].known, strict=True)
            updated = next(known for own, known in of_own if own is shared.parameter)
            yield Facts(_what(shared), _SAME_OPTIMIZER, _optimizer(steppers[index], updated))


def initial_facts(model: Model) -> list[Facts]:
    """Returns what processes compare before the first step: what may be changed between the constructor and it."""
    autocast = str(devices.autocast_setting(model.devices[0]) or "off")
    facts = [Facts("step: ", "step under the same torch.autocast on every process", {"torch.autocast": autocast})]
    for shared in model.shared():
        values = {"its values": Digest(checksum(shared.parameter))}
        plane = None if model.processes.plane is None else model.processes.plane.name
        remedy = "call torch.manual_seed before the modules are made, or load the same state"
        facts.append(Facts(_what(shared), remedy, values, plane))
    for index in model.placement.here:
        modes = {
            f"module '{name or 'stage'}'": "in train mode" if each.training else "in eval mode"
            for name, each in model.module(index).named_modules()
        }
        facts.append(Facts(f"stage {index}: ", "call train() or eval() on every process", modes))
    return facts + _replicated(model)


def _replicated(model: Model) -> list[Facts]:
    """Returns what planes of a mesh compare of parameters that they do not divide."""
    if model.processes.plane is None:
        return []
    remedy = (
        "planes begin with equal values of what they do not divide: call torch.manual_seed before the modules are made, or set "
        "tensor_model_parallel = True on parameters that are parts"
    )
    found = []
    for weights in filter(None, model.weights):
        pairs = [(name, own) for (name, _), own in zip(weights.parameters, weights.own, strict=True) if name not in weights.divided]
        values = {f"the values of parameter '{name}'": Digest(checksum(own)) for name, own in pairs}
        found.append(Facts(f"stage {weights.stage}: ", remedy, values))
    return found


def _what(shared: SharedParameter) -> str:
    return f"parameter '{shared.names[0]}' that stages {list(shared.stages)} share: "


def _schedule(schedule: Schedule) -> Facts:
    names = ("algorithm", "ranks", "stages", "microbatches", "slices", "replicas", "weight_policy")
    values = {f"the schedule's {name}": repr(getattr(schedule, name)) for name in names}
    lanes = schedule.to_csv().splitlines()[-schedule.ranks :]
    actions = {f"the schedule's actions of rank {rank}": Digest.of(lane.encode()) for rank, lane in enumerate(lanes)}
    return Facts("", _SAME_ARGUMENTS, {**values, **actions})


def _loss(loss: Any) -> str:
    """Returns the name of a loss, and a checksum of its code or settings."""
    name = getattr(loss, "__qualname__", type(loss).__qualname__)
    code = getattr(loss, "__code__", None)
    if isinstance(loss, nn.Module):
        return _module(loss)
    return name if code is None else f"{name} ({Digest.of(_content(code)).code:x})"


def _content(code: types.CodeType) -> bytes:
    inner = b"".join(_content(each) for each in code.co_consts if isinstance(each, types.CodeType))
    constants = repr([each for each in code.co_consts if isinstance(each, _PLAIN)]).encode()
    return code.co_code + constants + repr(code.co_names).encode() + inner


def _module(module: nn.Module) -> str:
    """Returns the class, and of torch's own its settings, such as the probability of dropout."""
    name = type(module).__name__
    if not type(module).__module__.startswith("torch.nn."):
        return name
    settings = {key: each for key, each in vars(module).items() if isinstance(each, (*_PLAIN, tuple)) and key[0] != "_"}
    return f"{name}({', '.join(f'{key}={each}' for key, each in settings.items() if key != 'training')})"


def _replica(module: nn.Module) -> dict[str, str]:
    """Returns what the replicas of a stage have in common."""
    facts = {f"module '{name or 'stage'}'": _module(each) for name, each in module.named_modules()}
    for name, each in module.named_parameters():
        facts[f"parameter '{name}'"] = f"{each.dtype}, {'trained' if each.requires_grad else 'frozen'}"
    return facts


def _optimizer(stepper: StageOptimizer, updated: torch.Tensor | None) -> dict[str, str]:
    """Returns an optimizer's class, and the settings of its groups: of all, or of a parameter's."""
    optimizer = stepper.optimizer
    facts = {"the optimizer": "None" if optimizer is None else type(optimizer).__qualname__}
    facts["what the optimizer updates"] = "whole tensors" if stepper.needs_wholes else "own parts"
    for number, group in enumerate([] if optimizer is None else optimizer.param_groups):
        if updated is None:
            facts.update(_settings(group, f" of group {number}"))
        elif any(each is updated for each in group["params"]):
            facts.update(_settings(group, ""))
    return facts


def _settings(group: Mapping[str, Any], of: str) -> dict[str, str]:
    return {f"the optimizer's {key}{of}": str(each) for key, each in group.items() if isinstance(each, (*_PLAIN, tuple))}
