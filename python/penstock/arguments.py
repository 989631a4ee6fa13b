"""Checks the types of arguments by their annotations, so that a wrong one is a one-line Error."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import numbers
import operator
import os
import sys
import types
import typing
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, SupportsIndex, TypeVar, Union, cast

import numpy as np
import numpy.typing as npt

from penstock import _core

_Checked = TypeVar("_Checked", bound=Callable[..., Any])

#: The largest whole number that C++ takes for a count.
LARGEST = 2**31 - 1

_WANTED: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "True or False",
    type(None): "None",
    os.PathLike: "a path",
    np.ndarray: "an array",
}
#: What is wanted where the type alone does not say it.
_EXAMPLES = {"nodes": "text: '4x8' for 4 nodes of 8 devices"}
_KINDS: dict[Any, type | tuple[type, ...]] = {float: numbers.Real, bool: (bool, np.bool_), int: numbers.Integral}


def checked(decorated: _Checked) -> _Checked:
    """Checks the arguments of a function, or of each public method of a class, in every call.

    An argument whose type is not the annotated one raises ``Error`` before anything is done. So
    does a keyword that the ``TypedDict`` of a function's keywords does not have.
    """
    if not isinstance(decorated, type):
        return _checked_function(decorated)
    for name, member in list(vars(decorated).items()):
        if name.startswith("_") and name != "__init__":
            continue
        if isinstance(member, (classmethod, staticmethod)):
            setattr(decorated, name, type(member)(_checked_function(member.__func__)))
        elif isinstance(member, types.FunctionType):
            setattr(decorated, name, _checked_function(member))
    return decorated


def count(name: str, value: Any, least: int = 0) -> int:
    """Returns a whole number that C++ takes for a count. Raises ``Error`` for others."""
    is_whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not is_whole or not least <= int(value) <= LARGEST:
        raise _core.Error(f"{name} {shown(value)}: give a whole number of at least {max(1, least)}")
    return int(value)


def shown(value: object) -> str:
    """Returns a value as errors show it: in one short line."""
    try:
        text = repr(value)
    except Exception:
        return f"of type {type(value).__name__}"
    if isinstance(value, np.ndarray) and value.ndim:
        return f"an array of {value.dtype} and shape {value.shape}"
    first = text.split("\n", 1)[0]
    return text if text == first and len(text) <= 60 else f"{first[:50]}..."


def keywords_of(function: Callable[..., Any]) -> frozenset[str] | None:
    """Returns the keywords that a function takes; None if it takes any."""
    signature = inspect.signature(function)
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in signature.parameters.values()):
        return None
    return named_of(signature)


def named_of(signature: inspect.Signature) -> frozenset[str]:
    """Returns the keywords that a signature names."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return frozenset(each.name for each in signature.parameters.values() if each.kind in named) - {"self", "cls"}


def name_of(function: Callable[..., Any]) -> str:
    """Returns a function's name for errors; of a constructor, its class."""
    words = function.__qualname__.split(".")
    return words[-2] if words[-1] in ("__init__", "__new__") and len(words) > 1 else words[-1]


def require_keywords(
    function: str, given: Iterable[str], known: Collection[str] | None, instead: Mapping[str, str] = types.MappingProxyType({})
) -> None:
    """Raises ``Error`` for a keyword that a function does not take, with the one that is meant, or what is to be given instead.

    ``known`` are its keywords; None if it takes any.
    """
    if known is None:
        return
    for name in given:
        if name in known:
            continue
        hint = instead.get(name) or _core.keyword_hint(name, sorted(known)) or f"give {_listed(known)}"
        raise _core.Error(f"{function}: there is no keyword {name!r}; {hint}")


def named(function: _Checked) -> _Checked:
    """Checks the keywords of each call, and nothing else."""
    known, own_name = keywords_of(function), name_of(function)

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        if named:
            require_keywords(own_name, named, known)
        return function(*given, **named)

    return cast(_Checked, call)


def _listed(known: Collection[str]) -> str:
    return f"one of {', '.join(sorted(known))}" if known else "none"


def former_names(**current: str) -> Callable[[_Checked], _Checked]:
    """Lets a checked function take keywords by former names, with a warning.

    @former_names(data="data_parallel")
    """

    def mark(function: _Checked) -> _Checked:
        function._former_names = current  # type: ignore[attr-defined]
        return function

    return mark


def warn_of_former_names() -> None:
    """Warns the caller of a public function about former names in files and texts that C++ read."""
    for note in _core.take_notes():
        warnings.warn(note, FutureWarning, stacklevel=4)


def _with_current_names(function: Callable[..., Any], named: dict[str, Any]) -> dict[str, Any]:
    current: Mapping[str, str] = getattr(function, "_former_names", {})
    for former in current.keys() & named.keys():
        name = current[former]
        if name in named:
            raise _core.Error(f"{former} is the former name of {name}; keep one of the two")
        warnings.warn(
            f"'{former}' is called '{name}' now; the former name works in this release only", FutureWarning, stacklevel=3
        )
        named = {name if given == former else given: value for given, value in named.items()}
    return named


def _checked_function(function: _Checked) -> _Checked:
    signature, known, own_name = inspect.signature(function), keywords_of(function), name_of(function)

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        named = _with_current_names(function, named)
        require_keywords(own_name, named, known)
        try:
            bound = signature.bind(*given, **named)
        except TypeError as wrong:
            raise _core.Error(f"{own_name}: {wrong}; {_takes(signature)}") from None
        for name, annotation in _annotations(function).items():
            if name not in bound.arguments:
                continue
            value = bound.arguments[name]
            kind = signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_KEYWORD:
                _check_keywords(own_name, value, annotation, known or named_of(signature))
            elif kind is inspect.Parameter.VAR_POSITIONAL:
                for each in value:
                    _check(name, each, annotation)
            else:
                _check(name, value, annotation)
        return function(*given, **named)

    return cast(_Checked, call)


@functools.cache
def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns the types of a function's parameters."""
    parameters = inspect.signature(function).parameters.values()
    return {
        each.name: _resolved(each.annotation, sys.modules[function.__module__])
        for each in parameters
        if each.annotation is not inspect.Parameter.empty
    }


def _resolved(annotation: Any, module: types.ModuleType) -> Any:
    """Returns the type that an annotation names, in a module or in the package."""
    while isinstance(annotation, str):
        text = annotation
        if text.startswith("Unpack["):  # only type checkers need this name
            text = text[len("Unpack[") : -1]
        annotation = eval(text, {**vars(sys.modules["penstock"]), **vars(module)})
    return annotation


@functools.cache
def _keywords(fields: Any) -> dict[str, Any]:
    """Returns the keywords of a ``TypedDict`` with their types."""
    return typing.get_type_hints(fields, vars(sys.modules[fields.__module__]))


def _check_keywords(function: str, given: Mapping[str, Any], fields: Any, own: Collection[str]) -> None:
    """``own`` are the function's other keywords."""
    known = _keywords(fields)
    require_keywords(function, given, {*known, *own})
    for name, value in given.items():
        _check(name, value, known[name])


def _takes(signature: inspect.Signature) -> str:
    """Returns which arguments a function takes by position: "it takes (name), and others by keyword"."""
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [each.name for each in signature.parameters.values() if each.kind in by_position and each.name not in ("self", "cls")]
    others = len(signature.parameters) > len(names)
    return f"it takes {', '.join(names) or 'none'} by position{', the others by keyword' if others else ''}"


def _check(name: str, value: Any, annotation: Any) -> None:
    if _fits(value, annotation):
        return
    if isinstance(value, numbers.Integral) and _fits(0, annotation) and not isinstance(value, bool):
        raise _core.Error(f"{name} is {value}: give a number of at most {LARGEST}")
    raise _core.Error(f"{name} is {shown(value)}: give {_EXAMPLES.get(name) or _wanted(annotation)}")


def _fits(value: Any, annotation: Any) -> bool:
    if annotation is Any or isinstance(annotation, TypeVar) or annotation == npt.ArrayLike:
        return True  # the function itself checks these
    if annotation is None:
        return value is None
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (Union, types.UnionType):
        return any(_fits(value, each) for each in arguments)
    kind = origin or annotation
    if not isinstance(kind, type):
        return True
    if kind in (int, float):
        return (
            isinstance(value, _KINDS[kind])
            and not isinstance(value, (bool, np.bool_))
            and (kind is float or abs(operator.index(cast(SupportsIndex, value))) <= LARGEST)
        )
    if kind is collections.abc.Sequence:
        # Arrays and tensors are no Sequence for Python, but for us.
        if not hasattr(value, "__getitem__") or isinstance(value, Mapping) or not _is_sized(value):
            return False
    elif not isinstance(value, _KINDS.get(kind, kind)):
        return False
    return _elements_fit(value, kind, arguments)


def _elements_fit(value: Any, kind: type, arguments: tuple[Any, ...]) -> bool:
    """Whether the elements of a container fit. An iterator can be read only once."""
    if not arguments or kind is np.ndarray or not issubclass(kind, collections.abc.Iterable):
        return True
    if isinstance(value, (str, bytes)):
        return False  # its elements are characters, which nobody means
    if isinstance(value, Mapping):
        return all(_fits(key, arguments[0]) for key in value) and all(_fits(each, arguments[-1]) for each in value.values())
    if not _is_sized(value):
        return not hasattr(value, "__len__")  # an array without dimensions has the method
    if isinstance(value, np.ndarray) and value.dtype != object:
        value = value[:1]  # the others are like the first one
    return all(_fits(each, arguments[0]) for each in value)


def _is_sized(value: Any) -> bool:
    try:
        return len(value) >= 0
    except TypeError:
        return False


def _wanted(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_wanted(each) for each in arguments))
    kind = origin or annotation
    if kind in _WANTED:
        return _WANTED[kind]
    if not isinstance(kind, type):
        return str(kind)
    if issubclass(kind, Mapping):
        of = arguments[-1] if arguments else Any
        return "a mapping" if of is Any else f"a mapping in which each value is {_wanted(of)}"
    if issubclass(kind, collections.abc.Iterable) and arguments and arguments[0] is Any:
        return "a sequence"
    if issubclass(kind, collections.abc.Iterable) and arguments:
        return f"a sequence in which each element is {_wanted(arguments[0])}"
    if issubclass(kind, collections.abc.Callable):  # type: ignore[arg-type]
        return "a function"
    return f"a {kind.__module__.split('.')[0]}.{kind.__name__}"
