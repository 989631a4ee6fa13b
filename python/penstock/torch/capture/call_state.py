"""Objects in a stage's outputs that belong to one call, such as caches of keys and values."""

from __future__ import annotations

import dataclasses
from typing import Any

from penstock import Error
from penstock.torch.batch.batches import Structure
from penstock.torch.batch.objects import holds_tensors


def without(structure: Structure, stage: int) -> Structure:
    """Returns the structure of a stage's outputs with a CallState for each such object.

    A compiled stage does not run the code that fills it, so it would have the tensors of the
    capture in all steps.
    """
    constants = tuple(
        (CallState(stage, type(constant[0]).__name__),) if constant is not None and holds_tensors(constant[0]) else constant
        for constant in structure.constants
    )
    return dataclasses.replace(structure, constants=constants)


@dataclasses.dataclass(frozen=True)
class CallState:
    """Stands for such an object outside of its stage, where any use of it is refused."""

    _stage: int
    _kind: str

    def _refuse(self, *_: Any) -> Any:
        raise Error(
            f"the {self._kind} that stage {self._stage} returns holds tensors of one call, which "
            "compiled steps do not pass on: return these tensors, or do not use it outside of the "
            "stage"
        )

    __bool__ = __len__ = __iter__ = __getitem__ = __contains__ = __call__ = _refuse

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy and pickle ask for these
            raise AttributeError(name)
        return self._refuse()
