"""Trainer: transformers' Trainer, whose training steps and evaluation run on a Pipeline."""

from __future__ import annotations

import json
import os
import types
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import transformers
from torch import nn
from torch.utils import _pytree as pytree

import penstock.torch
from penstock import Error, Schedule
from penstock.torch.arguments import shown, whole
from penstock.torch.placement import model_stages
from penstock.torch.preserve import preserved
from penstock.torch.splitting import split
from penstock.torch.training.schedule_of_stages import schedule_of_stages
from penstock.transformers import calls, refusals
from penstock.transformers.processes import Processes

_STATE = "penstock_state.json"  # in a checkpoint


class Trainer(transformers.Trainer):
    """Trains a model of transformers in pipeline stages, with the arguments and results of ``transformers.Trainer``.

    The stages are threads of this process, or of the processes that ``torchrun`` starts, and train
    the model's own parameters. Each training step
    runs a schedule on the microbatches of a batch and adds their gradients; the Trainer's loop then
    clips, updates, logs and saves as usual. The model is divided at its layers by the first step.

    Args:
        schedule: a name of the catalog, a ``penstock.Schedule``, or the path of a ``.csv`` file.
        ranks: the number of ranks. Given by a Schedule. Default: 2.
        microbatches: that a batch of ``per_device_train_batch_size`` samples is divided into.
            Given by a Schedule. Default: 2 per rank.
        split: where stages begin: ``"even"`` for equal numbers of layers, ``"cost"`` for equal
            measured times, or the names of the modules that begin stages 1, 2, ...
        pipeline: further arguments of ``penstock.torch.Pipeline``, such as ``{"exact": True}``.
        Others: as ``transformers.Trainer``.

    Raises:
        Error: an argument of the Trainer has no meaning in such a run; says which.
    """

    def __init__(
        self,
        model: Any = None,
        args: Any = None,
        *others: Any,
        schedule: str | Schedule = "1f1b",
        ranks: int | None = None,
        microbatches: int | None = None,
        split: str | Sequence[str] = "even",
        pipeline: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> None:
        self._options = dict(pipeline or {})
        refusals.check_options(self._options)
        self._schedule_options: dict[str, Any] = {"schedule": schedule, "ranks": ranks, "microbatches": microbatches}
        self._begins = split if isinstance(split, str) else list(split)
        made = self._schedule()
        refusals.check_schedule(made)
        self._microbatches = made.microbatches
        #: By what the model is called with: its stages, and by mode their Pipeline.
        self._parts: dict[Any, list[nn.Module]] = {}
        self._pipelines: dict[Any, penstock.torch.Pipeline] = {}
        self._divided: nn.Module | None = None
        self._weighting = ""  # see calls.weighting
        self._seen: dict[str, Any] = {}  # what compute_loss reads of this object
        self._running: penstock.torch.Pipeline | None = None  # that trained last
        super().__init__(model, args, *others, **named)
        #: On which random numbers of the next step depend.
        self._position = {"steps": 0, "seed": self._options.get("seed", self.args.seed)}
        refusals.check_trainer(self)

    def create_accelerator_and_postprocess(self) -> None:
        """Makes the Accelerator, for which each process is the only one."""
        self._processes = Processes(self.args)
        refusals.check_processes(self._processes.count)
        self._processes.share_batches(self.args.distributed_state)
        super().create_accelerator_and_postprocess()
        self._processes.share_batches(self.accelerator.state)

    def train(self, *args: Any, **named: Any) -> Any:
        """Trains, and leaves the whole model on every process."""
        output = super().train(*args, **named)
        self._share()
        return output

    def _share(self) -> None:
        if self._processes.are_several and self.model is self._divided:
            self._processes.share_weights(self.model)

    def _clip_grad_norm(self, model: nn.Module) -> Any:
        if not self._processes.are_several:
            return super()._clip_grad_norm(model)
        norm = self._processes.gradient_norm(model.parameters())
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), self.args.max_grad_norm, norm)
        return norm

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        if grad_norm is None and self._processes.are_several:
            grad_norm = self._processes.gradient_norm(model.parameters())
        return super()._get_grad_norm(model, grad_norm)

    def _save_checkpoint(self, *args: Any) -> None:
        self._share()
        if self._processes.are_several:
            self._processes.share_optimizer(self.optimizer)
        super()._save_checkpoint(*args)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Saves the model, on the first process. In checkpoints, all wait for it, because each looks for the best one's folder."""
        super().save_model(output_dir, _internal_call)
        if _internal_call and self._processes.are_several:
            torch.distributed.barrier()

    def _schedule(self) -> Schedule:
        """Returns the schedule of all replicas."""
        replicas = whole(1)("pipeline: data_parallel", self._options.get("data_parallel", 1))
        for name in ("ranks", "microbatches"):
            if self._schedule_options[name] is not None:
                whole(1, otherwise=", or leave it out")(name, self._schedule_options[name])
        given = types.SimpleNamespace(**self._schedule_options, data_parallel=replicas, zero=0, slices=1)
        if not isinstance(self._begins, str):
            stages = len(self._begins) + 1
        elif self._begins not in ("even", "cost"):
            raise Error(f"split is {shown(self._begins)}: give 'even', 'cost', or a list of the names of modules that begin stages")
        else:
            one, ranks = given.schedule, given.ranks or 2
            if isinstance(one, str):
                is_file = one.endswith(".csv")
                one = Schedule.from_csv(one) if is_file else penstock.schedule(one, ranks=ranks, microbatches=given.microbatches or 2 * ranks)
            stages = model_stages(one)
        given.stages = [None] * stages
        self._stages = stages
        return schedule_of_stages(given)

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: torch.Tensor | int | None = None) -> torch.Tensor:
        """Adds the gradients of a batch to those of the parameters, and returns its loss."""
        model.train()
        optimizer: Any = self.optimizer
        if callable(getattr(optimizer, "train", None)):
            optimizer.train()
        inputs = self._prepare_inputs(inputs)
        if _samples(inputs) < self._microbatches:  # the last batch of an epoch
            refusals.check_batch(_samples(inputs), self._microbatches, self._processes.count)
            return super().training_step(model, inputs, num_items_in_batch)
        targets: dict[str, Any] = {"inputs": inputs}
        weighting = self._weighting_of(inputs, num_items_in_batch)
        if num_items_in_batch is not None:
            targets["items"] = self._items(num_items_in_batch, self._microbatches, weighting)
        if not self._is_scaled(num_items_in_batch):
            targets["divisor"] = torch.tensor(float(self.current_gradient_accumulation_steps), device=self.args.device)
        given = calls.arguments(self, inputs, targets.get("items"))
        pipeline = self._pipeline(given, weighting, is_trained=True)
        if pipeline is not self._running:
            pipeline.load_state_dict({**self._position, "optimizers": [], "lr_schedulers": []})
            self._running = pipeline
        loss = self._step(pipeline, given, targets)
        return torch.tensor(loss, device=self.args.device)

    def _step(self, pipeline: penstock.torch.Pipeline, given: dict[str, Any], targets: dict[str, Any]) -> float:
        before = calls.attributes_read(self)
        self._seen.clear()
        # A number would become an input of compiled steps, but compute_loss does not read it here.
        self._seen.update({name: repr(each) if isinstance(each, (int, float)) else each for name, each in before.items()})
        loss = pipeline.step(given, targets)
        for name, value in calls.attributes_read(self).items():
            if value is not before[name]:
                raise Error(f"compute_loss changes '{name}' of the Trainer, which compiled steps would not do again: change it in a callback")
        self._position["steps"] += 1
        return loss

    def prediction_step(
        self, model: nn.Module, inputs: dict[str, Any], prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> tuple[Any, Any, Any]:
        """Evaluates a batch on the stages."""
        count = min(self._microbatches, _samples(inputs))
        whole: Any = self.model
        own = vars(whole).get("forward")

        def forward(**named: Any) -> Any:
            targets: dict[str, Any] = {"inputs": self._prepare_inputs(inputs)}
            items = named.get("num_items_in_batch")
            with calls.with_forward(whole, own):
                weighting = self._weighting_of_labels() if items is None else self._weighting_of(inputs, items)
                if items is not None:
                    named["num_items_in_batch"] = self._items(items, count, weighting)
                pipeline = self._pipeline(named, weighting, is_trained=False)
                pipeline.eval_step(named, targets)
            output = pipeline.last.outputs
            if self._processes.are_several:
                output = self._processes.output(calls.evaluated(whole, output, prediction_loss_only))
            if calls.loss_in(output) is None:
                return output
            return calls.with_loss(output, torch.tensor(pipeline.last.loss, device=self.args.device))

        with calls.with_forward(whole, forward):
            return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)

    def _items(self, items: Any, microbatches: int, weighting: str) -> torch.Tensor:
        """Returns what losses of microbatches are divided by, so that their mean is the batch's."""
        return torch.as_tensor(items, device=self.args.device) / (microbatches if weighting == "sum" else 1)

    def _weighting_of_labels(self) -> str:
        """Returns the weights of losses that the model computes itself, without ``num_items_in_batch``."""
        return "shifted labels" if self._loss_shifts_labels else "labels"

    def _weighting_of(self, inputs: dict[str, Any], items: Any) -> str:
        """Returns how losses of microbatches become the batch's."""
        if not self._weighting or self._divided is not self.model:
            whole: Any = self.model
            with preserved(whole), torch.no_grad():
                whole.eval()
                given = None if items is None else torch.as_tensor(items, device=self.args.device)
                self._weighting = calls.weighting(self, inputs, given, shifts=self._loss_shifts_labels)
        return self._weighting

    def _is_scaled(self, items: Any) -> bool:
        """Whether losses belong to the whole accumulated batch, as `transformers.Trainer.training_step` decides."""
        if self.loss_is_scaled_for_ga is not None:
            return bool(self.loss_is_scaled_for_ga)
        return (self.model_accepts_loss_kwargs and items is not None) or self.compute_loss_func is not None

    def _pipeline(self, given: dict[str, Any], weighting: str, *, is_trained: bool) -> penstock.torch.Pipeline:
        """Returns the Pipeline for batches with these arguments of the model."""
        if self._divided is not self.model:  # model_init has made another one
            self._parts, self._pipelines, self._divided = {}, {}, self.model
        leaves, spec = pytree.tree_flatten(given)
        key = str(spec), tuple(None if isinstance(each, torch.Tensor) else repr(each) for each in leaves)
        if key not in self._parts:
            self._parts[key] = self._divide(given)
        if (key, weighting, is_trained) not in self._pipelines:
            options: dict[str, Any] = {"loss": calls.loss_of(self, self._seen)}
            if not is_trained:
                options = {"loss": calls.loss_of_output, "outputs": True}
            self._pipelines[key, weighting, is_trained] = penstock.torch.Pipeline(
                self._parts[key],
                **self._schedule_options,
                **{"seed": self.args.seed, **self._options, **options},
                loss_weight=calls.Terms(weighting),
                optimizer=None,
            )
            if self._processes.are_several:
                made = self._pipelines[key, weighting, is_trained]
                self._processes.own(self.model, [self._parts[key][stage % self._stages] for stage in made.local_stages])
        return self._pipelines[key, weighting, is_trained]

    def _divide(self, given: dict[str, Any]) -> list[nn.Module]:
        """Returns the stages of the model for batches like this one."""
        samples = -(-_samples(given) // self._microbatches)
        one = pytree.tree_map_only(torch.Tensor, lambda each: each[:samples] if each.dim() > 0 else each, given)
        stages: Any = self._stages if isinstance(self._begins, str) else self._begins
        whole: Any = self.model
        parts = split(whole, one, stages, by=self._begins if isinstance(self._begins, str) else "even")
        if any(hasattr(part, "graph") for part in parts):
            raise Error(
                f"split: {type(whole).__name__} does not hand one tensor from layer to layer, and stages of its graph take inputs of "
                "one shape: use transformers.Trainer, or penstock.torch.Pipeline with batches of one shape"
            )
        return parts

    def _save_rng_state(self, output_dir: str) -> None:
        if self._processes.number > 0:  # all have the same
            return
        super()._save_rng_state(output_dir)
        with open(os.path.join(output_dir, _STATE), "w", encoding="utf-8") as file:
            json.dump(self._position, file)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        super()._load_rng_state(checkpoint)
        path = os.path.join(checkpoint or "", _STATE)
        if checkpoint and os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                self._position, self._running = json.load(file), None


def _samples(inputs: Mapping[str, Any]) -> int:
    return next((each.shape[0] for each in pytree.tree_leaves(dict(inputs)) if isinstance(each, torch.Tensor) and each.dim() > 0), 0)
