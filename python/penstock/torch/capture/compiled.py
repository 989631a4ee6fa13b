"""The stages of this process, compiled for the shapes of the batches so far."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from penstock import Error, Schedule
from penstock.torch.batch import losses, weighting
from penstock.torch.batch.batches import Layout, Structure
from penstock.torch.batch.shapes import Shape, ShapeNumbers
from penstock.torch.capture import slice_proof
from penstock.torch.capture.branches import Sources, Unused
from penstock.torch.capture.foreign import Trained
from penstock.torch.capture.stage_code import StageCode, compile_stage
from penstock.torch.devices import on_device
from penstock.torch.engine import engine
from penstock.torch.processes import agreement
from penstock.torch.processes.processes import Processes, failure_line
from penstock.torch.weights.loss_tensors import LossTensors
from penstock.torch.weights.stage_optimizer import StageOptimizer
from penstock.torch.weights.weights import Casts, SharedParameter, StageWeights, checksum, parameters_of, share_weights

#: Inputs and targets of a batch.
Tensors = tuple[list[torch.Tensor], list[torch.Tensor]]


@dataclasses.dataclass(frozen=True)
class Model:
    """What is compiled: the same for all shapes."""

    modules: Sequence[nn.Module | None]  # by stage of the model
    schedule: Schedule
    local: Sequence[int]  # the schedule's stages that this process runs
    processes: Processes
    options: Any
    # By stage of the schedule; None for other processes' stages.
    weights: Sequence[StageWeights | None]
    steppers: Sequence[StageOptimizer | None]
    loss: losses.Loss | None
    reports_outputs: bool
    may_be_unweighted: bool  # whether a factor of a loss may be 0
    loss_tensors: LossTensors
    is_sharded: bool  # whether replicas divide the states of optimizers
    casts: Casts | None  # of parameters, if stages compute in another dtype
    devices: Sequence[torch.device]  # by stage of the model

    def module(self, index: int) -> nn.Module:
        module = self.modules[index]
        assert module is not None  # Pipeline checks its stages
        return module


def sharing_of(model: Model, unused: Unused | None) -> list[SharedParameter]:
    """Returns the parameters that stages share, if the loss depends on them."""
    named = parameters_of(model.modules, model.loss_tensors)
    return share_weights(named, unused.used if unused else None)


def contents_of(model: Model) -> dict[int, dict[str, int]]:
    """Returns a checksum of each tensor of this process's stages, by stage of the model."""
    contents: dict[int, dict[str, int]] = {}
    for stage in model.local:
        weights, index = model.weights[stage], stage % len(model.modules)
        assert weights is not None
        names = [name for name, _ in weights.parameters]
        contents[index] = {name: checksum(tensor) for name, tensor in (*zip(names, weights.own, strict=True), *weights.state)}
    return contents


class Compiled:
    """An engine.Pipeline, and the numbers of its shapes.

    Every process calls the same methods with the same shapes. After a method that fails, nothing
    has changed.
    """

    def __init__(
        self, model: Model, layout: Layout, batch: Tensors, shape: Shape, is_weighted: bool, unused: Unused | None
    ) -> None:
        """Compiles the stages for the first shape. With weights, the last target is a factor.

        ``unused``: what no later stage reads; None if it is not known yet.
        """
        self._model, self._layout, self._is_weighted = model, layout, is_weighted
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
        )
        #: The code of the last stage, if this process runs it.
        self.last_code: StageCode | None = None
        #: By stage of the model: what each output depends on, of the last compilation.
        self.sources: dict[int, list[Sources | None]] = {}
        self._unused = unused
        self.shared = sharing_of(model, unused)
        model.processes.check_same(self.number, [holders.stages for holders in self.shared])
        model.processes.check_loss(self.number, [name for name, _ in model.loss_tensors.parameters])
        ids = {id(holders.parameter) for holders in self.shared}
        for weights in filter(None, model.weights):
            weights.check_shared(ids)
        if schedule.replicas > 1:
            model.processes.check_equal(self.number, contents_of(model))
        self.engine.set_shared([list(holders.stages) for holders in self.shared])
        self.shapes = ShapeNumbers(shape)
        self._compile(self.number, batch, shape, self._build)

    def _check_sharing(self, unused: Unused) -> None:
        """Raises Error if stages share more parameters for a new shape than for the first one."""
        shared = {id(holders.parameter) for holders in self.shared}
        for holders in sharing_of(self._model, unused):
            if id(holders.parameter) not in shared:
                raise Error(
                    f"stages {list(holders.stages)} share the parameter '{holders.names[0]}', on "
                    "which the loss of this batch depends, but not the first batch's: make a "
                    "new Pipeline"
                )

    def add_on_all(self, shape: Shape, batch: Tensors) -> None:
        """Compiles the stages for another shape, which microbatches of the batch have.

        If it fails on a process, it fails on all of them, and nothing has changed.
        """

        def work(unused: Unused | None) -> tuple[None, Any]:
            self._add(shape, batch, unused)
            return None, self.sources

        processes = self._model.processes
        _, of_all = agreement.agree(processes, agreement.COMPILE_S, lambda: work(None))
        unused = _unused(self._model, of_all)
        self._check_sharing(unused)
        if any(unused.outputs):
            agreement.agree(processes, agreement.COMPILE_S, lambda: work(unused))
        self.engine.add_shape(self.shapes.add(shape))

    def _add(self, shape: Shape, batch: Tensors, unused: Unused | None) -> None:
        self._unused = unused
        self.engine.drop_built()  # of a shape that has failed, here or on another process
        self._compile(self._model.processes.next_pipeline(), batch, shape, self._build_shape)

    def _compile(self, number: int, batch: Tensors, shape: Shape, build: Callable[[int, StageCode, Tensors], Any]) -> None:
        """Compiles the stages in order; each sends examples of its outputs to the next."""
        model, chain = self._model, len(self._model.modules)
        self._trained = Trained(parameters_of(model.modules, model.loss_tensors))
        inputs, targets = self._examples(batch, shape)
        codes: dict[int, StageCode] = {}  # the second chain has the programs of the first one
        self.sources = {}
        # What the previous stage in the chain passes on: its outputs, their structure, and the
        # number of the random op after its last one.
        previous: Any = None
        unsent = [stage for stage in model.local if stage % chain < chain - 1 and stage + 1 not in model.local]
        try:
            for stage in range(model.schedule.stages):
                index = stage % chain
                if stage not in model.local:
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
                is_last = index == chain - 1
                if index not in codes:
                    codes[index] = self._code(index, structure)
                    codes[index].first_random_op = random_op
                code = codes[index]
                outputs = build(stage, code, (examples, targets if is_last else []))
                previous = (outputs, code.outputs, code.next_random_op)
                self.sources[index] = code.sources
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
        model = self._model
        is_last = index == len(model.modules) - 1
        code = StageCode(
            model.module(index),
            index,
            inputs,
            model.loss,
            self._layout.targets if is_last else None,
            is_last,
            model.schedule.slices,
            model.devices[index],
        )
        code.is_weighted, code.reports_outputs = self._is_weighted, model.reports_outputs
        code.may_be_unweighted = model.may_be_unweighted
        code.trained, code.casts = self._trained, model.casts
        if self._unused is not None:
            code.without_gradient = self._unused.outputs[index]
        if is_last and self.last_code is not None:
            code.metrics = self.last_code.metrics  # the same for all shapes
        return code

    def _functions(self, code: StageCode, stage: int) -> Any:
        weights, chain = self._model.weights[stage], len(self._model.modules)
        assert weights is not None
        code.names = {id(parameter): name for name, parameter in weights.parameters}
        is_last = stage % chain == chain - 1
        return engine.StageFunctions(code.forward, code.loss if is_last else None, code.refusal)

    def _build(self, stage: int, code: StageCode, examples: Tensors) -> Any:
        model, chain = self._model, len(self._model.modules)
        index = stage % chain
        is_last = index == chain - 1
        if model.schedule.slices > 1:
            targets = examples[1] if is_last and not self._is_weighted else None
            slice_proof.prove(code, model.module(index), index, examples[0], targets, model.schedule.slices)
        weights, stepper = model.weights[stage], model.steppers[stage]
        assert weights is not None and stepper is not None
        parts = engine.StageParts()
        parts.functions = self._functions(code, stage)
        parts.working = weights.begin_build()
        parts.parameters, parts.masters = weights.parameters, weights.next_masters
        parts.state = weights.state
        stepper.bind(parts)
        parts.inputs, parts.targets = examples
        for holders in self.shared:
            parts.share(holders.entry(index))
        outputs = compile_stage(code, lambda: self.engine.build(stage, parts))
        if model.is_sharded:
            stepper.set_shard(self.engine.updated(stage))
        if code.metrics is not None:  # a last stage
            self.last_code = code
            self.engine.set_metrics(len(code.metrics))
            model.processes.publish_metrics(self.number, code.metrics)
        return outputs

    def _build_shape(self, stage: int, code: StageCode, examples: Tensors) -> Any:
        functions = self._functions(code, stage)
        return compile_stage(code, lambda: self.engine.build_shape(stage, functions, *examples))


def compile_on_all(model: Model, layout: Layout, batch: Tensors, shape: Shape, is_weighted: bool) -> Compiled:
    """Compiles the stages on all processes. If it fails on one, it fails on all of them."""

    def work(unused: Unused | None) -> tuple[Compiled, Any]:
        compiled = Compiled(model, layout, batch, shape, is_weighted, unused)
        return compiled, compiled.sources

    compiled, of_all = agreement.agree(model.processes, agreement.COMPILE_S, lambda: work(None))
    unused = _unused(model, of_all)
    if any(unused.outputs) or len(sharing_of(model, unused)) < len(compiled.shared):
        compiled, _ = agreement.agree(model.processes, agreement.COMPILE_S, lambda: work(unused))
    return compiled


def _unused(model: Model, sources: list[dict[int, list[Sources | None]]]) -> Unused:
    """``sources``: by process."""
    known = collections.ChainMap(*sources)
    return Unused.of([known[index] for index in range(len(model.modules))])
