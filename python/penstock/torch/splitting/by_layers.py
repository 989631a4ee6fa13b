"""Stages that run the model's own code, with the layers of other stages left out.

A decoder computes h = layer(h, ...) for each of its layers. A stage runs all of the model's
forward, but layers before its own return the tensor that the previous stage sent, and the first
layer after its own ends the forward. What else the code computes (position tables, masks) is
computed in each stage; what no own layer reads (the embedding) is dead code, which the graph
compiler removes.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from penstock import Error
from penstock.torch.batch.batches import Structure, call


class _Reached(Exception):
    """Ends a forward at the first layer of the next stage."""

    def __init__(self, hidden: torch.Tensor) -> None:
        super().__init__("reached the next stage")
        self.hidden = hidden


@dataclasses.dataclass
class _Layers:
    """The layers of a model, in the order in which they run."""

    names: list[str]
    modules: list[nn.Module]
    outputs: list[Any]  # what each returns, with None in place of tensors
    after: set[nn.Module]  # the modules that are first called after the layers


def cut(model: nn.Module, inputs: Any, begins: Sequence[str]) -> list[nn.Module] | None:
    """Returns the stages; None if the model does not hand one tensor from layer to layer."""
    layers = _find_layers(model, inputs, begins)
    if layers is None:
        return None
    edges = [0, *(layers.names.index(name) for name in begins), len(layers.names)]
    if edges != sorted(set(edges)):
        return None
    examples = Structure.of(inputs)
    return [_LayerStage(model, layers, examples, first, last) for first, last in zip(edges, edges[1:])]


def _find_layers(model: nn.Module, inputs: Any, begins: Sequence[str]) -> _Layers | None:
    parent = begins[0].rpartition(".")[0] if begins else ""
    container = dict(model.named_modules()).get(parent)
    if not isinstance(container, (nn.ModuleList, nn.Sequential)):
        return None
    names = [f"{parent}.{name}" if parent else name for name, _ in container.named_children()]
    modules = [module for _, module in container.named_children()]
    if any(name not in names for name in begins) or len(set(modules)) != len(modules):
        return None
    seen: list[int] = []
    outputs: list[Any] = [None] * len(modules)
    previous: list[Any] = [None]
    is_chain = [True]

    def watch(index: int, module: nn.Module) -> None:
        def before(_: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
            tensors = Structure.of((arguments, named))[1]
            first = previous[0] is None or (tensors and tensors[0] is previous[0])
            is_chain[0] = is_chain[0] and bool(tensors) and bool(first) and len(seen) == index
            seen.append(index)

        def after(_: nn.Module, __: Any, result: Any) -> None:
            structure, tensors = Structure.of(result)
            is_chain[0] = is_chain[0] and len(tensors) == 1
            outputs[index], previous[0] = structure, tensors[0] if tensors else None

        handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        handles.append(module.register_forward_hook(after))

    handles: list[Any] = []
    first_call: dict[nn.Module, int] = {}
    for index, module in enumerate(modules):
        watch(index, module)

    def note(module: nn.Module, _: Any) -> None:
        first_call.setdefault(module, len(seen))

    for module in model.modules():
        handles.append(module.register_forward_pre_hook(note))
    try:
        with torch.no_grad():
            call(model, inputs)
    finally:
        for handle in handles:
            handle.remove()
    if not is_chain[0] or seen != list(range(len(modules))):
        return None
    after = {module for module, count in first_call.items() if count == len(modules)}
    return _Layers(names, modules, outputs, after - set(modules))


class _Holder(nn.Module):
    """A module without code, for the names of parameters."""


class _LayerStage(nn.Module):
    """Layers `first` to `last` - 1, with what the model computes before or after all layers."""

    def __init__(
        self, model: nn.Module, layers: _Layers, inputs: tuple[Structure, list[torch.Tensor]], first: int, last: int
    ) -> None:
        super().__init__()
        self._all = (model, layers)  # in a tuple, so that it is not registered
        self._inputs, self._range = inputs[0], (first, last)
        self._examples = inputs[1]
        count = len(layers.modules)
        inside = {id(p) for layer in layers.modules for p in layer.modules()}
        for name, module in model.named_modules():
            if name in layers.names:
                if first <= layers.names.index(name) < last:
                    self._adopt(name, module)
                continue
            if id(module) in inside or not (module._parameters or module._buffers):
                continue
            is_after = module in layers.after
            if (is_after and last == count) or (not is_after and first == 0):
                self._adopt(name, _own_tensors(module))
        self.train(model.training)

    def _adopt(self, name: str, module: nn.Module) -> None:
        holder: nn.Module = self
        *path, leaf = name.split(".") if name else ["_root"]
        for part in path:
            if part not in holder._modules:
                holder.add_module(part, _Holder())
            holder = holder._modules[part]  # type: ignore[assignment]
        if leaf in holder._modules:  # a container that holds layers, too
            for key, value in module._parameters.items():
                holder._modules[leaf].register_parameter(key, value)  # type: ignore[union-attr]
        else:
            holder.add_module(leaf, module)

    @property
    def model_name(self) -> str:
        """For messages: the class of the whole model."""
        return type(self._all[0]).__name__

    def train(self, mode: bool = True) -> _LayerStage:
        """Sets the mode of the model's own modules, which the stage runs."""
        return self

    def forward(self, *arguments: Any, **named: Any) -> Any:
        model, layers = self._all
        first, last = self._range
        hidden = None
        slices, engine = _loaded("slices"), _loaded("engine")
        in_slice = None if slices is None else slices.current()
        engine = engine and engine.engine
        first_random_op = engine.random_op() if engine else 0
        if first > 0:  # what the previous stage sends: its last hidden states, then the inputs
            hidden, *tensors = arguments
            if in_slice is not None:  # stages of slices send one tensor; only shapes matter
                tensors = [_placeholder(each, hidden) for each in self._examples]
            inputs = self._inputs.fill(list(tensors))
        else:
            inputs = named if named else arguments
            tensors = Structure.of(inputs)[1]
        replaced = {index: _skip(layers.outputs[index], hidden) for index in range(first)}
        if first > 0 and engine:
            # What precedes the layers has the same random numbers in all stages.
            engine.set_random_op(0)
            replaced[first - 1] = _then(replaced[first - 1], lambda: engine.set_random_op(first_random_op))
        if last < len(layers.modules):
            replaced[last] = _stop
        for index, function in replaced.items():
            layers.modules[index].forward = function
        try:
            return call(model, inputs) if in_slice is None else _call_in_slice(model, inputs)
        except _Reached as reached:
            return reached.hidden if in_slice is not None else (reached.hidden, *tensors)
        finally:
            for index in replaced:
                del layers.modules[index].forward


def _loaded(name: str) -> Any:
    """Returns a module that needs the engine if it is loaded, as with a Pipeline; else None."""
    return sys.modules.get(f"penstock.torch.{name}")


def _then(function: Any, after: Any) -> Any:
    def run(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        after()
        return result

    return run


def _call_in_slice(model: nn.Module, inputs: Any) -> Any:
    if "transformers" not in type(model).__module__:
        raise Error(
            f"split: {type(model).__name__} is no model of transformers, so its attention cannot "
            "read earlier slices: write stages that call penstock.torch.slices.current().extend"
        )
    slices = _loaded("slices")
    cache = slices.SliceCache(slices.current(), type(model).__name__)
    if type(inputs) is dict:
        return model(**inputs, past_key_values=cache)
    arguments = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    return model(*arguments, past_key_values=cache)


def _placeholder(example: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """Returns zeros like an input of the model for the tokens of these hidden states."""
    shape = (*hidden.shape[:2], *example.shape[2:])[: example.dim()]
    return torch.zeros(shape, dtype=example.dtype)


def _own_tensors(module: nn.Module) -> nn.Module:
    """Returns a module with the parameters and buffers of this one, without its submodules."""
    holder = _Holder()
    for name, parameter in module._parameters.items():
        holder.register_parameter(name, parameter)
    for name, buffer in module._buffers.items():
        persistent = name not in module._non_persistent_buffers_set
        holder.register_buffer(name, buffer, persistent=persistent)
    return holder


def _skip(structure: Structure, hidden: torch.Tensor | None) -> Any:
    return lambda *_, **__: structure.fill([hidden])  # type: ignore[list-item]


def _stop(*arguments: Any, **named: Any) -> Any:
    raise _Reached(pytree.tree_leaves((arguments, named))[0])
