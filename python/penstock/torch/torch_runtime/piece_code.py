"""Graphs of the engine as torch.fx graphs, which run on any device and which torch.compile takes."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

_LAYOUTS = (torch.strided,)
_MEMORY_FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)


@dataclasses.dataclass(frozen=True)
class _Type:
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    root: int  # -1 unless it is a view
    offset: int


class Piece:
    """One graph of a stage, on slots of a microbatch."""

    def __init__(self, described: Any, parameters: Mapping[str, torch.Tensor], compiled: bool) -> None:
        """``described``: see stage_pieces.h. ``parameters``: of the stage, by name."""
        inputs, outputs, bound, nodes, types = described
        self._slots = [(slot, is_last) for _, slot, is_last in inputs]
        self._saved = [slot for _, slot in outputs if slot >= 0]
        self._leaving = len(outputs) - len(self._saved)  # these come first
        self._bound = [parameters[name] if kind == "parameter" else tensor for _, kind, name, tensor in bound if kind != "gradient"]
        build = _Builder([value for value, _, _ in inputs], bound, types)
        for node in nodes:
            build.add(*node)
        #: The parameters whose gradients a run returns.
        self.trained = [parameters[name] for name in build.gradients]
        module = build.finish([value for value, _ in outputs])
        self._is_empty = not nodes and not outputs
        self._run: Any = torch.compile(module, dynamic=False) if compiled else module

    def run(self, slots: list[torch.Tensor | None]) -> tuple[list[torch.Tensor | None], list[torch.Tensor]]:
        """Runs on the slots of a microbatch. Returns what leaves the stage, and gradients of parameters."""
        if self._is_empty:
            return [], []
        given = [slots[slot] for slot, _ in self._slots]
        for slot, is_last in self._slots:
            if is_last:
                slots[slot] = None
        results = list(self._run(*given, *self._bound))
        del given
        end = self._leaving + len(self._saved)
        for slot, value in zip(self._saved, results[self._leaving : end], strict=True):
            slots[slot] = value
        return results[: self._leaving], results[end:]


class _Builder:
    def __init__(self, inputs: Sequence[int], bound: Any, types: Any) -> None:
        self._graph: Any = fx.Graph()
        self._types = {value: _Type(tuple(sizes), tuple(strides), root, offset) for value, (sizes, strides, root, offset) in types.items()}
        self._nodes: dict[int, Any] = {}
        self._accumulators = {value: name for value, kind, name, _ in bound if kind == "gradient"}
        for value in (*inputs, *(value for value, kind, _, _ in bound if kind != "gradient")):
            self._nodes[value] = self._graph.placeholder(f"v{value}")
        #: What is added to gradients, by name of the parameter.
        self.gradients: dict[str, Any] = {}

    def add(self, name: str, overload: str, arguments: Any, outputs: Sequence[int | None]) -> None:
        """Adds a node, see stage_pieces.cpp."""
        kind, first = arguments[0] if arguments else ("constant", None)
        if kind == "value" and first in self._accumulators:
            if name != "aten::add_":
                raise RuntimeError(f"a graph accumulates gradients by {name}")
            self._accumulate(self._accumulators[first], self._value(arguments[1][1]))
            return
        namespace, _, op = name.partition("::")
        function = getattr(getattr(getattr(torch.ops, namespace), op), overload or "default")
        given = [self._argument(*each) for each in arguments]
        schema = function._schema.arguments
        positional = [each for each, declared in zip(given, schema, strict=True) if not declared.kwarg_only]
        named = {declared.name: each for each, declared in zip(given, schema, strict=True) if declared.kwarg_only}
        node = self._graph.call_function(function, tuple(positional), named)
        self._name_outputs(node, function._schema.returns, outputs)

    def _name_outputs(self, node: Any, returns: Any, outputs: Sequence[int | None]) -> None:
        if len(returns) == 1 and str(returns[0].type) == "Tensor":
            if outputs[0] is not None:
                self._nodes[outputs[0]] = node
            return
        # A list of tensors, or several results.
        for index, value in enumerate(outputs):
            if value is not None:
                self._nodes[value] = self._graph.call_function(operator.getitem, (node, index))

    def _accumulate(self, parameter: str, gradient: Any) -> None:
        before = self.gradients.get(parameter)
        if before is not None:
            gradient = self._graph.call_function(torch.ops.aten.add.Tensor, (before, gradient))
        self.gradients[parameter] = gradient

    def _argument(self, kind: str, given: Any) -> Any:
        if kind == "value":
            return None if given is None else self._value(given)
        if kind == "values":
            return [None if each is None else self._value(each) for each in given]
        if given is None or kind == "constant":
            return given
        of_torch = {
            "dtype": lambda: getattr(torch, given),
            "device": lambda: torch.device(given),
            "layout": lambda: _LAYOUTS[given],
            "memory_format": lambda: _MEMORY_FORMATS[given],
        }
        return of_torch[kind]()

    def _value(self, value: int) -> Any:
        node = self._nodes.get(value)
        if node is None:
            node = self._nodes[value] = self._view(self._types[value])
        return node

    def _view(self, view: _Type) -> Any:
        """Returns a view of its root. Compilers see through a reshape or a permutation better than through memory."""
        aten, root, of = torch.ops.aten, self._types[view.root], self._value(view.root)
        if view.offset == 0 and math.prod(view.sizes) == math.prod(root.sizes):
            if _is_contiguous(root) and _is_contiguous(view):
                return self._graph.call_function(aten.view.default, (of, list(view.sizes)))
            order = _permutation(root, view)
            if order is not None:
                return self._graph.call_function(aten.permute.default, (of, order))
        return self._graph.call_function(aten.as_strided.default, (of, list(view.sizes), list(view.strides), view.offset))

    def finish(self, outputs: Sequence[int | None]) -> fx.GraphModule:
        results = [None if value is None else self._value(value) for value in outputs]
        self._graph.output((*results, *self.gradients.values()))
        self._graph.lint()
        return fx.GraphModule(torch.nn.Module(), self._graph)


def _is_contiguous(of: _Type) -> bool:
    expected = 1
    for size, stride in zip(reversed(of.sizes), reversed(of.strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _permutation(root: _Type, view: _Type) -> list[int] | None:
    """Returns which dimensions of the root a view has, if these are all, each once."""
    left = list(zip(root.sizes, root.strides, strict=True))
    order: list[int] = []
    for dimension in zip(view.sizes, view.strides, strict=True):
        found = next((index for index, each in enumerate(left) if each == dimension and index not in order), None)
        if found is None:
            return None
        order.append(found)
    return order if len(order) == len(left) else None
