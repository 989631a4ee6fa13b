"""Pipeline: PyTorch modules as the stages of a schedule, on the compiled engine."""

from __future__ import annotations

import collections
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from penstock import Error, Schedule
from penstock.torch import (  # noqa: F401 (stages ask slices)
    arguments,
    batches,
    losses,
    processes,
    settings,
    slices as _slices,
    weighting,
)
from penstock.torch.branches import Sources, Unused
from penstock.torch.capture import StageCode, autocast_setting, compile_stage, refuse_hooks
from penstock.torch.engine import engine, exclusive, one_line
from penstock.torch.foreign import Trained
from penstock.torch.last_step import LastStep
from penstock.torch.loss_tensors import LossTensors, loss_tensors
from penstock.torch.optimizers import AdamW, MakeOptimizer, StageOptimizer
from penstock.torch.schedule_of_stages import schedule_of_stages
from penstock.torch.unchanged import Unchanged
from penstock.torch.views import Views
from penstock.torch.weights import StageWeights, parameters_of, share_weights

_Tensors = tuple[list[torch.Tensor], list[torch.Tensor]]  # inputs and targets of a step

_STATEFUL = ("optimizers", "lr_schedulers")  # the attributes of a Pipeline that a checkpoint has


class Pipeline(Views):
    """Trains stages of a model as a schedule's ranks: threads of this process, or processes.

    Each stage is captured once, forward and backward, and compiled. Parameters stay those of the
    modules: ``state_dict()``, evaluation and checkpoints work as before, between steps.

    Args:
        stages: the modules, by stage number. A stage is called with what the one before it
            returned: with a tensor, or with the elements of a tuple or a list as arguments, or
            with those of a dict as keyword arguments. Under ``mpirun`` or ``torchrun``, those of
            other processes may be None, except for stages that share weights with a local one:
            only weights of modules that are passed are recognized as shared.
            `penstock.torch.split` divides a whole model.
        schedule: a name of the catalog (``penstock.schedules()``), a ``penstock.Schedule``, or the
            path of a ``.csv`` file.
        ranks: the number of ranks. Given by a Schedule.
        microbatches: of one step. Given by a Schedule.
        loss: ``loss(output, targets)`` of one microbatch, a scalar; the step's loss is their mean,
            weighted by samples. It may return a pair of the loss and a dict of metrics, scalars
            whose means `last` has. It is called ``loss(output)`` if ``step`` gets no targets.
            None: the last stage returns the loss itself, or an object with an attribute ``loss``.
        loss_weight: called with the targets of a microbatch (the inputs, if ``step`` gets no
            targets), returns the number of terms that its loss is the mean of, such as
            ``lambda targets: (targets != -100).sum()``. The step's loss is then the mean of all
            terms of the batch. None: its samples.
        optimizer: called with a list of a stage's parameters, returns its
            ``torch.optim.Optimizer``, which updates them on the rank's thread. If its argument is
            called ``named_parameters``, it gets a list of pairs (name, parameter). Default:
            ``penstock.torch.AdamW``. None: the step leaves gradients in ``parameter.grad``, added
            to those that are there.
        lr_scheduler: called with each optimizer, returns its scheduler, which steps after each
            step. May be None.
        clip_grad_norm: the largest norm of all gradients together; inf only measures it (`last`);
            0 for no limit.
        skip_nonfinite: skips an update if a gradient is not finite. Otherwise, with a limit, the
            step fails.
        exact: gradients are bitwise equal to autograd's with microbatches in order.
            False: sums may be rounded in another order, which is faster.
        threads: intra-op threads of each rank. Default: the cores divided by the local ranks; with
            ``exact``, ``torch.get_num_threads()``, because sums depend on it.
        seed: of dropout and other random ops. Default: torch's initial seed.
        slices: pieces of each microbatch along dimension 1, for causal models; see
            `penstock.torch.slices`.
        timeout: seconds without progress on any rank after which a step fails.
        outputs: whether `last` has what the last stage returned in a step.

    Raises:
        Error: the arguments do not fit together, or the engine cannot train a parameter. A stage
            that cannot be captured is reported by the first ``step``, with the line of its code.

    Threads: one at a time; others get an Error.
    """

    @one_line
    def __init__(
        self,
        stages: Sequence[nn.Module | None],
        schedule: str | Schedule = "1f1b",
        *,
        ranks: int | None = None,
        microbatches: int | None = None,
        loss: losses.Loss | None = None,
        loss_weight: weighting.LossWeight | None = None,
        optimizer: MakeOptimizer | None = AdamW,
        lr_scheduler: Callable[[torch.optim.Optimizer], Any] | None = None,
        clip_grad_norm: float = 0.0,
        skip_nonfinite: bool = False,
        exact: bool = False,
        threads: int | None = None,
        seed: int | None = None,
        slices: int = 1,
        timeout: float = 300.0,
        outputs: bool = False,
    ) -> None:
        given = locals()
        ranks, microbatches, threads, slices, seed = settings.check(given)
        self._busy = threading.Lock()
        self._stages = settings.stage_list(stages)
        self._hosts = processes.join()
        self.schedule = schedule_of_stages(schedule, len(self._stages), ranks, microbatches, slices)
        settings.check_schedule(self.schedule, given)
        self._loss, self._loss_weight, self._reports_outputs = loss, loss_weight, outputs
        self._loss_tensors = loss_tensors(loss, self._stages)
        self._local = [
            stage
            for stage, rank in enumerate(self.schedule.rank_of_stage)
            if self._hosts.host_of(rank, self.schedule.ranks) == self._hosts.host
        ]
        self._check_modules()
        options = engine.PipelineOptions()
        local_ranks = {self.schedule.rank_of_stage[stage] for stage in self._local}
        # Sums depend on the number of threads: exact results need as many as autograd has.
        options.threads = threads or (
            torch.get_num_threads()
            if exact
            else max(1, self._hosts.cores() // max(1, len(local_ranks)))
        )
        options.exact, options.fuse = exact, True
        options.clip, options.skip_nonfinite = float(clip_grad_norm), skip_nonfinite
        options.watchdog = self._timeout = float(timeout)
        self._measures_norm = options.clip > 0 or skip_nonfinite
        options.seed = (torch.initial_seed() if seed is None else seed) % 2**63
        self._scratch = tempfile.TemporaryDirectory(prefix="penstock-")
        options.offload_folder = self._scratch.name
        self._options = options
        self._built: Any = None
        self._steps = 0
        self._batch: batches.Layout | None = None
        self._is_plain = False  # whether batches are tensors without factors
        self._is_weighted = False  # whether stages are compiled for losses with factors
        # Of the last step.
        self._factors: torch.Tensor | None = None
        self._samples = 0
        self._last_loss: float | None = None
        self._last: LastStep | None = None
        self._last_code: StageCode | None = None  # of the last stage, if it is of this process
        self._autocast: torch.dtype | None = None
        self._unchanged = self._remember_tensors()
        self._weights, self._steppers = self._make_optimizers(optimizer)
        self._copied = [each for each in self._weights if each is not None and each.has_copies]
        self._native = [each for each in self._steppers if each is not None and each.is_native]
        #: The optimizer of each stage; None for stages of other processes and stages that train
        #: nothing. Empty without an optimizer.
        self.optimizers: list[torch.optim.Optimizer | None] = []
        if optimizer is not None:
            self.optimizers = [each.optimizer if each else None for each in self._steppers]
        #: Likewise, its learning-rate scheduler.
        self.lr_schedulers: list[Any] = []
        if lr_scheduler is not None:
            self.lr_schedulers = [
                settings.make_scheduler(lr_scheduler, each) for each in self.optimizers
            ]

    @exclusive
    def step(self, inputs: Any, targets: Any = None) -> float:
        """Runs one training step, with the update of the parameters.

        Args:
            inputs: what the first stage takes: a tensor, or a tuple (positional arguments) or dict
                (keyword arguments) that contains tensors. Tensors are of the whole batch: they are
                divided along dimension 0 into microbatches, of which the first ones have one sample
                more if they cannot be equal. A list with a tensor per sample is divided likewise.
            targets: likewise, for the loss.

        Returns:
            The mean loss of the batch, on every process.

        Raises:
            Error: a stage cannot be captured, or failed; the batch does not divide. After a
                failed step, the pipeline cannot be used again.
        """
        # The time between steps is what limits small models, so a step like the last one is checked
        # in one call.
        if self._is_plain and self._built.is_like_last(inputs, targets):
            return self._run_checked([_plain(inputs, targets)])[0]
        return self._run([self._weighted(*self._tensors_of(inputs, targets))])[0]

    @exclusive
    def steps(self, batches: Iterable[Sequence[Any]]) -> list[float]:
        """Runs a training step per batch without a pause in between.

        Computes the same numbers as `step`, for short steps in less time: a rank begins a step
        while others end the one before, and no Python code runs in between, except that of
        optimizers other than ``penstock.torch.AdamW``. With such an optimizer and a
        learning-rate scheduler, steps run one by one.

        Args:
            batches: ``(inputs, targets)`` or ``(inputs,)`` of each step, as `step` takes them, in
                tensors of its own. All are in memory at the same time: take some hundred at once.

        Returns:
            The mean loss of each step.

        Raises:
            Error: as `step`. If a batch is refused, no step runs.
        """
        checked = []
        for number, batch in enumerate(arguments.elements("steps: batches", batches)):
            if not isinstance(batch, (tuple, list)) or len(batch) not in (1, 2):
                raise Error(
                    f"steps: batch {number} is not a pair: pass (inputs, targets), or (inputs,) "
                    "without targets"
                )
            checked.append(self._tensors_of(batch[0], batch[1] if len(batch) == 2 else None))
        if not checked:
            return []
        all_tensors = [self._weighted(*each) for each in checked]
        in_python = [each and each.optimizer and not each.is_native for each in self._steppers]
        if self.lr_schedulers and any(in_python):  # Such an update reads what schedulers set.
            return [self._run([tensors])[0] for tensors in all_tensors]
        return self._run(all_tensors)

    def _run(self, batches: list[_Tensors]) -> list[float]:
        """Runs a step for each batch, with what belongs to it in Python."""
        for unchanged in self._unchanged:
            unchanged.check()
        for stepper in self._native:
            stepper.begin_run()
        for number in range(len(batches)):
            if number > 0:
                self._step_schedulers()
            for stepper in self._native:
                stepper.add_settings()
        self._built.set_watches(
            [each.watch for each in self._unchanged] + [each.watch() for each in self._native]
        )
        return self._run_checked(batches)

    def _run_checked(self, batches: list[_Tensors]) -> list[float]:
        """The same if nothing of it has changed since the last step."""
        for weights in self._copied:
            weights.refresh()
        losses: list[float] = self._built.run(batches, self._check_attributes)
        for weights in self._copied:
            weights.note_update()
        self._step_schedulers()
        self._steps += len(batches)
        self._last, self._last_loss = None, losses[-1]
        return losses

    def _step_schedulers(self) -> None:
        for lr_scheduler in self.lr_schedulers:
            if lr_scheduler is not None:
                lr_scheduler.step()

    def _tensors_of(self, inputs: Any, targets: Any) -> batches.Weighted:
        if self._is_plain and self._built.fits_last(inputs, targets):
            return (*_plain(inputs, targets), None)
        return self._check_batch(inputs, targets)

    def _weighted(
        self, inputs: list[torch.Tensor], targets: list[torch.Tensor], factors: torch.Tensor | None
    ) -> _Tensors:
        """Returns the tensors of a step. If stages take factors of losses, with these."""
        if self._is_weighted:
            factors = torch.ones(self.schedule.microbatches) if factors is None else factors
            targets = [*targets, factors]
        self._factors = factors
        self._samples = next((each.shape[0] for each in inputs if each.dim() > 0), 0)
        return inputs, targets

    def _check_batch(self, inputs: Any, targets: Any) -> batches.Weighted:
        """Returns the tensors of the batch. Compiles the stages if they are not."""
        if torch.is_inference_mode_enabled():
            raise Error(
                "step: torch.inference_mode is on, which excludes gradients: step outside of it"
            )
        if targets is not None and self._loss is None:
            raise Error("step: targets are given, but the Pipeline has no loss: pass loss=")
        divisors = self.schedule.microbatches, self.schedule.slices
        layout, input_tensors, target_tensors = batches.check(inputs, targets, *divisors)
        if self._batch is not None and layout != self._batch:
            raise Error(
                "step: the inputs or targets have another structure, or other values that are not "
                "tensors, than in the first step: make a new Pipeline for them"
            )
        if self._batch is not None and autocast_setting() != self._autocast:
            raise Error(
                f"step: torch.autocast is {autocast_setting() or 'off'}, but was "
                f"{self._autocast or 'off'} in the first step: step under the same autocast, or "
                "make a new Pipeline"
            )
        factors = batches.factors(
            layout, input_tensors, target_tensors, self.schedule, self._loss_weight
        )
        is_weighted = self._is_weighted or factors is not None
        if self._built is None or is_weighted != self._is_weighted:
            examples = [*target_tensors, factors] if factors is not None else target_tensors
            self._build(
                layout,
                batches.first_parts(input_tensors, *divisors),
                batches.first_parts(examples, *divisors),
                is_weighted,
            )
        return input_tensors, target_tensors, factors

    @exclusive
    def state_dict(self) -> dict[str, Any]:
        """Returns what a checkpoint needs besides the modules' ``state_dict()``.

        Returns:
            ``steps``, the number of steps so far, on which random numbers depend; and
            ``optimizers`` and ``lr_schedulers``, the states by stage: those of this process.
        """
        return {"steps": self._steps} | {
            name: [each and each.state_dict() for each in getattr(self, name)] for name in _STATEFUL
        }

    @exclusive
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues after the step at which `state_dict` was called.

        Load the modules' states, too. The results are then bitwise those of an uninterrupted run.

        Raises:
            Error: the state is of another number of stages, or of other processes' stages.
        """
        arguments.check_state(state, {"steps", *_STATEFUL}, _STATEFUL)
        for name in _STATEFUL:
            own, loaded = getattr(self, name), state[name]
            if [each is None for each in own] != [each is None for each in loaded]:
                raise Error(
                    f"load_state_dict: {name} are those of other stages: load the state into a "
                    "Pipeline of as many stages and processes"
                )
        for name in _STATEFUL:
            for each, loaded in zip(getattr(self, name), state[name], strict=True):
                if each is not None:
                    with arguments.in_code_of(f"load_state_dict: {name}"):
                        each.load_state_dict(loaded)
        self._steps = int(state["steps"])
        if self._built is not None:
            self._built.set_steps(self._steps)

    def _check_modules(self) -> None:
        for stage in self._local:
            index = stage % len(self._stages)
            settings.check_module(self._stages[index], index)

    def _check_attributes(self) -> None:
        for unchanged in self._unchanged:
            unchanged.check_attributes()

    def _remember_tensors(self) -> list[Unchanged]:
        last = len(self._stages) - 1
        indices = sorted({stage % (last + 1) for stage in self._local})
        all_unchanged = [
            Unchanged(
                self._module(index), index, self._loss_tensors.parameters if index == last else ()
            )
            for index in indices
        ]
        if isinstance(self._loss, nn.Module) and last in indices:
            refuse_hooks(self._loss, last)
            all_unchanged.append(Unchanged(self._loss, last))
        return all_unchanged

    def _make_optimizers(
        self, make: MakeOptimizer | None
    ) -> tuple[list[StageWeights | None], list[StageOptimizer | None]]:
        """Returns the weights of each stage, and what updates them; None for those not run here."""
        weights: list[StageWeights | None] = [None] * self.schedule.stages
        steppers: list[StageOptimizer | None] = [None] * self.schedule.stages
        trained: set[int] = set()
        for stage in self._local:
            index = stage % len(self._stages)
            extra = self._loss_tensors if index == len(self._stages) - 1 else LossTensors()
            weights[stage] = of_stage = StageWeights(self._module(index), index, trained, extra)
            steppers[stage] = StageOptimizer(of_stage, make)
        return weights, steppers

    def _module(self, index: int) -> nn.Module:
        module = self._stages[index]
        assert module is not None  # _check_modules
        return module

    def _build(
        self, layout: batches.Layout, inputs: list[Any], targets: list[Any], is_weighted: bool
    ) -> None:
        """Compiles the stages of this process. With weights, the last target is a factor."""
        for unchanged in self._unchanged:
            unchanged.begin()
        batch = layout, inputs, targets, is_weighted
        built, sources = self._compile(*batch, None)
        known = self._hosts.gather(self._hosts.next_pipeline(), "sources", sources)
        unused = Unused.of([collections.ChainMap(*known)[i] for i in range(len(self._stages))])
        named = parameters_of(self._stages, self._loss_tensors)
        is_shared_unused = len(share_weights(named)) > len(share_weights(named, unused.used))
        if any(unused.outputs) or is_shared_unused:
            built, _ = self._compile(*batch, unused)
        for unchanged in self._unchanged:
            unchanged.note_constants()
        self._built, self._is_weighted = built, is_weighted
        self._batch, self._autocast = layout, autocast_setting()
        self._is_plain = layout.is_plain and not is_weighted

    def _compile(
        self,
        layout: batches.Layout,
        inputs: list[Any],
        targets: list[Any],
        is_weighted: bool,
        unused: Unused | None,
    ) -> tuple[Any, dict[int, list[Sources | None]]]:
        """Returns the compiled stages, and what the outputs of each one depend on."""
        schedule, chain = self.schedule, len(self._stages)
        number = self._hosts.next_pipeline()
        self._options.slice_lengths = layout.slice_lengths(schedule.slices)
        self._options.first_step = self._steps
        built = engine.Pipeline(
            schedule.to_csv(),
            schedule.microbatches,
            schedule.replicas,
            schedule.slices,
            schedule.weights,
            self._options,
            self._hosts.handle,
        )
        named = parameters_of(self._stages, self._loss_tensors)
        trained, shared = Trained(named), share_weights(named, unused.used if unused else None)
        self._hosts.check_same(number, [holders.stages for holders in shared])
        self._hosts.check_loss(number, [name for name, _ in self._loss_tensors.parameters])
        sources: dict[int, list[Sources | None]] = {}
        built.set_shared([list(holders.stages) for holders in shared])
        previous: Any = None  # of the stage before in the chain: its outputs and their structure
        random_ops = {0: 0}  # by stage of the chain: the number of its first random op
        for stage in range(schedule.stages):
            index = stage % chain
            if stage not in self._local:
                previous = None
                continue
            if index > 0 and previous is None:
                previous = self._hosts.receive_examples(number, stage - 1)
            examples, structure = (inputs, layout.inputs) if index == 0 else previous[:2]
            is_last = index == chain - 1
            code = StageCode(
                self._module(index),
                index,
                structure,
                self._loss,
                layout.targets if is_last else None,
                is_last,
                schedule.slices,
            )
            code.is_weighted, code.reports_outputs = is_weighted, self._reports_outputs
            code.may_be_unweighted = self._loss_weight is not None
            code.trained = trained
            code.without_gradient = unused.outputs[index] if unused else frozenset()
            code.first_random_op = random_ops.setdefault(index, previous[2] if index else 0)
            parts = self._parts_of(stage, code, is_last)
            parts.inputs, parts.targets = examples, targets if is_last else []
            for holders in shared:
                parts.share(holders.entry(index))
            outputs = compile_stage(built, stage, parts, code)
            if code.next_random_op is not None:  # else the other chain has compiled it
                random_ops[index + 1] = engine.random_op()
            previous = (outputs, code.outputs, random_ops[index + 1])
            if code.metrics is not None:  # a last stage, and not the second chain's
                self._last_code = code
                built.set_metrics(len(code.metrics))
                self._hosts.publish_metrics(number, code.metrics)
            if code.sources:  # else the other chain has compiled it
                sources[index] = code.sources
            if not is_last and stage + 1 not in self._local:
                self._hosts.send_examples(number, stage, previous)
        self._number = number
        return built, sources

    def _parts_of(self, stage: int, code: StageCode, is_last: bool) -> Any:
        weights, stepper = self._weights[stage], self._steppers[stage]
        assert weights is not None and stepper is not None
        parts = engine.StageParts()
        code.names = {id(parameter): name for name, parameter in weights.parameters}
        parts.functions = engine.StageFunctions(
            code.forward, code.loss if is_last else None, code.refusal
        )
        parts.parameters, parts.masters = weights.parameters, weights.masters
        parts.state = weights.state
        stepper.bind(parts)
        return parts


def _plain(inputs: torch.Tensor, targets: torch.Tensor | None) -> _Tensors:
    return [inputs], [] if targets is None else [targets]
