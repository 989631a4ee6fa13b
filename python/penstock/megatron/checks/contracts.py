"""What this engine calls in megatron-core, and the error where a version lacks it."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from penstock import Error

#: The oldest version whose model provider takes ``config`` and ``pg_collection``.
_OLDEST = (0, 16)


def version() -> str:
    """Returns the version of megatron-core."""
    return str(getattr(module("megatron.core"), "__version__", "of an unknown version"))


def module(name: str) -> Any:
    """Imports a module of Megatron. Raises ``Error`` if it is not there."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == "megatron" or (error.name == "megatron.core" and name == "megatron.core"):
            raise Error("megatron-core is not installed; install megatron-core 0.16 or newer") from None
        if error.name is not None and name.startswith(error.name):
            raise Error(f"megatron-core {version()} has no module {name}, which penstock.megatron needs") from None
        raise


def attribute(name: str, of: str) -> Any:
    """Returns what a module of Megatron defines. Raises ``Error`` if it does not."""
    owner = module(of)
    if not hasattr(owner, name):
        raise Error(f"megatron-core {version()} has no {of}.{name}, which penstock.megatron needs")
    return getattr(owner, name)


def require_version() -> None:
    """Raises ``Error`` if megatron-core is older than 0.16."""
    text = version()
    numbers = text.split(".")[:2]
    if all(number.isdigit() for number in numbers) and tuple(map(int, numbers)) < _OLDEST:
        raise Error(f"megatron-core {text} gives model providers no process groups; install 0.16 or newer")


def function(name: str, of: str, *, required: str, optional: str = "") -> Callable[..., Any]:
    """Returns a function of Megatron that is called with these arguments, by keyword.

    Arguments in ``optional`` are dropped where this version does not take them.

    Raises:
        Error: this version does not take a required argument, or needs another one.
    """
    found: Callable[..., Any] = attribute(name, of)
    return accepting(found, f"{of}.{name}", required=required, optional=optional)


def accepting(found: Callable[..., Any], name: str, *, required: str, optional: str = "") -> Callable[..., Any]:
    """Returns ``found``, called by keyword with the arguments that it takes. Raises ``Error`` as ``function``."""
    parameters = inspect.signature(found).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return found
    given = set(required.split()) | set(optional.split())
    lacking = [each for each in required.split() if each not in parameters]
    unknown = [
        each.name
        for each in parameters.values()
        if each.default is each.empty and each.kind is not each.VAR_POSITIONAL and each.name not in given
    ]
    if lacking or unknown:
        change = f"takes no {', '.join(lacking)}" if lacking else f"needs {', '.join(unknown)}"
        raise Error(f"megatron-core {version()}: {name} {change}; this version of penstock.megatron does not know it")
    dropped = given - parameters.keys()
    if not dropped:
        return found

    def call(*positional: Any, **arguments: Any) -> Any:
        return found(*positional, **{each: value for each, value in arguments.items() if each not in dropped})

    return call
