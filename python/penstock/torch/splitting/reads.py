"""What the code of a model read when its graph was traced. The graph has these values as constants."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from penstock import Error
from penstock.torch.batch.batches import call
from penstock.torch.devices import device_of
from penstock.torch.guards.running_code import RunningCode
from penstock.torch.guards.walk import Walk
from penstock.torch.preserve import preserved

# torch.export is not thread-safe, and ranks capture on threads.
_lock = threading.Lock()


class Reads:
    """Whether traced graphs still compute what the model's code says. Thread-safe."""

    def __init__(self, model: nn.Module, inputs: Any) -> None:
        """``inputs``: of one microbatch, with which the model is run again after a change."""
        self._model, self._inputs = model, inputs
        self._code = RunningCode()
        self._trace: Callable[[Any], str] = lambda inputs: ""
        self._traced = ""

    def note(self) -> None:
        """Runs the model in its present mode, and notes what runs. Raises Error if a graph cannot repeat it."""
        with self._code, torch.no_grad():
            call(self._model, self._inputs)
        if self._code.refusal:
            raise Error(f"split: {self._code.refusal}")

    def end(self, trace: Callable[[Any], str]) -> None:
        """Ends the notes. ``trace``: traces the model for inputs, and returns a text that says what it computes."""
        self._trace, self._traced = trace, trace(self._inputs)
        self._compare_from_now()

    def _compare_from_now(self) -> None:
        modes = {(id(vars(module)), "training") for module in self._model.modules()}  # The stages follow them.
        self._walk = Walk([("model", self._model)], self._code, [*self._model.parameters(), *self._model.buffers()], modes)

    def report(self) -> None:
        """Reports the model's code as running, so that changes of what it reads cause a capture."""
        self._code.report()

    def require_unchanged(self) -> None:
        """Raises Error if the model's code computes something else than the graphs do."""
        with _lock:
            changed = self._walk.places.changed()
            if not changed:
                return
            device = device_of(self._model)
            inputs = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), self._inputs)
            with preserved(self._model):
                is_same = self._trace(inputs) == self._traced
            if not is_same:
                raise Error(
                    f"split: '{changed[0].path}' has changed after the model was split, but the graphs of its stages have the value "
                    "from then: call split again, or pass the value with the batch as a tensor"
                )
            self._compare_from_now()
