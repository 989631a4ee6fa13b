"""Stages that are cut from the graph that torch.export traces."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from penstock import Error


def cut(model: nn.Module, inputs: Any, begins: Sequence[str]) -> list[nn.Module]:
    """Returns stages for inputs of these shapes. Raises Error if the model cannot be traced."""
    whole = _trace(model, inputs)
    stage_of = _assign(whole.graph, begins)
    stages = len(begins) + 1
    output = next(node for node in whole.graph.nodes if node.op == "output")
    last_use: dict[fx.Node, int] = {}  # by value: the last stage that reads it
    for node in whole.graph.nodes:
        stage = stages - 1 if node is output else stage_of.get(node, 0)
        for source in node.all_input_nodes:
            last_use[source] = max(last_use.get(source, 0), stage)
    values = [node for node in whole.graph.nodes if node.op in ("placeholder", "call_function")]
    born = {node: stage_of.get(node, 0) for node in values}

    def crossing(stage: int) -> list[fx.Node]:
        """The values that stage sends to the next one."""
        return [v for v in values if born[v] <= stage < last_use.get(v, -1)]

    return [
        _GraphStage(
            whole, stage_of, stage, crossing(stage - 1) if stage else None, crossing(stage) if stage < stages - 1 else None
        )
        for stage in range(stages)
    ]


def _trace(model: nn.Module, inputs: Any) -> fx.GraphModule:
    arguments, named = (), {}
    if type(inputs) is dict:
        named = inputs
    else:
        arguments = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    try:
        with warnings.catch_warnings(), _without_functions():
            warnings.simplefilter("ignore")
            program = torch.export.export(model, arguments, named, strict=False)
            whole = program.module(check_guards=False)
    except Error:
        raise
    except Exception as error:
        text = str(error).strip().split("\n", 1)[0]
        raise Error(f"split: torch.export cannot trace {type(model).__name__}: {text}: pass a list of stages") from error
    _move_scalars(whole, model)
    return whole


def _move_scalars(whole: fx.GraphModule, model: nn.Module) -> None:
    """Moves the scalars that the code makes on the CPU (``torch.tensor(2)``) to the model's device.

    An op of a device reads them from there, too, but a stage has all of its tensors on one device.
    """
    devices = {parameter.device for parameter in model.parameters()}
    if len(devices) != 1:
        return
    (device,) = devices
    for module in whole.modules():
        for name, value in list(vars(module).items()):
            if name.startswith("lifted_tensor") and value.dim() == 0:
                setattr(module, name, value.to(device))


@contextlib.contextmanager
def _without_functions() -> Iterator[None]:
    """Refuses custom autograd functions: torch.export would trace only their forward."""
    function: Any = torch.autograd.Function
    apply = function.__dict__["apply"]

    def refuse(cls: type, *arguments: Any, **named: Any) -> Any:
        if cls.__module__.startswith("torch."):
            return apply.__get__(None, cls)(*arguments, **named)
        raise Error(
            f"split: the model calls the autograd function {cls.__qualname__}, whose backward "
            "torch.export does not trace: begin stages at layers, or pass a list of stages"
        )

    function.apply = classmethod(refuse)
    try:
        yield
    finally:
        function.apply = apply


def _assign(graph: fx.Graph, begins: Sequence[str]) -> dict[fx.Node, int]:
    """Returns the stage of each node that computes something."""
    stage = 0
    stage_of: dict[fx.Node, int] = {}
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        inside = [name for name, _ in (node.meta.get("nn_module_stack") or {}).values()]
        while stage < len(begins) and any(_is_within(name, begins[stage]) for name in inside):
            stage += 1
        stage_of[node] = stage
    if stage < len(begins):
        raise Error(
            f"split: the model does not call '{begins[stage]}' after the modules that begin "
            "earlier stages: list the modules in the order in which they run"
        )
    computed = set(stage_of.values())
    for empty, name in enumerate(begins):
        if empty not in computed:
            raise Error(f"split: stage {empty} is empty, because nothing runs before '{name}': leave it out")
    return stage_of


def _is_within(name: str, of: str) -> bool:
    return name == of or name.startswith(of + ".")


class _GraphStage(nn.Module):
    """A part of a traced graph. Takes and returns the values that cross to it and from it."""

    def __init__(
        self,
        whole: fx.GraphModule,
        stage_of: dict[fx.Node, int],
        stage: int,
        before: list[fx.Node] | None,
        after: list[fx.Node] | None,
    ) -> None:
        super().__init__()
        information = whole.graph._codegen.pytree_info  # type: ignore[attr-defined]
        self._in_spec = information.in_spec if before is None else None
        self._out_spec = information.out_spec if after is None else None
        graph = fx.Graph()
        nodes = list(whole.graph.nodes)
        now: dict[fx.Node, fx.Node] = {}
        taken = before if before is not None else [n for n in nodes if n.op == "placeholder"]
        for value in taken:
            now[value] = graph.placeholder(value.name)
        # The graph may have sizes as constants, so that other shapes could be computed wrongly.
        self._shapes = [getattr(value.meta.get("val"), "shape", None) for value in taken]

        def use(node: fx.Node) -> fx.Node:
            if node not in now:  # a parameter, a buffer or a constant
                now[node] = graph.node_copy(node, use)
            return now[node]

        for node in nodes:
            if stage_of.get(node) == stage and "_assert" not in str(node.target):
                now[node] = graph.node_copy(node, use)
        if after is None:
            graph.output(fx.map_arg(nodes[-1].args[0], use))
        else:
            graph.output(tuple(now[value] for value in after))
        self.graph = fx.GraphModule(whole, graph)

    def forward(self, *arguments: Any, **named: Any) -> Any:
        if self._in_spec is not None:
            order = self._in_spec.child(1).context if named else []
            leaves = pytree.tree_leaves((arguments, {key: named[key] for key in order}))
            arguments = tuple(leaves)
        for shape, argument in zip(self._shapes, arguments, strict=False):
            if shape is not None and isinstance(argument, torch.Tensor) and argument.shape != shape:
                raise Error(
                    f"a stage that split cut from a graph takes a tensor of shape {tuple(shape)}, "
                    f"not {tuple(argument.shape)}: use batches that divide into microbatches of "
                    "the inputs of split, or split again with these"
                )
        results = self.graph(*arguments)
        if self._out_spec is None:
            return results
        return pytree.tree_unflatten(pytree.tree_leaves(results), self._out_spec)
