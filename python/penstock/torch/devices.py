"""The device that a Pipeline trains on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from penstock import Error
from penstock.torch.arguments import in_code_of, shown


def device_of(stages: Sequence[nn.Module | None], given: Any) -> torch.device:
    """Returns the device of the stages' first tensor, which must be the one that is given, if any.

    StageWeights checks the other tensors.
    """
    named = (
        (f"stage {index}: {kind} '{name}'", tensor.device)
        for index, module in enumerate(stages)
        if module is not None
        for kind, tensors in (
            ("parameter", module.named_parameters()),
            ("buffer", module.named_buffers()),
        )
        for name, tensor in tensors
    )
    what, found = next(named, ("", None))
    if found is not None and found.type == "meta":
        raise Error(
            f"{what} is on meta, which has no values: call to_empty on the modules, and load their "
            "weights"
        )
    if given is None:
        return torch.device("cpu") if found is None else found
    with in_code_of(f"device is {shown(given)}"):
        wanted = torch.device(given)
    if found is None:
        index = wanted.index or 0
        return wanted if wanted.type == "cpu" else torch.device(wanted.type, index)
    if wanted.type != found.type or wanted.index not in (None, found.index):
        raise Error(
            f"device is {wanted}, but the stages are on {found}: move them "
            f"(module.to('{wanted}')), or leave device out"
        )
    return found


def on_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Returns a leaf on the device that requires a gradient if the tensor does."""
    return tensor.detach().to(device).requires_grad_(tensor.requires_grad)


@contextlib.contextmanager
def forked_random(device: torch.device) -> Iterator[None]:
    """Restores torch's random states, of the CPU and of a device, at the end."""
    if device.type == "cpu":
        with torch.random.fork_rng(devices=[]):
            yield
    else:
        with torch.random.fork_rng([device], device_type=device.type):
            yield
