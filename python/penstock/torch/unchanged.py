"""What compiled stages assume of their modules between steps."""

from __future__ import annotations

import dataclasses

import torch
from torch import nn

from penstock import Error
from penstock.torch.capture import count_hooks, refuse_hooks


@dataclasses.dataclass(frozen=True)
class _Tensor:
    """A parameter or buffer as it was when the stage was compiled, and the dict that holds it."""

    what: str
    holder: dict[str, torch.Tensor | None]
    key: str
    tensor: torch.Tensor
    address: int
    requires_grad: bool


class Unchanged:
    """Refuses changes of a module that its compiled stage would silently ignore.

    Values may change in place, as ``load_state_dict`` and ``optimizer.step`` change them.
    """

    def __init__(self, module: nn.Module, index: int) -> None:
        self._module, self._index = module, index
        self._modes = [(name, each, each.training) for name, each in module.named_modules()]
        self._hooks = count_hooks(module)
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
                        _Tensor(what, holder, key, tensor, tensor.data_ptr(), tensor.requires_grad)
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
        if count_hooks(self._module) != self._hooks:
            refuse_hooks(self._module, self._index)
        for each in self._tensors:
            now_there = each.holder.get(each.key)
            if now_there is not each.tensor or each.tensor.data_ptr() != each.address:
                self._refuse(
                    f"{each.what} was replaced after the first step: change values in place "
                    "(copy_, load_state_dict without assign=True), or make a new Pipeline"
                )
            if each.tensor.requires_grad is not each.requires_grad:
                self._refuse(
                    f"{each.what} has requires_grad={each.tensor.requires_grad}, but had "
                    f"{each.requires_grad} in the first step: make a new Pipeline"
                )

    def _refuse(self, text: str) -> None:
        raise Error(f"stage {self._index}: {text}")
