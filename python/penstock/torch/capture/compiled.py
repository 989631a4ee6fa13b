"""The stages of this process, compiled for the shapes of the batches so far."""

from __future__ import annotations

import collections
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch

from penstock import Error, Schedule
from penstock.torch.batch import weighting
from penstock.torch.batch.batches import Layout, Structure
from penstock.torch.batch.shapes import Shape, ShapeNumbers
from penstock.torch.capture import order, slice_proof
from penstock.torch.capture.branches import Sources, Unused
from penstock.torch.capture.collectives import Call
from penstock.torch.capture.foreign import Trained
from penstock.torch.capture.memory_uses import MemoryUses
from penstock.torch.capture.stage_code import StageCode, compile_stage
from penstock.torch.capture.used_parameters import UsedParameters
from penstock.torch.devices import on_device
from penstock.torch.engine import engine
from penstock.torch.guards.guards import Guards
from penstock.torch.mesh.clones import make_clones
from penstock.torch.model import Model
from penstock.torch.processes import agreement
from penstock.torch.processes.processes import Processes, failure_line
from penstock.torch.weights import shared_memory
from penstock.torch.weights.shared_memory import Accesses

#: Inputs and targets of a batch.
Tensors = tuple[list[torch.Tensor], list[torch.Tensor]]


class Compiled:
    """An engine.Pipeline, and the numbers of its shapes.

    Stages are captured twice for each shape; the second capture is compiled (guards.py).
    Every process calls the same methods with the same shapes. After a method that fails, nothing
    has changed.
    """

    def __init__(
        self, model: Model, guards: Guards, layout: Layout, batch: Tensors, shape: Shape, is_weighted: bool, unused: Unused | None
    ) -> None:
        """Captures the stages for the first shape. With weights, the last target is a factor.

        ``unused``: what no later stage reads; None if it is not known yet.
        """
        self._model, self._layout, self._is_weighted, self.guards = model, layout, is_weighted, guards
        self.processes = model.processes
        self.number = model.processes.next_pipeline()
        schedule = model.schedule
        self.engine = engine.Pipeline(
            schedule.to_csv(),
            schedule.microbatches,
            schedule.replicas,
            schedule.slices,
            schedule.weight_policy,
            model.options,
            model.processes.handle,
            None if model.processes.plane is None else model.processes.everyone.handle,
        )
        #: The code of the last stage, if this process runs it.
        self.last_code: StageCode | None = None
        #: By stage of the model: what each output depends on, of the last compilation.
        self.sources: dict[int, list[Sources | None]] = {}
        self._memory = frozenset[int]()  # see shared_memory.storages
        self._uses: dict[int, MemoryUses] = {}  # by stage of the model
        #: By stage of the model: the collectives that its code called in the last run.
        self.calls: dict[int, list[Call]] = {}
        self._buffers = shared_memory.BuffersByShape()
        self._unused = unused
        self._unused_of = {0: unused}  # by number of the shape
        #: Stages whose code has to know that it is traced.
        self._traced: set[int] = set()
        #: By stage of the model, of the last run: a stage of the schedule, and what it was given.
        self._ran: dict[int, tuple[int, Structure, Tensors]] = {}
        self.shared = model.shared(None if unused is None else unused.used)
        model.processes.check_same(self.number, [holders.stages for holders in self.shared])
        model.processes.check_loss(self.number, [name for name, _ in model.loss_tensors.parameters])
        ids = {id(holders.parameter) for holders in self.shared}
        for weights in filter(None, model.weights):
            weights.check_shared(ids)
        if schedule.replicas > 1:
            model.processes.check_equal(self.number, model.contents())
        self.engine.set_shared([list(holders.stages) for holders in self.shared])
        self.shapes = ShapeNumbers(shape)
        self.used = UsedParameters()
        guards.begin()
        self._run(self.number, reversed_values(batch), shape, self._capture)

    def _accesses(self) -> Accesses:
        """Returns what the stages that were captured last do with memory.

        Raises Error if recomputation would read a buffer that was updated since.
        """
        model = self._model
        used = {index: (uses.read, uses.changed) for index, uses in self._uses.items()}
        for index, stage in model.placement.here.items():
            self._buffers.add(model.module(index), index, *used[index])
            if why := recomputes(model.given.recompute, model.schedule, stage):
                shared_memory.refuse_updated(model.module(index), index, *used[index], why)
        has_updates = any(each.optimizer is not None for _, each in model.updates.here)
        return shared_memory.accesses(model.modules, model.loss_tensors, used, has_updates=has_updates)

    def build(self, batch: Tensors, shape: Shape) -> None:
        """Compiles the stages for the first shape."""
        self._run(self._model.processes.next_pipeline(), batch, shape, self._build)

    def prove(self, shape: int = 0) -> None:
        """Raises Error, with the line of the code, if the last capture of a stage and the one that was compiled differ.

        ``shape``: the number of the shape; 0: the first one, or the last one that was compiled.
        """
        ran, self._ran = self._ran, {}
        for index, (stage, structure, examples) in ran.items():
            difference = self.engine.difference(index, shape)
            if difference is None:
                continue
            node, op, is_in_values = difference
            why = explain_difference(op, is_in_values)
            self.engine.begin_captures()
            engine.stop_capture_after(node, why)
            try:
                self._capture_of(shape)(stage, self._code(index, structure), examples)
            finally:
                engine.stop_capture_after(0, "")
            raise Error(f"stage {index}: {why}")
        self.engine.begin_captures()

    def verify_on_all(self, batch: Tensors, shape: Shape) -> bool:
        """Captures all stages again. Raises Error if they compute something else than the compiled ones.

        Returns False for a shape for which none are compiled.
        """
        number = self.shapes.of(shape)
        if number is None:
            return False

        def verify() -> None:
            self._unused = self._unused_of[number]
            self.engine.begin_captures()
            self._run(processes.next_pipeline(), reversed_values(batch), shape, self._capture_of(number))
            self.prove(number)

        processes = self._model.processes
        with self.guards.verifying():
            agreement.do_on_all(processes, agreement.COMPILE_S, verify)
        return True

    def _check_sharing(self, unused: Unused) -> None:
        """Raises Error if stages share more parameters for a new shape than for the first one."""
        shared = {id(holders.parameter) for holders in self.shared}
        for holders in self._model.shared(unused.used):
            if id(holders.parameter) not in shared:
                raise Error(
                    f"stages {list(holders.stages)} share the parameter '{holders.names[0]}', on which the loss of this batch "
                    "depends, but not the first batch's: make a new Pipeline"
                )

    def add_on_all(self, shape: Shape, batch: Tensors) -> None:
        """Compiles the stages for another shape, which microbatches of the batch have.

        If it fails on a process, it fails on all of them, and nothing has changed.
        """

        def capture(unused: Unused | None) -> tuple[None, Any]:
            self._unused = unused
            self.guards.begin()
            self.engine.begin_captures()
            self.engine.drop_built()  # of a shape that has failed, here or on another process
            self._run(processes.next_pipeline(), reversed_values(batch), shape, self._capture_shape)
            return None, (self.sources, self._accesses())

        def build() -> None:
            self._run(processes.next_pipeline(), batch, shape, self._build_shape)

        processes = self._model.processes
        _, of_all = agreement.agree(processes, agreement.COMPILE_S, lambda: capture(None))
        unused = _unused(self._model, of_all)
        self._check_sharing(unused)
        if any(unused.outputs):
            agreement.agree(processes, agreement.COMPILE_S, lambda: capture(unused))
        _connect_planes(self._model, self)
        _build_on_all(self, build)
        number = self.shapes.add(shape)
        self.engine.add_shape(number)
        self._unused_of[number] = self._unused
        self.used.add(number, unused, self._model.shared(unused.used))

    def _run(self, number: int, batch: Tensors, shape: Shape, build: Callable[[int, StageCode, Tensors], Any]) -> None:
        """Captures or compiles the stages in order; each sends examples of its outputs to the next."""
        model, placement = self._model, self._model.placement
        self._trained = Trained(model.parameters())
        # Weights in shards (zero) have other memory after each gather.
        self._memory = shared_memory.storages(model.modules, model.loss_tensors)
        inputs, targets = self._examples(batch, shape)
        codes: dict[int, StageCode] = {}  # the second chain has the programs of the first one
        self.sources = {}
        # What the previous stage in the chain passes on: its outputs, their structure, and the
        # number of the random op after its last one.
        previous: Any = None
        unsent = [stage for stage in placement.local if not placement.is_last(stage) and stage + 1 not in placement.local]
        try:
            for stage in range(model.schedule.stages):
                index = placement.model_stage(stage)
                if stage not in placement.local:
                    previous = None
                    continue
                if index > 0 and previous is None:
                    received, *others = model.processes.receive_examples(number, stage - 1)
                    previous = (received, *others)
                if index == 0:
                    previous = inputs, self._layout.inputs, 0
                examples, structure, random_op = previous
                device = model.devices[index]
                examples = [each if each.device == device else on_device(each, device) for each in examples]
                if index not in codes:
                    codes[index] = self._code(index, structure)
                    codes[index].first_random_op = random_op
                code = codes[index]
                given = examples, targets if placement.is_last(stage) else []
                self._ran[index] = stage, structure, given
                outputs = build(stage, code, given)
                if code.is_traced:
                    self._traced.add(index)
                previous = (outputs, code.outputs, code.next_random_op)
                self.sources[index], self._uses[index] = code.sources, code.uses
                self.calls[index] = code.collectives or self.calls.get(index, [])
                if stage in unsent:
                    model.processes.send_examples(number, stage, previous)
                    unsent.remove(stage)
        except BaseException as error:
            for stage in unsent:
                model.processes.send_failure(number, stage, failure_line(error))
            raise

    def _examples(self, batch: Tensors, shape: Shape) -> Tensors:
        """Returns the first slice of a microbatch of the shape."""
        schedule = self._model.schedule
        lists = []
        ends = self._model.devices[0], self._model.devices[-1]
        for tensors, kinds, device in zip(batch, (shape.inputs, shape.targets), ends, strict=True):
            parts = []
            for tensor, (sizes, _) in zip(tensors, kinds, strict=False):
                if tensor.dim() > 0 and sizes:
                    of_all = weighting.sizes(tensor.shape[0], schedule.microbatches)
                    # Larger microbatches come first.
                    tensor = tensor[: sizes[0]] if sizes[0] == of_all[0] else tensor[-sizes[0] :]
                    if schedule.slices > 1:
                        tensor = tensor[:, : tensor.shape[1] // schedule.slices]
                parts.append(tensor.to(device))
            lists.append(parts)
        return lists[0], lists[1]

    def _code(self, index: int, inputs: Structure) -> StageCode:
        is_last = self._model.placement.is_last(index)
        code = StageCode(self._model, index, inputs, self._layout.targets if is_last else None)
        code.is_weighted, code.trained, code.guards = self._is_weighted, self._trained, self.guards
        code.is_traced, code.uses = index in self._traced, MemoryUses(self._memory)
        if self._unused is not None:
            code.without_gradient = self._unused.outputs[index]
        if is_last and self.last_code is not None:
            code.metrics = self.last_code.metrics  # the same for all shapes
        return code

    def _functions(self, code: StageCode, stage: int) -> Any:
        weights = self._model.weights[stage]
        assert weights is not None
        code.names = {id(parameter): name for name, parameter in weights.parameters}
        return engine.StageFunctions(code.forward, code.loss if self._model.placement.is_last(stage) else None, code.judge)

    def _parts(self, stage: int, code: StageCode, examples: Tensors) -> Any:
        """Returns what a stage is captured from."""
        weights = self._model.weights[stage]
        assert weights is not None
        parts = engine.StageParts()
        parts.functions, parts.parameters, parts.state = self._functions(code, stage), weights.parameters, weights.state
        parts.inputs, parts.targets = examples
        for holders in self.shared:
            parts.share(holders.entry(code.index))
        if (plane := self._model.processes.plane) is not None:
            divided = {name: engine.number_of_group(group) for name, group in weights.divided.items()}
            parts.set_planes(divided, engine.number_of_group(plane.context) if plane.contexts > 1 else 0)
        return parts

    def _capture(self, stage: int, code: StageCode, examples: Tensors) -> Any:
        parts = self._parts(stage, code, with_other_values(code.index, examples))
        return compile_stage(code, lambda: self.engine.capture(stage, parts))

    def _build(self, stage: int, code: StageCode, examples: Tensors) -> Any:
        model = self._model
        if model.schedule.slices > 1:
            targets = examples[1] if model.placement.is_last(stage) and not self._is_weighted else None
            slice_proof.prove(code, model.module(code.index), code.index, examples[0], targets, model.schedule.slices)
        weights, stepper = model.weights[stage], model.updates.steppers[stage]
        assert weights is not None and stepper is not None
        parts = self._parts(stage, code, examples)
        parts.working = weights.begin_build()
        parts.masters = weights.next_masters
        stepper.bind(parts)
        outputs = compile_stage(code, lambda: self.engine.build(stage, parts))
        if model.storage.zero > 0:
            stepper.set_shard(self.engine.updated(stage))
        if code.metrics is not None:  # a last stage
            self.last_code = code
            self.engine.set_metrics(len(code.metrics))
            model.processes.publish_metrics(self.number, code.metrics)
        return outputs

    def _capture_of(self, shape: int) -> Callable[[int, StageCode, Tensors], Any]:
        return self._capture_shape if shape > 0 else self._capture

    def _capture_shape(self, stage: int, code: StageCode, examples: Tensors) -> Any:
        functions, given = self._functions(code, stage), with_other_values(code.index, examples)
        return compile_stage(code, lambda: self.engine.capture_shape(stage, functions, *given))

    def _build_shape(self, stage: int, code: StageCode, examples: Tensors) -> Any:
        functions = self._functions(code, stage)
        return compile_stage(code, lambda: self.engine.build_shape(stage, functions, *examples))


def compile_on_all(model: Model, guards: Guards, layout: Layout, batch: Tensors, shape: Shape, is_weighted: bool) -> Compiled:
    """Compiles the stages on all processes. If it fails on one, it fails on all of them."""

    def capture(unused: Unused | None) -> tuple[Compiled, Any]:
        compiled = Compiled(model, guards, layout, batch, shape, is_weighted, unused)
        return compiled, (compiled.sources, compiled._accesses())

    compiled, of_all = agreement.agree(model.processes, agreement.COMPILE_S, lambda: capture(None))
    unused = _unused(model, of_all)
    if any(unused.outputs) or len(model.shared(unused.used)) < len(compiled.shared):
        compiled, _ = agreement.agree(model.processes, agreement.COMPILE_S, lambda: capture(unused))
    _connect_planes(model, compiled)
    _build_on_all(compiled, lambda: compiled.build(batch, shape))
    if (plane := model.processes.plane) is not None:
        texts = {index: str(compiled.engine.graph_text(index)) for index in model.placement.here}
        agreement.compare(model.processes, agreement.COMPILE_S, lambda: order.of_graphs(texts, plane))
    compiled.used.add(0, unused, model.shared(unused.used))
    return compiled


def _connect_planes(model: Model, compiled: Compiled) -> None:
    """Prepares the collectives of captured stages. Raises Error on all processes if planes call different ones."""
    plane = model.processes.plane
    if plane is None:
        return
    agreement.compare(model.processes, agreement.COMPILE_S, lambda: order.of_calls(compiled.calls))
    divided = {group for weights in model.weights if weights is not None for group in weights.divided.values()}
    groups = {call.group for calls in compiled.calls.values() for call in calls} | divided | {plane.context} - {""}
    ranks = {model.placement.rank_of[stage] for stage in model.placement.local}
    by_dimensions = sorted((each for each in groups if each), key=lambda group: (plane.dimensions_of(group) or "", group))
    agreement.do_on_all(model.processes, agreement.COMPILE_S, lambda: make_clones(by_dimensions, sorted(ranks)))


def _build_on_all(compiled: Compiled, build: Callable[[], None]) -> None:
    """Compiles what all processes have captured, and proves that it computes what the code says."""
    for work in (compiled.guards.settle, build, compiled.guards.finish, compiled.prove):
        agreement.do_on_all(compiled.processes, agreement.COMPILE_S, work)


def reversed_values(batch: Tensors) -> Tensors:
    """Returns a batch with other values, also of a single sample, so that a capture that depends on them differs from another one."""
    inputs, targets = ([each.flatten().flip(0).view(each.shape) if each.dim() > 0 else each for each in tensors] for tensors in batch)
    return inputs, targets


def with_other_values(stage: int, examples: Tensors) -> Tensors:
    """Returns examples with other values than zeros, which all but the first stage are compiled with."""

    def other(tensor: torch.Tensor) -> torch.Tensor:
        if stage == 0 or not tensor.is_floating_point():
            return tensor
        generator = torch.Generator().manual_seed(stage)
        values = torch.randn(tensor.shape, generator=generator, device="cpu").to(tensor)
        return values.requires_grad_(tensor.requires_grad)

    return [other(each) for each in examples[0]], examples[1]


def explain_difference(op: str, is_in_values: bool) -> str:
    """Returns why two captures of a stage differ."""
    what = f"a constant of {op} has other values" if is_in_values else f"the code calls {op or 'other ops'}"
    return (
        f"two captures of the same code differ: {what} in the second one. The code depends on something that changes by "
        "itself, or on values of the batch, which a graph cannot repeat: pass it with the batch, as a tensor"
    )


def _unused(model: Model, of_all: list[tuple[dict[int, list[Sources | None]], Accesses]]) -> Unused:
    """Returns what the loss does not depend on. Raises Error if a stage changes memory of another one.

    ``of_all``: by process.
    """
    shared_memory.check([accesses for _, accesses in of_all])
    known = collections.ChainMap(*(sources for sources, _ in of_all))
    return Unused.of([known[index] for index in range(len(model.modules))])


def recomputes(policy: Mapping[str, str], schedule: Schedule, stage: int) -> str:
    """Returns why a stage of the schedule computes values of its forward again; "" if it does not."""
    if any(each != "all" for each in policy.values()):
        return f"recompute={dict(policy)}"
    has_actions = re.search(rf"(?<!\d){stage}RECOMPUTE", schedule.to_csv()) is not None
    return "the RECOMPUTE actions of the schedule" if has_actions else ""
