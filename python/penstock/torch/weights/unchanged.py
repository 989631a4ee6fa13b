"""What compiled stages assume of their modules between steps."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from penstock import Error
from penstock.torch.engine import engine
from penstock.torch.hooks import MODULE_HOOKS, refuse_hooks

# A parameter or buffer as it was when the stage was compiled: what it is, the dict that holds it,
# its name there, the tensor, its address (None if it changes), and whether it is trained.
_Tensor = tuple[str, dict[str, Any], str, torch.Tensor, "int | None", bool]


# A tensor that compiled stages have as a constant: what it is, the dict that holds it, its name
# there, the tensor, and a watch of its content.
_Constant = tuple[str, dict[str, Any], str, torch.Tensor, Any]
# An attribute of a module that its code may read: the module's name, its attributes, the name of
# this one, and its value.
_Attribute = tuple[str, dict[str, Any], str, Any]


class Unchanged:
    """Refuses changes of a module that its compiled stage would silently ignore.

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
        self._modes: list[tuple[str, nn.Module, bool]] = []
        self._hooks: list[Any] = []
        self._hook_count = 0
        self._constants: list[_Constant] = []
        self._attributes: list[_Attribute] = []
        self._tensors: list[_Tensor] = []
        # Notice changes of the attributes, and of everything else.
        self._attribute_watch: Any = None
        self.watch: Any = None
        table: dict[str, Any] = dict(others)
        for name, tensor in others:
            address = None if sheds else tensor.data_ptr()
            self._tensors.append((f"'{name}'", table, name, tensor, address, True))
        for prefix, each in module.named_modules():
            kinds = (("parameter", each._parameters), ("buffer", each._buffers))
            for kind, holder in kinds:
                for key, tensor in holder.items():
                    # Buffers that are not in state_dict are constants of the compiled stage.
                    if tensor is None or key in each._non_persistent_buffers_set:
                        continue
                    what = f"{kind} '{prefix}.{key}'" if prefix else f"{kind} '{key}'"
                    address = None if sheds and tensor.requires_grad else tensor.data_ptr()
                    self._tensors.append((what, holder, key, tensor, address, tensor.requires_grad))

    def begin(self) -> None:
        """Remembers the module's modes and hooks, before it is compiled.

        Raises Error that names a parameter or buffer that was replaced.
        """
        self._check_tensors()
        module = self._module
        self._modes = [(name, each, each.training) for name, each in module.named_modules()]
        self._hooks = [getattr(each, kind) for each in module.modules() for kind in MODULE_HOOKS]
        self._hook_count = sum(map(len, self._hooks))

    def note_constants(self) -> None:
        """Remembers what the stage was compiled with as constants. From here on, check() works."""
        self._constants, self._attributes = [], []
        self._constants, self._attributes = [], []
        for prefix, each in self._module.named_modules():
            where = f"{prefix}." if prefix else ""
            for key in each._non_persistent_buffers_set:
                self._note_constant(f"buffer '{where}{key}'", each._buffers, key)
            for key, value in vars(each).items():
                if isinstance(value, torch.Tensor):
                    self._note_constant(f"tensor '{where}{key}'", vars(each), key)
                elif type(value) in (bool, int, float, str) and key != "training":
                    name = prefix or type(each).__name__
                    self._attributes.append((name, vars(each), key, value))
        self._attribute_watch, self.watch = self._watch_attributes(), self._make_watch()

    def _note_constant(self, what: str, holder: dict[str, Any], key: str) -> None:
        tensor = holder.get(key)
        if tensor is None:
            return
        content = engine.Watch()
        is_plain = type(tensor) in (torch.Tensor, nn.Parameter) and tensor.layout == torch.strided
        if is_plain and not tensor.is_meta:
            content.add_content(tensor.detach())
        self._constants.append((what, holder, key, tensor, content))

    def _make_watch(self) -> Any:
        watch = engine.Watch()
        for _, module, training in self._modes:
            watch.add_item(vars(module), "training", training)
        for hooks in self._hooks:
            watch.add_size(hooks)
        for _, holder, key, tensor, address, _ in self._tensors:
            watch.add_item(holder, key, tensor)
            if address is not None:
                watch.add_tensor(tensor)
        for _, holder, key, tensor, content in self._constants:
            watch.add_item(holder, key, tensor)
            watch.add_watch(content)
        return watch

    def _watch_attributes(self) -> Any:
        watch = engine.Watch()
        for _, holder, key, value in self._attributes:
            watch.add_item(holder, key, value)
        return watch

    def check(self) -> None:
        """Raises Error that names what has changed since the stage was compiled."""
        if self.watch.is_unchanged():
            return
        for name, module, training in self._modes:
            if module.training is not training:
                now, before = ("train", "eval") if module.training else ("eval", "train")
                self._refuse(
                    f"module '{name or type(module).__name__}' is in {now} mode, but was captured "
                    f"in {before} mode: call {before}() before step, or make a new Pipeline"
                )
        if sum(map(len, self._hooks)) != self._hook_count:
            refuse_hooks(self._module, self._index)
        for what, holder, key, tensor, content in self._constants:
            if holder.get(key) is not tensor or not content.is_unchanged():
                self._refuse(
                    f"{what} was changed, but it is a constant of compiled steps: register it as a "
                    "persistent buffer, or make a new Pipeline"
                )
        self._check_tensors()
        self.watch = self._make_watch()

    def check_attributes(self) -> None:
        """Warns of attributes that have changed. Not an error: forward may not read them."""
        if self._attribute_watch.is_unchanged():
            return
        changed = []
        for number, (name, holder, key, value) in enumerate(self._attributes):
            now = holder.get(key, value)
            self._attributes[number] = (name, holder, key, now)
            if now != value:
                changed.append(
                    f"stage {self._index}: '{key}' of module '{name}' changed from {value!r} to "
                    f"{now!r}, but the stage was compiled with {value!r}: if its forward reads it, "
                    "make a new Pipeline"
                )
        self._attribute_watch = self._watch_attributes()
        for text in changed:
            warnings.warn(text, stacklevel=5)

    def _check_tensors(self) -> None:
        for what, holder, key, tensor, address, is_trained in self._tensors:
            if tensor._backward_hooks:
                refuse_hooks(self._module, self._index)
            has_moved = address is not None and tensor.data_ptr() != address
            if holder.get(key) is not tensor or has_moved:
                self._refuse(
                    f"{what} was replaced after the Pipeline was made: change values in place "
                    "(copy_, load_state_dict without assign=True), or make a new Pipeline"
                )
            if tensor.requires_grad is not is_trained:
                self._refuse(
                    f"{what} has requires_grad={tensor.requires_grad}, but had {is_trained} when "
                    "the Pipeline was made: make a new Pipeline"
                )

    def _refuse(self, text: str) -> None:
        raise Error(f"stage {self._index}: {text}")
