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
from penstock.torch.splitting.modes import Mode, Modes
from penstock.torch.splitting.part import Mirror, Part
from penstock.torch.splitting.reads import Reads


def cut(model: nn.Module, inputs: Any, begins: Sequence[str], modes: Modes) -> tuple[list[nn.Module], Modes]:
    """Returns stages for inputs of these shapes, and the modes that they have.

    Raises Error if the model cannot be traced in its own mode.
    """
    cuts: list[_Cut] = []
    reads = Reads(model, inputs)
    for mode in modes.known:
        try:
            with mode.of(model):
                cuts.append(_Cut(_trace(model, inputs), begins))
                reads.note()
        except Error as error:
            if not cuts:
                raise
            modes = modes.without(mode, str(error))
    reads.end(lambda inputs: "".join(_described(model, mode, inputs) for mode in modes.known))
    return [_GraphStage(model, modes, cuts, stage, reads) for stage in range(len(begins) + 1)], modes


def _described(model: nn.Module, mode: Mode, inputs: Any) -> str:
    """Returns a text that says what the model computes in a mode, but for the values of its tensors."""
    with mode.of(model):
        try:
            whole = _trace(model, inputs)
        except Error as error:
            return str(error)
    own = {id(each) for each in (*model.parameters(), *model.buffers())}
    constants = [
        f"{node.target} = {id(value) if id(value) in own else value}\n"
        for node in whole.graph.nodes
        if node.op == "get_attr"
        for value in [_attribute(whole, node.target)]
    ]
    return f"{whole.code}\n{''.join(constants)}"


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


class _Cut:
    """The graph of a model in one of its modes, and the stage of each node."""

    def __init__(self, whole: fx.GraphModule, begins: Sequence[str]) -> None:
        self.whole, self.last = whole, len(begins)
        self.stage_of = _assign(whole.graph, begins)
        self._last_use: dict[fx.Node, int] = {}  # by value: the last stage that reads it
        for node in whole.graph.nodes:
            stage = self.last if node.op == "output" else self.stage_of.get(node, 0)
            for source in node.all_input_nodes:
                self._last_use[source] = max(self._last_use.get(source, 0), stage)

    def crossing(self, stage: int) -> list[fx.Node]:
        """The values that a stage sends to the next one."""
        values = [node for node in self.whole.graph.nodes if node.op in ("placeholder", "call_function")]
        return [v for v in values if self.stage_of.get(v, 0) <= stage < self._last_use.get(v, -1)]

    def names(self, stage: int) -> set[str]:
        """Returns the names of the modules that compute something in a stage."""
        nodes = [node for node, of in self.stage_of.items() if of == stage]
        stacks = [node.meta.get("nn_module_stack") or {} for node in nodes]
        return {name.partition("@")[0] for stack in stacks for name, _ in stack.values()}


class _Program:
    """What a stage computes in one mode. Takes and returns the values that cross to it and from it."""

    def __init__(self, cut: _Cut, stage: int, tensors: _Tensors) -> None:
        information = cut.whole.graph._codegen.pytree_info  # type: ignore[attr-defined]
        self._in_spec = information.in_spec if stage == 0 else None
        self._out_spec = information.out_spec if stage == cut.last else None
        graph = fx.Graph()
        nodes = list(cut.whole.graph.nodes)
        now: dict[fx.Node, fx.Node] = {}
        taken = cut.crossing(stage - 1) if stage else [n for n in nodes if n.op == "placeholder"]
        for value in taken:
            now[value] = graph.placeholder(value.name)
        # The graph may have sizes as constants, so that other shapes could be computed wrongly.
        self._shapes = [getattr(value.meta.get("val"), "shape", None) for value in taken]

        def use(node: fx.Node) -> fx.Node:
            if node not in now:  # a parameter, a buffer or a constant
                now[node] = graph.node_copy(node, use)
                now[node].target = tensors.add(cut.whole, str(node.target))
            return now[node]

        for node in nodes:
            if cut.stage_of.get(node) == stage and "_assert" not in str(node.target):
                now[node] = graph.node_copy(node, use)
        if stage == cut.last:
            graph.output(fx.map_arg(nodes[-1].args[0], use))
        else:
            graph.output(tuple(now[value] for value in cut.crossing(stage)))
        self._code = fx.GraphModule(tensors, graph)

    def run(self, tensors: _Tensors, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
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
        # The tensors that are registered, which may have been moved to a device.
        results = type(self._code).forward(tensors, *arguments)
        if self._out_spec is None:
            return results
        return pytree.tree_unflatten(pytree.tree_leaves(results), self._out_spec)


class _Tensors(Mirror):
    """What the programs of a stage read, by its name in the model."""

    def add(self, whole: fx.GraphModule, target: str) -> str:
        """Adds a parameter, a buffer, a constant or a graph. Returns the name under which programs find it."""
        value = _attribute(whole, target)
        *path, leaf = target.split(".")
        holder = self.inside(path)
        # Graphs of several modes may have other constants of the same name.
        while hasattr(holder, leaf) and not _is_same(getattr(holder, leaf), value):
            leaf += "_"
        if isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter):
            holder.register_buffer(leaf, value)
        else:
            setattr(holder, leaf, value)
        return ".".join((*path, leaf))


def _attribute(of: Any, path: str) -> Any:
    for name in path.split("."):
        of = getattr(of, name)
    return of


def _is_same(one: Any, other: Any) -> bool:
    is_constant = type(one) is type(other) is torch.Tensor and one.dim() == other.dim() == 0
    return one is other or (is_constant and one.dtype == other.dtype and one.device == other.device and torch.equal(one, other))


class _GraphStage(Part):
    """A part of the traced graphs, one for each mode."""

    def __init__(self, model: nn.Module, modes: Modes, cuts: Sequence[_Cut], stage: int, reads: Reads) -> None:
        super().__init__(model, modes, _runs(model, cuts, stage))
        self._reads = reads
        self.graph = _Tensors(model)
        self._programs = tuple(_Program(cut, stage, self.graph) for cut in cuts)

    def require_same_code(self) -> None:
        """Raises Error if the model's code computes something else than its graphs. Captures call it before they begin."""
        self.require_same_modules()
        self._reads.require_unchanged()

    def forward(self, *arguments: Any, **named: Any) -> Any:
        self.require_same_modules()
        self._reads.report()
        return self._programs[self.modes.now(self._followed[0])].run(self.graph, arguments, named)


def _runs(model: nn.Module, cuts: Sequence[_Cut], stage: int) -> set[nn.Module]:
    """Returns the modules that a stage runs in some mode, with those that contain them, and those that no stage runs."""
    modules = dict(model.named_modules(remove_duplicate=False))
    of_all = [set().union(*(cut.names(each) for cut in cuts)) for each in range(cuts[0].last + 1)]
    nowhere = modules.keys() - set().union(*of_all)
    runs = {modules[name] for name in (of_all[stage] & modules.keys()) | nowhere}
    return runs | {each for each in model.modules() if any(child in runs for child in each.modules())}
