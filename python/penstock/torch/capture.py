"""The code of a stage as functions from tensors to tensors, which the engine captures."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

import penstock
from penstock import Error
from penstock.torch.batches import Structure

_LIBRARIES = tuple(os.path.dirname(module.__file__) + os.sep for module in (torch, penstock))


class StageCode:
    """A module, or a module and its loss, on flat lists of tensors."""

    def __init__(
        self,
        module: nn.Module,
        index: int,
        inputs: Structure,
        loss: Callable[..., torch.Tensor] | None,
        targets: Structure | None,
        is_last: bool,
        slices: int,
    ) -> None:
        refuse_hooks(module, index)
        self._module, self._index, self._inputs = module, index, inputs
        self._loss, self._targets, self._is_last, self._slices = loss, targets, is_last, slices
        self._autocast = _autocast_state()
        #: The structure of what the stage returns, after its forward has run.
        self.outputs: Structure | None = None

    def forward(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Returns the tensors of the stage's outputs."""
        with self._in_user_code("forward"), self._autocast():
            arguments = self._inputs.fill(tensors)
            if isinstance(arguments, (tuple, list)):
                result = self._module(*arguments)
            elif type(arguments) is dict:
                result = self._module(**arguments)
            else:
                result = self._module(arguments)
            structure, outputs = Structure.of(result)
            if not outputs:
                raise Error(f"stage {self._index} returns no tensor")
            if self.outputs is not None and structure != self.outputs:
                raise Error(
                    f"stage {self._index} returns other containers or constants for this shape than "
                    "for the first one, which later stages were compiled for"
                )
            self.outputs = structure
            return outputs

    def loss(self, outputs: list[torch.Tensor], targets: list[torch.Tensor]) -> torch.Tensor:
        """Returns the loss of the last stage as an fp32 scalar."""
        with self._in_user_code("loss"), self._autocast():
            assert self.outputs is not None
            result = self.outputs.fill(outputs)
            if self._loss is None:
                result = getattr(result, "loss", result)
            elif self._targets is None:
                result = self._loss(result)
            else:
                result = self._loss(result, self._targets.fill(targets))
            if not isinstance(result, torch.Tensor) or result.numel() != 1:
                shape = tuple(result.shape) if isinstance(result, torch.Tensor) else type(result).__name__
                raise Error(f"the loss is no scalar tensor but {shape}: return the mean over the microbatch")
            return result.reshape(()).float()

    @contextlib.contextmanager
    def _in_user_code(self, what: str) -> Iterator[None]:
        """Names the line of the user's code in errors."""
        try:
            yield
        except Error:
            raise
        except Exception as error:
            line = _user_line(error)
            text = str(error).strip().split("\n", 1)[0] or type(error).__name__
            raise Error(f"stage {self._index}, {what}{line}: {text}") from error


def _user_line(error: BaseException) -> str:
    """Returns the innermost line outside of torch and Penstock: " at model.py:12 in forward"."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((*_LIBRARIES, "<")):
            return f" at {frame.filename}:{frame.lineno} in {frame.name}"
    return ""


def _autocast_state() -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """Returns a context like the caller's torch.autocast, for threads that do not inherit it."""
    if not torch.is_autocast_enabled("cpu"):
        return contextlib.nullcontext
    dtype = torch.get_autocast_dtype("cpu")
    return lambda: torch.autocast("cpu", dtype=dtype)


_MODULE_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)


def refuse_hooks(module: nn.Module, index: int) -> None:
    """Raises Error for hooks, which compiled steps would not call."""

    def refuse(name: str, hook: object) -> None:
        called = getattr(hook, "__qualname__", type(hook).__qualname__)
        raise Error(
            f"stage {index}: {name} has the hook {called}, which compiled steps do not call: remove "
            "it, or move what it computes into forward"
        )

    for name, each in module.named_modules():
        for kind in _MODULE_HOOKS:
            for hook in getattr(each, kind, {}).values():
                # Old-style weight_norm and spectral_norm compute a weight from parameters.
                if type(hook).__module__.startswith("torch.nn.utils."):
                    continue
                refuse(f"module '{name or type(each).__name__}'", hook)
    for name, parameter in module.named_parameters():
        hooks = (parameter._backward_hooks or {}, getattr(parameter, "_post_accumulate_grad_hooks", None) or {})
        for hook in (hook for each in hooks for hook in each.values()):
            refuse(f"parameter '{name}'", hook)
