"""Sequence slices: what attention reads of the earlier slices of the same sequences.

With ``Pipeline(..., slices=k)``, each microbatch is divided into k slices along dimension 1, as in
Seq1F1B (Sun et al., 2024). A stage takes and returns one tensor ``[batch, tokens, ...]`` of a slice.
Its attention calls ``current().extend(keys, values)`` to attend to earlier slices, too. Stages that
`split` makes of a model of transformers do that by themselves.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch

from penstock import Error
from penstock.torch.arguments import shown
from penstock.torch.engine import engine, one_line

KeysValues = tuple[torch.Tensor, torch.Tensor]

_of_thread = threading.local()  # .trial: the slice that runs outside of the engine


class Slice:
    """The slice that a stage's forward is captured for."""

    @property
    def start(self) -> int:
        """The position of its first token in the sequence."""
        start = engine.slice_start()
        if start is None:
            raise Error("no stage runs a slice on this thread: ask penstock.torch.slices.current()")
        return int(start)

    @one_line
    def extend(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the keys and values of all tokens so far.

        Every attention layer calls it once, in the same order in every slice.

        Args:
            keys, values: of the slice, ``[batch, heads, tokens, head_dim]``.

        Returns:
            Tensors ``[batch, heads, start + tokens, head_dim]``.
        """
        for name, tensor in (("keys", keys), ("values", values)):
            if not isinstance(tensor, torch.Tensor) or tensor.dim() < 3:
                raise Error(f"extend: {name} is {shown(tensor)}: pass [batch, heads, tokens, dim]")
        return engine.slice_extend(keys, values)  # type: ignore[no-any-return]


def current() -> Slice | None:
    """Returns the slice whose forward is running, or None for whole sequences."""
    running: Slice | None = getattr(_of_thread, "trial", None)
    if running is None and engine.slice_start() is not None:
        return Slice()
    return running


class _Trial(Slice):
    """A slice whose forward runs directly, without the engine."""

    def __init__(self, start: int, kept: list[list[KeysValues]]) -> None:
        self._start, self._kept, self._layer = start, kept, 0

    @property
    def start(self) -> int:
        return self._start

    def extend(self, keys: torch.Tensor, values: torch.Tensor) -> KeysValues:
        if self._layer == len(self._kept):
            self._kept.append([])
        of_layer = self._kept[self._layer]
        of_layer.append((keys, values))
        self._layer += 1
        return (torch.cat([each for each, _ in of_layer], 2), torch.cat([each for _, each in of_layer], 2))


@contextlib.contextmanager
def trial(start: int, kept: list[list[KeysValues]]) -> Iterator[None]:
    """Makes `current` a slice that starts there. Reads and adds to the keys and values by layer."""
    _of_thread.trial = _Trial(start, kept)
    try:
        yield
    finally:
        _of_thread.trial = None


class SliceCache:
    """A slice as transformers' cache of keys and values, whose positions and masks then fit."""

    is_compileable = False
    is_sliding = (False,)

    def __init__(self, of: Slice, model: str) -> None:
        self._of, self._model = of, model

    def update(self, keys: torch.Tensor, values: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return self._of.extend(keys, values)

    def get_seq_length(self, *_: Any) -> int:
        return self._of.start

    def get_query_offset(self, *_: Any) -> int:
        return self._of.start

    def get_mask_sizes(self, query_length: int, *_: Any) -> tuple[int, int]:
        return self._of.start + query_length, 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copy and pickle ask for such names
            raise AttributeError(name)
        raise AttributeError(
            f"{self._model} reads '{name}' of its cache, but sequence slices keep only keys and "
            "values of attention, no other state of earlier tokens: train it without slices"
        )

    def __eq__(self, other: object) -> bool:
        # Models return their cache, which is the same constant for all slices.
        return isinstance(other, SliceCache)

    __hash__ = None  # type: ignore[assignment]
