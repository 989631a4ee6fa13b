"""The code of a stage as functions from tensors to tensors, which the engine captures."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from penstock import Error
from penstock.torch.batch import losses, weighting
from penstock.torch.batch.batches import Structure, call
from penstock.torch.batch.objects import holds_tensors, or_register
from penstock.torch.capture import call_state, checkpointing, collectives
from penstock.torch.capture.backward_errors import with_line
from penstock.torch.capture.branches import Sources
from penstock.torch.capture.collectives import Call
from penstock.torch.capture.foreign import Trained
from penstock.torch.capture.interpreted import interpreted, without_nan_checks
from penstock.torch.capture.memory_reads import RefuseUnseen
from penstock.torch.capture.memory_uses import MemoryUses
from penstock.torch.devices import autocast_setting
from penstock.torch.engine import engine
from penstock.torch.guards.guards import Guards
from penstock.torch.hooks import refuse_hooks
from penstock.torch.mesh import dtensors
from penstock.torch.mesh.means import over_planes
from penstock.torch.mesh.random_parts import drawn_by_part
from penstock.torch.model import Model
from penstock.torch.user_code import in_user_code


class StageCode:
    """A module, or a module and its loss, on flat lists of tensors."""

    def __init__(self, model: Model, index: int, inputs: Structure, targets: Structure | None) -> None:
        """``targets``: of a last stage."""
        refuse_hooks(model.module(index), index)
        checkpointing.install()
        collectives.install()
        self.index = index  # the number of the stage in the chain
        self._module, self._inputs = model.module(index), inputs
        self._loss, self._targets, self._is_last = model.given.loss, targets, model.placement.is_last(index)
        self._slices, self._device = model.schedule.slices, model.devices[index]
        self._plane = model.processes.plane
        self._dtensors = [] if self._plane is None else dtensors.places(self._module)
        self._autocast = _autocast_state(self._device)
        #: Whether the module's code is told that it is traced, as by torch.compile and
        #: torch.export. Code that checks this then reads no values of tensors (of masks).
        self.is_traced = False
        #: Whether the loss takes a factor after the targets (see weighting), whether that may be 0,
        #: and whether the loss returns the outputs, too.
        self.is_weighted, self.may_be_unweighted = False, model.given.loss_weight is not None
        self.reports_outputs: bool = model.given.outputs
        #: The names of the metrics that the loss returns, after it has run.
        self.metrics: tuple[str, ...] | None = None
        #: The structure of what the stage returns, after its forward has run.
        self.outputs: Structure | None = None
        #: Names of the stage's parameters by id, and what other stages train.
        self.names: dict[int, str] = {}
        self.trained = Trained([])
        self.guards: Guards | None = None
        #: The parameters that the code reads in place of the module's, to compute in another dtype.
        self.casts = model.casts
        #: The outputs that get no gradient, because no later stage reads them.
        self.without_gradient: frozenset[int] = frozenset()
        #: What each output depends on, or the loss of a last stage; after it has run.
        self.sources: list[Sources | None] = []
        self._tensors: list[torch.Tensor] = []
        self._phase = "forward"
        #: The numbers of its first random op in the chain, and of the next stage's (random_ops.h).
        self.first_random_op = 0
        #: What it does with memory that other stages may have.
        self.uses = MemoryUses(())
        self.next_random_op: int | None = None
        #: The collectives that it called in its last capture, in order.
        self.collectives: list[Call] = []

    def computing(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context in which the module has the parameters that its code reads."""
        return contextlib.nullcontext() if self.casts is None else self.casts.in_place(self._module)

    @contextlib.contextmanager
    def on_planes(self) -> Iterator[None]:
        """A context in which code may call collectives that connect the planes of a mesh, which are recorded."""
        if self._plane is None:
            yield
            return
        with collectives.recorded(self._plane) as calls, drawn_by_part(self._plane):
            yield
        self.collectives = calls

    def require_same_graphs(self) -> None:
        """Raises Error if the code runs graphs that were traced of code which computes something else now."""
        for module in self._module.modules():
            if (check := getattr(type(module), "require_same_code", None)) is not None:  # of penstock.torch.splitting
                check(module)

    def outside_autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Returns a context for all but the module and the loss.

        A backward within autocast would cast what the module computes outside of it.
        """
        if autocast_setting(self._device) is None:
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, enabled=False)

    def forward(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Returns the tensors of the stage's outputs."""
        self._phase = "forward"
        engine.set_random_op(self.first_random_op)
        what = f"stage {self.index}, forward"
        with in_user_code(what), self._autocast(), interpreted(), RefuseUnseen(), self.uses:
            given = tensors
            if self.casts is not None and self.index == 0:
                given = [self.casts.input(each) for each in tensors]
            if torch.is_autocast_enabled(self._device.type):
                # Autocast casts a leaf once, for all that read it, so that their gradients would be
                # added in its type. In the model, only the first inputs are leaves.
                given = [each.view_as(each) if each.requires_grad else each for each in given]
            arguments = self._inputs.fill(dtensors.join(given, self._inputs.forms, self._plane))
            buffers = list(_buffers(self._module))
            try:
                with _tracing() if self.is_traced else contextlib.nullcontext(), dtensors.computed_from_parts(self._dtensors):
                    result = call(self._module, arguments)
            finally:
                replaced = _restore(buffers)
            if replaced is not None:
                raise Error(
                    f"stage {self.index}: forward assigns a new tensor to the buffer '{replaced}', which compiled steps would "
                    "not do again: update it in place (add_, copy_)"
                )
            structure, outputs = Structure.of(result)
            if not outputs:
                raise Error(f"stage {self.index} returns {_without_tensors(result)}")
            structure = call_state.without(structure, self.index)
            if self._plane is not None:
                outputs, forms = dtensors.split(outputs, f"stage {self.index} returns")
                structure = structure.with_forms(forms)
            if self.outputs is not None and structure != self.outputs:
                raise Error(
                    f"stage {self.index} returns other containers or constants for this slice "
                    "than for the first one, which later stages were compiled for"
                )
            self.outputs = structure
            outputs = [output.detach() if index in self.without_gradient else output for index, output in enumerate(outputs)]
            self._note_sources(outputs, tensors)
            self.next_random_op = engine.random_op()
            return outputs

    def _note_sources(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> None:
        self.sources = [Sources.of(output, inputs, self.names) for output in outputs]
        self._tensors = inputs if self._is_last else []

    def judge(self, tensor: torch.Tensor) -> tuple[str, bool]:
        """Returns why the running code cannot read a tensor of others, "" if it can, and whether steps read its values."""
        text = self.trained.refusal(tensor)
        if text:
            return f"stage {self.index}, {self._phase}{text}", False
        return "", self.guards is not None and self.guards.is_followed(self.index, tensor)

    def loss(self, outputs: list[torch.Tensor], targets: list[torch.Tensor]) -> list[torch.Tensor]:
        """Returns the loss and its metrics, fp32 scalars, and the outputs that are reported."""
        self._phase = "loss"
        what = f"stage {self.index}, loss"
        with in_user_code(what), self._autocast(), interpreted(), RefuseUnseen(), self.uses:
            assert self.outputs is not None
            given = outputs
            if self.is_weighted:
                *targets, factor = targets
                factor = factor.reshape(-1)[0]
                if self.may_be_unweighted:
                    given = weighting.block_unweighted(outputs, factor)
            if self.casts is not None:  # The loss is computed in fp32.
                given = [each.float() if each.is_floating_point() else each for each in given]
            value = self.outputs.fill(dtensors.join(given, self.outputs.forms, self._plane))
            all_targets = None if self._targets is None else (self._targets.fill(targets),)
            loss, metrics = losses.evaluate(self._loss, value, all_targets)
            if self._plane is not None:
                loss = over_planes(loss, targets, self._plane)
                metrics = {name: over_planes(each, targets, self._plane) for name, each in metrics.items()}
            if self.metrics not in (None, tuple(metrics)):
                raise Error(
                    f"the loss returns the metrics {list(metrics)} for this shape, but "
                    f"{list(self.metrics or ())} for the first one: return the same"
                )
            self._note_sources([loss], self._tensors)
            self._tensors = []
            self.metrics = tuple(metrics)
            if self.is_weighted:
                loss = weighting.weigh(loss, factor)
            reported = [each.detach() for each in outputs] if self.reports_outputs else []
            if self._slices > 1 and (metrics or reported):
                raise Error("metrics and outputs of slices are not reported: train without slices")
            return [loss, *metrics.values(), *reported]


def _without_tensors(result: Any) -> str:
    """Returns what is wrong with a stage's result that contains no tensor in containers that torch knows."""
    if not holds_tensors(result):
        return "no tensor"
    kind = type(result).__name__
    return f"a {kind}, whose tensors compiled steps do not pass on: return them in a tuple or a dict{or_register(result)}"


def _buffers(module: nn.Module) -> Iterator[tuple[nn.Module, str, torch.Tensor | None]]:
    for each in module.modules():
        for key, tensor in each._buffers.items():
            yield each, key, tensor


def _restore(before: list[tuple[nn.Module, str, torch.Tensor | None]]) -> str | None:
    """Restores buffers that a forward assigned. Returns the name of a saved one, if any."""
    found = None
    for holder, key, tensor in before:
        if holder._buffers.get(key) is not tensor:
            is_saved = key not in holder._non_persistent_buffers_set
            found = key if is_saved and tensor is not None else found
            holder._buffers[key] = tensor
    return found


def _reads_values(error: Exception) -> bool:
    """Whether a capture was refused because the code depends on values of tensors."""
    return "reads a value out of a tensor" in str(error)


def _decides_by_values(error: Exception) -> bool:
    return _reads_values(error) or "depends on data" in str(error)


def compile_stage(code: StageCode, build: Callable[[], Any]) -> Any:
    """Compiles a stage by a call of the engine, and returns examples of its outputs."""
    code.require_same_graphs()
    before, code.next_random_op = code.next_random_op, None
    noting = contextlib.nullcontext() if code.guards is None else code.guards.noting()
    with code.outside_autocast(), code.computing(), without_nan_checks(), noting, code.on_planes():
        outputs = _compile_stage(code, build)
    # The second chain has the program of the first one, so the stage's code has not run again.
    code.next_random_op = before if code.next_random_op is None else engine.random_op()
    return outputs


def _compile_stage(code: StageCode, build: Callable[[], Any]) -> Any:
    try:
        return build()
    except (Error, RuntimeError) as error:
        if code.guards is not None and code.guards.follows(code.index) and _decides_by_values(error):
            code.guards.keep_constant(code.index)
            code.outputs = None
            return _compile_stage(code, build)
        refused = with_line(error, code.index, build)
        if not _reads_values(error):
            raise refused from error
    code.is_traced, code.outputs = True, None
    try:
        return build()
    except (Error, RuntimeError):
        raise refused from None  # The model's code does not ask whether it is traced.


# For torch's flags and cached casts of the process: ranks capture on threads.
_process_lock = threading.RLock()


@contextlib.contextmanager
def _tracing() -> Iterator[None]:
    """Makes torch.compiler.is_compiling() and is_exporting() true."""
    compiler: Any = torch.compiler
    with _process_lock:
        before = compiler._is_compiling_flag, compiler._is_exporting_flag
        compiler._is_compiling_flag = compiler._is_exporting_flag = True
        try:
            yield
        finally:
            compiler._is_compiling_flag, compiler._is_exporting_flag = before


def _autocast_state(device: torch.device) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """Returns a context like the caller's torch.autocast, for threads that do not inherit it."""
    dtype = autocast_setting(device)
    if dtype is None:
        return contextlib.nullcontext
    return functools.partial(_autocast, device.type, dtype)


@contextlib.contextmanager
def _autocast(kind: str, dtype: torch.dtype) -> Iterator[None]:
    """An autocast that does not reuse weights which were cast outside of it."""
    with _process_lock, torch.autocast(kind, dtype=dtype):
        torch.clear_autocast_cache()
        try:
            yield
        finally:
            torch.clear_autocast_cache()
