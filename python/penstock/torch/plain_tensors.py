"""Weights that the engine cannot read: tensors that stand for others, such as DTensor, and TorchScript's."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from penstock import Error
from penstock.torch.mesh.dtensors import is_dtensor, require_of_plane
from penstock.torch.mesh.planes import Plane

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def require_plain(what: str, tensor: torch.Tensor) -> None:
    """Raises Error for a tensor that stands for others. ``what`` begins the error: "stage 1: parameter 'weight'"."""
    kind = type(tensor)
    if kind in _PLAIN or not is_traceable_wrapper_subclass(tensor):
        return
    if any(each.__name__ == "DTensor" for each in kind.__mro__):
        raise Error(
            f"{what} is a DTensor, as fully_shard (FSDP2), parallelize_module and distribute_tensor make them: pass it whole "
            "(before these are called, or by full_tensor()); data_parallel and zero of Pipeline shard weights, and with mesh= it "
            "trains what parallelize_module divides"
        )
    raise Error(f"{what} is a {kind.__module__}.{kind.__qualname__}, which holds other tensors: pass plain tensors")


def require_plain_module(what: str, module: torch.nn.Module, plane: Plane | None = None) -> None:
    """As `require_plain`, for all parameters and buffers of a module, which are not TorchScript's. ``what``: "stage 1".

    ``plane``: of a mesh whose planes may divide them as DTensors.
    """

    def require(name: str, tensor: torch.Tensor) -> None:
        if plane is not None and is_dtensor(tensor):
            require_of_plane(f"{what}: {name}", tensor, plane)
        else:
            require_plain(f"{what}: {name}", tensor)

    for name, each in module.named_modules():
        if isinstance(each, torch.jit.ScriptModule) and (*each.parameters(), *each.buffers()):
            raise Error(
                f"{what}: module '{name or type(each).__name__}' is TorchScript, whose weights the engine cannot take: "
                "pass the module that torch.jit.script or trace was called with"
            )
    for name, parameter in module.named_parameters():
        require(f"parameter '{name}'", parameter)
    for name, buffer in module.named_buffers():
        require(f"buffer '{name}'", buffer)
