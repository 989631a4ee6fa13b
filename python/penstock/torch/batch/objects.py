"""Objects in batches and outputs: containers that are read as others, and what hides tensors from a capture."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from penstock import Error

_MOST_OBJECTS = 10_000  # that are searched for tensors; caches have some per layer
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


def in_containers(value: Any, what: str) -> Any:
    """Returns a part of a batch with mappings that torch does not know as containers (BatchEncoding) as dicts.

    ``what`` begins the error: "step: inputs".

    Raises:
        Error: another object holds tensors, which would be the same for all microbatches and steps.
    """
    if isinstance(value, torch.Tensor):
        return value
    leaves, spec = pytree.tree_flatten(value)
    if all(isinstance(leaf, (torch.Tensor, *_PLAIN)) for leaf in leaves):
        return value
    return pytree.tree_unflatten([_container(leaf, what) for leaf in leaves], spec)


def _container(leaf: Any, what: str) -> Any:
    if isinstance(leaf, Mapping):
        return {key: in_containers(each, what) for key, each in leaf.items()}
    if not isinstance(leaf, torch.Tensor) and holds_tensors(leaf):
        kind = type(leaf).__name__
        raise Error(f"{what} contain a {kind}, whose tensors would not be divided: pass a tuple or a dict of them{or_register(leaf)}")
    return leaf


def or_register(value: object) -> str:
    """Returns what a user may do with a dataclass in place of passing its fields, for the end of an error."""
    is_known = dataclasses.is_dataclass(value)
    return f", or call torch.export.register_dataclass({type(value).__name__}) before" if is_known else ""


def holds_tensors(value: object) -> bool:
    """Whether tensors can be reached from the attributes and elements of an object."""
    seen: set[int] = set()
    left = [value]
    while left and len(seen) < _MOST_OBJECTS:
        each = left.pop()
        if isinstance(each, torch.Tensor):
            return True
        if id(each) not in seen:
            seen.add(id(each))
            left.extend(_parts(each))
    return False


def _parts(value: object) -> Iterable[object]:
    if isinstance(value, (str, bytes, type, nn.Module, types.ModuleType, types.FunctionType)):
        return ()
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, (list, tuple, set, frozenset)):
        return value
    slots = (name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()))
    attributes = [getattr(value, name, None) for name in slots if isinstance(name, str)]
    return [*attributes, *getattr(value, "__dict__", {}).values()]
