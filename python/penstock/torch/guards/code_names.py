"""The names that a code object loads and stores, from its bytecode."""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterator
from types import CodeType
from typing import Any

#: Code that loads one of these reads attributes by names that it makes.
_DYNAMIC = frozenset(
    ("getattr", "vars", "__dict__", "attrgetter", "__getattribute__", "eval", "exec", "globals", "locals", "asdict", "astuple", "fields")
    + ("dir", "getmembers", "__match_args__")
)
_LOADS = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR")
_STORES = ("STORE_ATTR", "STORE_GLOBAL", "STORE_DEREF", "DELETE_ATTR")
_FIRST_IN_PLACE, _LAST_IN_PLACE = 13, 25  # of BINARY_OP, since Python 3.11


class CodeNames:
    """What a code object reads and writes by name."""

    def __init__(self, code: CodeType) -> None:
        #: Names of attributes, and texts that may be such.
        self.names: set[str] = set(code.co_freevars) - {"__class__"}  # which super() reads
        self.globals: set[str] = set()
        #: What only ``x.name += ...`` loads.
        self.counted: set[str] = set()
        #: The line of a store, by name; "[]" for members of containers.
        self.stores: dict[str, int] = {}
        before, line = "", code.co_firstlineno
        for each in dis.get_instructions(code):
            line = _line(each) or line
            self._add(each, before, line)
            before = each.opname
        dynamic = (self.names | self.globals) & _DYNAMIC
        #: Whether it reads attributes whose names are not in the code.
        self.is_dynamic = bool(dynamic) and not (dynamic == {"getattr"} and _has_given_names(code))

    def _add(self, each: dis.Instruction, before: str, line: int) -> None:
        name = each.opname
        if name in ("LOAD_GLOBAL", "LOAD_NAME"):
            self.globals.add(each.argval)
        elif name in _LOADS:
            (self.counted if before in ("COPY", "DUP_TOP") else self.names).add(each.argval)
        elif name in _STORES:
            self.stores.setdefault(each.argval, line)
        elif name in ("STORE_SUBSCR", "DELETE_SUBSCR") or name.startswith("INPLACE_"):
            self.stores.setdefault("[]", line)
        elif name == "BINARY_OP" and _FIRST_IN_PLACE <= (each.arg or 0) <= _LAST_IN_PLACE:
            self.stores.setdefault("[]", line)
        elif name == "LOAD_CONST":
            self.names.update(_texts(each.argval))
        elif name == "IMPORT_NAME":
            self.names.add(each.argval)
        elif name == "IS_OP" and before != "LOAD_CONST":
            self.names.add("is")
        elif name == "MATCH_CLASS" and each.arg:  # patterns by position
            self.names.add("__match_args__")


names_of = functools.cache(CodeNames)


def _line(each: dis.Instruction) -> int | None:
    number = getattr(each, "line_number", None)  # since Python 3.13
    return number if number is not None else (each.starts_line if type(each.starts_line) is int else None)


def _has_given_names(code: CodeType) -> bool:
    """Whether all calls of getattr have their name as a constant."""
    depth, second = 0, None  # of the stack above such a call; what put its second argument there
    for each in dis.get_instructions(code):
        if depth == 0:
            if each.opname == "LOAD_GLOBAL" and each.argval == "getattr":
                depth = 1
            continue
        if each.opcode in dis.hasjrel or each.opcode in dis.hasjabs:
            return False
        depth += dis.stack_effect(each.opcode, each.arg if each.opcode >= dis.HAVE_ARGUMENT else None)
        if depth == 3:
            second = each
        if depth <= 1:  # it is called
            if second is None or second.opname != "LOAD_CONST":
                return False
            depth, second = 0, None
    return depth == 0


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (tuple, frozenset)):
        for each in value:
            yield from _texts(each)
