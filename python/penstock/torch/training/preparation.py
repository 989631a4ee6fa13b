"""What happens before a step: its batch is checked on all processes, and the stages are compiled for what has changed."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from penstock import Error
from penstock.torch.batch import batches, shapes
from penstock.torch.batch.shapes import Shape
from penstock.torch.capture.compiled import Tensors
from penstock.torch.devices import autocast_setting
from penstock.torch.model import Model
from penstock.torch.processes import agreement, sameness
from penstock.torch.training import facts
from penstock.torch.training.graphs import StageGraphs
from penstock.torch.weights.stage_optimizer import UPDATES


@dataclasses.dataclass(frozen=True)
class _Said:
    """What a process tells the others before steps."""

    is_weighted: bool  # whether losses have factors
    kinds: Any  # by batch, as `sums`; None for a process that is alone
    sums: Any
    changed: str
    facts: list[sameness.Facts]  # that planes of a mesh compare


class Preparation:
    """If a method fails on a process, it fails on all, and nothing has changed."""

    def __init__(self, model: Model, graphs: StageGraphs) -> None:
        self._model, self._graphs, self._timeout = model, graphs, model.given.timeout
        self._is_alone = model.processes.are_alone
        self._is_weighted = False  # whether stages are compiled for losses with factors

    def prepare(self, given: list[tuple[Any, Any]], steps: int) -> tuple[list[Tensors], list[list[int]]]:
        """Checks batches, and compiles the stages for their shapes. ``steps``: that have run.

        Returns the tensors of each batch, and the numbers of its microbatches' shapes.
        """
        graphs, schedule = self._graphs, self._model.schedule
        checked, of_all = agreement.agree(self._model.processes, self._timeout, lambda: self._check(given))
        sameness.compare([each.facts for each in of_all])
        is_weighted = any(each.is_weighted for each in of_all)
        if changed := next((each.changed for each in of_all if each.changed), ""):
            graphs.drop(changed)
        now = graphs.now if is_weighted == self._is_weighted else None
        is_verified = now is not None and graphs.is_to_verify(steps)
        if now is not None and self._is_alone:
            all_tensors = [batches.with_factors(each, is_weighted, schedule) for each in checked]
            if now.engine.all_fit_last(all_tensors) and not is_verified:
                return all_tensors, [now.last_shapes] * len(given)
        own = self._model.processes.own_of(of_all)
        wanted = self._shapes_of([each.kinds for each in own], [each.sums for each in own], checked)
        if is_weighted:
            wanted = [shapes.with_factors(each, schedule) for each in wanted]
        if now is None:
            self._build(checked[0], wanted[0][0], is_weighted, steps)
        all_tensors = [batches.with_factors(each, is_weighted, schedule) for each in checked]
        if is_verified:
            graphs.verify(all_tensors[0], wanted[0][0], steps)
        return all_tensors, self._add_shapes(all_tensors, wanted)

    def _check(self, given: list[tuple[Any, Any]]) -> tuple[list[batches.Checked], _Said]:
        """Returns the batches, and what all processes have to know.

        Raises Error for changes that cannot be followed.
        """
        self._model.updates.follow()
        checked = [self._check_batch(*each) for each in given]
        if any(each.layout != checked[0].layout for each in checked):
            raise Error("steps: the batches have different structures: call step for each")
        changed = self._changed(checked[0])
        is_weighted = self._is_weighted or any(each.factors is not None for each in checked)
        if self._is_alone:
            return checked, _Said(is_weighted, None, None, changed, [])
        sums, kinds = [sameness.sums_of(each) for each in checked], [shapes.kinds_of(each) for each in checked]
        facts_of_planes = sameness.facts_of_batches(sums, kinds, self._model.processes.plane)
        return checked, _Said(is_weighted, kinds, sums, changed, facts_of_planes)

    def _check_batch(self, inputs: Any, targets: Any) -> batches.Checked:
        """Returns the tensors of the batch."""
        now, model = self._graphs.now, self._model
        if now is not None and now.is_plain and now.engine.fits_last(inputs, targets):
            return batches.Checked(now.layout, *plain(inputs, targets), None)
        if torch.is_inference_mode_enabled():
            raise Error("step: torch.inference_mode is on, which excludes gradients: step outside of it")
        if targets is not None and model.given.loss is None:
            raise Error("step: targets are given, but the Pipeline has no loss: pass loss=")
        divisors = model.schedule.microbatches, model.schedule.slices
        layout, input_tensors, target_tensors = batches.check(inputs, targets, *divisors, model.devices)
        factors = batches.factors(layout, input_tensors, target_tensors, model.schedule, model.given.loss_weight)
        return batches.Checked(layout, input_tensors, target_tensors, factors)

    def _changed(self, batch: batches.Checked) -> str:
        """Returns what makes this process capture its stages again; "" if nothing has changed."""
        of_modules = self._model.follow_modules()
        changed = self._graphs.changed(batch.layout, autocast_setting(self._model.devices[0]))
        if not changed and self._graphs.now is not None and self._model.updates.are_bound_otherwise:
            return UPDATES
        return of_modules or changed

    def _shapes_of(self, kinds: list[Any], sums: list[Any], checked: list[batches.Checked]) -> list[list[Shape]]:
        """Returns the shapes of each batch: what first and last stages read.

        Raises Error if processes were given different batches.
        """
        placement = self._model.placement
        if self._is_alone:
            kinds = [[shapes.kinds_of(each) for each in checked]]
        # The processes that read inputs, and targets.
        readers = [[placement.process_of[each] for each in placement.replicas(end)] for end in (0, placement.chain_length - 1)]
        of_batches = shapes.of_processes(kinds, readers, self._model.schedule.microbatches)
        if not self._is_alone:
            sameness.compare_batches(kinds, sums, readers, checked[0].layout)
        return of_batches

    def _build(self, batch: batches.Checked, shape: Shape, is_weighted: bool, steps: int) -> None:
        """Compiles the stages, or takes the ones of earlier values that have returned."""
        model, graphs = self._model, self._graphs
        graphs.gather()
        trained = [*model.weights, *(each.is_native for _, each in model.updates.here)]
        wanted = batch.layout, autocast_setting(model.devices[0]), is_weighted, trained
        returned = graphs.returned(*wanted)
        if returned is not None:
            returned.engine.set_steps(steps)
        else:
            if graphs.now is None:
                agreement.compare(model.processes, self._timeout, lambda: facts.initial_facts(model))
            model.options.set_slice_lengths(batch.layout.slice_lengths(model.schedule.slices))
            model.options.first_step = steps
            graphs.compile(*wanted, batches.with_factors(batch, is_weighted, model.schedule), shape, steps)
            for weights in filter(None, model.weights):
                weights.end_build()
        for _, stepper in model.updates.here:
            stepper.is_bound_native = stepper.is_native  # as these were bound
        self._is_weighted = is_weighted

    def _add_shapes(self, all_tensors: list[Tensors], wanted: list[list[Shape]]) -> list[list[int]]:
        """Compiles the stages for shapes that are new. Returns the numbers of each batch."""
        assert self._graphs.now is not None
        compiled = self._graphs.now.compiled
        needed = [shape for of_batch in wanted for shape in of_batch]
        for shape in compiled.shapes.missing(needed):
            number = next(index for index, each in enumerate(wanted) if shape in each)
            if self._model.schedule.slices > 1:
                raise Error(
                    f"step: with slices, all batches have the shape of the first one, but batch "
                    f"{number} has another: pad it, or make a new Pipeline"
                )
            self._graphs.gather()
            compiled.add_on_all(shape, all_tensors[number])
        numbers = [compiled.shapes.use(of_batch) for of_batch in wanted]
        for dropped in compiled.shapes.drop_surplus(needed):
            compiled.engine.drop_shape(dropped)
        return numbers


def plain(inputs: torch.Tensor, targets: torch.Tensor | None) -> Tensors:
    """Returns a batch of tensors."""
    return [inputs], [] if targets is None else [targets]
