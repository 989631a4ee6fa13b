"""Pipeline: PyTorch modules as the stages of a schedule, on the compiled engine."""

from __future__ import annotations

import os
import threading
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import torch
from torch import nn

from penstock import Error, Schedule
from penstock.torch import arguments, devices
from penstock.torch.arguments import Own
from penstock.torch.engine import exclusive, one_line
from penstock.torch.mesh import plans
from penstock.torch.mesh.planes import plane_of
from penstock.torch.model import Model
from penstock.torch.optimizers import AdamW
from penstock.torch.processes import processes
from penstock.torch.training import checkpoint, facts, options
from penstock.torch.training.run import Run
from penstock.torch.training.schedule_of_stages import schedule_of_stages
from penstock.torch.training.views import Views


class Pipeline(Views):
    """Trains stages of a model as a schedule's ranks: threads of this process, or processes.

    Each stage is captured once, forward and backward, and compiled. Parameters stay the modules'
    own: ``state_dict()``, evaluation and checkpoints work as before, between steps.

    Args:
        stages: the modules, by stage number. A stage is called with what the one before it
            returned: a tensor, the elements of a tuple or a list as arguments, or the values of a
            dict as keyword arguments. Under ``mpirun`` or ``torchrun``, stages of other processes
            may be None, unless they share weights with a local one. `penstock.torch.split` divides
            a whole model.
        schedule: a name of the catalog (``penstock.schedules()``), a ``penstock.Schedule``, or the
            path of a ``.csv`` file.
        ranks: the number of ranks of each replica. Given by a Schedule.
        microbatches: of one step, of all replicas together. A Schedule gives one replica's.
        loss: ``loss(output, targets)`` of one microbatch, a scalar; the step's loss is their mean,
            weighted by samples. It may return a pair of the loss and a dict of metrics, scalars
            whose means `last` has. It is called ``loss(output)`` if ``step`` gets no targets.
            None: the last stage returns the loss itself, or an object with an attribute ``loss``.
        loss_weight: returns the number of terms that the loss of a microbatch is the mean of, from
            its targets (its inputs, if ``step`` gets no targets), such as
            ``lambda targets: (targets != -100).sum()``. The step's loss is then the mean of all
            terms of the batch. None: its samples.
        optimizer: called with a list of a stage's parameters, returns its
            ``torch.optim.Optimizer``. If its argument is called ``named_parameters``, it gets a
            list of pairs (name, parameter). Default: ``penstock.torch.AdamW``. None: the step
            leaves gradients in ``parameter.grad``, added to existing ones.
        lr_scheduler: called with each optimizer, returns its scheduler, which steps after each step.
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
            the inputs. The modules' weights, their updates and the loss are in float32.
        gradient_dtype: of sums of gradients over microbatches and replicas.
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
            green contexts). Needs the device's plugin.
        transport: how processes exchange messages. ``"tcp"``: connections of their own.
            ``"c10d"``: groups of ``torch.distributed``, which move tensors of a device by its
            backend (NCCL, XCCL) without the host. It needs ``init_process_group`` before.
        outputs: whether `last` has what the last stage returned in a step.
        verify_every: after how many steps the stages are captured again, to prove that they still
            compute what their code says. 0: only the first step proves it, by two captures.
        mesh: a DeviceMesh of torch.distributed over all processes, with named dimensions: ``"pipeline"`` (or ``"pp"``),
            ``"tensor"`` (``"tp"``) and ``"context"`` (``"cp"``), and any others for replicas (``data_parallel``). Stages may call
            functional collectives over its tensor and context groups, and have DTensors as ``parallelize_module`` makes them.
            See "Tensor and context parallelism" in ``docs/python-training.md``.
        tensor: how the tensor ranks of ``mesh`` divide modules of the stages, in place: patterns of names and ``"column"``,
            ``"row"``, ``"column_gathered"``, ``"row_of_whole"``, ``"heads"``, ``"embedding"``, ``"experts"`` or ``"latent"``, such as
            ``{"*.up": "column", "*.down": "row"}``. ``"auto"``: the plan in the configuration of a model of transformers, its
            embedding and its head. Default: as the modules are.
        gather_again: the backward gathers again what a forward has gathered over groups of ``mesh`` (sequence parallelism), in
            place of saving the result. Gradients are bitwise the same.

    Raises:
        Error: the arguments do not fit together, or the engine cannot train a parameter. A stage
            that cannot be captured is reported by the first ``step``, with the line of its code.

    Threads: one at a time; others get an Error.
    """

    @one_line
    @facts.made_on_all
    @arguments.checked
    def __init__(
        self,
        stages: Own[options.Stages],
        schedule: Own[str | Schedule] = "1f1b",
        *,
        ranks: options.Count | None = None,
        microbatches: options.Count | None = None,
        loss: Own[options.Loss] = None,
        loss_weight: options.LossWeight = None,
        optimizer: options.Optimizer = AdamW,
        lr_scheduler: options.LrScheduler = None,
        clip_grad_norm: options.Norm = 0.0,
        skip_nonfinite: bool = False,
        exact: bool = False,
        threads: Own[options.Count | None] = None,
        seed: Annotated[int, arguments.whole()] | None = None,
        data_parallel: Annotated[int, arguments.whole(1)] = 1,
        zero: options.Zero = 0,
        precision: options.Precision = None,
        gradient_dtype: options.GradientDtype = torch.float32,
        slices: Annotated[int, arguments.whole(1)] = 1,
        recompute: options.Recompute = None,
        offload: Own[options.Offload] = None,
        timeout: Own[options.Seconds] = 300.0,
        device: Own[torch.device | str | None] = None,
        device_graphs: Own[bool] = False,
        device_parts: Own[bool] = False,
        transport: options.Transport = "tcp",
        outputs: Own[bool] = False,
        verify_every: Annotated[int, arguments.whole(0)] = 0,
        mesh: options.Mesh = None,
        tensor: options.TensorPlan = None,
        gather_again: bool = False,
    ) -> None:
        given = types.SimpleNamespace(**{name: value for name, value in locals().items() if name != "self"})
        given.seed = (torch.initial_seed() if seed is None else seed) % 2**63
        options.check_optimizer(given)
        options.check_transport(given)
        self._busy = threading.Lock()
        self._stages = given.stages
        plane = None if mesh is None else plane_of(mesh)
        self.schedule = schedule_of_stages(given)
        options.check_schedule(given, self.schedule)
        options.check_untrained(given, self.schedule)
        options.check_mesh(given, plane, self.schedule)
        plans.divide(given.stages, given.tensor, mesh)
        if plane is None:
            joined = processes.join(transport, lambda: devices.of_stages(given.stages, given.device)[0])
        else:
            joined = processes.join_plane(plane)
        self._run = Run(Model(given, self.schedule, joined))

    @property
    def optimizers(self) -> list[torch.optim.Optimizer | None]:
        """The optimizer of each stage; None for stages of other processes and stages that train nothing. Empty without."""
        return self._run.model.updates.optimizers

    @optimizers.setter
    def optimizers(self, given: list[torch.optim.Optimizer | None]) -> None:
        self._run.model.updates.optimizers = given

    @property
    def lr_schedulers(self) -> list[Any]:
        """The learning-rate scheduler of each stage, in the order of `optimizers`. Empty without."""
        return self._run.model.updates.lr_schedulers

    @lr_schedulers.setter
    def lr_schedulers(self, given: list[Any]) -> None:
        self._run.model.updates.lr_schedulers = given

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
        return self._run.step(inputs, targets)

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
        return self._run.steps(given)

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
        return self._run.state_dict()

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
        self._run.load_state_dict(state)

    @exclusive
    def save_checkpoint(self, folder: str | os.PathLike[str], *, model: str = "model", optimizer: str = "optimizer") -> None:
        """Writes weights and states in the format of ``torch.distributed.checkpoint``, by the names of parameters.

        A Pipeline with other stages loads it, and so do FSDP and torchtitan. Names are those of the
        model that `penstock.torch.split` divided; or, of stages of your own, those of ``nn.ModuleList(stages)``.
        Every process calls this, with ``torch.distributed`` initialized.

        Args:
            folder: is created.
            model, optimizer: the keys of the weights and of the optimizer's state. ``""``: without a
                key, as torchtitan has weights.
        """
        checkpoint.save(self._run, folder, model, optimizer)

    @exclusive
    def load_checkpoint(self, folder: str | os.PathLike[str], *, model: str = "model", optimizer: str | None = "optimizer") -> None:
        """Continues from a checkpoint of ``torch.distributed.checkpoint``: of `save_checkpoint`, FSDP or torchtitan.

        Loads the weights of the modules, the states and settings of optimizers, which may be flattened,
        and what it has of schedulers, the number of steps and the seed. Load only files that you
        trust: torch unpickles what is not a tensor.

        Args:
            folder: of the checkpoint.
            model, optimizer: as in `save_checkpoint`. ``optimizer=None`` loads weights only.

        Raises:
            Error: a weight of this process, or the optimizer, is missing; then nothing has changed.
        """
        checkpoint.load(self._run, folder, model, optimizer)

    @property
    def changes(self) -> list[str]:
        """What made the stages be captured again, in order."""
        return list(self._run.graphs.changes)
