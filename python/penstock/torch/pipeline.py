"""Pipeline: PyTorch modules as the stages of a schedule, on the compiled engine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from penstock import Error, Schedule, Timeline
from penstock.torch import batches, processes, slices as _slices  # noqa: F401 (stages ask it)
from penstock.torch.capture import StageCode, autocast_setting, reads_values
from penstock.torch.engine import engine, one_line
from penstock.torch.optimizers import AdamW, StageOptimizer
from penstock.torch.schedule_of_stages import schedule_of_stages
from penstock.torch.unchanged import Unchanged
from penstock.torch.weights import StageWeights, share_weights

Loss = Callable[..., torch.Tensor]
_Tensors = tuple[list[torch.Tensor], list[torch.Tensor]]  # inputs and targets of a step

_STATEFUL = ("optimizers", "lr_schedulers")  # the attributes of a Pipeline that a checkpoint has


class Pipeline:
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
        loss: ``loss(output, targets)`` of one microbatch, a scalar; the step's loss is their mean.
            It is called ``loss(output)`` if ``step`` gets no targets. None: the last stage returns
            the loss itself, or an object with an attribute ``loss``.
        optimizer: called with a list of a stage's parameters, returns its
            ``torch.optim.Optimizer``, which updates them on the rank's thread. Default:
            ``penstock.torch.AdamW``. None: the step leaves gradients in ``parameter.grad``, added
            to those that are there.
        lr_scheduler: called with each optimizer, returns its scheduler, which steps after each
            step. May be None.
        clip_grad_norm: the largest norm of all gradients together; 0 for no limit.
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

    Raises:
        Error: the arguments do not fit together, or the engine cannot train a parameter. A stage
            that cannot be captured is reported by the first ``step``, with the line of its code.

    Threads: one at a time.
    """

    def __init__(
        self,
        stages: Sequence[nn.Module | None],
        schedule: str | Schedule = "1f1b",
        *,
        ranks: int | None = None,
        microbatches: int | None = None,
        loss: Loss | None = None,
        optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer] | None = AdamW,
        lr_scheduler: Callable[[torch.optim.Optimizer], Any] | None = None,
        clip_grad_norm: float = 0.0,
        skip_nonfinite: bool = False,
        exact: bool = False,
        threads: int | None = None,
        seed: int | None = None,
        slices: int = 1,
        timeout: float = 300.0,
    ) -> None:
        _check_settings(clip_grad_norm, threads, timeout)
        if lr_scheduler is not None and optimizer is None:
            raise Error("lr_scheduler needs an optimizer, which is None: leave lr_scheduler out")
        self._hosts = processes.join()
        self.schedule = schedule_of_stages(schedule, len(stages), ranks, microbatches, slices)
        self._stages = list(stages)
        self._loss = loss
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
        options.watchdog = float(timeout)
        options.seed = (torch.initial_seed() if seed is None else seed) % 2**63
        self._scratch = tempfile.TemporaryDirectory(prefix="penstock-")
        options.offload_folder = self._scratch.name
        self._options = options
        self._built: Any = None
        self._steps = 0
        self._batch: batches.Layout | None = None
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
            self.lr_schedulers = [each and lr_scheduler(each) for each in self.optimizers]

    @one_line
    def step(self, inputs: Any, targets: Any = None) -> float:
        """Runs one training step, with the update of the parameters.

        Args:
            inputs: what the first stage takes: a tensor, or a tuple (positional arguments) or dict
                (keyword arguments) that contains tensors. Tensors are of the whole batch: they are
                divided along dimension 0 into equal microbatches.
            targets: likewise, for the loss.

        Returns:
            The mean loss of the microbatches, on every process.

        Raises:
            Error: a stage cannot be captured, or failed; the batch does not divide. After a
                failed step, the pipeline cannot be used again.
        """
        # The time between steps is what limits small models, so a step like the last one is checked
        # in one call.
        is_plain = self._batch is not None and self._batch.is_plain
        if is_plain and self._built.is_like_last(inputs, targets):
            return self._run_checked([_plain(inputs, targets)])[0]
        return self._run([self._tensors_of(inputs, targets)])[0]

    @one_line
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
        all_tensors = []
        for number, batch in enumerate(batches):
            if not isinstance(batch, (tuple, list)) or len(batch) not in (1, 2):
                raise Error(
                    f"steps: batch {number} is not a pair: pass (inputs, targets), or (inputs,) "
                    "without targets"
                )
            all_tensors.append(self._tensors_of(batch[0], batch[1] if len(batch) == 2 else None))
        if not all_tensors:
            return []
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
        return losses

    def _step_schedulers(self) -> None:
        for lr_scheduler in self.lr_schedulers:
            if lr_scheduler is not None:
                lr_scheduler.step()

    def _tensors_of(self, inputs: Any, targets: Any) -> _Tensors:
        if self._batch is not None and self._batch.is_plain:
            if self._built.fits_last(inputs, targets):
                return _plain(inputs, targets)
        return self._check_batch(inputs, targets)

    def _check_batch(self, inputs: Any, targets: Any) -> _Tensors:
        """Returns the tensors of the batch. Compiles the stages in the first step."""
        if torch.is_inference_mode_enabled():
            raise Error(
                "step: torch.inference_mode is on, which excludes gradients: step outside of it"
            )
        divisors = self.schedule.microbatches, self.schedule.slices
        layout, input_tensors, target_tensors = batches.check(inputs, targets, *divisors)
        if self._built is None:
            self._build(
                layout,
                batches.first_parts(input_tensors, *divisors),
                batches.first_parts(target_tensors, *divisors),
            )
        elif layout != self._batch:
            raise Error(
                "step: the inputs or targets have another structure, or other values that are not "
                "tensors, than in the first step: make a new Pipeline for them"
            )
        if autocast_setting() != self._autocast:
            raise Error(
                f"step: torch.autocast is {autocast_setting() or 'off'}, but was "
                f"{self._autocast or 'off'} in the first step: step under the same autocast, or "
                "make a new Pipeline"
            )
        return input_tensors, target_tensors

    def state_dict(self) -> dict[str, Any]:
        """Returns what a checkpoint needs besides the modules' ``state_dict()``.

        Returns:
            ``steps``, the number of steps so far, on which random numbers depend; and
            ``optimizers`` and ``lr_schedulers``, the states by stage: those of this process.
        """
        return {"steps": self._steps} | {
            name: [each and each.state_dict() for each in getattr(self, name)] for name in _STATEFUL
        }

    @one_line
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues after the step at which `state_dict` was called.

        Load the modules' states, too. The results are then bitwise those of an uninterrupted run.

        Raises:
            Error: the state is of another number of stages, or of other processes' stages.
        """
        if set(state) != {"steps", *_STATEFUL}:
            raise Error(
                f"load_state_dict: the keys are {sorted(state)}: pass what state_dict returned"
            )
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
                    each.load_state_dict(loaded)
        self._steps = int(state["steps"])
        if self._built is not None:
            self._built.set_steps(self._steps)

    @one_line
    def timeline(self) -> Timeline:
        """Returns the measured timeline of the last step, in seconds, for reports.

        With several processes, only the process that runs all ranks can return it.
        """
        times = [] if self._built is None else self._built.times()
        if len(times) != self.schedule.ranks:
            raise Error("timeline: no step has run, or other processes run some of the ranks")
        spans = [list(zip(starts, ends, strict=True)) for _, starts, ends in times]
        return Timeline.from_times(self.schedule, spans, time_unit="s")

    @property
    def saved_bytes(self) -> list[int]:
        """Activations that each stage keeps of a microbatch between F and its backward, in bytes.

        0 for stages of other processes, and before the first step.
        """
        return [0] * self.schedule.stages if self._built is None else self._built.saved_bytes()

    @one_line
    def graph(self, stage: int) -> str:
        """Returns the compiled graphs of a stage as text: what F, I and W run.

        One line per value: its type, bytes and FLOPs. ``penstock::fused`` is a compiled kernel.

        Raises:
            Error: no step has run, or another process runs the stage.
        """
        if not 0 <= stage < len(self._stages):
            last = len(self._stages) - 1
            raise Error(f"graph: there is no stage {stage}: give one from 0 to {last}")
        text = "" if self._built is None else str(self._built.graph_text(stage))
        if not text:
            raise Error(f"graph: stage {stage} is not compiled: call step first, on its process")
        return text

    def _check_modules(self) -> None:
        chain = len(self._stages)
        for stage in self._local:
            module = self._stages[stage % chain]
            if not isinstance(module, nn.Module):
                raise Error(
                    f"stages[{stage % chain}] is {module!r}: pass the module of every stage "
                    "that this process runs"
                )

    def _check_attributes(self) -> None:
        for unchanged in self._unchanged:
            unchanged.check_attributes()

    def _remember_tensors(self) -> list[Unchanged]:
        chain = len(self._stages)
        return [
            Unchanged(self._module(index), index)
            for index in sorted({stage % chain for stage in self._local})
        ]

    def _make_optimizers(
        self, make: Callable[[list[nn.Parameter]], torch.optim.Optimizer] | None
    ) -> tuple[list[StageWeights | None], list[StageOptimizer | None]]:
        """Returns the weights of each stage, and what updates them; None for those not run here."""
        weights: list[StageWeights | None] = [None] * self.schedule.stages
        steppers: list[StageOptimizer | None] = [None] * self.schedule.stages
        trained: set[int] = set()
        for stage in self._local:
            index = stage % len(self._stages)
            weights[stage] = of_stage = StageWeights(self._module(index), index, trained)
            steppers[stage] = StageOptimizer(of_stage, make)
        return weights, steppers

    def _module(self, index: int) -> nn.Module:
        module = self._stages[index]
        assert module is not None  # _check_modules
        return module

    def _build(self, layout: batches.Layout, inputs: list[Any], targets: list[Any]) -> None:
        """Compiles the stages of this process."""
        for unchanged in self._unchanged:
            unchanged.begin()
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
        shared = share_weights(self._stages)
        self._hosts.check_same(number, [holders.stages for holders in shared])
        built.set_shared([list(holders.stages) for holders in shared])
        previous: Any = None  # of the stage before in the chain: its outputs and their structure
        for stage in range(schedule.stages):
            index = stage % chain
            if stage not in self._local:
                previous = None
                continue
            if index > 0 and previous is None:
                previous = self._hosts.receive_examples(number, stage - 1)
            examples, structure = (inputs, layout.inputs) if index == 0 else previous
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
            parts = self._parts_of(stage, code, is_last)
            parts.inputs, parts.targets = examples, targets if is_last else []
            for holders in shared:
                parts.share(holders.entry(index))
            outputs = _capture(built, stage, parts, code)
            previous = (outputs, code.outputs)
            if not is_last and stage + 1 not in self._local:
                self._hosts.send_examples(number, stage, previous)
        for unchanged in self._unchanged:
            unchanged.note_constants()
        self._built, self._batch, self._autocast = built, layout, autocast_setting()

    def _parts_of(self, stage: int, code: StageCode, is_last: bool) -> Any:
        weights, stepper = self._weights[stage], self._steppers[stage]
        assert weights is not None and stepper is not None
        parts = engine.StageParts()
        parts.functions = engine.StageFunctions(code.forward, code.loss if is_last else None)
        parts.parameters, parts.masters = weights.parameters, weights.masters
        parts.state = weights.state
        stepper.bind(parts)
        return parts


def _plain(inputs: torch.Tensor, targets: torch.Tensor | None) -> _Tensors:
    return [inputs], [] if targets is None else [targets]


def _capture(built: Any, stage: int, parts: Any, code: StageCode) -> Any:
    """Compiles a stage, and returns examples of its outputs."""
    try:
        return built.build(stage, parts)
    except (Error, RuntimeError) as error:
        if not reads_values(error):
            raise
        refused = error
    code.is_traced, code.outputs = True, None
    try:
        return built.build(stage, parts)
    except (Error, RuntimeError):
        raise refused from None  # The model's code does not ask whether it is traced.


def _check_settings(clip_grad_norm: float, threads: int | None, timeout: float) -> None:
    if not clip_grad_norm >= 0:
        raise Error(f"clip_grad_norm is {clip_grad_norm}: give the largest norm, or 0 for no limit")
    if threads is not None and threads < 1:
        raise Error(f"threads is {threads}: give at least 1, or leave it out")
    if not timeout > 0:
        raise Error(f"timeout is {timeout}: give seconds above 0")
