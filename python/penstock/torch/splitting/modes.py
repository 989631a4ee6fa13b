"""The modes of a model that its stages follow: which modules train, and which evaluate."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from penstock import Error
from penstock.torch.batch.batches import call


@dataclasses.dataclass(frozen=True)
class Mode:
    """The value of ``training`` of each module of a model."""

    name: str
    flags: tuple[bool, ...]  # by ``model.modules()``
    trains: bool | None  # what ``train`` is called with for it; None if single modules have another mode

    @contextlib.contextmanager
    def of(self, model: nn.Module) -> Iterator[None]:
        """Has the model in this mode."""
        with _restored(model):
            if _flags(model) != self.flags:
                _set(model, self.flags, self.trains)
            yield


@dataclasses.dataclass(frozen=True)
class Modes:
    """The modes for which stages were made, first the one in which the model was."""

    known: tuple[Mode, ...]
    missing: str = ""  # for which ones they could not be made, and why

    def without(self, mode: Mode, why: str) -> Modes:
        return Modes(tuple(each for each in self.known if each is not mode), self.missing + _missing(mode.name, why))

    def now(self, model: nn.Module) -> int:
        """Returns the number of the mode that the model is in. Raises Error if stages were not made for it."""
        flags = _flags(model)
        for number, mode in enumerate(self.known):
            if mode.flags == flags:
                return number
        nearest = max(self.known, key=lambda mode: sum(map(bool.__eq__, mode.flags, flags)))
        others = [index for index, flag in enumerate(flags) if flag is not nearest.flags[index]]
        name = [name for name, _ in model.named_modules()][others[-1]]  # a container comes before what it holds
        raise Error(
            f"split: module '{name or type(model).__name__}' is in {'train' if flags[others[-1]] else 'eval'} mode, but the stages "
            f"were made for the model {' and '.join(mode.name for mode in self.known)}{self.missing}: use one of these modes, or "
            "call split in this one"
        )


def modes_of(model: nn.Module, inputs: Any) -> Modes:
    """Returns the mode in which the model is, and those of ``train()`` and ``eval()``, if it runs in them."""
    given = _flags(model)
    found: list[Mode] = []
    missing = ""
    for trains in (True, False):
        name = f"in {'train' if trains else 'eval'} mode"
        try:
            with _restored(model):
                model.train(trains)
                mode = Mode(name, _flags(model), trains)
                if mode.flags != given:
                    with torch.no_grad():
                        call(model, inputs)
        except Exception as error:  # noqa: BLE001
            missing += _missing(name, f"{type(error).__name__}: {error}")
        else:
            found += [mode] if all(each.flags != mode.flags for each in found) else []
    if all(mode.flags != given for mode in found):
        found.append(Mode("as it was", given, None))
    return Modes(tuple(sorted(found, key=lambda mode: mode.flags != given)), missing)


def _missing(name: str, why: str) -> str:
    return f" (not {name}: {why.strip().partition(chr(10))[0]})"


def _flags(model: nn.Module) -> tuple[bool, ...]:
    return tuple(each.training for each in model.modules())


def _set(model: nn.Module, flags: tuple[bool, ...], trains: bool | None) -> None:
    if trains is not None:
        model.train(trains)  # an own train() may do more than to set flags
    for module, flag in zip(model.modules(), flags, strict=True):
        module.training = flag


@contextlib.contextmanager
def _restored(model: nn.Module) -> Iterator[None]:
    """Restores the model's mode at the end."""
    flags, trains = _flags(model), model.training
    # An own train() may change weights: adapters are merged into them for evaluation.
    has_own = any(type(each).train is not nn.Module.train for each in model.modules())
    contents = [(each, each.detach().clone()) for each in model.parameters()] if has_own else []
    try:
        yield
    finally:
        if _flags(model) != flags:
            _set(model, flags, trains if has_own else None)
        with torch.no_grad():
            for parameter, content in contents:
                if not torch.equal(parameter, content):
                    parameter.copy_(content)
