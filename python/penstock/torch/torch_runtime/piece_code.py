"""Graphs of the engine as torch.fx graphs, which run on any device and which torch.compile takes."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from penstock.torch.engine import engine

_LAYOUTS = (torch.strided,)
_MEMORY_FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)


@dataclasses.dataclass(frozen=True)
class _Type:
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    root: int  # -1 unless it is a view
    offset: int


#: By collective of a graph: the op of torch that starts it, with the arguments in the same order.
_STARTED_BY = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather_into_tensor",
    "reduce_scatter": "reduce_scatter_tensor",
    "all_to_all": "all_to_all_single",
    "broadcast": "broadcast",
}
_COLLECTIVE = "penstock::c10d_"


class Piece:
    """One graph of a stage, or of a pair, on slots of a microbatch."""

    def __init__(self, described: Any, parameters: Sequence[torch.Tensor], compiled: bool) -> None:
        """``described``: see stage_pieces.h."""
        inputs, outputs, bound, nodes, types = described
        #: By input: its slot, and whether no later piece reads it.
        self.slots = [(slot, is_last) for _, slot, is_last in inputs]
        self._outputs = [slot for _, slot in outputs]
        self._bound = [parameters[index] if kind == "parameter" else tensor for _, kind, index, tensor in bound if kind != "gradient"]
        build = _Builder([value for value, _, _ in inputs], bound, types)
        for node in nodes:
            build.add(*node)
        #: The parameters whose gradients a run returns.
        self.trained = [parameters[index] for index in build.gradients]
        #: The collectives in the order in which they start: their ops and reductions, and at last torch's names of groups.
        self.collectives = build.collectives
        self.code = build.finish([value for value, _ in outputs])
        self._is_empty = not nodes and not outputs
        self._run: Any = torch.compile(self.code, dynamic=False) if compiled else self.code

    def run(self, slots: list[torch.Tensor | None]) -> tuple[list[torch.Tensor | None], list[torch.Tensor]]:
        """Runs on the slots of a microbatch. Returns what leaves the stage, and gradients of parameters."""
        if self._is_empty:
            return [], []
        given = [slots[slot] for slot, _ in self.slots]
        for slot, is_last in self.slots:
            if is_last:
                slots[slot] = None
        results = list(self._run(*given, *self._bound))
        del given
        leaving = []
        for slot, value in zip(self._outputs, results, strict=False):
            if slot < 0:
                leaving.append(value)
            else:
                slots[slot] = value
        return leaving, results[len(self._outputs) :]


class _Builder:
    def __init__(self, inputs: Sequence[int], bound: Any, types: Any) -> None:
        self._graph: Any = fx.Graph()
        self._types = {value: _Type(tuple(sizes), tuple(strides), root, offset) for value, (sizes, strides, root, offset) in types.items()}
        self._nodes: dict[int, Any] = {}
        self._accumulators = {value: index for value, kind, index, _ in bound if kind == "gradient"}
        for value in (*inputs, *(value for value, kind, _, _ in bound if kind != "gradient")):
            self._nodes[value] = self._graph.placeholder(f"v{value}")
        #: What is added to gradients, by index of the parameter.
        self.gradients: dict[int, Any] = {}
        self.collectives: list[list[str]] = []

    def add(self, name: str, overload: str, arguments: Any, outputs: Sequence[int | None]) -> None:
        """Adds a node, see stage_pieces.cpp."""
        kind, first = arguments[0] if arguments else ("constant", None)
        if kind == "value" and first in self._accumulators:
            if name != "aten::add_":
                raise RuntimeError(f"a graph accumulates gradients by {name}")
            self._accumulate(self._accumulators[first], self._value(arguments[1][1]))
            return
        if name.startswith(_COLLECTIVE):
            self._add_collective(name.removeprefix(_COLLECTIVE), arguments, outputs)
            return
        namespace, _, op = name.partition("::")
        function = getattr(getattr(getattr(torch.ops, namespace), op), overload or "default")
        given = [self._argument(*each) for each in arguments]
        schema = function._schema.arguments
        positional = [each for each, declared in zip(given, schema, strict=True) if not declared.kwarg_only]
        named = {declared.name: each for each, declared in zip(given, schema, strict=True) if declared.kwarg_only}
        node = self._graph.call_function(function, tuple(positional), named)
        self._name_outputs(node, function._schema.returns, outputs)

    def _add_collective(self, name: str, arguments: Any, outputs: Sequence[int | None]) -> None:
        """Adds a collective, its start, or its wait, which takes what the start returns."""
        ops: Any = torch.ops._c10d_functional
        if name.endswith("_wait"):
            node = self._value(arguments[0][1])
        else:
            *given, (_, number) = arguments
            op, group = _STARTED_BY[name.removesuffix("_start")], engine.name_of_group(number)
            node = self._graph.call_function(getattr(ops, op).default, (*(self._argument(*each) for each in given), group))
            self.collectives.append([op, *(value for _, value in given if isinstance(value, str)), group])
        if not name.endswith("_start"):
            node = self._graph.call_function(ops.wait_tensor.default, (node,))
        if outputs[0] is not None:
            self._nodes[outputs[0]] = node

    def _name_outputs(self, node: Any, returns: Any, outputs: Sequence[int | None]) -> None:
        if len(returns) == 1 and str(returns[0].type) == "Tensor":
            if outputs[0] is not None:
                self._nodes[outputs[0]] = node
            return
        # A list of tensors, or several results.
        for index, value in enumerate(outputs):
            if value is not None:
                self._nodes[value] = self._graph.call_function(operator.getitem, (node, index))

    def _accumulate(self, parameter: int, gradient: Any) -> None:
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
