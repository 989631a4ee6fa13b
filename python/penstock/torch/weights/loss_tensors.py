"""The tensors that a loss brings along, such as a temperature or a head that no stage has."""

from __future__ import annotations

import collections
import dataclasses
import dis
import functools
import types
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

_LONGEST, _MOST = 10_000, 1_000_000  # entries of a container, and objects, that are looked at


@dataclasses.dataclass(frozen=True)
class LossTensors:
    """What the last stage owns in addition to the tensors of its module, by name."""

    #: Leaves that require a gradient and that no stage has.
    parameters: tuple[tuple[str, nn.Parameter], ...] = ()
    #: If the loss is a module: the buffers in its ``state_dict``, and frozen weights.
    state: tuple[tuple[str, torch.Tensor], ...] = ()


def loss_tensors(loss: Any, stages: Sequence[nn.Module | None]) -> LossTensors:
    """Returns the tensors of a loss that are not in a stage.

    They are a module's tensors; and the tensors in a function's closure, globals, defaults and
    bound object. A loss may read others, which its capture refuses.
    """
    known: set[int] = set()
    for stage in stages:
        if stage is not None:
            known.update(id(tensor) for tensor in (*stage.parameters(), *stage.buffers()))
    prefix = "loss_function" if hasattr(stages[-1], "loss") else "loss"
    state: Iterable[tuple[str, Any]] = ()
    if isinstance(loss, nn.Module):
        state = loss.state_dict(keep_vars=True).items()
    return LossTensors(
        tuple((f"{prefix}{path}", leaf) for path, leaf in _leaves(loss) if id(leaf) not in known),
        tuple(
            (f"{prefix}.{name}", tensor)
            for name, tensor in state
            if isinstance(tensor, torch.Tensor) and not tensor.requires_grad and id(tensor) not in known
        ),
    )


def _leaves(root: Any) -> list[tuple[str, Any]]:
    """Returns the leaves that require a gradient and can be reached from an object, with paths."""
    leaves = []
    waiting, seen = collections.deque([("", root)]), {id(root)}
    while waiting and len(seen) < _MOST:
        path, value = waiting.popleft()
        if isinstance(value, torch.Tensor):
            if value.requires_grad and value.is_leaf:
                leaves.append((path, value))
            continue
        for name, part in _parts(value):
            if id(part) not in seen:
                seen.add(id(part))
                waiting.append((f"{path}.{name}", part))
    return leaves


def _parts(value: Any) -> Iterable[tuple[str, Any]]:
    """Returns what an object holds, by names without dots."""
    if isinstance(value, (str, bytes, int, float, type, types.ModuleType)):
        return []
    if isinstance(value, nn.Module):
        own = [(k, v) for k, v in vars(value).items() if not k.startswith("_")]
        return [*value._parameters.items(), *value._modules.items(), *own]
    if isinstance(value, types.FunctionType):
        return _parts_of_function(value)
    if isinstance(value, types.MethodType):
        return [("self", value.__self__), ("function", value.__func__)]
    if isinstance(value, functools.partial):
        return [("function", value.func), ("arguments", value.args), ("named", value.keywords)]
    if isinstance(value, dict):
        return [(str(k).replace(".", "_"), v) for k, v in list(value.items())[:_LONGEST]]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [(str(k), v) for k, v in enumerate(list(value)[:_LONGEST])]
    return list(getattr(value, "__dict__", {}).items())


def _parts_of_function(function: types.FunctionType) -> Iterable[tuple[str, Any]]:
    if (function.__module__ or "").partition(".")[0] == "torch":
        return
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for name in _global_names(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    yield from ((str(k), v) for k, v in enumerate(function.__defaults__ or ()))
    yield from (function.__kwdefaults__ or {}).items()


def _global_names(code: types.CodeType) -> list[str]:
    names = {each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):  # a nested function or generator
            names.update(_global_names(constant))
    return sorted(names)
