"""Errors of the user's code name its line."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import traceback
from collections.abc import Iterator, Sequence

import torch
import typing_extensions

import penstock
from penstock import Error

LIBRARIES = tuple(os.path.dirname(str(module.__file__)) + os.sep for module in (torch, penstock))
_DECORATORS = tuple(str(module.__file__) for module in (contextlib, functools, typing_extensions))  # of functions of torch


def is_of_library(file: str) -> bool:
    """Whether code of this file is torch's, Penstock's or a decorator of theirs, or has no file."""
    return file.startswith((*LIBRARIES, *_DECORATORS, "<"))


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
    """Returns the innermost line outside of libraries: " at model.py:12 in forward"."""
    frames = [(f.filename, f.lineno, f.name) for f in traceback.extract_tb(error.__traceback__)]
    return innermost(frames)


def innermost(frames: Sequence[tuple[str, int | str | None, str]]) -> str:
    """Returns the last of these frames that is of no library."""
    for file, line, name in reversed(frames):
        if not is_of_library(file):
            return f" at {file}:{line} in {name}"
    return ""
