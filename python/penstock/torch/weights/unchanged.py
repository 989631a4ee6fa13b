"""The tensors of a stage, which compiled steps train and read where they are."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from penstock.torch.engine import engine
from penstock.torch.hooks import BACKWARD_HOOKS, MODULE_HOOKS, refuse_hooks
from penstock.torch.mesh.dtensors import part_of

# A parameter or buffer as it was when the stage was compiled: what it is, the dict that holds it,
# its name there, the tensor, its address (None if it changes), and whether it is trained.
_Tensor = tuple[str, dict[str, Any], str, torch.Tensor, "int | None", bool]


class Unchanged:
    """Notices that a module has other tensors than its compiled stage.

    Values of parameters and buffers may change in place, as ``load_state_dict`` and
    ``optimizer.step`` change them.
    """

    def __init__(
        self, module: nn.Module, index: int, others: Sequence[tuple[str, torch.Tensor]] = (), *, sheds: bool = False
    ) -> None:
        """Remembers the module's parameters and buffers, and other parameters of the stage.

        ``sheds``: trained parameters lose their memory and get other memory again.
        """
        self._module, self._index = module, index
        self._others, self._sheds = dict(others), sheds
        self._tensors = list(self._tensors_of_now())
        self._modules = [each for _, each in module.named_modules()]
        self.watch = self._make_watch()

    def _tensors_of_now(self) -> Iterator[_Tensor]:
        for name, tensor in self._others.items():
            yield f"'{name}'", self._others, name, tensor, None if self._sheds else part_of(tensor).data_ptr(), True
        for prefix, each in self._module.named_modules():
            kinds = (("parameter", each._parameters), ("buffer", each._buffers))
            for kind, holder in kinds:
                for key, tensor in holder.items():
                    # Guards watch buffers that are not in state_dict.
                    if tensor is None or key in each._non_persistent_buffers_set:
                        continue
                    what = f"{kind} '{prefix}.{key}'" if prefix else f"{kind} '{key}'"
                    address = None if self._sheds and tensor.requires_grad else part_of(tensor).data_ptr()
                    yield what, holder, key, tensor, address, tensor.requires_grad

    @property
    def tensors(self) -> list[tuple[str, int, int | None, bool]]:
        """The parameters and buffers: name, identity, address, whether they are trained."""
        return [(what, id(tensor), address, is_trained) for what, _, _, tensor, address, is_trained in self._tensors]

    def _make_watch(self) -> Any:
        watch = engine.Watch()
        for hooks in BACKWARD_HOOKS:
            watch.add_size(hooks)
        for each in self._modules:
            watch.add_members(each._modules)
            watch.add_members(each._parameters)
            for kind in MODULE_HOOKS:
                watch.add_size(getattr(each, kind))
        for _, holder, key, tensor, address, _ in self._tensors:
            watch.add_item(holder, key, tensor)
            if address is not None:
                watch.add_tensor(part_of(tensor))
            else:
                watch.add_call(functools.partial(getattr, tensor, "requires_grad"))
        return watch

    def changed(self) -> str:
        """Returns what has changed since then, "" if nothing has.

        Raises Error for hooks that compiled steps would not call.
        """
        if self.watch.is_unchanged():
            return ""
        refuse_hooks(self._module, self._index)
        for what, holder, key, tensor, address, is_trained in self._tensors:
            if holder.get(key) is not tensor or (address is not None and part_of(tensor).data_ptr() != address):
                return f"stage {self._index}: {what} was replaced"
            if tensor.requires_grad is not is_trained:
                return f"stage {self._index}: {what} has requires_grad={tensor.requires_grad}"
        if [each for _, each in self._module.named_modules()] != self._modules:
            return f"stage {self._index}: a module was replaced, added or removed"
        known = {what for what, *_ in self._tensors}
        for what, *_ in self._tensors_of_now():
            if what not in known:
                return f"stage {self._index}: {what} was added"
        self.watch = self._make_watch()
        return ""
