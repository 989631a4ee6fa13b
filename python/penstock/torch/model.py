"""The model that a Pipeline trains: its stages, where they are, their weights, and what updates these."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import nn

from penstock import Error, Schedule
from penstock.torch import devices
from penstock.torch.arguments import shown
from penstock.torch.engine import pipeline_options
from penstock.torch.hooks import refuse_hooks
from penstock.torch.mesh.dtensors import part_of
from penstock.torch.placement import Placement, divides_weights, zero_of
from penstock.torch.plain_tensors import require_plain_module
from penstock.torch.processes.processes import Processes
from penstock.torch.processes.sameness import checksum
from penstock.torch.weights import shared_memory
from penstock.torch.weights.loss_tensors import LossTensors, loss_tensors
from penstock.torch.weights.unchanged import Unchanged
from penstock.torch.weights.updates import Updates
from penstock.torch.weights.weights import Casts, SharedParameter, StageWeights, Storage


class Model:
    """What a Pipeline trains. It is the same for all shapes of batches."""

    def __init__(self, given: Any, schedule: Schedule, processes: Processes) -> None:
        """``given`` has the arguments of the Pipeline, by name."""
        self.given, self.schedule, self.processes = given, schedule, processes
        self.modules: Sequence[nn.Module | None] = given.stages  # by stage of the model
        self.placement = Placement(schedule, processes.processes, processes.process)
        zero = zero_of(given.zero, given.data_parallel, schedule)
        self.casts = None if given.precision is None else Casts(given.precision)
        has_casts = self.casts is not None
        shards = divides_weights(zero, given.data_parallel, schedule, has_casts=has_casts)
        self.storage = Storage(given.precision, zero, shards, has_updates=given.optimizer is not None)
        self._check_modules()
        self.loss_tensors = loss_tensors(given.loss, self.modules)
        shared_memory.check_parameters(self.parameters())
        own = [each if index in self.placement.here else None for index, each in enumerate(self.modules)]
        self.devices = devices.of_stages(own, given.device)  # by stage of the model
        self.options = self._options()
        self._unchanged = self._remember_tensors()
        self._followed = ""  # what follow_modules has found since mark_captured
        #: By stage of the schedule; None for other processes' stages.
        self.weights = self._make_weights(self.loss_tensors)
        self.copied = [each for each in self.weights if each is not None and each.has_copies]
        self.updates = Updates(self.weights, self.placement, given, is_sharded=zero > 0)
        self._is_shed = False  # whether the modules' parameters have no memory

    def module(self, index: int) -> nn.Module:
        module = self.modules[index]
        assert module is not None  # _check_modules
        return module

    def _check_modules(self) -> None:
        """Raises Error if a stage of this process is no module, or not ready to be trained."""
        for index in self.placement.here:
            module = self.modules[index]
            if not isinstance(module, nn.Module):
                raise Error(f"stages[{index}] is {shown(module)}: pass the module of every stage that this process runs")
            require_plain_module(f"stage {index}", module, self.processes.plane)
            for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                if nn.parameter.is_lazy(tensor):
                    raise Error(
                        f"stage {index}: '{name}' is not initialized, as in nn.LazyLinear: run the "
                        "modules once on a batch before the Pipeline is made"
                    )
        if isinstance(self.given.loss, nn.Module):
            require_plain_module("the loss", self.given.loss)

    def _options(self) -> Any:
        """Returns the options of the engine."""
        by_rank, given = devices.of_ranks(self.devices, self.placement), self.given
        if given.transport == "c10d" and self.processes.processes > 1:
            devices.require_one(by_rank)
        ranks = len({self.placement.rank_of[stage] for stage in self.placement.local})
        # Sums depend on the number of threads: exact results need as many as autograd has.
        threads = torch.get_num_threads() if given.exact else max(1, self.processes.cores() // max(1, ranks))
        # Not a TemporaryDirectory, which warns that nobody has closed it.
        scratch = tempfile.mkdtemp(prefix="penstock-")
        weakref.finalize(self, shutil.rmtree, scratch, ignore_errors=True)
        return pipeline_options(given, by_rank, given.threads or threads, given.offload or scratch)

    def set_seed(self, seed: int) -> None:
        """Draws random numbers of another seed from now on, in stages that are compiled later."""
        self.given.seed = seed
        self.options.set_stages(self.given.exact, self.given.gradient_dtype == torch.bfloat16, seed)

    def _remember_tensors(self) -> list[Unchanged]:
        last, sheds, loss = self.placement.chain_length - 1, self.storage.shards_weights, self.given.loss
        all_unchanged = [
            Unchanged(self.module(index), index, self.loss_tensors.parameters if index == last else (), sheds=sheds)
            for index in self.placement.here
        ]
        if isinstance(loss, nn.Module) and last in self.placement.here:
            refuse_hooks(loss, last)
            all_unchanged.append(Unchanged(loss, last, sheds=sheds))
        return all_unchanged

    def _make_weights(self, of_loss: LossTensors) -> list[StageWeights | None]:
        weights: list[StageWeights | None] = [None] * self.schedule.stages
        trained: set[int] = set()
        for stage in self.placement.local:
            index = self.placement.model_stage(stage)
            own, extra = self.module(index), of_loss if self.placement.is_last(stage) else LossTensors()
            plane = self.processes.plane
            weights[stage] = StageWeights(own, index, trained, extra, self.storage, self.casts, self.devices[index], plane)
        return weights

    def follow_modules(self) -> str:
        """Takes over tensors of modules that were replaced, added, removed or frozen.

        Returns what has changed since `mark_captured`, "" if nothing has. Raises Error, before anything has changed, if
        the optimizer does not know one of the tensors.
        """
        changed = next((each for each in (of.changed() for of in self._unchanged) if each), "")
        if not changed:
            return self._followed
        unchanged = self._remember_tensors()
        if [each.tensors for each in unchanged] != [each.tensors for each in self._unchanged]:
            found = loss_tensors(self.given.loss, self.modules)
            if self.storage.zero > 0 or self.casts is not None or self.copied:
                raise Error(f"{changed}, while zero, precision, shared weights or several chains keep copies of weights: make a new Pipeline")
            weights = self._make_weights(found)
            self.updates.follow_weights(weights)
            self.loss_tensors, self.weights = found, weights
            self.copied = [each for each in weights if each is not None and each.has_copies]
            unchanged = self._remember_tensors()
        self._unchanged, self._followed = unchanged, changed
        return changed

    def mark_captured(self) -> None:
        """Has `follow_modules` return what changes from now on."""
        self._followed = ""

    def watches(self) -> list[Any]:
        """Returns watches that notice other tensors of modules, and changes of what updates them."""
        return [*(each.watch for each in self._unchanged), *self.updates.watches()]

    def parameters(self) -> list[list[tuple[str, nn.Parameter]]]:
        """Returns the parameters of each stage of the model, by name; the loss's in the last one. Of DTensors, the own parts."""
        named = [
            [] if module is None else [(name, part_of(each)) for name, each in module.named_parameters()]
            for module in self.modules
        ]
        named[-1].extend(self.loss_tensors.parameters)
        return named

    def shared(self, used: Sequence[Collection[str]] | None = None) -> list[SharedParameter]:
        """Returns the parameters that several stages have, in the order of the stages.

        ``used``: by stage, the names of parameters that the loss depends on. Others have no gradient, so they are left out.
        """
        holders: dict[int, tuple[nn.Parameter, dict[int, str]]] = {}
        for stage, named in enumerate(self.parameters()):
            for name, parameter in named:
                if parameter.requires_grad:
                    holders.setdefault(id(parameter), (parameter, {}))[1].setdefault(stage, name)
        return [
            SharedParameter(parameter, tuple(names), tuple(names.values()))
            for parameter, names in holders.values()
            if len(names) > 1 and (used is None or any(n in used[s] for s, n in names.items()))
        ]

    def contents(self) -> dict[int, dict[str, int]]:
        """Returns a checksum of each tensor of this process's stages, by stage of the model."""
        contents: dict[int, dict[str, int]] = {}
        for weights in filter(None, self.weights):
            names = [name for name, _ in weights.parameters]
            own = zip(names, weights.own, strict=True)
            contents[weights.stage] = {name: checksum(tensor) for name, tensor in (*own, *weights.state)}
        return contents

    def reads(self) -> tuple[list[tuple[str, Any]], list[torch.Tensor]]:
        """Returns where code begins to read, and the tensors of stages."""
        roots: list[tuple[str, Any]] = [(f"stage {index}", self.modules[index]) for index in self.placement.here]
        roots += [("loss", self.given.loss)] if self.placement.chain_length - 1 in self.placement.here else []
        here = [each for each in self.weights if each is not None]
        owned = [tensor for each in here for _, tensor in (*each.parameters, *each.state)]
        return roots, [*owned, *(tensor for each in here for tensor in (*each.own, *each.wholes))]

    def gather(self, engine: Any) -> None:
        """Gives modules their whole weights, which replicas divide during steps."""
        if not self._is_shed:
            return
        engine.gather()
        for weights in filter(None, self.weights):
            weights.fill()
        engine.drop_gathered()
        self._is_shed = False

    def shed(self, engine: Any) -> None:
        """Gives the engine the weights of the modules, and takes their memory away."""
        if self._is_shed:
            return
        for stage, weights in enumerate(self.weights):
            if weights is not None:
                engine.set_weights(stage, weights.own)
        for weights in filter(None, self.weights):
            weights.shed()
        self._is_shed = True
