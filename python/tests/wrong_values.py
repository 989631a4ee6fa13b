"""Values of wrong types, and what a public function does with each in place of an argument.

For property tests of messages: a wrong argument is a ``penstock.Error`` of one line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import penstock


class Unknown:
    """An object that no function knows."""

    def __repr__(self) -> str:
        return "an unknown object"


#: Each call gets a new value, because a function may keep or change it.
MAKERS: Mapping[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "0": lambda: 0,
    "-1": lambda: -1,
    "2**40": lambda: 2**40,
    "-(2**70)": lambda: -(2**70),
    "1.5": lambda: 1.5,
    "2.0": lambda: 2.0,
    "nan": lambda: math.nan,
    "inf": lambda: math.inf,
    "1j": lambda: 1j,
    "''": lambda: "",
    "'a'": lambda: "a",
    "'1'": lambda: "1",
    "two lines": lambda: "a\nb",
    "bytes": lambda: b"a",
    "[]": lambda: [],
    "[None]": lambda: [None],
    "['a']": lambda: ["a"],
    "[-1]": lambda: [-1],
    "()": lambda: (),
    "(1, 2)": lambda: (1, 2),
    "{}": lambda: {},
    "{'a': 1}": lambda: {"a": 1},
    "{1: None}": lambda: {1: None},
    "set()": lambda: {1},
    "iterator": lambda: iter([1, 2]),
    "[[1]]": lambda: [[1]],
    "array(1.5)": lambda: np.array(1.5),
    "array of 3": lambda: np.zeros(3),
    "array of 2 x 2 x 2": lambda: np.zeros((2, 2, 2)),
    "array of text": lambda: np.array(["a"]),
    "array of None": lambda: np.array([None]),
    "function": lambda: lambda: None,
    "type": lambda: int,
    "object": lambda: Unknown(),
}


def complaints(
    function: Callable[..., Any],
    good: Mapping[str, Any] | Callable[[], Mapping[str, Any]],
    *,
    makers: Mapping[str, Callable[[], Any]] = MAKERS,
    only: tuple[str, ...] | None = None,
    also: tuple[type[Exception], ...] = (),
) -> list[str]:
    """Calls a function with wrong values in place of each argument in turn.

    Args:
        function: what is called, with keyword arguments.
        good: arguments with which it succeeds; or a function that makes new ones for each call.
        makers: the wrong values, by name.
        only: the arguments that are replaced. Default: all.
        also: exceptions that the function documents in addition to ``penstock.Error``.

    Returns:
        A line for each call that raised anything but a ``penstock.Error`` with a text of one line.
        A call may succeed: some arguments accept some of these values.
    """
    found = []
    arguments = good if callable(good) else lambda: dict(good)
    for name in only or tuple(arguments()):
        for value_name, make in makers.items():
            try:
                function(**{**arguments(), name: make()})
            except (penstock.Error, *also) as error:
                text = str(error)
                if not text.strip() or "\n" in text:
                    found.append(f"{name}={value_name}: not one line: {text!r}")
            except Exception as error:
                found.append(f"{name}={value_name}: {type(error).__name__}: {error}")
    return found
