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
from penstock.torch.splitting.modes import Modes
from penstock.torch.splitting.part import Mirror, Part


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
    # How many layers run before each call of another module, in any mode.
    calls: dict[nn.Module, set[int]]

    def runs_in(self, module: nn.Module, first: int, last: int) -> bool:
        """Whether the stage of layers ``first`` to ``last`` - 1 runs a module that is not in a layer."""
        # Between two stages, both run it.
        return any(first <= each < last or first < each <= last for each in self.calls.get(module, {0}))


def cut(model: nn.Module, inputs: Any, begins: Sequence[str], modes: Modes) -> list[nn.Module] | None:
    """Returns the stages; None if the model does not hand one tensor from layer to layer in each of the modes."""
    found = []
    for mode in modes.known:
        with mode.of(model):
            found.append(_find_layers(model, inputs, begins))
    layers = found[0]
    for other in found:
        if layers is None or other is None or not all(map(_are_alike, layers.outputs, other.outputs)):
            return None
        for module, calls in other.calls.items():
            layers.calls.setdefault(module, set()).update(calls)
    assert layers is not None
    edges = [0, *(layers.names.index(name) for name in begins), len(layers.names)]
    if edges != sorted(set(edges)):
        return None
    examples = Structure.of(inputs)
    return [_LayerStage(model, modes, layers, examples, first, last) for first, last in zip(edges, edges[1:])]


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
    calls: dict[nn.Module, set[int]] = {}
    for index, module in enumerate(modules):
        watch(index, module)

    def note(module: nn.Module, _: Any) -> None:
        calls.setdefault(module, set()).add(len(seen))

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
    return _Layers(names, modules, outputs, calls)


class _LayerStage(Part):
    """Layers `first` to `last` - 1, with what the model computes before or after all layers."""

    def __init__(
        self, model: nn.Module, modes: Modes, layers: _Layers, inputs: tuple[Structure, list[torch.Tensor]], first: int, last: int
    ) -> None:
        free = [] if modes.missing else layers.names
        super().__init__(model, modes, _runs(model, layers, first, last), free)
        self._layers = (layers,)  # in a tuple, so that it is not registered
        self._inputs, self._range = inputs[0], (first, last)
        self._examples = inputs[1]
        self._root = Mirror(model)
        inside = {each for layer in layers.modules for each in layer.modules()}
        # What runs before the layers, and has parameters of the first stage.
        self._before = [
            each for each, runs in layers.calls.items() if min(runs) == 0 and each._parameters and _is_leaf(each) and each not in inside
        ]
        for name, module in model.named_modules():
            if name in layers.names:
                if first <= layers.names.index(name) < last:
                    self._adopt(name, module)
                continue
            has_tensors = bool(module._parameters or module._buffers)
            if module in inside or not (has_tensors or _is_leaf(module)):
                continue
            # Tensors belong to one stage, by the first call.
            begin = min(layers.calls.get(module, {0}))
            is_after = begin == len(layers.names)
            if (last == begin if is_after else first == 0) if has_tensors else layers.runs_in(module, first, last):
                self._adopt(name, module)

    def _adopt(self, name: str, module: nn.Module) -> None:
        """Has the module, or a mirror of one that contains others."""
        *path, leaf = name.split(".") if name else ["_root"]
        if name in self._layers[0].names or _is_leaf(module):
            self.inside(path).add_module(leaf, module)
            return
        mirror = self.inside([*path, leaf])
        for key, parameter in module._parameters.items():
            mirror.register_parameter(key, parameter)
        for key, buffer in module._buffers.items():
            mirror.register_buffer(key, buffer, persistent=key not in module._non_persistent_buffers_set)

    def forward(self, *arguments: Any, **named: Any) -> Any:
        model, layers = self._followed[0], self._layers[0]
        self.require_same_modules()
        if self.modes.missing:  # else the code was checked in both modes
            self.modes.now(model)
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
        functions = {layers.modules[index]: function for index, function in replaced.items()}
        if hidden is not None:  # may have the dtype of casts, which modules of other stages do not have
            functions |= {module: _of_dtype(module.forward, hidden.dtype) for module in self._before}
        before = {module: vars(module).get("forward") for module in functions}
        for module, function in functions.items():
            module.forward = function
        try:
            return call(model, inputs) if in_slice is None else _call_in_slice(model, inputs)
        except _Reached as reached:
            return reached.hidden if in_slice is not None else (reached.hidden, *tensors)
        finally:
            for module, own in before.items():
                del module.forward
                if own is not None:  # Someone has replaced it for this module alone.
                    module.forward = own


def _loaded(name: str) -> Any:
    """Returns a module that needs the engine if it is loaded, as with a Pipeline; else None."""
    return sys.modules.get(f"penstock.torch.{name}")


def _of_dtype(function: Any, dtype: torch.dtype) -> Any:
    def run(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        is_real = isinstance(result, torch.Tensor) and result.is_floating_point()
        return result.to(dtype) if is_real else result

    return run


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


def _are_alike(one: Structure, other: Structure) -> bool:
    """Whether two structures have tensors in the same places, and the same plain constants."""
    plain = (bool, int, float, str, type(None))
    pairs = zip(one.constants, other.constants, strict=False)
    return one.spec == other.spec and all(
        a == b if a is None or b is None or type(a[0]) in plain else True for a, b in pairs
    )


def _is_leaf(module: nn.Module) -> bool:
    return not module._modules


def _runs(model: nn.Module, layers: _Layers, first: int, last: int) -> set[nn.Module]:
    """Returns the modules that a stage runs, with those that contain them."""
    inside = {each for layer in layers.modules for each in layer.modules()}
    runs = {each for layer in layers.modules[first:last] for each in layer.modules()}
    runs |= {each for each in model.modules() if each not in inside and layers.runs_in(each, first, last)}
    return runs | {each for each in model.modules() if any(child in runs for child in each.modules())}


def _skip(structure: Structure, hidden: torch.Tensor | None) -> Any:
    return lambda *_, **__: structure.fill([hidden])  # type: ignore[list-item]


def _stop(*arguments: Any, **named: Any) -> Any:
    raise _Reached(pytree.tree_leaves((arguments, named))[0])
