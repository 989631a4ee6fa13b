"""What compiled stages assume of their modules between steps."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from penstock import Error
from penstock.torch.capture import MODULE_HOOKS, refuse_hooks


# A parameter or buffer as it was when the stage was compiled: what it is, the dict that holds it,
# its name there, the tensor, its address, and whether it is trained.
_Tensor = tuple[str, dict[str, Any], str, torch.Tensor, int, bool]


class Unchanged:
    """Refuses changes of a module that its compiled stage would silently ignore.

    Values may change in place, as ``load_state_dict`` and ``optimizer.step`` change them.
    """

    def __init__(self, module: nn.Module, index: int) -> None:
        self._module, self._index = module, index
        self._modes = [(name, each, each.training) for name, each in module.named_modules()]
        # Checks run before each step, so they walk flat lists instead of the tree of modules.
        self._hooks = [getattr(each, kind) for each in module.modules() for kind in MODULE_HOOKS]
        self._hook_count = sum(map(len, self._hooks))
        self._tensors: list[_Tensor] = []
        for prefix, each in module.named_modules():
            kinds = (("parameter", each._parameters), ("buffer", each._buffers))
            for kind, holder in kinds:
                for key, tensor in holder.items():
                    # Buffers that are not in state_dict are constants of the compiled stage.
                    if tensor is None or key in each._non_persistent_buffers_set:
                        continue
                    what = f"{kind} '{prefix}.{key}'" if prefix else f"{kind} '{key}'"
                    self._tensors.append(
                        (what, holder, key, tensor, tensor.data_ptr(), tensor.requires_grad)
                    )

    def check(self) -> None:
        """Raises Error that names what has changed since the stage was compiled."""
        for name, module, training in self._modes:
            if module.training is not training:
                now, before = ("train", "eval") if module.training else ("eval", "train")
                self._refuse(
                    f"module '{name or type(module).__name__}' is in {now} mode, but was captured "
                    f"in {before} mode: call {before}() before step, or make a new Pipeline"
                )
        if sum(map(len, self._hooks)) != self._hook_count:
            refuse_hooks(self._module, self._index)
        for what, holder, key, tensor, address, is_trained in self._tensors:
            if tensor._backward_hooks:
                refuse_hooks(self._module, self._index)
            if holder.get(key) is not tensor or tensor.data_ptr() != address:
                self._refuse(
                    f"{what} was replaced after the first step: change values in place "
                    "(copy_, load_state_dict without assign=True), or make a new Pipeline"
                )
            if tensor.requires_grad is not is_trained:
                self._refuse(
                    f"{what} has requires_grad={tensor.requires_grad}, but had {is_trained} in the "
                    "first step: make a new Pipeline"
                )

    def _refuse(self, text: str) -> None:
        raise Error(f"stage {self._index}: {text}")
