"""Errors that all ranks of a pipeline raise, so that none waits for one that has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

from penstock import Error

_T = TypeVar("_T")


def together(group: Any, check: Callable[[], _T]) -> _T:
    """Runs a check on all ranks of a group. Returns its result.

    Raises:
        Error: on all ranks, if the check raises one on any: the error of the first such rank.
    """
    fault: str | None = None
    try:
        result = check()
    except Error as error:
        fault = str(error)
    for rank, text in enumerate(gathered(group, fault)):
        if text is not None:
            raise Error(text if fault is not None else f"pipeline rank {rank}: {text}")
    return result


def gathered(group: Any, value: Any) -> list[Any]:
    """Returns the values of all ranks."""
    values: list[Any] = [value]
    if group.size() > 1:
        values *= group.size()
        dist.all_gather_object(values, value, group=group)
    return values
