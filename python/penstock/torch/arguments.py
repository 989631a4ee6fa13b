"""Checks of what callers pass. Errors are penstock.Error with one line that names the argument."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import operator
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, TypeVar

from penstock import Error
from penstock.arguments import keywords_of, name_of, require_keywords

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


@dataclasses.dataclass(frozen=True)
class Rule:
    """What an argument may be, in its annotation."""

    wanted: str  # as a page says it: "at least 1"
    #: Called with the name and the value of an argument. Returns the value that the function gets.
    check: Callable[[str, Any], Any]

    def __call__(self, name: str, value: Any) -> Any:
        return self.check(name, value)


_Function = TypeVar("_Function", bound=Callable[..., Any])
_Type = TypeVar("_Type")
_OWN = "may differ between processes"
Own = Annotated[_Type, _OWN]  # the type of an argument that may


def checked(function: _Function) -> _Function:
    """Checks the arguments of a function by the rules in their annotations.

    ``ranks: Annotated[int, whole(1)] | None = None``. Each ``bool`` is True or False.
    """
    signature, rules = inspect.signature(function), rules_of(function)
    prefix = "" if function.__name__ == "__init__" else f"{function.__name__}: "
    require_known = known_to(function)

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        require_known(named)
        bound = signature.bind(*given, **named)
        bound.apply_defaults()
        for name in bound.arguments.keys() & rules.keys():
            bound.arguments[name] = rules[name](prefix + name, bound.arguments[name])
        return function(*bound.args, **bound.kwargs)

    # The documentation shows the types without the rules.
    call.__annotations__ = plain = typing.get_type_hints(function)
    parameters = signature.parameters.values()
    documented = [each.replace(annotation=plain.get(each.name, each.annotation)) for each in parameters]
    call.__signature__ = signature.replace(parameters=documented)  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


#: Settings of optimizers, which are not arguments of what takes an optimizer.
_OF_OPTIMIZERS = ("lr", "learning_rate", "weight_decay", "betas", "eps", "momentum", "adam_beta1", "adam_beta2")


def known_to(function: Callable[..., Any]) -> Callable[[Iterable[str]], None]:
    """Returns a check that raises Error for keywords which a function does not take."""
    known = keywords_of(function)
    instead = {}
    if known and "optimizer" in known:
        of_optimizer = "it is of the optimizer: optimizer=lambda parameters: penstock.torch.AdamW(parameters, lr=1e-3)"
        instead = dict.fromkeys(_OF_OPTIMIZERS, of_optimizer)
    return functools.partial(require_keywords, name_of(function), known=known, instead=instead)


def rules_of(function: Callable[..., Any]) -> dict[str, Rule]:
    """Returns the rules of the arguments that have one."""
    found = {name: _rule_of(hint) for name, hint in _hints(function).items()}
    return {name: rule for name, rule in found.items() if rule is not None}


def own_of(function: Callable[..., Any]) -> set[str]:
    """Returns the arguments that may differ between processes (`Own`)."""
    return {name for name, hint in _hints(function).items() if _OWN in getattr(hint, "__metadata__", ())}


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(inspect.unwrap(function), include_extras=True)
    return {name: hint for name, hint in hints.items() if name != "return"}


def _rule_of(hint: Any) -> Rule | None:
    if hint is bool:
        return one_of("True or False", True, False)
    parts = typing.get_args(hint)
    if hasattr(hint, "__metadata__"):
        return next((each for each in parts if isinstance(each, Rule)), None) or _rule_of(parts[0])
    rule = next(filter(None, map(_rule_of, parts)), None) if type(None) in parts else None
    return rule and Rule(rule.wanted, lambda name, value: None if value is None else rule(name, value))


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

    return Rule(wanted or "a whole number", check)


def number(wanted: str, fits: Callable[[float], bool]) -> Rule:
    """Real numbers. `wanted` ends the error: "the largest norm"."""

    def check(name: str, value: Any) -> float:
        with contextlib.suppress(TypeError, ValueError, OverflowError, RuntimeError):
            if not isinstance(value, (bool, str, bytes)) and fits(float(value)):
                return float(value)
        raise Error(f"{name} is {shown(value)}: give {wanted}")

    return Rule(wanted, check)


def one_of(wanted: str, *values: Any) -> Rule:
    """One of some values."""

    return _fitting(wanted, lambda value: any(type(value) is type(each) and value == each for each in values))


def function(called_with: str) -> Rule:
    """A function, or None. `called_with`: "the output and the targets"."""
    return _fitting(f"a function of {called_with}, or None", lambda value: value is None or callable(value))


def _fitting(wanted: str, fits: Callable[[Any], bool]) -> Rule:
    def check(name: str, value: Any) -> Any:
        if not fits(value):
            raise Error(f"{name} is {shown(value)}: give {wanted}")
        return value

    return Rule(wanted, check)


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
