"""Running a module without leaving traces in it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from penstock.torch.devices import device_of, forked_random

# The dicts of a module whose entries forward may replace.
_TABLES = ("_buffers", "_parameters", "_modules")


@contextlib.contextmanager
def preserved(model: nn.Module) -> Iterator[None]:
    """Restores buffers, attributes, modes and the states of random generators at the end."""
    modules = [(each, dict(vars(each)), {name: dict(vars(each)[name]) for name in _TABLES}) for each in model.modules()]
    buffers = copies(model)
    python_state = random.getstate()
    try:
        with forked_random(device_of(model)):
            yield
    finally:
        random.setstate(python_state)
        for module, attributes, tables in modules:
            _restore(vars(module), attributes)
            for name, table in tables.items():
                _restore(vars(module)[name], table)
        with torch.no_grad():
            for _, buffer, content in buffers:
                if is_changed(buffer, content):
                    buffer.copy_(content)


def copies(model: nn.Module) -> list[tuple[str, torch.Tensor, torch.Tensor]]:
    """Returns the names of the buffers, the buffers, and their content."""
    return [(name, each, each.detach().clone()) for name, each in model.named_buffers()]


def is_changed(buffer: torch.Tensor, content: torch.Tensor) -> bool:
    """Batch normalization does not count its changes as versions."""
    return not buffer.is_meta and not torch.equal(buffer, content)


def _restore(table: dict[str, Any], before: dict[str, Any]) -> None:
    if list(table) != list(before) or any(table[key] is not before[key] for key in before):
        table.clear()
        table.update(before)
