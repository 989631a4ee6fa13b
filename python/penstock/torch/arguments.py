"""Checks of what callers pass. Errors are penstock.Error with one line that names the argument."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterable, Iterator
from typing import Any

from penstock import Error

_PLAIN = (int, float, complex, str, bytes, type(None))
_LONGEST = 60  # characters of a value in an error


def shown(value: Any) -> str:
    """Returns a value for an error: its repr if that is short and one line, else its type."""
    text = repr(value) if isinstance(value, (*_PLAIN, list, tuple, dict)) else ""
    if not text or len(text) > _LONGEST or "\n" in text:
        name = type(value).__name__
        return f"{'an' if name[:1] in 'AEIOUaeiou' else 'a'} {name}"
    return text


_MOST = 2**31 - 1


def whole(name: str, value: Any, least: int | None = None, otherwise: str = "") -> int:
    """Returns a whole number; of at least `least` it is a count, which an int of C++ holds.

    `otherwise` ends the error: ", or leave it out".
    """
    number: int | None = None
    if not isinstance(value, bool):
        with contextlib.suppress(TypeError):
            number = operator.index(value)
    if number is None or (least is not None and number < least):
        wanted = "a whole number" if least is None else f"at least {least}"
        if number is None and least is not None:
            wanted = f"a whole number of at least {least}"
        raise Error(f"{name} is {shown(value)}: give {wanted}{otherwise}")
    if least is not None and number > _MOST:
        raise Error(f"{name} is {shown(value)}: give at most {_MOST}")
    return number


def number(name: str, value: Any, wanted: str) -> float:
    """Returns a real number. `wanted` ends the error: "give the largest norm"."""
    try:
        if isinstance(value, (bool, str, bytes)):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise Error(f"{name} is {shown(value)}: {wanted}") from None


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise Error(f"{name} is {shown(value)}: give True or False")
    return value


def function(name: str, value: Any, called_with: str, *, optional: bool = True) -> None:
    """Refuses what cannot be called. `called_with`: "the output and the targets"."""
    if callable(value) or (optional and value is None):
        return
    or_none = ", or None" if optional else ""
    raise Error(f"{name} is {shown(value)}: give a function of {called_with}{or_none}")


def line_of(error: BaseException) -> str:
    """Returns the first line of an exception's text, after its type."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}".removesuffix(": ")


@contextlib.contextmanager
def in_code_of(what: str) -> Iterator[None]:
    """Makes exceptions of code that the caller passed a penstock.Error that begins with `what`."""
    try:
        yield
    except Error:
        raise
    except Exception as error:
        raise Error(f"{what}: {line_of(error)}") from error


def elements(name: str, value: Any) -> Iterator[Any]:
    """Yields the elements of an iterable that the caller passed."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise Error(f"{name} is {shown(value)}: pass a list")
    with in_code_of(name):
        yield from value


def check_state(state: Any, keys: set[str], lists: Iterable[str]) -> None:
    """Raises Error unless a state has the form of what state_dict returns."""
    if not isinstance(state, dict):
        raise Error(f"load_state_dict: the state is {shown(state)}: pass what state_dict returned")
    if set(state) != keys:
        found = sorted(map(str, state))
        raise Error(f"load_state_dict: the keys are {shown(found)}: pass what state_dict returned")
    whole("load_state_dict: steps", state["steps"], 0)
    for name in lists:
        if not isinstance(state[name], list):
            raise Error(f"load_state_dict: {name} is {shown(state[name])}: pass a list by stage")
