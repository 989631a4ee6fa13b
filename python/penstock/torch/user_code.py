"""Errors of the user's code name its line."""

from __future__ import annotations

import contextlib
import os
import re
import traceback
from collections.abc import Iterator, Sequence

import torch

import penstock
from penstock import Error

LIBRARIES = tuple(os.path.dirname(str(module.__file__)) + os.sep for module in (torch, penstock))


@contextlib.contextmanager
def in_user_code(what: str) -> Iterator[None]:
    """Names the line of the user's code in errors."""
    try:
        yield
    except Error:
        raise
    except Exception as error:
        line = user_line(error)
        text = str(error).strip().split("\n", 1)[0]
        if not text or not isinstance(error, (RuntimeError, ValueError)):
            text = f"{type(error).__name__}: {text}".removesuffix(": ")
        if "mutates an input" in text or "is being used in an in-place operation" in text:
            text = text.rstrip(".") + ": compute a new tensor instead (x = x + 1), or clone it first"
        operator = re.search(r"HigherOrderOperator (\w+)", text)
        if operator is not None:
            text = (
                f"{operator.group(1)} of torch runs functions that a graph cannot contain: call them directly, with torch.where "
                "in place of torch.cond, and Python's loops"
            )
        raise Error(f"{what}{line}: {text}") from error


def user_line(error: BaseException) -> str:
    """Returns the innermost line outside of torch and Penstock: " at model.py:12 in forward"."""
    frames = [(f.filename, f.lineno, f.name) for f in traceback.extract_tb(error.__traceback__)]
    return innermost(frames)


def innermost(frames: Sequence[tuple[str, int | str | None, str]]) -> str:
    """Returns the last of these frames that is outside of torch and Penstock."""
    for file, line, name in reversed(frames):
        if not file.startswith((*LIBRARIES, "<")):
            return f" at {file}:{line} in {name}"
    return ""
