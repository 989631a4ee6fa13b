"""The tensors of a stage: what it trains, what forward only reads, and what stages share."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

import torch
from torch import nn

from penstock import Error
from penstock.torch.loss_tensors import LossTensors


_TRAINED = (torch.float32, torch.bfloat16, torch.float16)


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


def parameters_of(
    stages: Sequence[nn.Module | None], loss: LossTensors
) -> list[list[tuple[str, nn.Parameter]]]:
    """Returns the parameters of each stage, by name; those of the loss in the last one."""
    named = [[] if module is None else list(module.named_parameters()) for module in stages]
    named[-1].extend(loss.parameters)
    return named


def share_weights(
    stages: Sequence[Sequence[tuple[str, nn.Parameter]]],
    used: Sequence[Collection[str]] | None = None,
) -> list[SharedParameter]:
    """Returns the parameters that several stages have, in the order of the stages.

    Args:
        stages: see parameters_of.
        used: by stage, the names of parameters that the loss depends on. A parameter that no stage
            uses has no gradient, so it is left out.
    """
    holders: dict[int, tuple[nn.Parameter, dict[int, str]]] = {}
    for stage, named in enumerate(stages):
        for name, parameter in named:
            if parameter.requires_grad:
                holders.setdefault(id(parameter), (parameter, {}))[1].setdefault(stage, name)
    return [
        SharedParameter(parameter, tuple(names), tuple(names.values()))
        for parameter, names in holders.values()
        if len(names) > 1 and (used is None or any(n in used[s] for s, n in names.items()))
    ]


class StageWeights:
    """The tensors of one stage in one chain.

    The first one of this process that has a parameter trains the module's own tensor. The others,
    which share it or belong to another chain, train copies, which get the same updates. Without
    updates, all use the module's tensor.
    """

    def __init__(
        self,
        module: nn.Module,
        stage: int,
        trained: set[int],
        loss: LossTensors,
        has_updates: bool,
    ) -> None:
        """``trained``: ids of parameters that earlier stages train; this one's are added.

        ``loss``: what a last stage has of the loss.
        """
        self.stage = stage
        self.parameters: list[tuple[str, nn.Parameter]] = []
        self.masters: list[nn.Parameter] = []
        #: By parameter: whether no earlier stage of this process trains it.
        self.is_first: list[bool] = []
        self.state: list[tuple[str, torch.Tensor]] = []
        self._own: list[torch.Tensor] = []  # parameters that have copies
        self._copies: list[torch.Tensor] = []  # in the same order
        for name, parameter in (*module.named_parameters(), *loss.parameters):
            _check(f"stage {stage}: parameter '{name}'", parameter)
            if not parameter.requires_grad:
                self.state.append((name, parameter))
                continue
            if parameter.dtype not in _TRAINED:
                raise Error(
                    f"stage {stage}: parameter '{name}' is {parameter.dtype}, but the engine "
                    "trains float32, bfloat16 and float16: convert it (module.float()), or "
                    "freeze it"
                )
            self.parameters.append((name, parameter))
            self.is_first.append(id(parameter) not in trained)
            master = parameter
            if has_updates and not self.is_first[-1]:
                master = nn.Parameter(parameter.detach().clone())
                self._own.append(parameter.detach())
                self._copies.append(master.detach())
            trained.add(id(parameter))
            self.masters.append(master)
        for prefix, each in module.named_modules():
            for name, buffer in each.named_buffers(recurse=False):
                if name in each._non_persistent_buffers_set or buffer is None:
                    continue
                full = f"{prefix}.{name}" if prefix else name
                _check(f"stage {stage}: buffer '{full}'", buffer)
                if buffer.requires_grad:
                    raise Error(
                        f"stage {stage}: buffer '{full}' requires a gradient: make it a parameter"
                    )
                self.state.append((full, buffer))
        for name, tensor in loss.state:
            _check(f"the loss: '{name}'", tensor)
            self.state.append((name, tensor))

    @property
    def has_copies(self) -> bool:
        """Whether it trains copies of parameters, so that refresh does something."""
        return bool(self._copies)

    def refresh(self) -> None:
        """Makes the copies equal to the parameters, which the caller may have changed.

        Nothing tells whether they have changed: fused optimizers, ``p.data`` and NumPy do not
        raise ``_version``. So this copies before each run of steps.
        """
        torch._foreach_copy_(self._copies, self._own)


def _check(what: str, tensor: torch.Tensor) -> None:
    if nn.parameter.is_lazy(tensor):
        raise Error(
            f"{what} of a lazy module is uninitialized: call the model once before, which sets "
            "its shape"
        )
    if tensor.device.type != "cpu":
        raise Error(
            f"{what} is on {tensor.device}, but the engine trains on CPUs: move the model "
            "there, or use penstock.torch.runtime for GPUs"
        )
    if tensor.layout != torch.strided:
        raise Error(f"{what} is {tensor.layout}, but the engine takes strided tensors")
