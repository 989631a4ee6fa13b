"""Checks of what callers pass. Errors are penstock.Error with one line that names the argument."""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, TypeVar

from penstock import Error

_PLAIN = (int, float, complex, str, bytes, type(None))
_LONGEST = 60  # characters of a value in an error
_MOST = 2**31 - 1


def shown(value: Any) -> str:
    """Returns a value for an error: its repr if that is short and one line, else its type."""
    text = repr(value) if isinstance(value, (*_PLAIN, list, tuple, dict)) else ""
    if not text or len(text) > _LONGEST or "\n" in text:
        name = type(value).__name__
        return f"{'an' if name[:1] in 'AEIOUaeiou' else 'a'} {name}"
    return text


#: Called with the name and the value of an argument. Returns the value that the function gets.
Rule = Callable[[str, Any], Any]
_Function = TypeVar("_Function", bound=Callable[..., Any])


def checked(function: _Function) -> _Function:
    """Checks the arguments of a function by the rules in their annotations.

    ``ranks: Annotated[int, whole(1)] | None = None``. Each ``bool`` is True or False.
    """
    signature = inspect.signature(function)
    prefix = "" if function.__name__ == "__init__" else f"{function.__name__}: "
    hints = typing.get_type_hints(function, include_extras=True)
    found = {name: _rule_of(hint) for name, hint in hints.items() if name != "return"}
    rules = {name: rule for name, rule in found.items() if rule is not None}

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        bound = signature.bind(*given, **named)
        for name in bound.arguments.keys() & rules.keys():
            bound.arguments[name] = rules[name](prefix + name, bound.arguments[name])
        return function(*bound.args, **bound.kwargs)

    # The documentation shows the types without the rules.
    call.__annotations__ = plain = typing.get_type_hints(function)
    parameters = signature.parameters.values()
    documented = [each.replace(annotation=plain.get(each.name, each.annotation)) for each in parameters]
    call.__signature__ = signature.replace(parameters=documented)  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def _rule_of(hint: Any) -> Rule | None:
    if hint is bool:
        return one_of("True or False", True, False)
    if hasattr(hint, "__metadata__"):
        return hint.__metadata__[0]  # type: ignore[no-any-return]
    if type(None) in typing.get_args(hint):
        for each in map(_rule_of, typing.get_args(hint)):
            if each is not None:
                return lambda name, value: None if value is None else each(name, value)
    return None


def whole(least: int | None = None, most: int = _MOST, otherwise: str = "") -> Rule:
    """Whole numbers; of at least `least`, they are counts, which an int of C++ holds.

    `otherwise` ends the error: ", or leave it out".
    """
    wanted = "" if least is None else f"{least} to {most}" if most < _MOST else f"at least {least}"

    def check(name: str, value: Any) -> int:
        number: int | None = None
        if not isinstance(value, bool):
            with contextlib.suppress(TypeError):
                number = operator.index(value)
        if number is None:
            of = wanted and f" of {wanted}"
            raise Error(f"{name} is {shown(value)}: give a whole number{of}{otherwise}")
        if least is not None and not least <= number <= most:
            of = f"at most {most}" if number > most == _MOST else wanted
            raise Error(f"{name} is {shown(value)}: give {of}{otherwise}")
        return number

    return check


def number(wanted: str, fits: Callable[[float], bool]) -> Rule:
    """Real numbers. `wanted` ends the error: "the largest norm"."""

    def check(name: str, value: Any) -> float:
        with contextlib.suppress(TypeError, ValueError, OverflowError, RuntimeError):
            if not isinstance(value, (bool, str, bytes)) and fits(float(value)):
                return float(value)
        raise Error(f"{name} is {shown(value)}: give {wanted}")

    return check


def one_of(wanted: str, *values: Any) -> Rule:
    """One of some values."""

    def check(name: str, value: Any) -> Any:
        if not any(type(value) is type(each) and value == each for each in values):
            raise Error(f"{name} is {shown(value)}: give {wanted}")
        return value

    return check


def function(called_with: str) -> Rule:
    """A function, or None. `called_with`: "the output and the targets"."""

    def check(name: str, value: Any) -> Any:
        if value is not None and not callable(value):
            raise Error(f"{name} is {shown(value)}: give a function of {called_with}, or None")
        return value

    return check


#: The loss of torch's runtime.
LossFn = Annotated[Callable[..., Any] | None, function("the last stage's output and the target")]


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


def check_state(state: Any, keys: set[str], lists: Iterable[str], optional: Iterable[str] = ()) -> None:
    """Raises Error unless a state has the form of what state_dict returns.

    ``optional``: keys of whole numbers that it may lack.
    """
    if not isinstance(state, dict):
        raise Error(f"load_state_dict: the state is {shown(state)}: pass what state_dict returned")
    if not keys <= set(state) <= keys.union(optional):
        found = sorted(map(str, state))
        raise Error(f"load_state_dict: the keys are {shown(found)}: pass what state_dict returned")
    whole(0)("load_state_dict: steps", state["steps"])
    for name in optional:
        if name in state and not (type(state[name]) is int and 0 <= state[name] < 2**63):
            raise Error(f"load_state_dict: {name} is {shown(state[name])}: pass a whole number from 0 on")
    for name in lists:
        if not isinstance(state[name], list):
            raise Error(f"load_state_dict: {name} is {shown(state[name])}: pass a list by stage")
