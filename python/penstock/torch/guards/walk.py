"""The walk from stages and the loss to all that the code which ran may read.

An attribute counts if its name is loaded by code that ran; all members of containers count.
Functions and classes of users are followed, the ones of libraries are not.
"""

from __future__ import annotations

import array
import ast
import builtins
import collections
import concurrent.futures
import contextlib
import contextvars
import ctypes
import functools
import gc
import inspect
import io
import logging
import mmap
import operator
import os
import random
import re
import sys
import types
import warnings
import weakref
from collections.abc import Callable, Collection, Iterable
from typing import Any

import torch
from torch import nn

from penstock import Error
from penstock.torch.guards.code_names import names_of
from penstock.torch.guards.places import Item, Places
from penstock.torch.guards.running_code import TORCH, RunningCode, owner_of_module
from penstock.torch.guards.settings import SETTING, VALUES, setting, settings
from penstock.torch.hooks import FORWARD_HOOKS
from penstock.torch.memory import storage_address

# Nothing that they hold reaches a model.
_SKIPPED: tuple[Any, ...] = (
    *(logging.Logger, types.CodeType, types.FrameType, re.Pattern, ast.AST),
    *(warnings.catch_warnings, inspect.Signature, concurrent.futures.Executor),
)
_BYTES = (bytearray, array.array, ctypes._SimpleCData, ctypes.Array, ctypes.Structure, ctypes.Union, memoryview, mmap.mmap)
_MOST = 300_000  # objects
_PLAIN_VALUES = (dict.values, collections.OrderedDict.values)
_FEW = 64  # entries of a dict, which are compared one by one
_LARGEST = 1 << 24  # bytes of an array whose content is compared
_MISSING = "nothing"
_GUARDS = __name__.rpartition(".")[0]
_OF_MODULES = vars(nn.Module()).keys()


class Walk:
    """What can be reached by code that ran. Its places have the values of now."""

    def __init__(
        self, roots: Iterable[tuple[str, Any]], code: RunningCode, owned: Iterable[torch.Tensor], unread: Collection[Item] = ()
    ) -> None:
        """``owned``: tensors that stages train or read in any case. ``unread``: items that no code reads.

        Raises Error for what cannot be compared.
        """
        self._code, self._unread = code, unread
        self._owned = {id(each) for each in owned}
        loads = [names_of(each) for each in (*code.codes, *code.configured)]
        self.names = {"forward", "__call__"}.union(*(each.names for each in loads))
        self.counted = set().union(*(each.counted for each in loads)) - self.names
        dynamic = {each for each in code.codes if names_of(each).is_dynamic}
        # Methods that make names read attributes of their object; functions of any object.
        self._methods = {each for each in dynamic if each.co_varnames[:1] == ("self",)}
        self._is_dynamic = len(dynamic) > len(self._methods)
        self._kinds: dict[type, bool] = {}
        self._closures: dict[types.CodeType, list[types.FunctionType]] = {}
        given, names = list(roots), set[str]()
        while names != self.names:  # The walk finds more in objects such as attrgetters.
            names = set(self.names)
            self._begin()
            self._waiting.extend(given)
            self._walk()
            self._walk_globals()
            self._walk_closures()
        self._add_settings()

    def _begin(self) -> None:
        self.places = Places()
        #: By address of their memory: tensors that no stage owns.
        self.tensors: dict[int, tuple[str, torch.Tensor]] = {}
        self._seen: set[int] = set()
        self._kept: list[Any] = []  # so that ids stay theirs
        self._functions: set[types.CodeType] = set()
        self._waiting: collections.deque[tuple[str, Any]] = collections.deque()
        #: Attributes that code only counts: the path, the dict, the name, and the value of now.
        self.counters: list[tuple[str, dict[str, Any], str, Any]] = []

    # What the walk starts from.

    def _walk_globals(self) -> None:
        for code, namespace in self._code.codes.items():
            loaded = names_of(code).globals
            for name in loaded & namespace.keys():
                self._item(name, namespace, name)
            if "globals" in loaded:
                for name in self.names & namespace.keys():
                    self._item(name, namespace, name)
            for name in loaded - namespace.keys():  # It may hide a builtin later.
                self.places.item(name, namespace, name)
                self.places.item(name, vars(builtins), name)
        for name in set().union(*(names_of(code).names for code in self._code.codes)):  # imported by a name
            module = sys.modules.get(name)
            if module is not None and owner_of_module(module) == "user":
                self._item(name, sys.modules, name)
        self._walk_torch()
        self._walk()

    def _walk_torch(self) -> None:
        """What a user may replace in torch: functions that its modules call, and methods of tensors."""
        for code, namespace in self._code.configured.items():
            if not code.co_filename.startswith(TORCH):
                continue
            for name in names_of(code).globals & namespace.keys():
                self.places.item(name, namespace, name)
                if isinstance(namespace[name], types.ModuleType):
                    self._waiting.append((name, namespace[name]))
        self._methods_of(torch.Tensor)
        for hooks in FORWARD_HOOKS:
            self.places.members("forward hooks of all modules", hooks, "")
            self._waiting += [("a forward hook of all modules", each) for each in hooks.values()]

    def _walk_closures(self) -> None:
        """Visits functions that nothing else reaches, such as the ones in closures of libraries."""
        missing = [each for each in self._code.codes if each.co_freevars and each not in self._functions]
        unknown = [each for each in missing if each not in self._closures]
        if unknown:
            self._closures.update((each, []) for each in unknown)
            for each in gc.get_referrers(*unknown):
                if isinstance(each, types.FunctionType) and each.__code__ in self._closures:
                    self._closures[each.__code__].append(each)
        for code in missing:
            self._waiting += [(each.__qualname__, each) for each in self._closures[code]]
        self._walk()

    def _add_settings(self) -> None:
        self.places.call(SETTING, settings)
        for name, getter in self._code.getters.items():
            self.places.call(f"{name}()", functools.partial(setting, getter))
        names = self.names.union(*(names_of(each).globals for each in self._code.codes))
        if names & {"environ", "getenv", "environb"}:
            self._visit("os.environ", os.environ._data)  # type: ignore[attr-defined]
            self._walk()

    # The walk.

    def _walk(self) -> None:
        while self._waiting:
            path, value = self._waiting.popleft()
            if id(value) in self._seen or type(value) in VALUES or isinstance(value, _SKIPPED):  # others may have attributes
                continue
            if _module_of(value).startswith(_GUARDS):  # of a stage that is a graph
                continue
            if len(self._seen) > _MOST:
                raise Error(f"'{path}': the code of stages can reach more than {_MOST} objects: keep data out of modules and globals")
            self._seen.add(id(value))
            self._kept.append(value)
            self._visit(path, value)

    def _item(self, path: str, holder: Any, name: Any, namespace: Any = None, store: str = "", is_doubtful: bool = False) -> None:
        """A place in a dict or a class, and what is there."""
        if self._unread and (id(holder), name) in self._unread:
            return
        self.places.item(path, holder, name, namespace, store, is_doubtful)
        self._waiting.append((path, (holder if namespace is None else namespace).get(name)))

    def _visit(self, path: str, value: Any) -> None:
        for kinds, visit in _VISITS:
            if isinstance(value, kinds):
                visit(self, path, value)
                return
        if _is_of_numpy(value):
            self._visit_numpy(path, value)
        elif hasattr(type(value), "__next__") and hasattr(type(value), "__iter__"):
            raise Error(f"'{path}' is an iterator, which compiled steps would not advance: pass its items with the batch")
        else:
            self._container(path, value)
            self._object(path, value)

    def _method(self, path: str, method: types.MethodType) -> None:
        self._waiting += [(path, method.__func__), (f"{path}.__self__", method.__self__)]

    def _partial(self, path: str, partial: functools.partial[Any]) -> None:
        self.places.call(path, lambda: tuple(map(id, (partial.func, partial.args, partial.keywords))))
        self._waiting += [(path, partial.func), (f"{path}.args", partial.args), (f"{path}.keywords", partial.keywords)]
        self._object(path, partial)

    def _wrapper(self, path: str, wrapper: Any) -> None:
        self._waiting.append((path, wrapper.__func__))

    def _property(self, path: str, value: property) -> None:
        self._waiting += [(path, each) for each in (value.fget,) if each is not None]

    def _weak(self, path: str, reference: weakref.ref[Any]) -> None:
        get = functools.partial(weakref.ref.__call__, reference)  # a WeakMethod makes a new method in each call
        self.places.call(f"{path}()", lambda: id(get()))
        self._waiting.append((f"{path}()", get()))
        if type(reference) is not weakref.ref:
            self._object(path, reference)

    def _proxy(self, path: str, proxy: Any) -> None:
        with contextlib.suppress(ReferenceError):
            self._waiting.append((path, proxy.__init__.__self__))

    def _builtin(self, path: str, method: Any) -> None:
        if not isinstance(method.__self__, (type, types.ModuleType, random.Random, torch.Generator)):
            self._waiting.append((f"{path}.__self__", method.__self__))

    def _view(self, path: str, view: Any) -> None:
        self._waiting.append((path, view.mapping))

    def _cell(self, path: str, cell: types.CellType) -> None:
        self.places.cell(path, cell)
        if (content := _content_of(cell)) is not _MISSING:
            self._waiting.append((path, content))

    def _context(self, path: str, variable: contextvars.ContextVar[Any]) -> None:
        self.places.call(f"{path}.get()", functools.partial(variable.get, _MISSING))
        self._waiting.append((f"{path}.get()", variable.get(_MISSING)))

    def _generator(self, path: str, generator: Any) -> None:
        self.places.call(path, functools.partial(_state_of, generator), "random")

    def _bytes(self, path: str, value: Any) -> None:
        self._check_size(path, memoryview(value).nbytes)
        self.places.call(path, lambda: bytes(memoryview(value)), "[]")

    def _check_size(self, path: str, size: int) -> None:
        if size > _LARGEST:
            raise Error(
                f"'{path}' is an array of more than {_LARGEST >> 20} MiB, too large to be compared before each step: keep it in a tensor"
            )

    def _exception(self, path: str, error: BaseException) -> None:
        self.places.call(f"{path}.args", lambda: tuple(map(id, error.args)))
        self._waiting += [(f"{path}.args[{number}]", each) for number, each in enumerate(error.args)]
        self._object(path, error)

    def _stream(self, path: str, stream: Any) -> None:
        if isinstance(stream, (io.StringIO, io.BytesIO)):
            self.places.call(path, lambda: None if stream.closed else stream.getvalue())

    def _pointer(self, path: str, _: object) -> None:
        raise Error(f"'{path}' is a pointer, whose memory compiled steps cannot compare: keep the values in an array or a tensor")

    def _getter(self, path: str, getter: Any) -> None:
        for name in getter.__reduce__()[1]:
            self.names.update(str(name).split("."))

    def _container(self, path: str, value: Any) -> None:
        if isinstance(value, (dict, types.MappingProxyType)):
            if type(value) is dict and len(value) <= _FEW and None not in value:  # nanobind takes None for no key
                self.places.keys(path, value, None, "[]")
                for name in value:
                    self._item(f"{path}[{name!r:.40}]", value, name, store="[]")
            elif isinstance(value, dict) and type(value).values not in _PLAIN_VALUES:  # An own method may do anything.
                self.places.call(path, lambda: tuple(map(id, (*dict.keys(value), *dict.values(value)))), "[]")
                self._waiting += [(f"{path}[{key!r:.40}]", each) for key, each in dict.items(value)]
            else:
                self.places.members(path, value)
                self._waiting += [(f"{path}[{key!r:.40}]", each) for key, each in value.items()]
        elif isinstance(value, (list, tuple, set, frozenset, collections.deque)):
            if not isinstance(value, (tuple, frozenset)):
                self.places.members(path, value)
            self._waiting += [(f"{path}[{number}]", each) for number, each in enumerate(value)]

    def _tensor(self, path: str, tensor: torch.Tensor) -> None:
        for name in [each for each in vars(tensor) if self._is_read(each)]:
            self._item(f"{path}.{name}", vars(tensor), name)
        if id(tensor) in self._owned:
            return
        if "grad" in self.names and tensor.is_leaf:
            self.places.call(f"{path}.grad", lambda: id(tensor.grad))
            self._waiting.append((f"{path}.grad", tensor.grad))
        self.places.tensor(path, tensor)
        if (address := storage_address(tensor)) is not None:
            self.tensors.setdefault(address, (path, tensor))

    def _visit_numpy(self, path: str, value: Any) -> None:
        if hasattr(value, "bit_generator") or hasattr(value, "get_state"):
            self._generator(path, value)
        elif not hasattr(value, "nbytes"):
            self._object(path, value)
        elif value.dtype.hasobject:
            items = value.ravel().tolist()
            self.places.call(path, lambda: tuple(map(id, value.ravel().tolist())), "[]")
            self._waiting += [(f"{path}[{number}]", each) for number, each in enumerate(items)]
        else:
            self._check_size(path, value.nbytes)
            self.places.call(path, lambda: (value.tobytes(), value.shape, value.dtype.str), "[]")

    def _module(self, path: str, module: nn.Module) -> None:
        for table in (module._modules, module._buffers, module._parameters):
            self.places.members(path, table, "")
            self._waiting += [(f"{path}.{name}", each) for name, each in table.items()]
        for hooks in (module._forward_hooks, module._forward_pre_hooks):
            self.places.members(f"{path}: forward hooks", hooks, "")
            self._waiting += [(f"{path}: forward hook", each) for each in hooks.values()]
        self._item(f"{path}.training", vars(module), "training")
        self._object(path, module)

    def _object(self, path: str, value: Any) -> None:
        before = self._is_dynamic
        self._is_dynamic = before or self._has_dynamic_methods(type(value))
        try:
            self._attributes(path, value)
        finally:
            self._is_dynamic = before

    def _has_dynamic_methods(self, kind: type) -> bool:
        found = self._kinds.get(kind)
        if found is None:
            codes = (getattr(_function_of(each), "__code__", None) for base in kind.__mro__ for each in base.__dict__.values())
            found = self._kinds[kind] = any(code in self._methods for code in codes)
        return found

    def _attributes(self, path: str, value: Any) -> None:
        attributes = getattr(value, "__dict__", None)
        if type(attributes) is dict:
            self.places.keys(path, attributes, None if self._is_dynamic else self.names)
            for name in [each for each in attributes if self._is_read(each)]:
                self._item(f"{path}.{name}", attributes, name, is_doubtful=name not in self.names)
            self.counters += [(f"{path}.{name}", attributes, name, attributes[name]) for name in self.counted & attributes.keys()]
        kinds = [kind for kind in type(value).__mro__ if "__slots__" in kind.__dict__]  # not members of types in C
        slots = (each for kind in kinds for each in kind.__dict__.values())
        for name in [each.__name__ for each in slots if isinstance(each, types.MemberDescriptorType)]:
            if self._is_read(name):
                get = functools.partial(_attribute, value, name)
                self.places.call(f"{path}.{name}", functools.partial(_comparable, get), name)
                self._waiting.append((f"{path}.{name}", get()))
        self._waiting.append((type(value).__name__, type(value)))
        if attributes is not None:  # Its class may be assigned.
            self.places.kind(path, value)

    def _is_read(self, name: str) -> bool:
        if name in self.counted:
            return False
        return name in self.names or (self._is_dynamic and not name.startswith("__") and name not in _OF_MODULES)

    def _function(self, path: str, function: types.FunctionType) -> None:
        code, names = function.__code__, vars(function)
        if "__wrapped__" in names:
            self._waiting.append((path, names["__wrapped__"]))
        if code not in self._code.codes and code not in self._code.configured:
            return
        self._functions.add(code)
        self.places.function(path, function)
        self._waiting += [(f"{path}.__defaults__", function.__defaults__), (f"{path}.__kwdefaults__", function.__kwdefaults__)]
        self._waiting += list(zip(code.co_freevars, function.__closure__ or (), strict=True))
        for name in [each for each in names if self._is_read(each)]:
            self._item(f"{path}.{name}", names, name)

    def _class(self, path: str, kind: type) -> None:
        if _owner_of_class(type(kind)) == "user":
            self._waiting.append((type(kind).__name__, type(kind)))
        if _owner_of_class(kind) == "user":  # Others do not get other bases.
            self.places.call(f"{path}.__mro__", lambda: tuple(map(id, kind.__mro__)))
        for each in kind.__mro__:
            table = each.__dict__
            if _owner_of_class(each) != "user":
                continue
            for name in [*table]:
                ran = getattr(_function_of(table[name]), "__code__", None) in self._code.codes
                if ran or (self._is_read(name) and not name.startswith("__")):
                    self._item(f"{each.__name__}.{name}", each, name, table)
            self.places.keys(each.__name__, each, self.names)
        self._methods_of(kind)
        if "__subclasses__" in self.names:
            self.places.call(f"{path}.__subclasses__()", lambda: tuple(map(id, type.__subclasses__(kind))))
            subclasses: list[type] = type.__subclasses__(kind)
            self._waiting += [(each.__name__, each) for each in subclasses]

    def _methods_of(self, kind: type) -> None:
        """Where its methods and attributes are found. What the ones of libraries read is not followed."""
        for name in self.names.intersection(dir(kind)) - {"__class__", "__dict__"}:
            for each in kind.__mro__:
                self.places.item(f"{each.__name__}.{name}", each, name, each.__dict__)
                if name in each.__dict__:
                    break

    def _python_module(self, path: str, module: types.ModuleType) -> None:
        is_user = owner_of_module(module) == "user"
        table = vars(module)
        for name in self.names & table.keys():
            if is_user:
                self._item(f"{path}.{name}", table, name)
            elif not isinstance(table[name], types.ModuleType):
                self.places.item(f"{path}.{name}", table, name)
            elif table[name].__name__.startswith(module.__name__):
                self._waiting.append((f"{path}.{name}", table[name]))


# Kinds of objects, and what the walk does with them, in this order.
_VISITS: tuple[tuple[Any, Callable[[Walk, str, Any], None]], ...] = (
    (weakref.ProxyTypes, Walk._proxy),
    (torch.Tensor, Walk._tensor),
    (nn.Module, Walk._module),
    (types.FunctionType, Walk._function),
    (type, Walk._class),
    (types.ModuleType, Walk._python_module),
    (types.MethodType, Walk._method),
    ((types.BuiltinFunctionType, types.MethodWrapperType), Walk._builtin),
    ((type({}.keys()), type({}.values()), type({}.items())), Walk._view),
    (functools.partial, Walk._partial),
    ((staticmethod, classmethod), Walk._wrapper),
    (property, Walk._property),
    (weakref.ref, Walk._weak),
    (types.CellType, Walk._cell),
    (BaseException, Walk._exception),
    (contextvars.ContextVar, Walk._context),
    ((random.Random, torch.Generator), Walk._generator),
    (_BYTES, Walk._bytes),
    (ctypes._Pointer, Walk._pointer),
    (io.IOBase, Walk._stream),
    ((operator.attrgetter, operator.methodcaller), Walk._getter),
)


def _is_of_numpy(value: Any) -> bool:
    return _module_of(value).partition(".")[0] == "numpy"


def _module_of(value: Any) -> str:
    return type(value).__module__ or ""


def _content_of(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def _attribute(of: Any, name: str) -> Any:
    try:
        return object.__getattribute__(of, name)
    except AttributeError:
        return _MISSING


def _comparable(get: Callable[[], Any]) -> Any:
    value = get()
    return value if isinstance(value, VALUES) else (type(value).__name__, id(value))


def _function_of(value: Any) -> Any:
    if isinstance(value, property):
        return value.fget
    return getattr(value, "__func__", getattr(value, "func", value))


@functools.cache
def _owner_of_class(kind: type) -> str:
    module = sys.modules.get(kind.__module__)
    return "user" if module is None else owner_of_module(module)


def _state_of(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return hash(generator.getstate())
    if isinstance(generator, torch.Generator):
        return bytes(generator.get_state().numpy())
    if hasattr(generator, "bit_generator"):
        return repr(generator.bit_generator.state)
    return hash(str(generator.get_state()[1:]))
