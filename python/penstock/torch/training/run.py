"""The run of a Pipeline: its steps, what the last one computed, and from where it continues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from penstock import Error
from penstock.torch.batch import last_step, weighting
from penstock.torch.batch.last_step import LastStep
from penstock.torch.capture.compiled import Tensors
from penstock.torch.model import Model
from penstock.torch.training import evaluation
from penstock.torch.training.graphs import StageGraphs
from penstock.torch.training.preparation import Preparation, plain
from penstock.torch.weights import states


class Run:
    """Pipeline documents the methods."""

    def __init__(self, model: Model) -> None:
        self.model, self.graphs, self._updates = model, StageGraphs(model), model.updates
        self._preparation = Preparation(model, self.graphs)
        self._is_alone = model.processes.are_alone
        self.done = 0  # steps
        # Figures of the last step.
        self._factors: torch.Tensor | None = None
        self._samples = 0
        self._last_loss: float | None = None
        self._last: LastStep | None = None

    def step(self, inputs: Any, targets: Any) -> float:
        # The time between steps is what limits small models, so a step like the last one is checked
        # in one call.
        now, updates = self.graphs.now, self._updates
        if now is not None and now.is_plain and self._is_alone and updates.optimizers is updates.followed:
            if not self.graphs.is_to_verify(self.done) and now.engine.is_like_last(inputs, targets):
                return self._run_checked([plain(inputs, targets)], [now.last_shapes])[0]
        return self._run(*self._preparation.prepare([(inputs, targets)], self.done))[0]

    def steps(self, given: list[tuple[Any, Any]]) -> list[float]:
        all_tensors, numbers = self._preparation.prepare(given, self.done)
        assert self.graphs.now is not None
        used = [self.graphs.now.compiled.used.of(of_batch) for of_batch in numbers]
        # An update in Python reads what schedulers set, and all updates of a run have the same gradients.
        if self._updates.are_between_steps or any(each != used[0] for each in used):
            pairs = zip(all_tensors, numbers, strict=True)
            return [self._run([tensors], [of_batch])[0] for tensors, of_batch in pairs]
        return self._run(all_tensors, numbers)

    def _run(self, batches: list[Tensors], of_shapes: list[list[int]]) -> list[float]:
        """Runs a step for each batch, with what belongs to it in Python."""
        assert self.graphs.now is not None
        compiled = self.graphs.now.compiled
        self._updates.begin_run(compiled.used.of(of_shapes[0]), len(batches))  # and of the others, see steps
        compiled.engine.set_watches([*compiled.guards.watches, *self.model.watches()])
        losses = self._run_checked(batches, of_shapes)
        inputs, targets = batches[-1]
        self._factors = targets[-1] if self.graphs.now.is_weighted else None
        self._samples = next((each.shape[0] for each in inputs if each.dim() > 0), 0)
        return losses

    def _run_checked(self, batches: list[Tensors], of_shapes: list[list[int]]) -> list[float]:
        """Runs the batches if nothing that was captured has changed since the last step."""
        now, model = self.graphs.now, self.model
        assert now is not None
        for weights in model.copied:
            weights.refresh()
        if model.storage.shards_weights:
            model.shed(now.engine)
        elif model.casts is not None:
            now.engine.read_weights()
        now.last_shapes = of_shapes[-1]
        losses: list[float] = now.engine.run(batches, of_shapes)
        self._updates.step_schedulers()
        self.done += len(batches)
        self._last, self._last_loss = None, losses[-1]
        return losses

    def eval_step(self, inputs: Any, targets: Any) -> LastStep:
        self.graphs.gather()
        self._last = evaluation.step(self.model, inputs, targets)
        return self._last

    def last(self) -> LastStep:
        if self._last is None:
            if self._last_loss is None or self.graphs.now is None:
                raise Error("last: no step has run: call step first")
            self._last = self._report(self._last_loss, self.graphs.now.compiled)
        return self._last

    def _report(self, loss: float, compiled: Any) -> LastStep:
        model, schedule, code = self.model, self.model.schedule, compiled.last_code
        names = model.processes.metrics_of(compiled.number) if code is None else code.metrics or ()
        outputs = compiled.engine.last_outputs() if model.given.outputs else []
        merged = None
        if code is not None and code.outputs is not None and outputs and all(outputs):
            sizes = weighting.sizes(self._samples, schedule.microbatches)
            merged = last_step.merge([code.outputs.fill(each) for each in outputs], sizes)
        has_norm = model.given.clip_grad_norm > 0 or model.given.skip_nonfinite
        figures = compiled.engine.figures()
        return last_step.of_figures(loss, figures, self._factors, schedule.microbatches, schedule.slices, names, has_norm, merged)

    def state_dict(self) -> dict[str, Any]:
        model = self.model
        return {"steps": self.done, "seed": model.given.seed, **self._updates.state(model.processes, model.given.timeout)}

    def load_state_dict(self, state: dict[str, Any] | Sequence[dict[str, Any]]) -> None:
        loaded = states.merge(state, self.model.placement.chain_length)
        self._updates.load(loaded)
        self.done = int(loaded["steps"])
        if loaded["seed"] not in (None, self.model.given.seed):
            self.graphs.forget()  # Compiled stages have one seed.
            self.model.set_seed(loaded["seed"])
        if self.graphs.now is not None:
            self.graphs.now.engine.set_steps(self.done)
