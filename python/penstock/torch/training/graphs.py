"""The compiled stages of a Pipeline: what made them be captured again, and the ones of earlier values."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from penstock import Error
from penstock.torch.batch.batches import Layout
from penstock.torch.batch.shapes import Shape
from penstock.torch.capture.compiled import Compiled, Tensors, compile_on_all
from penstock.torch.guards.guards import Guards
from penstock.torch.guards.numbers import Numbers
from penstock.torch.guards.places import Item
from penstock.torch.model import Model
from penstock.torch.processes import agreement
from penstock.torch.weights.stage_optimizer import UPDATES

_MOST = 4  # graphs of earlier values
#: After how many changes of the same place a warning says how to avoid captures.
_OFTEN = 3


@dataclasses.dataclass(eq=False)
class Graphs:
    """Compiled stages, and what they were compiled for."""

    compiled: Compiled
    layout: Layout
    autocast: torch.dtype | None
    is_weighted: bool
    trained: Sequence[Any]
    last_shapes: list[int] = dataclasses.field(default_factory=list)  # of the last step, which a step like it has

    def __post_init__(self) -> None:
        self.engine = self.compiled.engine
        self.is_plain = self.layout.is_plain and not self.is_weighted  # whether batches are tensors without factors

    def fit(self, layout: Layout, autocast: torch.dtype | None, is_weighted: bool, trained: Sequence[Any]) -> bool:
        """Whether they compute what the code says now."""
        is_same = len(self.trained) == len(trained) and all(map(lambda one, other: one is other, self.trained, trained))
        is_same = is_same and (self.layout, self.autocast, self.is_weighted) == (layout, autocast, is_weighted)
        return is_same and self.compiled.guards.is_unchanged()


class StageGraphs:
    """The graphs that a Pipeline trains with, and the ones that it used last."""

    def __init__(self, model: Model) -> None:
        self._model, self._timeout = model, model.given.timeout
        self._verify_every: int = model.given.verify_every
        # Whether graphs of earlier values can train again.
        self._keeps = model.storage.zero == 0 and model.casts is None
        self._takes_numbers = not model.given.exact
        self._numbers = Numbers()
        self._kept: list[Graphs] = []  # the ones used last at the end
        self._verified = 0  # the step whose captures were compared last
        # Compiled stages whose code perhaps did not read the items that have changed since.
        self._doubtful: tuple[Compiled, set[Item], list[tuple[dict[str, Any], Any]]] | None = None
        #: What made the stages be captured again, in order.
        self.changes: list[str] = []
        self.now: Graphs | None = None  # after the first step

    def changed(self, layout: Layout, autocast: torch.dtype | None) -> str:
        """Returns what makes this process capture its stages again; "" if nothing has changed."""
        self._doubtful = None
        if self.now is None:
            return ""
        if layout != self.now.layout:
            return "the structure of the batch, or a value in it that is not a tensor"
        if autocast != self.now.autocast:
            return "torch.autocast"
        guards = self.now.compiled.guards
        if not guards.fill_numbers():
            self._numbers.give_up_others()
            return "a number that is now of another type"
        places = guards.changed()
        for place in places if self._takes_numbers else ():
            if place.item is not None and not guards.asks_for_type(str(place.item[1])):
                self._numbers.note(place)
        unread = guards.items_of(places) if places else set()
        self._doubtful = (self.now.compiled, unread, [each.item for each in places if each.item]) if unread else None
        return places[0].path if places else ""

    def drop(self, changed: str) -> None:
        """Has the stages be captured again before the next step."""
        self.gather()
        self._model.mark_captured()
        self.changes.append(changed)
        if self.now is not None and self._keeps:
            self._kept = [*(each for each in self._kept if each is not self.now), self.now][-_MOST:]
        is_silent = changed == UPDATES or changed.endswith(".training")
        if not is_silent and self.changes.count(changed) == _OFTEN:
            often = f"'{changed}' changes often, and each change captures the stages again: keep it in a tensor"
            warnings.warn(often, stacklevel=6)  # where step was called
        self.now = None

    def forget(self) -> None:
        """Drops all graphs."""
        self.gather()
        self._kept, self.now = [], None

    def gather(self) -> None:
        """Gives modules their whole weights, which replicas divide during steps."""
        if self.now is not None:
            self._model.gather(self.now.engine)

    def returned(self, *wanted: Any) -> Graphs | None:
        """Returns graphs of values that have returned on all processes, if there are any. ``wanted``: see Graphs.fit."""
        if not self.changes:
            return None
        fitting = [index for index, each in enumerate(self._kept) if each.fit(*wanted)]
        _, of_all = agreement.agree(self._model.processes, self._timeout, lambda: (None, fitting))
        index = next((each for each in reversed(of_all[0]) if all(each in of for of in of_all)), None)
        found = None if index is None else self._kept[index]
        self.now = found or self.now
        return found

    def compile(
        self, layout: Layout, autocast: torch.dtype | None, is_weighted: bool, trained: Sequence[Any],
        batch: Tensors, shape: Shape, steps: int,
    ) -> None:  # fmt: skip
        """Captures and compiles the stages."""

        def run() -> Compiled:
            doubtful = self._doubtful[2] if self._doubtful else ()
            guards = Guards(*self._model.reads(), self._numbers, doubtful)
            return compile_on_all(self._model, guards, layout, batch, shape, is_weighted)

        try:
            compiled = run()
        except Error:  # on all processes
            attempts = bool(self._numbers.all), self._doubtful is not None
            _, of_all = agreement.agree(self._model.processes, self._timeout, lambda: (None, attempts))
            if not any(any(each) for each in of_all):
                raise
            if not any(is_doubtful for _, is_doubtful in of_all):
                self._numbers.give_up()
            self._doubtful = None
            self.compile(layout, autocast, is_weighted, trained, batch, shape, steps)
            return
        if self._doubtful is not None:
            before, unread, _ = self._doubtful
            if compiled.engine.is_like(before.engine) and compiled.guards.reaches_same_tensors(before.guards):
                compiled.guards.ignore(unread)
        self._doubtful, self._verified = None, steps
        self.now = Graphs(compiled, layout, autocast, is_weighted, trained)

    def is_to_verify(self, steps: int) -> bool:
        """Whether it is time to prove that the graphs compute what the code says."""
        return 0 < self._verify_every <= steps - self._verified

    def verify(self, batch: Tensors, shape: Shape, steps: int) -> None:
        """Captures all stages again. Raises Error if they compute something else than the graphs."""
        assert self.now is not None
        if self.now.compiled.verify_on_all(batch, shape):
            self._verified = steps
