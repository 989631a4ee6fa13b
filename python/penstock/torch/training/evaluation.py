"""Forward-only steps: the modules' own forward, microbatch by microbatch, on all processes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from penstock import Error
from penstock.torch.arguments import line_of
from penstock.torch.batch import batches, last_step, losses, objects, sample_lists, shapes, weighting
from penstock.torch.batch.last_step import LastStep
from penstock.torch.devices import forked_random
from penstock.torch.mesh.dtensors import computed_from_parts, places, received, to_send, value_of
from penstock.torch.mesh.means import over_planes
from penstock.torch.model import Model
from penstock.torch.processes import agreement, sameness, wire
from penstock.torch.processes.own_time import OwnTimeLimit
from penstock.torch.processes.processes import Processes
from penstock.torch.user_code import in_user_code


def step(model: Model, inputs: Any, targets: Any) -> LastStep:
    """Returns what a step without backward computes, on every process."""
    given, of_stages = model.given, model.placement.process_of
    (checked, samples, count), of_all = agreement.agree(
        model.processes, given.timeout, lambda: _check(model, inputs, targets), "eval_step"
    )
    layout = checked.layout
    if not model.processes.are_alone:
        sameness.compare([facts for _, _, facts in of_all])
        of_all = [each[:2] for each in model.processes.own_of(of_all)]
        readers = [[of_stages[0]], [of_stages[model.placement.chain_length - 1]]]
        sameness.compare_batch("eval_step", [k for k, _ in of_all], [s for _, s in of_all], readers, layout)
    input_tensors = [tensor.to(model.devices[0]) for tensor in checked.inputs]
    target_tensors = [tensor.to(model.devices[-1]) for tensor in checked.targets]
    all_inputs = batches.parts(layout.inputs, input_tensors, count)
    all_targets: list[tuple[Any] | None] = [None] * count
    if layout.targets is not None:
        all_targets = [(each,) for each in batches.parts(layout.targets, target_tensors, count)]
    sizes = weighting.sizes(samples or 1, count)

    def finish(microbatch: int, output: Any) -> _Result:
        of = all_targets[microbatch]
        if of is None and (given.loss is not None or not _is_loss(output)):
            return None, {}, pytree.tree_map(value_of, output)
        with in_user_code(f"stage {len(model.modules) - 1}, loss"):
            loss, metrics = losses.evaluate(given.loss, output, of)
            if (plane := model.processes.plane) is not None:
                loss = over_planes(loss, target_tensors, plane)
                metrics = {name: over_planes(each, target_tensors, plane) for name, each in metrics.items()}
        named = {name: metric.item() for name, metric in metrics.items()}
        return loss.item(), named, pytree.tree_map(value_of, output) if given.outputs else None

    results = _evaluate(model, all_inputs, finish)
    weights = weighting.by_samples(samples or 1, count)
    if given.loss_weight is not None and results[0][0] is not None:
        of_terms = all_inputs if layout.targets is None else [of[0] for of in all_targets if of]
        weights = weighting.by_terms(given.loss_weight, of_terms)
    return _report(results, sizes, weights)


def _check(model: Model, inputs: Any, targets: Any) -> tuple[tuple[batches.Checked, int | None, int], Any]:
    """Returns the batch, its samples and microbatches, and what other processes compare."""
    if targets is not None and model.given.loss is None:
        raise Error("eval_step: targets are given, but the Pipeline has no loss: pass loss=")
    inputs, targets = (
        objects.in_containers(each, f"eval_step: {name}") for each, name in ((inputs, "inputs"), (targets, "targets"))
    )
    samples = sample_lists.count(inputs, targets) if model.schedule.microbatches > 1 else None
    if samples == 0:
        raise Error("eval_step: the inputs have 0 samples: pass at least 1")
    count = min(model.schedule.microbatches, samples or 1)
    checked = batches.Checked(*batches.check(inputs, targets, count, 1, model.devices), None)
    shared = None
    if not model.processes.are_alone:
        kinds, sums = shapes.kinds_of(checked), sameness.sums_of(checked)
        facts = [] if model.processes.plane is None else [sums.facts("eval_step", kinds, model.processes.plane)]
        shared = kinds, sums, facts
    return (checked, samples, count), shared


#: The loss of a microbatch, its metrics, and its output, if they are wanted.
_Result = tuple["float | None", dict[str, float], Any]


def _is_loss(output: Any) -> bool:
    """Whether a last stage without a loss function returned a loss, maybe with metrics."""
    if isinstance(output, tuple) and len(output) == 2 and isinstance(output[1], dict):
        output = output[0]
    if isinstance(output, torch.Tensor):
        return output.dim() == 0
    return isinstance(getattr(output, "loss", None), torch.Tensor)


def _report(results: list[_Result], sizes: list[int], weights: torch.Tensor) -> LastStep:
    found = [loss for loss, _, _ in results if loss is not None]
    has_outputs = any(output is not None for _, _, output in results)
    outputs = last_step.merge([each for _, _, each in results], sizes) if has_outputs else None
    if not found:
        return LastStep(None, [], None, {}, outputs)
    metrics = {name: weighting.weighted_mean([of[name] for _, of, _ in results], weights) for name in results[0][1]}
    return LastStep(weighting.weighted_mean(found, weights), found, None, metrics, outputs)


#: Called with the number of a microbatch and the output of the last stage; returns what is wanted.
Finish = Callable[[int, Any], Any]


def _evaluate(model: Model, inputs: Sequence[Any], finish: Finish) -> list[Any]:
    """Returns finish(m, output) of each microbatch m, on every process.

    No gradients are computed, and buffers and torch's random state are as before. `finish` runs
    on the process of the last stage.

    Raises:
        Error: a stage fails, here or on another process.
    """
    letters = _Letters(model.processes, model.given.timeout)
    casts, of_stages = model.casts, zip(model.modules, model.placement.process_of, strict=False)  # of the first chain
    own = [module for module, process in of_stages if process == letters.process and module is not None]
    try:
        with _nothing_changed(own, model.devices), contextlib.ExitStack() as stack:
            if casts is not None:
                for module in own:
                    divided = places(module)
                    stack.enter_context(casts.in_place(module))
                    stack.enter_context(computed_from_parts(divided))
            return _run(model, letters, inputs, finish)
    except BaseException as error:
        letters.send_error(line_of(error))
        raise


def _run(model: Model, letters: _Letters, inputs: Sequence[Any], finish: Finish) -> list[Any]:
    process_of, casts = model.placement.process_of, model.casts
    stages, here = len(model.modules), letters.process
    values: dict[tuple[int, int], Any] = {}  # by stage and microbatch: its input
    results: list[Any] = [None] * len(inputs)
    # In this order, a process works on a microbatch while others work on the next ones, and none
    # waits for an action that comes later on another process.
    order = sorted(
        (stage + microbatch, stage, microbatch)
        for stage in range(stages)
        for microbatch in range(len(inputs))
        if process_of[stage] == here
    )
    for _, stage, microbatch in order:
        if stage == 0:
            value = inputs[microbatch]
            if casts is not None:
                value = pytree.tree_map_only(torch.Tensor, casts.input, value)
        elif (stage, microbatch) in values:
            value = values.pop((stage, microbatch))
        else:
            value = received(letters.receive((stage, microbatch)), model.processes.plane)
        if stage > 0:
            value = _moved(value, model.devices[stage])
        with in_user_code(f"stage {stage}, forward"):
            value = batches.call(model.module(stage), value)
        if stage == stages - 1:
            if casts is not None:
                value = pytree.tree_map_only(torch.Tensor, _in_fp32, value)
            results[microbatch] = finish(microbatch, value)
        elif process_of[stage + 1] == here:
            values[stage + 1, microbatch] = value
        else:
            letters.send(process_of[stage + 1], (stage + 1, microbatch), to_send(value, f"stage {stage} returns"))
    if process_of[stages - 1] == here:
        letters.send_to_others((stages, 0), results)
        return results
    return list(letters.receive((stages, 0)))


def _moved(value: Any, device: torch.device) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda each: each.to(device), value)


def _in_fp32(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor


@contextlib.contextmanager
def _nothing_changed(modules: Sequence[nn.Module], devices: Sequence[torch.device]) -> Iterator[None]:
    """Restores buffers and torch's random state, also what forward assigns to buffers."""
    places = [
        (each._buffers, key, buffer)
        for module in modules
        for each in module.modules()
        for key, buffer in each._buffers.items()
        if buffer is not None
    ]
    buffers = list({id(buffer): buffer for _, _, buffer in places}.values())
    # Not every kernel that changes a buffer changes its version.
    versions = [buffer._version for buffer in buffers]
    copies = [buffer.detach().clone() for buffer in buffers]
    try:
        with forked_random(*devices), torch.no_grad():
            yield
    finally:
        for holder, key, buffer in places:
            if holder.get(key) is not buffer:
                holder[key] = buffer
        with torch.no_grad():
            for buffer, copy in zip(buffers, copies, strict=True):
                if not torch.equal(buffer, copy):
                    buffer.copy_(copy)
        # Compiled stages take another version for a change that they would ignore.
        autograd: Any = torch._C._autograd
        autograd._unsafe_set_version_counter(tuple(buffers), tuple(versions))


class _Letters:
    """Values that processes send each other during one evaluation."""

    def __init__(self, processes: Processes, timeout: float) -> None:
        self.process, self._processes, self._timeout = processes.process, processes, timeout
        self._number = processes.next_evaluation()

    def send(self, to: int, key: tuple[int, int], value: Any) -> None:
        self._processes.handle.send(to, self._letter(key, value))

    def _letter(self, key: tuple[int, int] | None, value: Any) -> bytes:
        return wire.dumps((self._number, key, value))

    def send_to_others(self, key: tuple[int, int] | None, value: Any) -> None:
        if self._processes.processes == 1:
            return
        letter = self._letter(key, value)
        for other in range(self._processes.processes):
            if other != self.process:
                self._processes.handle.send(other, letter)

    def send_error(self, line: str) -> None:
        """Has the others fail, too, unless it is their error."""
        if not line.startswith("Error: process "):
            with contextlib.suppress(RuntimeError):  # the run has ended
                self.send_to_others(None, f"process {self.process}: {line.removeprefix('Error: ')}")

    def receive(self, key: tuple[int, int]) -> Any:
        kept = self._processes.letters
        limit = OwnTimeLimit(self._timeout)
        while (self._number, key) not in kept:
            letter = self._processes.handle.receive(50)  # ms, between which Ctrl-C is noticed
            if letter:
                number, of, value = wire.loads(letter)
                if of is None and number == self._number:
                    raise Error(value)
                if number >= self._number:  # later ones are of a process that is ahead
                    kept[number, of] = value
            elif limit.is_over():
                raise Error(
                    f"eval_step: no process has sent the input of stage {key[0]} within "
                    f"{self._timeout:g} s: call eval_step on every process"
                )
            if (self._number, None) in kept:
                raise Error(kept.pop((self._number, None)))
        return kept.pop((self._number, key))
