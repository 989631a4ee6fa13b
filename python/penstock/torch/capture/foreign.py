"""Tensors that a stage's code reads although the stage does not own them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import Any

import torch
from torch import nn

from penstock.torch.user_code import is_of_library


class Trained:
    """The parameters that the stages of a pipeline train."""

    def __init__(self, stages: Sequence[Iterable[tuple[str, torch.Tensor]]]) -> None:
        """``stages``: the parameters of each stage, by name."""
        self._names: dict[int, str] = {}  # by address
        for stage, parameters in enumerate(stages):
            for name, parameter in parameters:
                if parameter.requires_grad and not parameter.is_meta:
                    self._names.setdefault(_address(parameter), f"'{name}' of stage {stage}")

    def refusal(self, tensor: torch.Tensor) -> str:
        """Returns why a stage that does not own the tensor cannot read it; "" if it can.

        Call it while the code that reads it runs: its line is named.
        """
        of_stage = self._names.get(_address(tensor))
        if not tensor.requires_grad and of_stage is None:
            return ""
        frame = _user_frame()
        line = where = ""
        if frame is not None:
            where = _path_in(frame, tensor)
            line = f" at {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
        if of_stage is not None:
            where = f"parameter {of_stage}" + (f" ({where})" if where else "")
        where = where or f"a tensor of shape {tuple(tensor.shape)}"
        if tensor.requires_grad and not tensor.is_leaf:
            why = (
                "was computed outside of the stage and requires a gradient, which would be lost: "
                "compute it in forward, from parameters of the stage, or detach it"
            )
        elif tensor.requires_grad:
            why = (
                "requires a gradient, but is no parameter of the stage: register it as one. "
                "Stages that register the same parameter share it"
            )
        else:
            why = "is trained by another stage: register the parameter in this one, too"
        return f"{line}: {where} {why}"


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() or -id(tensor)


def _user_frame() -> FrameType | None:
    """Returns the innermost frame that is of no library."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and is_of_library(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _path_in(frame: FrameType, tensor: torch.Tensor) -> str:
    """Returns how the frame's code can reach the tensor, such as "'self.scale'"; or ""."""
    names = frame.f_code.co_names
    spaces = frame.f_locals | {n: frame.f_globals[n] for n in names if n in frame.f_globals}
    for name, value in spaces.items():
        path = _path_from(value, tensor, depth=3)
        if path is not None:
            return f"'{name}{path}'"
    return ""


def _path_from(value: Any, tensor: torch.Tensor, depth: int) -> str | None:
    if value is tensor:
        return ""
    parts: list[tuple[str, Any]] = []
    if depth == 0 or isinstance(value, (torch.Tensor, str)):
        return None
    if isinstance(value, nn.Module):
        parts = [(f".{k}", v) for k, v in value.named_parameters()]
        parts += [(f".{k}", v) for k, v in vars(value).items() if not k.startswith("_")]
    elif isinstance(value, dict):
        parts = [(f"[{k!r}]", v) for k, v in value.items()]
    elif isinstance(value, (list, tuple)) and len(value) < 1000:
        parts = [(f"[{k}]", v) for k, v in enumerate(value)]
    for name, part in parts:
        rest = _path_from(part, tensor, depth - 1)
        if rest is not None:
            return name + rest
    return None
