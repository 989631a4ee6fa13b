"""Stages that follow the modes of the model that they were made of."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence, Set

from torch import nn

from penstock import Error
from penstock.torch.splitting.modes import Modes


class _Follower(nn.Module):
    """A module whose mode is the one of a module of the model, which is not registered in it."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        # Not a mode, so that who compares the attribute by identity asks the property.
        vars(self)["training"] = type(module).__name__
        self._followed = (module,)  # in a tuple, so that it is not registered

    @property
    def training(self) -> bool:
        """The mode of the module, which is set by any of its stages, or for the whole model."""
        return self._followed[0].training

    @training.setter
    def training(self, mode: bool) -> None:
        if "_followed" in vars(self):  # not in nn.Module.__init__
            self._followed[0].training = mode

    def inside(self, path: Sequence[str]) -> nn.Module:
        """Returns the module of this name in this one; makes mirrors of the model's modules on the way."""
        holder: nn.Module = self
        for depth, name in enumerate(path, 1):
            if name not in holder._modules:
                holder.add_module(name, Mirror(self._followed[0].get_submodule(".".join(path[:depth]))))
            holder = holder.get_submodule(name)
        return holder


class Mirror(_Follower):
    """Has tensors of a module of the model, under its name, and its mode."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        # By this attribute, who watches what stages read finds the module, its mode and its attributes.
        vars(self)["forward"] = module.forward


class Part(_Follower):
    """A stage of a model. Its mode is the model's, and reaches the modules that the stage runs.

    The modules of the model have the only flags: ``train`` and ``eval`` of the whole model and of
    its stages are the same to them.
    """

    def __init__(self, model: nn.Module, modes: Modes, runs: Set[nn.Module], free: Sequence[str] = ()) -> None:
        """Makes a stage that runs the modules ``runs``, some of which contain others of them.

        ``free``: the names of modules inside of which others may be replaced later.
        """
        super().__init__(model)
        self.modes = modes
        self._others = frozenset(child for each in runs for child in each.children()) - runs
        self._free = tuple(f"{name}." for name in free)
        self._outline = self._outline_now()

    @property
    def model_name(self) -> str:
        """For messages: the class of the whole model."""
        return type(self._followed[0]).__name__

    def name_in_model(self, name: str) -> str:
        """Returns the model's name of a tensor of the stage."""
        return name.removeprefix("graph.").removeprefix("_root.")

    def train(self, mode: bool = True) -> Part:
        """Sets the mode of the modules that the stage runs, as ``train`` of the whole model does."""
        with _left_out(self._others):
            self._followed[0].train(mode)
        return self

    def require_same_modules(self) -> None:
        """Raises Error if the model does not have the modules any more that it was split with."""
        now, before = self._outline_now(), self._outline
        if now != before:
            name, _ = next(each for each in (*now, *before) if (each in now) is not (each in before))
            raise Error(f"split: module '{name}' was replaced, added or removed after the model was split: call split again")

    def _outline_now(self) -> list[tuple[str, nn.Module]]:
        return [each for each in self._followed[0].named_modules() if not each[0].startswith(self._free)]


@contextlib.contextmanager
def _left_out(modules: Set[nn.Module]) -> Iterator[None]:
    """Has ``train`` not reach these modules."""
    before = {module: vars(module).get("train") for module in modules}
    for module in modules:
        vars(module)["train"] = lambda mode=True, module=module: module
    try:
        yield
    finally:
        for module, own in before.items():
            if own is None:
                del vars(module)["train"]
            else:
                vars(module)["train"] = own
