"""What the programs share that compare a Pipeline on a mesh with one process of plain PyTorch."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor

import penstock.torch as pt

#: Schedules with two stages per rank.
TWICE = ("zbv", "dualpipev", "interleaved-1f1b")


def mesh_of(names: str, *sizes: int) -> DeviceMesh:
    """Returns a mesh of all processes. ``names``: of its dimensions, with blanks between."""
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    return init_device_mesh("cpu", sizes, mesh_dim_names=tuple(names.split()))


def stages_of(schedule: str, ranks: int) -> int:
    return ranks * (2 if schedule in TWICE else 1)


def slice_of(whole: torch.Tensor, dim: int | None, group: Any) -> torch.Tensor:
    if dim is None:
        return whole
    return whole.tensor_split(dist.get_world_size(group), dim)[dist.get_rank(group)].contiguous()


def copy_parts(part: nn.Module, whole: nn.Module, dim_of: Callable[[str], int | None], group: Any) -> nn.Module:
    """Gives a module its part of another one's parameters."""
    with torch.no_grad():
        for name, parameter in part.named_parameters():
            parameter.copy_(slice_of(whole.get_parameter(name), dim_of(name), group))
            if dim_of(name) is not None:
                parameter.tensor_model_parallel = True  # type: ignore[attr-defined]
    return part


def relative(one: torch.Tensor, other: torch.Tensor) -> float:
    one, other = one.detach().double(), other.detach().double()
    return float((one - other).norm() / max(float(other.norm()), 1e-12))


def local_stages(pipe: pt.Pipeline) -> list[int]:
    count = pipe.schedule.stages // pipe.schedule.replicas
    return sorted({stage % count for stage in pipe.local_stages})


Batch = tuple[torch.Tensor, torch.Tensor]


def errors_of(
    pipe: pt.Pipeline,
    whole: list[nn.Module],
    loss_of: Callable[[Any, Any], torch.Tensor],
    optimizer: torch.optim.Optimizer,
    batches: list[Batch],
    *,
    clip: float = 0.0,
    own: Callable[[Batch], Batch] = lambda batch: batch,
    around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
) -> dict[str, float]:
    """Trains both, and returns the relative errors of losses and norms. ``own``: this process's part of a batch."""
    model, errors = nn.Sequential(*whole), {}
    for step, (x, y) in enumerate(batches):
        with around():
            loss = pipe.step(*own((x, y)))
        model.zero_grad()  # also of what the optimizer does not update
        expected = loss_of(model(x), y)
        expected.backward()
        if clip:
            norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), clip))
            assert pipe.last.grad_norm is not None
            errors[f"norm {step}"] = abs(pipe.last.grad_norm / norm - 1)
        optimizer.step()
        errors[f"loss {step}"] = abs(loss / float(expected.detach()) - 1)
    pipe.gather()
    return errors


def weight_errors(
    pipe: pt.Pipeline, parts: list[nn.Module], whole: list[nn.Module], dim_of: Callable[[str], int | None], group: Any
) -> dict[str, float]:
    """Returns the relative errors of this process's weights."""
    errors = {}
    for index in local_stages(pipe):
        for name, parameter in parts[index].named_parameters():
            wanted = whole[index].get_parameter(name)
            if isinstance(parameter, DTensor):
                errors[f"{index}.{name}"] = relative(parameter.full_tensor(), wanted)
            else:
                errors[f"{index}.{name}"] = relative(parameter, slice_of(wanted, dim_of(name), group))
    return errors


def report(name: str, errors: dict[str, float]) -> None:
    """Prints the largest error of this process."""
    worst = max(errors, key=lambda key: errors[key] if errors[key] == errors[key] else float("inf"))
    sys.stdout.write(f"error of {name} on {os.environ['RANK']}: {errors[worst]:.3e} {worst}\n")
    sys.stdout.flush()


@contextlib.contextmanager
def said(name: str) -> Iterator[None]:
    """Prints the line of an Error in it."""
    line = "no error"
    try:
        yield
    except pt.Error as error:
        line = str(error)
    sys.stdout.write(f"case {name} {os.environ['RANK']} {line}\n")
    sys.stdout.flush()
