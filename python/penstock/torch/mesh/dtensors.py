"""DTensors in stages: the engine trains each process's own part, a plain tensor on its memory.

While a stage is captured, its code reads DTensors that autograd computes from these parts. So a gradient has its parameter's
placement.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakTensorKeyDictionary

from penstock import Error
from penstock.torch.mesh.planes import CONTEXT, Plane

_parts: Any = WeakTensorKeyDictionary()  # by DTensor: what `part_of` has returned


def is_dtensor(value: Any) -> bool:
    module = sys.modules.get("torch.distributed.tensor")  # Importing it takes a second.
    return module is not None and isinstance(value, module.DTensor)


def part_of(tensor: Any) -> Any:
    """Returns the own part of a DTensor, the same tensor in each call; other tensors as they are."""
    if not is_dtensor(tensor):
        return tensor
    own, part = tensor._local_tensor, _parts.get(tensor)
    if part is None:
        part = own.detach()
        if isinstance(tensor, nn.Parameter):
            part = nn.Parameter(part, requires_grad=tensor.requires_grad)
        _parts[tensor] = part
    elif _memory(part) != _memory(own):
        part.data = own.detach()
    if part.requires_grad is not tensor.requires_grad:
        part.requires_grad_(tensor.requires_grad)
    return part


def follow_part(tensor: Any) -> None:
    """Gives a DTensor the memory that its own part has now."""
    if is_dtensor(tensor):
        tensor._local_tensor = _parts[tensor].data


def _memory(tensor: torch.Tensor) -> tuple[int, int]:
    return tensor.untyped_storage()._cdata, int(tensor.storage_offset())


def require_of_plane(what: str, tensor: Any, plane: Plane) -> None:
    """Raises Error for a DTensor that the planes of the mesh cannot train. ``what``: "stage 1: parameter 'weight'"."""
    ranks = tensor.device_mesh.mesh.flatten().tolist()
    if not set(ranks) <= plane.together.keys():
        raise Error(
            f"{what} is a DTensor on the processes {ranks}, but the tensor and context dimensions of mesh connect "
            f"{sorted(plane.together)} here: divide it along these dimensions; data_parallel and zero of Pipeline shard weights"
        )
    for name, size in zip(tensor.device_mesh.mesh_dim_names or (), tensor.device_mesh.shape, strict=False):
        if name in CONTEXT and size > 1:
            raise Error(
                f"{what} is a DTensor of the dimensions {tensor.device_mesh.mesh_dim_names} of mesh: distribute it along the tensor dimension "
                f"only; processes along {name!r} have the same parameters, and Pipeline takes the mean of their gradients"
            )
    if any(each.is_partial() for each in tensor.placements):
        raise Error(f"{what} is a DTensor with the placements {tensor.placements}: redistribute it to Shard or Replicate")


def group_of_parts(tensor: Any, plane: Plane, what: str) -> str:
    """Returns the group whose processes have different parts of a parameter; "" if all have the same.

    A parameter that is no DTensor says it by the attribute ``tensor_model_parallel``, as in Megatron-LM.
    """
    if not is_dtensor(tensor):
        return plane.tensor if getattr(tensor, "tensor_model_parallel", False) else ""
    divided = [index for index, each in enumerate(tensor.placements) if not each.is_replicate()]
    divided = [index for index in divided if tensor.device_mesh.size(index) > 1]
    if len(divided) > 1:
        raise Error(f"{what} is a DTensor that several dimensions of its mesh divide: divide it along one, or replicate it")
    return str(tensor.device_mesh.get_group(divided[0]).group_name) if divided else ""


@dataclasses.dataclass(frozen=True)
class Form:
    """What a DTensor is besides its own part, for any process of the mesh."""

    dimensions: tuple[str, ...]  # of the mesh
    placements: tuple[int | None, ...]  # by dimension: what Shard divides; None: Replicate
    shape: torch.Size
    stride: tuple[int, ...]

    @staticmethod
    def of(tensor: Any, what: str) -> Form:
        """Raises Error for a DTensor that cannot pass from stage to stage. ``what``: "stage 0 returns"."""
        names = tensor.device_mesh.mesh_dim_names
        if names is None or any(not (each.is_replicate() or each.is_shard()) for each in tensor.placements):
            raise Error(
                f"{what} a DTensor with the placements {tensor.placements} on the dimensions {names}: redistribute it to Shard "
                "or Replicate on named dimensions, or return to_local()"
            )
        dims = tuple(each.dim if each.is_shard() else None for each in tensor.placements)
        return Form(tuple(names), dims, tensor.shape, tuple(tensor.stride()))

    def whole(self, part: torch.Tensor, plane: Plane) -> Any:
        """Returns the DTensor of this process's part."""
        from torch.distributed.tensor import DTensor, Replicate, Shard

        try:
            mesh = plane.mesh[self.dimensions]
        except (KeyError, RuntimeError) as error:
            raise Error(f"a stage gets a DTensor of the dimensions {self.dimensions}, which mesh does not have") from error
        placements = [Replicate() if dim is None else Shard(dim) for dim in self.placements]
        return DTensor.from_local(part, mesh, placements, run_check=False, shape=torch.Size(self.shape), stride=self.stride)


#: By tensor of what a stage returns: its form; None for plain tensors. Empty if all are plain.
Forms = tuple["Form | None", ...]


def split(tensors: Sequence[Any], what: str) -> tuple[list[torch.Tensor], Forms]:
    """Returns the own parts of DTensors, and what `join` needs."""
    if not any(map(is_dtensor, tensors)):
        return list(tensors), ()
    forms = tuple(Form.of(each, what) if is_dtensor(each) else None for each in tensors)
    return [each.to_local() if is_dtensor(each) else each for each in tensors], forms


def join(tensors: Sequence[torch.Tensor], forms: Forms, plane: Plane | None) -> list[Any]:
    """Undoes `split`, on the same or another process."""
    if not forms or plane is None:
        return list(tensors)
    pairs = zip(tensors, forms, strict=True)
    return [each if form is None else form.whole(each, plane) for each, form in pairs]


def value_of(tensor: Any) -> Any:
    """Returns a DTensor's value as a plain tensor, the same on all processes of its mesh."""
    return tensor.full_tensor() if is_dtensor(tensor) else tensor


#: The dict of a module that holds a DTensor, its name there, and the DTensor.
Place = tuple[dict[str, Any], str, Any]


def places(module: nn.Module) -> list[Place]:
    return [
        (holder, key, tensor)
        for each in module.modules()
        for holder in (each._parameters, each._buffers)
        for key, tensor in holder.items()
        if is_dtensor(tensor)
    ]


@contextlib.contextmanager
def computed_from_parts(of_module: Sequence[Place]) -> Iterator[None]:
    """Gives a module DTensors that autograd computes from what it has in their places: own parts, or casts of these."""
    before = [(holder, key, holder[key]) for holder, key, _ in of_module]
    try:
        for holder, key, tensor in of_module:
            holder[key] = _like(tensor, part_of(holder[key]))
        yield
    finally:
        for holder, key, tensor in before:
            holder[key] = tensor


def _like(tensor: Any, part: torch.Tensor) -> Any:
    from torch.distributed.tensor import DTensor

    shape, stride = tensor.shape, tensor.stride()
    return DTensor.from_local(part, tensor.device_mesh, tensor.placements, run_check=False, shape=shape, stride=stride)


def like(tensor: torch.Tensor, whole: Any) -> Any:
    """Returns the DTensor whose own part is a tensor, placed as ``whole`` is."""
    return _like(whole, tensor)


def own_part(tensor: Any, whole: Any) -> Any:
    """Returns this process's part of a tensor that is placed as ``whole`` is: a DTensor, or a tensor of all elements."""
    from torch.distributed.tensor import distribute_tensor

    if is_dtensor(tensor):
        return tensor.redistribute(whole.device_mesh, whole.placements).to_local()
    if tensor.shape != whole.shape or tensor.shape == whole._local_tensor.shape:
        return tensor
    return distribute_tensor(tensor, whole.device_mesh, whole.placements, src_data_rank=None).to_local()


@dataclasses.dataclass(frozen=True)
class Sent:
    """A DTensor in a message to a process of the next stage."""

    part: torch.Tensor
    form: Form


def to_send(value: Any, what: str) -> Any:
    """Returns a value that other processes can read, with `Sent` in place of its DTensors."""
    return pytree.tree_map(lambda each: Sent(each.to_local(), Form.of(each, what)) if is_dtensor(each) else each, value)


def received(value: Any, plane: Plane | None) -> Any:
    """Undoes `to_send`."""
    if plane is None:
        return value
    return pytree.tree_map(lambda each: each.form.whole(each.part, plane) if isinstance(each, Sent) else each, value)
