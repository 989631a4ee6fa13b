"""Which code runs during a capture, and which of its calls a graph cannot repeat."""

from __future__ import annotations

import datetime
import functools
import io
import os
import random
import sys
import sysconfig
from types import BuiltinFunctionType, CodeType, FrameType, ModuleType, NoneType
from typing import Any

import torch

import penstock


def _folder(module: Any) -> str:
    return os.path.dirname(str(module.__file__)) + os.sep


TORCH, PENSTOCK = _folder(torch), _folder(penstock)
_STDLIB = tuple(sysconfig.get_path(kind) + os.sep for kind in ("stdlib", "platstdlib"))
_SITE = tuple(sysconfig.get_path(kind) + os.sep for kind in ("purelib", "platlib"))
# Folders of torch whose objects a user configures (p, eps, label_smoothing, loc).
_CONFIGURED = (TORCH + "nn" + os.sep, TORCH + "distributions" + os.sep)
_NOT_CONFIGURED = (TORCH + "nn/modules/module.py", TORCH + "nn/functional.py")
# Callers that may read clocks and files, because nothing of it reaches a model.
_EXEMPT = (
    *(
        _STDLIB[0] + each
        for each in ("logging/", "warnings.py", "linecache.py", "importlib/", "inspect.py", "tokenize.py", "traceback.py", "ast.py")
        + ("abc.py", "contextlib.py", "textwrap.py", "gc.py", "typing.py")
    ),
    "<frozen importlib",
)
_WRAPPERS = (TORCH + "_compile.py", TORCH + "_dynamo", TORCH + "utils/_contextlib.py")

# Functions of the process and the machine by name: the modules that have them.
_CALLS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns"), ("time",)),
    **dict.fromkeys(("process_time", "process_time_ns", "thread_time", "thread_time_ns", "clock_gettime"), ("time",)),
    **dict.fromkeys(("localtime", "gmtime", "ctime", "strftime", "asctime"), ("time",)),
    **dict.fromkeys(("stat", "lstat", "listdir", "scandir", "urandom", "getcwd", "getloadavg", "times", "read"), ("posix", "nt")),
    **dict.fromkeys(("getrandom", "access", "readlink", "pread", "preadv", "readv"), ("posix", "nt")),
    "fromfile": ("numpy",),
    "open": ("posix", "nt", "_io", "io"),
    "input": ("builtins",),
    "getrusage": ("resource",),
    "getrefcount": ("sys",),
    "get_count": ("gc",),
    "fork_exec": ("_posixsubprocess",),
    "active_count": ("threading",),
    **dict.fromkeys(("start_new_thread", "start_joinable_thread"), ("_thread",)),  # whose code is not seen
}
# Modules in C whose objects hold what other threads, programs and machines change.
_CHANNELS = frozenset(("sqlite3", "_queue", "_socket", "_ssl", "select", "_dbm", "_gdbm"))
# How functions begin that return settings of the process, and where torch has its properties of such.
_GETTERS = frozenset(("get", "_ge", "is_", "_is", "ise"))
_PROPERTIES = (TORCH + "backends" + os.sep, TORCH + "__init__.py")
# Functions of torch in Python.
_TORCH_CALLS = {
    TORCH + "random.py": ("manual_seed", "seed", "set_rng_state", "get_rng_state", "initial_seed"),
    TORCH + "serialization.py": ("load",),
}
_METHODS = frozenset(
    ("random", "getrandbits", "seed", "setstate", "now", "today", "utcnow", "manual_seed", "set_state", "initial_seed")
    + ("get_state", "read", "readline", "readlines")
)


@functools.cache
def owner_of(file: str) -> str:
    """Returns whose code it is: "user", "configured" (reads objects of users), or "library"."""
    numpy = sys.modules.get("numpy")
    own = (PENSTOCK,) if numpy is None else (PENSTOCK, _folder(numpy))
    if file.startswith(("<frozen", *own)):
        return "library"
    if file.startswith(TORCH):
        is_configured = file.startswith(_CONFIGURED) and not file.endswith(_NOT_CONFIGURED)
        return "configured" if is_configured else "library"
    if file.startswith(_STDLIB) and not file.startswith(_SITE):
        return "library" if file.startswith(_EXEMPT) else "configured"
    return "user"


def owner_of_module(module: ModuleType) -> str:
    """Returns whose code a module has. One without a file is of its package, of the interpreter, or a user made it."""
    name, found = module.__name__, module
    while not getattr(found, "__file__", None) and "." in name:
        name = name.rpartition(".")[0]
        found = sys.modules.get(name, found)
    file = getattr(found, "__file__", None)
    is_frozen = getattr(getattr(found, "__spec__", None), "origin", None) in ("built-in", "frozen")
    return owner_of(file) if file else "library" if is_frozen else "user"


def _is_of_library(namespace: dict[str, Any]) -> bool:
    return str(namespace.get("__name__")).partition(".")[0] in ("torch", "penstock", "dataclasses", "collections")


class RunningCode:
    """Notes, while it is entered, which code runs on this thread. It can be entered again."""

    def __init__(self) -> None:
        #: Code of users, with its globals.
        self.codes: dict[CodeType, dict[str, Any]] = {}
        #: Code of libraries that reads objects of users, with its globals.
        self.configured: dict[CodeType, dict[str, Any]] = {}
        #: Functions of extension modules that users' code asks for settings of the process.
        self.getters: dict[str, BuiltinFunctionType] = {}
        #: The first call that a graph cannot repeat, with its line; "" without one.
        self.refusal = ""
        self._seen: set[CodeType] = set()

    def __enter__(self) -> RunningCode:
        self._before = sys.getprofile()
        sys.setprofile(self._on_event)
        return self

    def __exit__(self, *_: Any) -> None:
        sys.setprofile(self._before)

    def report(self) -> None:
        """Reports this code as running to whoever notes it now: graphs repeat what it read."""
        notes = getattr(sys.getprofile(), "__self__", None)
        if isinstance(notes, RunningCode):
            notes.codes.update(self.codes)
            notes.configured.update(self.configured)
            notes.getters.update(self.getters)

    def _on_event(self, frame: FrameType, event: str, function: Any) -> None:
        if event == "call":
            if frame.f_code not in self._seen:
                self._note_code(frame)
        elif event == "c_call":
            self._note_call(frame, function)

    def _note_code(self, frame: FrameType) -> None:
        code = frame.f_code
        names = _TORCH_CALLS.get(code.co_filename)
        if names is not None and code.co_name in names:
            caller = frame.f_back
            while caller is not None and caller.f_code.co_filename.startswith(_WRAPPERS):
                caller = caller.f_back
            if caller is not None and owner_of(caller.f_code.co_filename) == "user":
                self._refuse(caller, f"torch.{code.co_name}")
            return
        self._seen.add(code)
        owner = owner_of(code.co_filename)
        if owner == "library" or _is_importing(frame):
            return
        if code.co_filename.startswith("<") and _is_of_library(frame.f_globals):  # of dataclasses
            return
        if owner == "user":
            self.codes[code] = frame.f_globals
        else:
            self.configured[code] = frame.f_globals

    def _note_call(self, frame: FrameType, function: Any) -> None:
        name = function.__name__
        if name in _CALLS and (owner := getattr(function, "__module__", None)) in _CALLS[name]:
            self._refuse(frame, f"{owner.strip('_')}.{name}")
        elif name[:3] in _GETTERS and name not in self.getters:
            self._note_getter(frame, name, function)
        elif type(holder := getattr(function, "__self__", None)).__module__ in _CHANNELS:
            self._refuse(frame, f"{type(holder).__name__}.{name}")
        elif name in _METHODS and type(function) is BuiltinFunctionType:
            if isinstance(holder, random.Random):
                self._refuse(frame, f"random.{name}")
            elif isinstance(holder, type) and issubclass(holder, datetime.date):
                self._refuse(frame, f"{holder.__name__}.{name}")
            elif isinstance(holder, io.IOBase):
                self._refuse(frame, f"{type(holder).__name__}.{name}")
            elif isinstance(holder, torch.Generator) and owner_of(frame.f_code.co_filename) == "user":
                self._refuse(frame, f"Generator.{name}")

    def _note_getter(self, frame: FrameType | None, name: str, function: Any) -> None:
        if not isinstance(getattr(function, "__self__", self), (ModuleType, NoneType)):
            return
        while frame is not None and frame.f_code.co_filename.startswith(_PROPERTIES):
            frame = frame.f_back
        if frame is not None and owner_of(frame.f_code.co_filename) == "user":
            self.getters[name] = function

    def _refuse(self, frame: FrameType | None, what: str) -> None:
        """Notes a call, if the user's code makes it (through other libraries than torch)."""
        if self.refusal or _is_importing(frame):
            return
        while frame is not None and owner_of(frame.f_code.co_filename) != "user":
            if frame.f_code.co_filename.startswith((*_EXEMPT, TORCH, PENSTOCK)):
                return
            frame = frame.f_back
        if frame is not None:
            line = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
            self.refusal = f"at {line}: {what} differs from step to step, which a graph cannot repeat: pass its result with the batch"


def _is_importing(frame: FrameType | None) -> bool:
    """Whether the captured code is importing a module, which happens once, whatever its loader reads."""
    while frame is not None and not frame.f_code.co_filename.startswith(PENSTOCK):
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
