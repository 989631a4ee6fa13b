"""The devices that a Pipeline trains on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from penstock import Error
from penstock.torch.arguments import in_code_of, shown
from penstock.torch.placement import Placement


def of_stages(stages: Sequence[nn.Module | None], given: Any = None) -> list[torch.device]:
    """Returns the device of each stage's first tensor, which must fit what is given, if anything.

    A stage without tensors, or of another process, is where its neighbors are. StageWeights checks
    the other tensors.
    """
    wanted = _wanted(given)
    found: list[torch.device | None] = []
    for index, module in enumerate(stages):
        what, device = _first_tensor(module)
        found.append(device)
        if device is None:
            continue
        what = f"stage {index}: {what}"
        if device.type == "meta":
            raise Error(f"{what} is on meta, which has no values: call to_empty on the modules, and load their weights")
        first = next(each for each in found if each is not None)
        if wanted is not None and not _fits(device, wanted):
            raise Error(
                f"device is {wanted}, but {what} is on {device}: move the stages (module.to('{wanted}')), or leave device out"
            )
        if device.type != first.type:
            raise Error(
                f"{what} is on {device}, but the pipeline trains on {first}: move all stages and "
                "the loss to devices of one type (module.to(device))"
            )
    if wanted is None:
        wanted = torch.device("cpu")
    elif wanted.type != "cpu":
        wanted = torch.device(wanted.type, wanted.index or 0)
    near = next((each for each in found if each is not None), wanted)
    return [near := each or near for each in found]


def of_ranks(devices: Sequence[torch.device], placement: Placement) -> list[torch.device]:
    """Returns the device of each rank that runs one of this process's stages, others the first.

    ``devices`` are the devices of the model's stages.
    """
    of_rank: dict[int, tuple[int, torch.device]] = {}
    for stage in placement.local:
        index, rank = placement.model_stage(stage), placement.rank_of[stage]
        other, device = of_rank.setdefault(rank, (index, devices[index]))
        if device != devices[index]:
            raise Error(
                f"rank {rank} trains stages {other} and {index}, which are on {device} and {devices[index]}: move them to one "
                "device, or choose a schedule that gives them to two ranks"
            )
    first = devices[placement.model_stage(placement.local[0])] if placement.local else devices[0]
    return [of_rank.get(rank, (0, first))[1] for rank in range(max(placement.rank_of) + 1)]


def require_one(by_rank: Sequence[torch.device]) -> None:
    """Raises Error if a process that sends its tensors by c10d has them on several devices."""
    several = sorted({str(each) for each in by_rank})
    if len(several) > 1:
        raise Error(
            "transport is 'c10d', which moves the tensors of one device per process, but the stages here are on "
            f"{' and '.join(several)}: start a process for each, or leave transport out"
        )


def _wanted(given: Any) -> torch.device | None:
    if given is None:
        return None
    with in_code_of(f"device is {shown(given)}"):
        return torch.device(given)


def _fits(device: torch.device, wanted: torch.device) -> bool:
    return device.type == wanted.type and wanted.index in (None, device.index)


def _first_tensor(module: nn.Module | None) -> tuple[str, torch.device | None]:
    if module is not None:
        for name, parameter in module.named_parameters():
            return f"parameter '{name}'", parameter.device
        for name, buffer in module.named_buffers():
            return f"buffer '{name}'", buffer.device
    return "", None


def on_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Returns a leaf on the device that requires a gradient if the tensor does."""
    return tensor.detach().to(device).requires_grad_(tensor.requires_grad)


def keep_until_read(tensor: torch.Tensor) -> None:
    """Lets the tensor be freed now, although the thread's stream still reads it.

    Otherwise the stream that has allocated it would use the memory again at once.
    """
    if tensor.device.type != "cpu":
        tensor.record_stream(torch.accelerator.current_stream(tensor.device))


@contextlib.contextmanager
def forked_random(*devices: torch.device) -> Iterator[None]:
    """Restores torch's random states, of the CPU and of devices of one type, at the end."""
    others = sorted({each for each in devices if each.type != "cpu"}, key=str)
    if not others:
        with torch.random.fork_rng(devices=[]):
            yield
    else:
        with torch.random.fork_rng(others, device_type=others[0].type):
            yield


def random_states(device: torch.device) -> list[Any]:
    """Returns torch's random states, of the CPU and of a device."""
    states = [torch.get_rng_state()]
    return states if device.type == "cpu" else [*states, torch.get_device_module(device).get_rng_state(device)]


@contextlib.contextmanager
def restored_random_states(device: torch.device, states: list[Any]) -> Iterator[None]:
    """Draws from `random_states` of before, meanwhile."""
    with forked_random(device):
        torch.set_rng_state(states[0])
        if len(states) > 1:
            torch.get_device_module(device).set_rng_state(states[1], device)
        yield


def device_of(module: nn.Module) -> torch.device:
    """Returns where a module's parameters or buffers are; the CPU if it has none."""
    for tensor in (*module.parameters(), *module.buffers()):
        return tensor.device
    return torch.device("cpu")


def autocast_setting(device: torch.device) -> torch.dtype | None:
    """Returns the dtype of the caller's torch.autocast for a device, or None outside of it."""
    kind = device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
