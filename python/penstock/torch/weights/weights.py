"""The tensors of a stage: what it trains, what forward only reads, and what stages share."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch import nn

from penstock import Error
from penstock.torch.engine import engine
from penstock.torch.mesh.dtensors import follow_part, group_of_parts, part_of
from penstock.torch.mesh.planes import Plane
from penstock.torch.weights.loss_tensors import LossTensors

_TRAINED = (torch.float32, torch.bfloat16, torch.float16)
_IN_SHARDS = "the weights are divided among replicas (zero): call gather() of the Pipeline before"


@dataclasses.dataclass(frozen=True, eq=False)
class SharedParameter:
    """A parameter that several stages of the model have (tied weights)."""

    parameter: nn.Parameter
    stages: tuple[int, ...]
    names: tuple[str, ...]  # by holder: its name in the stage

    def entry(self, stage: int) -> tuple[str, int, int] | None:
        """Returns the name in the stage, the stage's index among the holders, and their number."""
        if stage not in self.stages:
            return None
        holder = self.stages.index(stage)
        return self.names[holder], holder, len(self.stages)


@dataclasses.dataclass(frozen=True)
class Storage:
    """How a Pipeline stores weights."""

    #: The dtype that stages compute in; None: the weights' dtype.
    compute: torch.dtype | None = None
    #: What replicas divide (ZeRO): from 1 on the states of optimizers, from 3 on all weights.
    zero: int = 0
    #: Whether they divide the weights, so that modules have none during steps.
    shards_weights: bool = False
    has_updates: bool = True

    def check(self, what: str, parameter: torch.Tensor) -> None:
        """Raises Error for a parameter that cannot be stored so."""
        if parameter.dtype not in _TRAINED:
            raise Error(
                f"{what} is {parameter.dtype}, but the engine trains float32, bfloat16 and "
                "float16: convert it (module.float()), or freeze it"
            )
        if self.zero == 0:
            return
        if parameter.dtype != torch.float32:
            raise Error(f"{what} is {parameter.dtype}, but zero shards float32: convert it")
        if not parameter.is_contiguous():
            raise Error(f"{what} is not contiguous, as zero requires: call contiguous()")


class Casts:
    """Copies of a pipeline's parameters in another dtype, which code is captured with.

    They have memory only while stages are captured.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._casts: dict[int, tuple[torch.Tensor, nn.Parameter]] = {}  # by id of the parameter

    def of(self, parameter: torch.Tensor) -> nn.Parameter:
        """Returns the copy of a parameter, which is made by the first call."""
        if id(parameter) not in self._casts:
            cast = nn.Parameter(self._cast(parameter), requires_grad=parameter.requires_grad)
            self._casts[id(parameter)] = parameter, cast
        return self._casts[id(parameter)][1]

    def _cast(self, parameter: torch.Tensor) -> torch.Tensor:
        dtype = self._dtype if parameter.is_floating_point() else parameter.dtype
        return parameter.detach().to(dtype, copy=True)

    def input(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns an input of the first stage in the dtype that stages compute in."""
        return tensor.to(self._dtype) if tensor.is_floating_point() else tensor

    @contextlib.contextmanager
    def in_place(self, module: nn.Module) -> Iterator[None]:
        """Gives a module the copies of its parameters."""
        places = [
            (each._parameters, key, parameter)
            for each in module.modules()
            for key, parameter in each._parameters.items()
            if parameter is not None
        ]
        casts = {id(parameter): self.of(part_of(parameter)) for _, _, parameter in places}
        with torch.no_grad():
            for _, _, parameter in places:
                cast = casts[id(parameter)]
                if cast.requires_grad:
                    cast.data = self._cast(part_of(parameter))
                else:
                    cast.copy_(part_of(parameter))
        try:
            for holder, key, parameter in places:
                holder[key] = casts[id(parameter)]
            yield
        finally:
            for holder, key, parameter in places:
                holder[key] = parameter
            for cast in casts.values():
                if cast.requires_grad:
                    cast.data = engine.without_memory(cast, "it is a copy for captures")


class StageWeights:
    """The tensors of one stage in one chain.

    The first one of this process that has a parameter trains the module's own tensor. The others,
    which share it or belong to another chain, train copies, which get the same updates. Without
    updates, all use the module's tensor. With weights in shards, all train copies, and the module's
    tensors have memory only between runs of steps (`shed`).
    """

    def __init__(
        self,
        module: nn.Module,
        stage: int,
        trained: set[int],
        loss: LossTensors,
        storage: Storage,
        casts: Casts | None,
        device: torch.device,
        plane: Plane | None = None,
    ) -> None:
        """``trained``: ids of parameters that earlier stages train; this one's are added.

        ``loss``: what a last stage has of the loss.
        """
        self.stage = stage
        self._storage = storage
        #: What the code of the stage reads, by name.
        self.parameters: list[tuple[str, nn.Parameter]] = []
        #: The module's tensors, in the same order, and what is trained: these, or copies.
        self.own: list[nn.Parameter] = []
        self.masters: list[nn.Parameter] = []
        self.next_masters: list[nn.Parameter] = []  # of an engine that is being built
        #: By parameter: whether no earlier stage of this process trains it.
        self.is_first: list[bool] = []
        self.state: list[tuple[str, torch.Tensor]] = []
        #: DTensors of the module, of which the others are own parts.
        self.wholes: list[torch.Tensor] = []
        #: By name of a parameter: the group of the mesh whose processes have different parts of it.
        self.divided: dict[str, str] = {}
        self._copied: list[torch.Tensor] = []  # tensors of the module that have copies
        self._copies: list[torch.Tensor] = []  # in the same order
        if casts is not None and loss.parameters:
            raise Error(
                f"precision: the loss trains '{loss.parameters[0][0]}', which stages do not cast: put it into the last stage"
            )
        for name, whole in (*module.named_parameters(), *loss.parameters):
            parameter = self._part(whole)
            what = f"stage {stage}: parameter '{name}'"
            _check(what, parameter, device)
            if plane is not None and parameter.requires_grad and (group := group_of_parts(whole, plane, what)):
                self.divided[name] = group
            read = parameter if casts is None else casts.of(parameter)
            if parameter.requires_grad:
                self._train(name, parameter, read, trained)
            else:
                self.state.append((name, read))
                if read is not parameter:
                    self._copy(parameter, read)
        #: Whether an optimizer has something to update.
        self.trains = bool(self.parameters)
        if storage.zero > 0 and not self.trains:  # Replicas divide the weights of each stage, so a frozen one has a weight that no code reads.
            filler = nn.Parameter(torch.zeros(1, device=device))
            self._train("nothing to train", filler, filler if casts is None else casts.of(filler), trained)
        for name, held in _saved_buffers(module):
            buffer = self._part(held)
            _check(f"stage {stage}: buffer '{name}'", buffer, device)
            if buffer.requires_grad:
                raise Error(f"stage {stage}: buffer '{name}' requires a gradient: make it a parameter")
            self.state.append((name, buffer))
        for name, tensor in loss.state:
            _check(f"the loss: '{name}'", tensor, device)
            self.state.append((name, tensor))

    def _part(self, tensor: torch.Tensor) -> Any:
        part = part_of(tensor)
        if part is not tensor:
            self.wholes.append(tensor)
        return part

    @property
    def whole_of(self) -> dict[int, torch.Tensor]:
        """The DTensors, by id of what the optimizer knows their own parts by."""
        wholes = {id(part_of(whole)): whole for whole in self.wholes}
        return {id(known): wholes[id(own)] for known, own in zip(self.updated, self.own, strict=True) if id(own) in wholes}

    def _train(self, name: str, parameter: nn.Parameter, read: nn.Parameter, trained: set[int]) -> None:
        self._storage.check(f"stage {self.stage}: parameter '{name}'", parameter)
        self.parameters.append((name, read))
        self.own.append(parameter)
        self.is_first.append(id(parameter) not in trained)
        master = parameter
        storage = self._storage
        if storage.has_updates and not storage.shards_weights and not self.is_first[-1]:
            master = nn.Parameter(parameter.detach().clone())
            self._copy(parameter, master)
        trained.add(id(parameter))
        self.masters.append(master)

    def _copy(self, own: nn.Parameter, copy: nn.Parameter) -> None:
        self._copied.append(own.detach())
        self._copies.append(copy.detach())

    def check_shared(self, shared: Collection[int]) -> None:
        """Raises Error if no weight can be divided. ``shared``: ids of what stages share."""
        if self._storage.zero == 3 and all(id(parameter) in shared for parameter in self.own):
            raise Error(f"stage {self.stage} shares all of its weights with other stages, which zero=3 cannot divide: use zero=2")

    @property
    def updated(self) -> list[nn.Parameter]:
        """What the optimizer knows the parameters by."""
        return self.own if self._storage.shards_weights else self.masters

    def begin_build(self) -> list[torch.Tensor]:
        """Prepares masters for a new engine. Returns casts of them for it to compute with, if any.

        Requires: the module's tensors have memory.
        """
        self.next_masters = self.masters
        if self._storage.shards_weights:
            self.next_masters = [nn.Parameter(each.detach().clone()) for each in self.own]
        if self._storage.compute is None:
            return []
        return [each.detach().to(self._storage.compute, copy=True) for each in self.next_masters]

    def end_build(self) -> None:
        """Has the engine that was built last train the weights."""
        self.masters = self.next_masters

    def shed(self) -> None:
        """Takes the memory of the module's parameters away. Reading them is an error."""
        for parameter in self.own:
            parameter.data = engine.without_memory(parameter, _IN_SHARDS)
        for whole in self.wholes:
            follow_part(whole)

    def fill(self) -> None:
        """Gives the module's parameters memory with the values of the masters."""
        for parameter, master, is_first in zip(self.own, self.masters, self.is_first, strict=True):
            if is_first:
                parameter.data = master.detach().clone()
        for whole in self.wholes:
            follow_part(whole)

    @property
    def has_copies(self) -> bool:
        """Whether it trains copies of parameters, so that refresh does something."""
        return bool(self._copies)

    def refresh(self) -> None:
        """Makes the copies equal to the parameters, which the caller may have changed.

        Nothing tells whether they have changed: fused optimizers, ``p.data`` and NumPy do not
        raise ``_version``. So this copies before each run of steps.
        """
        torch._foreach_copy_(self._copies, self._copied)


def _saved_buffers(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields the buffers that `state_dict` contains, by name."""
    for prefix, each in module.named_modules():
        for name, buffer in each.named_buffers(recurse=False):
            if name not in each._non_persistent_buffers_set and buffer is not None:
                yield f"{prefix}.{name}" if prefix else name, buffer


def _check(what: str, tensor: torch.Tensor, device: torch.device) -> None:
    if nn.parameter.is_lazy(tensor):
        raise Error(f"{what} of a lazy module is uninitialized: call the model once before, which sets its shape")
    if tensor.device != device:
        raise Error(
            f"{what} is on {tensor.device}, but the stage trains on {device}: move its tensors, "
            "and the loss's with the last stage, to one device (module.to(device))"
        )
    if tensor.layout != torch.strided:
        raise Error(f"{what} is {tensor.layout}, but the engine takes strided tensors")
