"""Guards: whether compiled stages still compute what their code says.

All stages are captured twice. The first capture notes which code runs, from which the walk finds
what this code may read. The second one is compiled. It shows which of these places the code itself
changes, and its graphs must be those of the first one.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from penstock import Error
from penstock.torch.engine import engine
from penstock.torch.guards.code_names import names_of
from penstock.torch.guards.numbers import Numbers
from penstock.torch.guards.places import Item, Place
from penstock.torch.guards.running_code import RunningCode
from penstock.torch.guards.walk import Walk


# Code that loads one of these asks what an object is, not for its value; "is" is the operator.
_ASKING = frozenset(("isinstance", "type", "is_tensor", "hasattr", "__class__", "id", "is", "AttributeError", "TypeError"))


class Guards:
    """What the code of a process's stages and loss read when it was captured."""

    def __init__(
        self,
        roots: Sequence[tuple[str, Any]],
        owned: Sequence[torch.Tensor],
        numbers: Numbers,
        doubtful: Sequence[tuple[dict[str, Any], Any]] = (),
    ) -> None:
        """``roots``: where code begins to read. ``owned``: the tensors of stages.

        ``doubtful``: items that perhaps no code reads, which the first capture does without.
        """
        self._doubtful = doubtful
        self._roots, self._owned = roots, owned
        self._stand_ins, self._numbers = numbers, list(numbers.all.values())
        self._number_watch: Any = engine.Watch()
        self._code = RunningCode()
        self._walk: Walk | None = None
        #: By stage, then by address: tensors that captures read although no stage owns them.
        self._foreign: dict[int, dict[int, torch.Tensor]] = {}
        #: Stages whose code reads values of such tensors, which are constants then.
        self._readers: set[int] = set()
        self._is_second = False
        self._read_again: set[int] = set()  # addresses that the second capture has read
        #: Items that no code reads, although some code makes names.
        self._unread: set[Item] = set()
        #: By address: constants that existed before the captures, whose values are compared.
        self._persistent: dict[int, tuple[str, torch.Tensor]] = {}

    # Captures.

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Notes the code that runs meanwhile. Raises Error if a graph cannot repeat it."""
        if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            raise Error("step: torch.autograd.graph.saved_tensors_hooks is on, which compiled steps do not call: step outside of it")
        if torch._C._len_torch_dispatch_stack() > 0:
            raise Error("step: a TorchDispatchMode is on, which compiled steps do not call: step outside of it")
        before = _host_states()
        with (
            self._stand_ins.standing_in(is_other=not self._is_second),
            _without(() if self._is_second else self._doubtful),
            _without_collection(),
            self._code,
        ):
            yield
        if self._code.refusal:
            raise Error(self._code.refusal)
        for (name, state), (_, now) in zip(before, _host_states(), strict=False):
            if state != now:
                raise Error(
                    f"the code draws from '{name}', which a graph cannot repeat: draw from torch's generator, "
                    "or pass the numbers with the batch"
                )

    def is_followed(self, stage: int, tensor: torch.Tensor) -> bool:
        """Whether steps read the current values of a tensor that no stage owns. Otherwise it is a constant."""
        address = tensor.untyped_storage().data_ptr()
        of_stage = self._foreign.setdefault(stage, {})
        if not self._is_second:
            of_stage[address] = tensor
            return False
        self._read_again.add(address)
        if stage in self._readers or not self._is_known(address):
            if address in of_stage:  # It existed before both captures.
                self._persistent[address] = self._name_of(address), tensor
            return False
        return True

    def _is_known(self, address: int) -> bool:
        return self._walk is not None and address in self._walk.tensors

    def _name_of(self, address: int) -> str:
        known = self._walk.tensors.get(address) if self._walk is not None else None
        return known[0] if known else "a tensor"

    def follows(self, stage: int) -> bool:
        """Whether steps of the stage read current values of tensors that it does not own."""
        return self._is_second and stage not in self._readers and any(map(self._is_known, self._foreign.get(stage, ())))

    def keep_constant(self, stage: int) -> None:
        """Declares that the stage's code reads values of tensors: these are compared before each step."""
        self._readers.add(stage)

    def begin(self) -> None:
        """Begins the first capture of a shape."""
        self._is_second, self._foreign, self._read_again = False, {}, set()

    def settle(self) -> None:
        """Ends the first capture. Raises Error for what cannot be compared."""
        self._walk = self._make_walk()
        self._is_second = True

    def _make_walk(self) -> Walk:
        numbers = {(id(each.holder), each.key) for each in self._numbers}
        walk = Walk(self._roots, self._code, self._owned, self._unread | numbers)
        walk.tensors.update((each.tensor.data_ptr(), (each.path, each.tensor)) for each in self._numbers)
        return walk

    def finish(self) -> None:
        """Ends the second capture. From here on, `changed` says whether it still holds."""
        walk = self._walk
        assert walk is not None
        changed = walk.places.changed()
        rewritten = [place for place in changed if self._is_rewritten(place)]
        for place in changed:
            if place not in rewritten:
                self._refuse_store(place)
        for path, holder, name, value in walk.counters:
            if holder.get(name) is not value:
                warnings.warn(f"'{path}' is counted by the code: compiled steps do not count it", stacklevel=2)
        if rewritten:
            self._unread |= {(id(place.item[0]), place.item[1]) for place in rewritten if place.item is not None}
            self._walk = walk = self._make_walk()
        self._finish(walk)
        self.begin()

    def _is_rewritten(self, place: Place) -> bool:
        """Whether code stores a tensor there before it reads it, as the hooks of weight_norm do.

        Then the second capture has not read what the first one had stored.
        """
        if place.item is None or not isinstance(place.value, torch.Tensor):
            return False
        holder, key = place.item
        address = place.value.untyped_storage().data_ptr()
        return isinstance(holder.get(key), torch.Tensor) and address not in self._read_again

    def _finish(self, walk: Walk) -> None:
        for name, tensor in self._persistent.values():
            walk.places.content(name, _whole(tensor))
        self.fill_numbers()

    def _refuse_store(self, place: Place) -> None:
        """Refuses code that changes what it reads, which steps would not do again."""
        for code in self._code.codes:
            line = names_of(code).stores.get(place.store)
            if line is not None:
                where = f"at {code.co_filename}:{line} in {code.co_name}: "
                break
        else:
            where = ""
        raise Error(
            f"{where}'{place.path}' is changed by the code itself, which compiled steps would not do again: "
            "keep it in a buffer that forward updates in place, or change it between steps"
        )

    @contextlib.contextmanager
    def verifying(self) -> Iterator[None]:
        """A capture meanwhile is compared with the compiled one."""
        self._is_second = True
        try:
            yield
        finally:
            self.begin()

    # Between captures.

    def items_of(self, places: Sequence[Place]) -> set[Item]:
        """Returns items that perhaps no code reads; empty if one of the places is read for certain."""
        items = [each.item for each in places if each.is_doubtful and each.item is not None]
        return self._unread | {(id(holder), key) for holder, key in items} if len(items) == len(places) else set()

    def reaches_same_tensors(self, other: Guards) -> bool:
        """Whether the code reads no other tensors, which equal graphs do not show."""
        assert self._walk is not None and other._walk is not None
        return self._walk.tensors.keys() == other._walk.tensors.keys()

    def ignore(self, unread: set[Item]) -> None:
        """Compares these items no more."""
        self._unread = unread
        self._walk = self._make_walk()
        self._finish(self._walk)

    @property
    def watches(self) -> list[Any]:
        """Compare all places and numbers, in C++."""
        assert self._walk is not None
        return [self._walk.places.watch, self._number_watch]

    def is_unchanged(self) -> bool:
        """Whether the code reads what it read when it was captured."""
        return self._walk is not None and bool(self._walk.places.watch.is_unchanged()) and self.fill_numbers()

    def fill_numbers(self) -> bool:
        """Gives the tensors that stand for numbers their values. Returns whether all still are numbers."""
        self._number_watch = engine.Watch()
        for each in self._numbers:
            value = each.holder.get(each.key)
            if type(value) is not float:
                return False
            each.fill()
            self._number_watch.add_item(each.holder, each.key, value)
        return True

    def asks_for_type(self, name: str) -> bool:
        """Whether code of a file that loads the name asks what objects are, so that no tensor can stand for a number."""
        codes = [(code.co_filename, names_of(code)) for code in self._code.codes]
        files = {file for file, each in codes if name in each.names | each.globals}
        return any(file in files and (each.names | each.globals) & _ASKING for file, each in codes)

    def changed(self) -> list[Place]:
        """Returns the places that have changed since the capture."""
        return [] if self._walk is None else self._walk.places.changed()

    def __len__(self) -> int:
        return 0 if self._walk is None else len(self._walk.places)


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """Returns all memory of a tensor, which views of it may read."""
    plain = tensor.detach()
    storage = plain.untyped_storage()
    count = storage.nbytes() // plain.element_size()
    return torch.empty(0, dtype=plain.dtype, device=plain.device).set_(storage, 0, (count,), (1,))


@contextlib.contextmanager
def _without(items: Sequence[tuple[dict[str, Any], Any]]) -> Iterator[None]:
    """Removes items from their dicts meanwhile."""
    kept = [(holder, key, holder[key], [*holder]) for holder, key in items if key in holder]
    for holder, key, _, _ in kept:
        del holder[key]
    try:
        yield
    finally:
        for holder, key, value, keys in reversed(kept):
            holder[key] = value
            for each in keys[keys.index(key) + 1 :]:  # in their order
                if each in holder:
                    holder[each] = holder.pop(each)


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Collects no garbage meanwhile, because finalizers, such as those of temporary folders, are no code of the stage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _host_states() -> list[tuple[str, Any]]:
    """The generators of the process that no event tells the use of."""
    if "numpy" not in sys.modules:
        return []
    state = sys.modules["numpy"].random.get_state(legacy=False)["state"]
    return [("numpy.random", (state["pos"], hash(state["key"].tobytes())))]
