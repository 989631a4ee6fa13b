"""The ways to divide a module among tensor ranks, and what a module must have for each."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, SequenceParallel

from penstock import Error


class ExpertsParallel(ParallelStyle):
    """Each rank has some of the experts. It computes the tokens that they are chosen for, and the ranks add their results.

    For modules of transformers, whose forward takes hidden states, indices of experts and their weights. They skip experts of other
    ranks, which have the index after the last one.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        for name, each in list(module.named_parameters(recurse=False)):
            divided = distribute_tensor(each.detach(), device_mesh, [Shard(0)])
            module.register_parameter(name, nn.Parameter(divided, requires_grad=each.requires_grad))
        experts: Any = module
        experts.num_experts //= device_mesh.size()
        experts._is_expert_parallel = True
        experts.forward = functools.partial(_run_experts, module, module.forward, device_mesh)
        return module


def _run_experts(module: Any, run: Callable[..., Any], mesh: DeviceMesh, hidden: Any, indices: Any, weights: Any) -> Any:
    own = module.num_experts
    is_elsewhere = (indices // own) != mesh.get_local_rank()
    indices = torch.where(is_elsewhere, own, indices % own)
    hidden, weights = _with_partial_gradient(hidden, mesh), _with_partial_gradient(weights, mesh)
    wholes = dict(module._parameters)
    try:
        module._parameters.update({name: each.to_local() for name, each in wholes.items()})
        result = run(hidden, indices, weights.masked_fill(is_elsewhere, 0.0))
    finally:
        module._parameters.update(wholes)
    return DTensor.from_local(result, mesh, [Partial()], run_check=False).redistribute(placements=[Replicate()]).to_local()


class LatentParallel(ParallelStyle):
    """A projection whose last outputs, the rotary keys of latent attention, go to all heads. Ranks have parts of their gradients."""

    def __init__(self, shared: int) -> None:
        """``shared``: how many outputs these are."""
        self._shared = shared

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        latent: Any = module
        latent.forward = functools.partial(_run_latent, module.forward, device_mesh, self._shared)
        return module


def _run_latent(run: Callable[..., torch.Tensor], mesh: DeviceMesh, shared: int, *given: Any, **named: Any) -> torch.Tensor:
    output = run(*given, **named)
    own = output.shape[-1] - shared
    return torch.cat([output[..., :own], _with_partial_gradient(output[..., own:], mesh)], -1)


def _with_partial_gradient(tensor: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
    """Returns a tensor that all ranks have. Each has a part of its gradient, which their sum is."""
    whole = DTensor.from_local(tensor, mesh, [Replicate()], run_check=False)
    local: torch.Tensor = whole.to_local(grad_placements=[Partial()])
    return local


#: By name, from what holds the module. By "heads", ranks have a norm's whole weight, which each applies to its own heads (dimension 2),
#: so that gradients are added.
STYLES: Mapping[str, Callable[[Any], ParallelStyle]] = {
    "column": lambda _: ColwiseParallel(),
    "row": lambda _: RowwiseParallel(),
    "column_gathered": lambda _: ColwiseParallel(output_layouts=Replicate()),
    "row_of_whole": lambda _: RowwiseParallel(input_layouts=Replicate()),
    "heads": lambda _: SequenceParallel(sequence_dim=2, use_local_output=True),
    "embedding": lambda _: RowwiseParallel(input_layouts=Replicate()),
    "experts": lambda _: ExpertsParallel(),
    "latent": lambda holder: LatentParallel(holder.qk_rope_head_dim),
}


def check(where: str, style: str, module: nn.Module, holder: nn.Module, ranks: int) -> None:
    """Raises Error for a module that the ranks cannot divide so. ``holder``: has the module."""
    if style == "experts":
        return _check_experts(where, module, ranks)
    if style == "embedding":
        return _check_embedding(where, module)
    if style == "heads":
        return None
    if style == "latent":
        return _check_latent(where, module, holder)
    if not isinstance(module, nn.Linear):
        raise Error(f"{where}: it is a {type(module).__name__}, but {style!r} divides a Linear: leave it out")
    is_column = style.startswith("column")
    size = module.out_features if is_column else module.in_features
    if style == "column_gathered":
        return None  # also of uneven parts
    head = getattr(holder, "head_dim", 1) if style in ("column", "row") else 1
    if not isinstance(head, int) or size % head != 0:
        head = 1
    if (size // head) % ranks != 0:
        what = f"{size // head} heads" if head > 1 else f"{'outputs' if is_column else 'inputs'}, {size},"
        raise Error(f"{where}: {ranks} tensor ranks do not divide its {what} evenly: leave it out, or change the mesh")
    return None


def _check_latent(where: str, module: nn.Module, holder: nn.Module) -> None:
    shared = getattr(holder, "qk_rope_head_dim", None)
    if not isinstance(module, nn.Linear) or not isinstance(shared, int) or not 0 < shared <= module.out_features:
        raise Error(
            f"{where}: 'latent' is for a Linear whose last outputs are rotary keys, qk_rope_head_dim of the module that has it: leave it out"
        )


def _check_embedding(where: str, module: nn.Module) -> None:
    if not isinstance(module, nn.Embedding):
        raise Error(f"{where}: it is a {type(module).__name__}, but 'embedding' divides an Embedding: leave it out")
    if reason := why_whole(module):
        raise Error(f"{where}: {reason}: leave it out")


def why_whole(module: nn.Embedding) -> str:
    """Returns why ranks cannot divide the rows of an embedding; "" if they can."""
    if "forward" in vars(module) or type(module).forward is not nn.Embedding.forward:
        return f"{type(module).__name__} has its own forward, which gets parts"
    options = {"max_norm": None, "sparse": False, "scale_grad_by_freq": False}
    found = next((name for name, default in options.items() if getattr(module, name) not in (default,)), None)
    return f"it has {found}, which needs all rows" if found else ""


def _check_experts(where: str, module: nn.Module, ranks: int) -> None:
    count = getattr(module, "num_experts", None)
    if not isinstance(count, int) or not hasattr(module, "_is_expert_parallel"):
        raise Error(f"{where}: it is a {type(module).__name__}, but 'experts' divides experts of transformers: leave it out")
    odd = [name for name, each in module.named_parameters() if each.dim() == 0 or each.shape[0] != count or "." in name]
    if odd:
        raise Error(f"{where}: {odd[0]!r} is not of one expert, but of all: leave it out")
    if count % ranks != 0:
        raise Error(f"{where}: {ranks} tensor ranks do not divide its {count} experts evenly: leave it out, or change the mesh")
