"""Pipeline: PyTorch modules as the stages of a schedule, on the compiled engine."""

from __future__ import annotations

import copy
import dataclasses
import os
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import torch
from torch import nn

from penstock import Error, Schedule
from penstock.torch import arguments, devices
from penstock.torch.batch import batches, shapes
from penstock.torch.batch.last_step import LastStep
from penstock.torch.batch.shapes import Shape
from penstock.torch.capture.compiled import Compiled, Model
from penstock.torch.capture.stage_code import StageCode
from penstock.torch.devices import autocast_setting
from penstock.torch.engine import engine, exclusive, one_line
from penstock.torch.hooks import refuse_hooks
from penstock.torch.optimizers import AdamW
from penstock.torch.plain_tensors import require_plain_module
from penstock.torch.processes import agreement, processes, sameness
from penstock.torch.training import facts, options
from penstock.torch.training.graphs import Graphs, StageGraphs
from penstock.torch.training.schedule_of_stages import schedule_of_stages, zero_of
from penstock.torch.training.views import Views
from penstock.torch.weights import shared_memory, states
from penstock.torch.weights.loss_tensors import LossTensors, loss_tensors
from penstock.torch.weights.stage_optimizer import UPDATES, MakeOptimizer, StageOptimizer, follow_optimizers
from penstock.torch.weights.unchanged import Unchanged
from penstock.torch.weights.weights import Casts, StageWeights, Storage, parameters_of

_Tensors = tuple[list[torch.Tensor], list[torch.Tensor]]  # inputs and targets of a step


class Pipeline(Views):
    """Trains stages of a model as a schedule's ranks: threads of this process, or processes.

    Each stage is captured once, forward and backward, and compiled. Parameters stay the modules'
    own: ``state_dict()``, evaluation and checkpoints work as before, between steps.

    Args:
        stages: the modules, by stage number. A stage is called with what the one before it
            returned: with a tensor, or with the elements of a tuple or a list as arguments, or
            with the values of a dict as keyword arguments. Under ``mpirun`` or ``torchrun``, stages
            of other processes may be None, unless they share weights with a local one: only weights
            of modules that are passed are recognized as shared. `penstock.torch.split` divides a
            whole model.
        schedule: a name of the catalog (``penstock.schedules()``), a ``penstock.Schedule``, or the
            path of a ``.csv`` file.
        ranks: the number of ranks of each replica. Given by a Schedule.
        microbatches: of one step, of all replicas together. A Schedule gives one replica's.
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
            to existing ones.
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
        seed: of dropout and other random ops. Default: torch's initial seed, of process 0.
        data_parallel: replicas of the pipeline, each on ranks of its own, which divide the
            microbatches of a step. After a step all replicas have the modules' parameters.
        zero: what the replicas of a stage divide among themselves. 1: the states of optimizers;
            2: also gradients; 3: also weights. With ``precision``, also the weights that optimizers
            update. Needs ``penstock.torch.AdamW``. Weights that are divided are in the modules only
            after `gather`.
        precision: the dtype that stages compute in, ``torch.bfloat16``: casts of the weights and of
            the inputs. The modules' weights, their updates and the loss are in float32. None: the
            dtypes of the modules.
        gradient_dtype: of sums of gradients over microbatches and replicas: ``torch.float32`` or
            ``torch.bfloat16``.
        slices: pieces of each microbatch along dimension 1, for causal models; see
            `penstock.torch.slices`.
        recompute: the activations that a microbatch keeps; the others are computed again. ``hold``:
            from F to its backward, ``hold_for_weight``: from I to W; each ``"all"`` (default),
            ``"least"`` or a size (``"1.5MiB"``), as in a configuration of ``penstock train``.
        offload: where OFFLOAD actions of the schedule move activations, ``{"pool": FOLDER}`` as in
            a configuration. Default: a temporary folder.
        timeout: seconds without progress on any rank after which a step fails.
        device: where the stages are and train, ``"cuda"`` or ``torch.device("cuda:1")``. Default:
            where their parameters are, which may be several devices of one type: a rank trains
            where its stages are. See ``docs/devices.md``.
        device_graphs: whether forwards and backwards are recorded as graphs of the device (CUDA
            graphs) and started by one call. Needs the device's plugin.
        device_parts: whether each rank of this process has a part of the device's processors (CUDA
            green contexts), in place of sharing all of them. Needs the device's plugin.
        transport: how processes exchange messages. ``"tcp"``: connections of their own.
            ``"c10d"``: groups of ``torch.distributed``, which move tensors of a device by its
            backend (NCCL, XCCL) without the host. It needs ``init_process_group`` before.
        outputs: whether `last` has what the last stage returned in a step.
        verify_every: after how many steps the stages are captured again, to prove that they still
            compute what their code says. 0: only the first step proves it, by two captures. Values
            that the code reads are compared before each step in any case.

    Raises:
        Error: the arguments do not fit together, or the engine cannot train a parameter. A stage
            that cannot be captured is reported by the first ``step``, with the line of its code.

    Threads: one at a time; others get an Error.
    """

    #: The optimizer of each stage; None for stages of other processes and stages that train nothing. Empty without an optimizer.
    optimizers: list[torch.optim.Optimizer | None]
    #: Likewise, its learning-rate scheduler.
    lr_schedulers: list[Any]

    @one_line
    @facts.made_on_all
    @arguments.checked
    def __init__(
        self,
        stages: Sequence[nn.Module | None],
        schedule: str | Schedule = "1f1b",
        *,
        ranks: options.Count | None = None,
        microbatches: options.Count | None = None,
        loss: options.Loss = None,
        loss_weight: options.LossWeight = None,
        optimizer: options.Optimizer = AdamW,
        lr_scheduler: options.LrScheduler = None,
        clip_grad_norm: options.Norm = 0.0,
        skip_nonfinite: bool = False,
        exact: bool = False,
        threads: options.Count | None = None,
        seed: Annotated[int, arguments.whole()] | None = None,
        data_parallel: Annotated[int, arguments.whole(1)] = 1,
        zero: options.Zero = 0,
        precision: options.Precision = None,
        gradient_dtype: options.GradientDtype = torch.float32,
        slices: Annotated[int, arguments.whole(1)] = 1,
        recompute: Mapping[str, str] | None = None,
        offload: Mapping[str, str | os.PathLike[str]] | None = None,
        timeout: options.Seconds = 300.0,
        device: torch.device | str | None = None,
        device_graphs: bool = False,
        device_parts: bool = False,
        transport: options.Transport = "tcp",
        outputs: bool = False,
        verify_every: Annotated[int, arguments.whole(0)] = 0,
    ) -> None:
        if optimizer is None:
            options.check_without_optimizer(zero, lr_scheduler)
        self._busy = threading.Lock()
        self._stages = options.stage_list(stages)
        self._processes = self._join(transport, device)
        self.schedule = schedule_of_stages(schedule, len(self._stages), ranks, microbatches, slices, data_parallel, zero)
        self._zero = zero_of(zero, data_parallel, self.schedule)
        self._storage = self._make_storage(precision, data_parallel, optimizer is not None)
        self._casts = None if precision is None else Casts(precision)
        options.check_schedule(
            self.schedule, loss_weight=loss_weight, clip_grad_norm=clip_grad_norm, skip_nonfinite=skip_nonfinite
        )
        self._loss, self._loss_weight, self._reports_outputs = loss, loss_weight, outputs
        by_rank = self._place_stages(loss, device, transport)
        of_engine = engine.PipelineOptions()
        of_engine.set_devices([str(each) for each in by_rank], device_graphs, device_parts)
        self._is_exact, self._is_shed = exact, False
        of_engine.threads = threads or self._threads_of_rank(exact)
        seed = torch.initial_seed() if seed is None else seed
        self._seed, self._sums_in_bf16 = seed % 2**63, gradient_dtype == torch.bfloat16
        of_engine.set_stages(exact, self._sums_in_bf16, self._seed)
        self._recompute = options.held(recompute)
        of_engine.set_recompute(**self._recompute)
        of_engine.set_replicas(data_parallel, zero)
        of_engine.set_update(clip_grad_norm, skip_nonfinite)
        of_engine.watchdog = self._timeout = timeout
        self._measures_norm = clip_grad_norm > 0 or skip_nonfinite
        self._scratch = tempfile.TemporaryDirectory(prefix="penstock-")
        of_engine.offload_folder = options.pool(offload) or self._scratch.name
        self._options = of_engine
        self._begin(verify_every)
        self._unchanged = self._remember_tensors()
        self._weights, self._steppers = self._make_optimizers(optimizer)
        self._copied = [each for each in self._weights if each is not None and each.has_copies]
        self._updating = [(stage % len(self._stages), each) for stage, each in enumerate(self._steppers) if each is not None]
        self._model = self._make_model(loss_weight is not None)
        self.optimizers = [] if optimizer is None else [each.optimizer if each else None for each in self._steppers]
        self._followed = self.optimizers
        self.lr_schedulers = [] if lr_scheduler is None else [options.make_scheduler(lr_scheduler, each) for each in self.optimizers]

    def _join(self, transport: str, device: torch.device | str | None) -> processes.Processes:
        return processes.join(transport, lambda: devices.of_stages(self._stages, device)[0])

    def _make_storage(self, precision: torch.dtype | None, data_parallel: int, has_updates: bool) -> Storage:
        has_groups = self._zero >= 2 or self.schedule.replicas == data_parallel
        return Storage(
            compute=precision,
            zero=self._zero,
            shards_weights=self._zero == 3 or (self._zero > 0 and precision is not None and has_groups),
            has_updates=has_updates,
        )

    def _place_stages(self, loss: Any, device: torch.device | str | None, transport: str) -> list[torch.device]:
        """Sets the stages and the devices of this process. Returns the device of each of its ranks."""
        chain = len(self._stages)
        self._local = [
            stage
            for stage, rank in enumerate(self.schedule.rank_of_stage)
            if self._processes.process_of(rank, self.schedule.ranks) == self._processes.process
        ]
        self._check_modules()
        self._loss_tensors = loss_tensors(loss, self._stages)
        shared_memory.check_parameters(parameters_of(self._stages, self._loss_tensors))
        here = {stage % chain for stage in self._local}
        self._devices = devices.of_stages([each if index in here else None for index, each in enumerate(self._stages)], device)
        by_rank = devices.of_ranks(self._devices, self.schedule.rank_of_stage, self._local)
        if transport == "c10d" and self._processes.processes > 1:
            devices.require_one(by_rank)
        return by_rank

    def _threads_of_rank(self, exact: bool) -> int:
        local_ranks = {self.schedule.rank_of_stage[stage] for stage in self._local}
        # Sums depend on the number of threads: exact results need as many as autograd has.
        return torch.get_num_threads() if exact else max(1, self._processes.cores() // max(1, len(local_ranks)))

    def _begin(self, verify_every: int) -> None:
        """Sets what steps change."""
        keeps = self._zero == 0 and self._casts is None
        self._graphs = StageGraphs(self._processes, self._timeout, keeps=keeps, is_exact=self._is_exact, verify_every=verify_every)
        self._compiled: Compiled | None = None  # after the first step
        self._built: Any = None  # its engine.Pipeline
        self._last_shapes: list[int] = []  # of the last step
        self._steps = 0
        self._batch: batches.Layout | None = None
        self._is_plain = False  # whether batches are tensors without factors
        self._is_weighted = False  # whether stages are compiled for losses with factors
        # Figures of the last step.
        self._factors: torch.Tensor | None = None
        self._samples = 0
        self._last_loss: float | None = None
        self._last: LastStep | None = None
        self._last_code: StageCode | None = None  # of the last stage, if it is of this process
        self._autocast: torch.dtype | None = None

    def _make_model(self, is_weighted: bool) -> Model:
        return Model(
            self._stages,
            self.schedule,
            self._local,
            self._processes,
            self._options,
            self._weights,
            self._steppers,
            self._loss,
            self._reports_outputs,
            is_weighted,
            self._loss_tensors,
            self._zero > 0,
            self._casts,
            self._devices,
            self._recompute,
        )

    @exclusive
    def step(self, inputs: Any, targets: Any = None) -> float:
        """Runs one training step, with the update of the parameters.

        Args:
            inputs: what the first stage takes: a tensor, or a tuple (positional arguments) or dict
                (keyword arguments) that contains tensors. Tensors are of the whole batch: they are
                divided along dimension 0 into microbatches; the first ones have one sample more if
                they cannot be equal. A list with a tensor per sample is divided likewise.
            targets: likewise, for the loss.

        Returns:
            The mean loss of the batch, on every process.

        Raises:
            Error: the batch does not divide, or a stage cannot be captured for its shape; then
                nothing has changed. Or a stage failed while it ran; then the pipeline cannot be
                used again.
        """
        # The time between steps is what limits small models, so a step like the last one is checked
        # in one call.
        is_alone = self._is_plain and self._processes.processes == 1 and not self._graphs.is_to_verify(self._steps)
        is_alone = is_alone and self.optimizers is self._followed
        if is_alone and self._built.is_like_last(inputs, targets):
            return self._run_checked([_plain(inputs, targets)], [self._last_shapes])[0]
        return self._run(*self._prepare([(inputs, targets)]))[0]

    @exclusive
    def steps(self, batches: Iterable[Sequence[Any]]) -> list[float]:
        """Runs a training step per batch without a pause in between.

        Computes the same numbers as `step`, for short steps in less time: a rank begins a step
        while others end the one before, and no Python code runs in between, except for optimizers
        other than ``penstock.torch.AdamW``. With such an optimizer and a learning-rate scheduler,
        steps run one by one.

        Args:
            batches: ``(inputs, targets)`` or ``(inputs,)`` of each step, as `step` takes them, in
                tensors of its own. All are in memory at the same time: take some hundred at once.

        Returns:
            The mean loss of each step.

        Raises:
            Error: as `step`. If a batch is refused, no step runs.
        """
        given = []
        for number, batch in enumerate(arguments.elements("steps: batches", batches)):
            if not isinstance(batch, (tuple, list)) or len(batch) not in (1, 2):
                raise Error(f"steps: batch {number} is not a pair: pass (inputs, targets), or (inputs,) without targets")
            given.append((batch[0], batch[1] if len(batch) == 2 else None))
        if not given:
            return []
        all_tensors, numbers = self._prepare(given)
        assert self._compiled is not None
        used = [self._compiled.used.of(of_batch) for of_batch in numbers]
        in_python = [each for _, each in self._updating if each.optimizer and not each.is_native]
        # An update in Python reads what schedulers set, and all updates of a run have the same gradients.
        if (self.lr_schedulers and in_python) or any(each != used[0] for each in used):
            pairs = zip(all_tensors, numbers, strict=True)
            return [self._run([tensors], [of_batch])[0] for tensors, of_batch in pairs]
        return self._run(all_tensors, numbers)

    def _prepare(self, given: list[tuple[Any, Any]]) -> tuple[list[_Tensors], list[list[int]]]:
        """Checks batches, and compiles the stages for their shapes.

        Returns the tensors of each batch, and the numbers of its microbatches' shapes. If it
        fails on a process, it fails on all, and nothing has changed.
        """
        checked, of_all = agreement.agree(self._processes, self._timeout, lambda: self._check(given))
        is_weighted = any(each for each, *_ in of_all)
        changed = next((each for *_, each in of_all if each), "")
        if changed:
            self._drop(changed)
        is_built = self._compiled is not None and is_weighted == self._is_weighted
        if is_built and self._processes.processes == 1:
            all_tensors = [batches.with_factors(each, is_weighted, self.schedule) for each in checked]
            if self._built.all_fit_last(all_tensors) and not self._graphs.is_to_verify(self._steps):
                return all_tensors, [self._last_shapes] * len(given)
        wanted = self._shapes_of([kinds for _, kinds, _, _ in of_all], [sums for _, _, sums, _ in of_all], checked)
        if is_weighted:
            wanted = [shapes.with_factors(each, self.schedule) for each in wanted]
        if not is_built:
            self._build(checked[0], wanted[0][0], is_weighted)
        all_tensors = [batches.with_factors(each, is_weighted, self.schedule) for each in checked]
        if is_built and self._graphs.is_to_verify(self._steps):
            self._graphs.verify(all_tensors[0], wanted[0][0], self._steps)
        return all_tensors, self._add_shapes(all_tensors, wanted)

    def _check(self, given: list[tuple[Any, Any]]) -> tuple[list[batches.Checked], Any]:
        """Returns the batches, and for all processes whether losses have factors, the kinds, and what has changed.

        Raises Error for changes that cannot be followed.
        """
        self._follow_optimizers()
        checked = [self._check_batch(*each) for each in given]
        if any(each.layout != checked[0].layout for each in checked):
            raise Error("steps: the batches have different structures: call step for each")
        changed = self._changed(checked[0])
        is_weighted = self._is_weighted or any(each.factors is not None for each in checked)
        if self._processes.processes == 1:
            return checked, (is_weighted, None, None, changed)
        sums = [sameness.sums_of(each) for each in checked]
        return checked, (is_weighted, [shapes.kinds_of(each) for each in checked], sums, changed)

    def _changed(self, batch: batches.Checked) -> str:
        """Returns what makes this process capture its stages again; "" if nothing has changed."""
        of_tensors = next((each for each in (of.changed() for of in self._unchanged) if each), "")
        if of_tensors:
            self._follow_tensors(of_tensors)
        changed = self._graphs.changed(batch.layout, autocast_setting(self._devices[0]))
        if not changed and self._compiled is not None and any(each.is_bound_otherwise for _, each in self._updating):
            return UPDATES
        return of_tensors or changed

    def _follow_tensors(self, changed: str) -> None:
        """Takes over tensors of modules that were replaced, added, removed or frozen.

        Raises Error, before anything has changed, if the optimizer does not know one of them.
        """
        unchanged = self._remember_tensors()
        if [each.tensors for each in unchanged] == [each.tensors for each in self._unchanged]:
            self._unchanged = unchanged  # Only modules without tensors have changed.
            return
        found = loss_tensors(self._loss, self._stages)
        weights, steppers = list(self._weights), list(self._steppers)
        if self._storage.zero > 0 or self._casts is not None or self._copied:
            raise Error(f"{changed}, while zero, precision, shared weights or several chains keep copies of weights: make a new Pipeline")
        trained: set[int] = set()
        for stage in self._local:
            index, stepper = stage % len(self._stages), steppers[stage]
            extra = found if index == len(self._stages) - 1 else LossTensors()
            weights[stage] = of_stage = StageWeights(self._module(index), index, trained, extra, self._storage, None, self._devices[index])
            assert stepper is not None
            stepper.check(of_stage)
        for each, now in zip(self._steppers, weights, strict=True):
            if each is not None and now is not None:
                each.follow(now)
        self._loss_tensors, self._weights = found, weights
        self._copied = [each for each in weights if each is not None and each.has_copies]
        self._model = dataclasses.replace(self._model, loss_tensors=found, weights=weights)
        self._unchanged = self._remember_tensors()

    def _drop(self, changed: str) -> None:
        """Has the next build capture the stages again."""
        self._gather()
        self._graphs.drop(changed, self._last_shapes, warns=changed != UPDATES)
        self._compiled = self._built = self._batch = None
        self._is_plain = False

    def _run(self, batches: list[_Tensors], of_shapes: list[list[int]]) -> list[float]:
        """Runs a step for each batch, with what belongs to it in Python."""
        assert self._compiled is not None
        used = self._compiled.used.of(of_shapes[0])  # and of the others, see steps
        for index, stepper in self._updating:
            stepper.begin_run(used[index])
        for number in range(len(batches)):
            if number > 0:
                self._step_schedulers()
            for _, stepper in self._updating:
                stepper.add_settings()
        watches = [*self._compiled.guards.watches, *(each.watch for each in self._unchanged), engine.Watch()]
        watches[-1].add_members(self.optimizers)
        self._built.set_watches([*watches, *(each.watch() for _, each in self._updating)])
        losses = self._run_checked(batches, of_shapes)
        inputs, targets = batches[-1]
        self._factors = targets[-1] if self._is_weighted else None
        self._samples = next((each.shape[0] for each in inputs if each.dim() > 0), 0)
        return losses

    def _run_checked(self, batches: list[_Tensors], of_shapes: list[list[int]]) -> list[float]:
        """Runs the batches if nothing that was captured has changed since the last step."""
        for weights in self._copied:
            weights.refresh()
        if self._storage.shards_weights:
            self._shed()
        elif self._casts is not None:
            self._built.read_weights()
        self._last_shapes = of_shapes[-1]
        losses: list[float] = self._built.run(batches, of_shapes)
        self._step_schedulers()
        self._steps += len(batches)
        self._last, self._last_loss = None, losses[-1]
        return losses

    def _follow_optimizers(self) -> None:
        follow_optimizers(self._steppers, self.optimizers, has_updates=self._storage.has_updates)
        self._followed = self.optimizers

    def _step_schedulers(self) -> None:
        for lr_scheduler in self.lr_schedulers:
            if lr_scheduler is not None:
                lr_scheduler.step()

    def _check_batch(self, inputs: Any, targets: Any) -> batches.Checked:
        """Returns the tensors of the batch."""
        if self._is_plain and self._built.fits_last(inputs, targets):
            assert self._batch is not None
            return batches.Checked(self._batch, *_plain(inputs, targets), None)
        if torch.is_inference_mode_enabled():
            raise Error("step: torch.inference_mode is on, which excludes gradients: step outside of it")
        if targets is not None and self._loss is None:
            raise Error("step: targets are given, but the Pipeline has no loss: pass loss=")
        divisors = self.schedule.microbatches, self.schedule.slices
        layout, input_tensors, target_tensors = batches.check(inputs, targets, *divisors, self._devices)
        factors = batches.factors(layout, input_tensors, target_tensors, self.schedule, self._loss_weight)
        return batches.Checked(layout, input_tensors, target_tensors, factors)

    def _shapes_of(self, kinds: list[Any], sums: list[Any], checked: list[batches.Checked]) -> list[list[Shape]]:
        """Returns the shapes of each batch: what first and last stages read.

        Raises Error if processes were given different batches.
        """
        if self._processes.processes == 1:
            kinds = [[shapes.kinds_of(each) for each in checked]]
        chain, ranks = len(self._stages), self.schedule.rank_of_stage
        readers: list[list[int]] = []  # the processes that read inputs, and targets
        for first in (0, chain - 1):
            stages = range(first, self.schedule.stages, chain)
            readers.append([self._processes.process_of(ranks[s], self.schedule.ranks) for s in stages])
        of_batches = shapes.of_processes(kinds, readers, self.schedule.microbatches)
        if self._processes.processes > 1:
            sameness.compare_batches(kinds, sums, readers, checked[0].layout)
        return of_batches

    def _build(self, batch: batches.Checked, shape: Shape, is_weighted: bool) -> None:
        """Compiles the stages, or takes the ones of earlier values that have returned."""
        self._gather()
        autocast, trained = autocast_setting(self._devices[0]), [*self._weights, *(each.is_native for _, each in self._updating)]
        returned = self._graphs.returned(batch.layout, autocast, is_weighted, trained)
        if returned is not None:
            self._use(returned)
            self._built.set_steps(self._steps)
            return
        if self._compiled is None:
            agreement.compare(self._processes, self._timeout, lambda: facts.initial_facts(self))
        self._options.set_slice_lengths(batch.layout.slice_lengths(self.schedule.slices))
        self._options.first_step = self._steps
        tensors = batches.with_factors(batch, is_weighted, self.schedule)
        graphs = self._graphs.compile(
            self._model, self._reads(), batch.layout, tensors, shape,
            is_weighted=is_weighted, autocast=autocast, trained=trained, steps=self._steps,
        )  # fmt: skip
        for weights in self._weights:
            if weights is not None:
                weights.end_build()
        self._use(graphs)

    def _use(self, graphs: Graphs) -> None:
        """Trains with these compiled stages from now on."""
        compiled = graphs.compiled
        for _, stepper in self._updating:
            stepper.is_bound_native = stepper.is_native  # as these were bound
        self._compiled, self._built, self._number = compiled, compiled.engine, compiled.number
        self._last_code, self._is_weighted = compiled.last_code, graphs.is_weighted
        self._batch, self._autocast, self._last_shapes = graphs.layout, graphs.autocast, graphs.last_shapes
        self._is_plain = graphs.layout.is_plain and not graphs.is_weighted

    def _reads(self) -> tuple[list[tuple[str, Any]], list[torch.Tensor]]:
        """Returns where code begins to read, and the tensors of stages."""
        last = len(self._stages) - 1
        here = sorted({stage % (last + 1) for stage in self._local})
        roots: list[tuple[str, Any]] = [(f"stage {index}", self._stages[index]) for index in here]
        roots += [("loss", self._loss)] if last in here else []
        owned = [tensor for each in self._weights if each for _, tensor in (*each.parameters, *each.state)]
        owned += [tensor for each in self._weights if each for tensor in each.own]
        return roots, owned

    def _add_shapes(self, all_tensors: list[_Tensors], wanted: list[list[Shape]]) -> list[list[int]]:
        """Compiles the stages for shapes that are new. Returns the numbers of each batch."""
        compiled = self._compiled
        assert compiled is not None
        needed = [shape for of_batch in wanted for shape in of_batch]
        for shape in compiled.shapes.missing(needed):
            number = next(index for index, each in enumerate(wanted) if shape in each)
            if self.schedule.slices > 1:
                raise Error(
                    f"step: with slices, all batches have the shape of the first one, but batch "
                    f"{number} has another: pad it, or make a new Pipeline"
                )

            self._gather()
            compiled.add_on_all(shape, all_tensors[number])
        numbers = [compiled.shapes.use(of_batch) for of_batch in wanted]
        for dropped in compiled.shapes.drop_surplus(needed):
            self._built.drop_shape(dropped)
        return numbers

    @exclusive
    def state_dict(self) -> dict[str, Any]:
        """Returns what a checkpoint needs in addition to the modules' ``state_dict()``.

        It does not depend on ``data_parallel``, ``zero`` and the schedule. With ``zero``, every
        process calls this.

        Returns:
            ``steps``, the number of steps so far, and ``seed``, on which random numbers depend; and
            ``optimizers`` and ``lr_schedulers``, the states by stage of the model, of whole
            parameters; None for stages that this process does not run.
        """
        self._follow_optimizers()
        state: dict[str, Any] = {"steps": self._steps, "seed": self._seed}
        for name in states.STATEFUL:
            made, chain = getattr(self, name), len(self._stages)
            state[name] = [None] * (chain if made else 0)
            for stage in reversed(self._local if made else []):  # the first replica last
                state[name][stage % chain] = made[stage] and made[stage].state_dict()
        if self._zero > 0:
            steppers = enumerate(self._steppers)
            parts = {s: each.part() for s, each in steppers if each and each.optimizer}
            wholes = states.joined(parts, self._processes, self._timeout, self.schedule)
            for index, whole in wholes.items():
                state["optimizers"][index]["state"] = whole
        return state

    @exclusive
    def load_state_dict(self, state: dict[str, Any] | Sequence[dict[str, Any]]) -> None:
        """Continues after the step at which `state_dict` was called.

        Load the modules' states, too. The results are then as in an uninterrupted run; bitwise,
        if ``data_parallel``, the schedule and the arguments that say how to compute are the same.
        The state's seed replaces this one's.

        Args:
            state: what `state_dict` returned, or a list of what it returned on all processes, if
                this one does not run the same stages as the one that called it.

        Raises:
            Error: the state is of another number of stages, or lacks a stage of this process.
        """
        self._follow_optimizers()
        loaded, chain = states.merge(state, len(self._stages)), len(self._stages)
        pairs = []
        for name, stage in ((name, stage) for name in states.STATEFUL for stage in self._local):
            own = getattr(self, name)[stage] if getattr(self, name) else None
            other = loaded[name][stage % chain] if loaded[name] else None
            if own is None and other is not None:
                raise Error(f"load_state_dict: {name}: this Pipeline has none of stage {stage % chain}")
            if own is not None and other is None:
                raise Error(
                    f"load_state_dict: {name}: the state has none of stage {stage % chain}: pass a "
                    "list of the states of all processes"
                )
            if own is not None:
                pairs.append((name, own, other))
        for name, own, other in pairs:
            with arguments.in_code_of(f"load_state_dict: {name}"):
                # The native update copies what it needs.
                own.load_state_dict(other if type(own) is AdamW else copy.deepcopy(other))
        self._steps = int(loaded["steps"])
        self._set_seed(self._seed if loaded["seed"] is None else loaded["seed"])
        if self._built is not None:
            self._built.set_steps(self._steps)

    def _set_seed(self, seed: int) -> None:
        """Draws random numbers of another seed from now on. Compiled stages have one."""
        if seed == self._seed:
            return
        self._gather()
        self._options.set_stages(self._is_exact, self._sums_in_bf16, seed)
        self._graphs.forget()
        self._compiled = self._built = self._batch = None
        self._seed, self._is_plain = seed, False

    @property
    def changes(self) -> list[str]:
        """What made the stages be captured again, in order."""
        return list(self._graphs.changes)

    def _check_modules(self) -> None:
        for stage in self._local:
            index = stage % len(self._stages)
            options.check_module(self._stages[index], index)
        if isinstance(self._loss, nn.Module):
            require_plain_module("the loss", self._loss)

    def _remember_tensors(self) -> list[Unchanged]:
        last = len(self._stages) - 1
        indices = sorted({stage % (last + 1) for stage in self._local})
        all_unchanged = [
            Unchanged(
                self._module(index),
                index,
                self._loss_tensors.parameters if index == last else (),
                sheds=self._storage.shards_weights,
            )
            for index in indices
        ]
        if isinstance(self._loss, nn.Module) and last in indices:
            refuse_hooks(self._loss, last)
            all_unchanged.append(Unchanged(self._loss, last, sheds=self._storage.shards_weights))
        return all_unchanged

    def _make_optimizers(self, make: MakeOptimizer | None) -> tuple[list[StageWeights | None], list[StageOptimizer | None]]:
        """Returns the weights of each stage, and what updates them; None for those not run here."""
        weights: list[StageWeights | None] = [None] * self.schedule.stages
        steppers: list[StageOptimizer | None] = [None] * self.schedule.stages
        trained: set[int] = set()
        for stage in self._local:
            index = stage % len(self._stages)
            extra = self._loss_tensors if index == len(self._stages) - 1 else LossTensors()
            weights[stage] = of_stage = StageWeights(
                self._module(index), index, trained, extra, self._storage, self._casts, self._devices[index]
            )
            steppers[stage] = StageOptimizer(of_stage, make, self._zero > 0)
        return weights, steppers

    def _module(self, index: int) -> nn.Module:
        module = self._stages[index]
        assert module is not None  # _check_modules
        return module


def _plain(inputs: torch.Tensor, targets: torch.Tensor | None) -> _Tensors:
    return [inputs], [] if targets is None else [targets]
