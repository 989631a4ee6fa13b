"""Places: what is compared before each step, by names that a user understands."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable
from typing import Any

import torch

from penstock.torch.engine import engine


#: An item of a dict or a class: the id of the holder, and the key.
Item = tuple[int, Any]


@dataclasses.dataclass(frozen=True, eq=False)
class Place:
    """One thing that code may read."""

    path: str
    #: The name under which code stores there; "[]" for members of containers, "" if it is not known.
    store: str = ""
    #: The dict and the key that hold a value; None for places of other kinds.
    item: tuple[dict[str, Any], Any] | None = None
    value: Any = None  # of the item
    #: Whether no code loads the name, but some code makes names.
    is_doubtful: bool = False


class Places:
    """Places with their values of now. Each is added once."""

    def __init__(self) -> None:
        self.watch: Any = engine.Watch()
        self._places: dict[int, Place] = {}  # by number in the watch
        self._added: set[Hashable] = set()
        self._kept: list[Any] = []  # so that ids stay theirs

    def __len__(self) -> int:
        return len(self._places)

    def changed(self) -> list[Place]:
        """Returns the places that have changed since they were added."""
        return [self._places[number] for number in self.watch.changed() if number in self._places]

    def _is_new(self, key: Hashable, kept: Any) -> bool:
        if key in self._added:
            return False
        self._added.add(key)
        self._kept.append(kept)
        return True

    def item(self, path: str, holder: Any, key: Any, namespace: Any = None, store: str = "", is_doubtful: bool = False) -> None:
        """What a dict, or a class, has under a key. ``namespace``: of the class."""
        if not self._is_new((id(holder), "item", key), holder):
            return
        table = holder if namespace is None else namespace
        number = self.watch.add_item(holder, key, table[key]) if key in table else self.watch.add_absent(holder, key)
        item = (holder, key) if type(holder) is dict else None
        self._places[number] = Place(path, store or str(key), item, table.get(key), is_doubtful)

    def keys(self, path: str, holder: Any, read: set[str] | None, store: str = "") -> None:
        """Which of the keys in ``read``, or of all, a dict or a class has."""
        if self._is_new((id(holder), "keys"), holder):
            self._places[self.watch.add_keys(holder, read)] = Place(path, store)

    def members(self, path: str, container: Any, store: str = "[]") -> None:
        """What a container has, in order."""
        if self._is_new((id(container), "members"), container):
            self._places[self.watch.add_members(container)] = Place(path, store)

    def cell(self, path: str, cell: Any) -> None:
        """What a cell of a closure has."""
        if self._is_new((id(cell), "cell"), cell):
            self._places[self.watch.add_cell(cell)] = Place(path, path)

    def kind(self, path: str, value: Any) -> None:
        """The class of an object."""
        if self._is_new((id(value), "class"), value):
            self._places[self.watch.add_class(value)] = Place(f"{path}.__class__")

    def function(self, path: str, function: Any) -> None:
        """The code and the defaults of a function."""
        if self._is_new((id(function), "function"), function):
            self._places[self.watch.add_function(function)] = Place(path)

    def tensor(self, path: str, tensor: torch.Tensor) -> None:
        """The memory and the form of a tensor, not its values."""
        if self._is_new((id(tensor), "tensor"), tensor):
            self._places[self.watch.add_tensor(tensor)] = Place(path)

    def content(self, path: str, tensor: torch.Tensor) -> None:
        """The values of a tensor."""
        if self._is_new((id(tensor), "content"), tensor):
            self._places[self.watch.add_content(tensor.detach())] = Place(path, "[]")

    def call(self, path: str, get: Callable[[], Any], store: str = "") -> None:
        """What a function returns, a number, a text or a tuple of such."""
        self._places[self.watch.add_call(get)] = Place(path, store)
