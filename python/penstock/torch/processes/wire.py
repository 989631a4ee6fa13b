"""Values as bytes for other processes. Reading them runs no code of the sender.

A value is made of tensors, dtypes, plain Python values and containers: lists, tuples, dicts, sets,
named tuples, types that are registered with torch's pytree (outputs of transformers), and
dataclasses of this package. The bytes are the length of a header (8 bytes, little-endian), the
header (JSON) and the data of the tensors.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from typing import Any

import torch
from torch.utils import _pytree as pytree

from penstock import Error

_PLAIN = (type(None), bool, int, float, str)


def dumps(value: Any, *, with_data: bool = True) -> bytes:
    """Returns a value as bytes; without data, only with the types of its tensors.

    Raises:
        Error: the value contains something that cannot be sent; names its type.
    """
    data: list[bytes] = []
    header = json.dumps(_encoded(value, data)).encode()
    return b"".join([len(header).to_bytes(8, "little"), header, *(data if with_data else ())])


def loads(message: bytes) -> Any:
    """Returns the value that `dumps` encoded; tensors without data are zeros.

    Raises:
        Error: the bytes are not what `dumps` makes, or name a type that this process does not have.
    """
    begin = 8 + int.from_bytes(message[:8], "little")
    try:
        return _Reader(message, begin).decoded(json.loads(message[8:begin]))
    except Error:
        raise
    except Exception as error:  # whatever the bytes are
        raise Error(f"a message of another process cannot be read: {_line(error)}") from None


def _encoded(value: Any, data: list[bytes]) -> Any:
    def each(values: Any) -> list[Any]:
        return [_encoded(one, data) for one in values]

    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, torch.Tensor):
        return {"tensor": _tensor(value, data)}
    if kind is torch.dtype:
        return {"dtype": str(value).removeprefix("torch.")}
    if kind in (torch.Size, list, tuple):
        return {"list" if kind is list else "tuple": each(value)}
    if kind in (set, frozenset):
        return {kind.__name__: each(sorted(value))}
    if kind is dict:
        return {"dict": [each(item) for item in value.items()]}
    if _is_own(kind):
        fields = {each.name: _encoded(getattr(value, each.name), data) for each in _fields(kind)}
        return {"own": _name(kind), "fields": fields}
    if _is_named_tuple(kind):
        return {"named": _name(kind), "elements": each(value)}
    if kind in pytree.SUPPORTED_NODES:
        children, context = pytree.SUPPORTED_NODES[kind].flatten_fn(value)
        return {"node": _name(kind), "elements": each(children), "context": _encoded(context, data)}
    raise Error(
        f"a value of type {_name(kind)} cannot be sent to another process: return tensors, numbers, "
        "text, and lists, tuples or dicts of them from the stage"
    )


def _tensor(tensor: torch.Tensor, data: list[bytes]) -> dict[str, Any]:
    if tensor.layout != torch.strided or tensor.is_meta:
        raise Error(
            f"a tensor of layout {tensor.layout} on {tensor.device} cannot be sent to another "
            "process: return dense tensors with values from the stage"
        )
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    data.append(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape), "grad": tensor.requires_grad}


class _Reader:
    """Decodes a header, in the order in which `dumps` appended the data of tensors."""

    def __init__(self, message: bytes, begin: int) -> None:
        self._message, self._begin, self._at = message, begin, begin

    def decoded(self, code: Any) -> Any:
        if type(code) in _PLAIN:
            return code
        if "tensor" in code:
            return self._tensor(code["tensor"])
        if "dtype" in code:
            return _dtype(code["dtype"])
        if "list" in code:
            return self._each(code["list"])
        if "tuple" in code:
            return tuple(self._each(code["tuple"]))
        if "set" in code:
            return set(self._each(code["set"]))
        if "frozenset" in code:
            return frozenset(self._each(code["frozenset"]))
        if "own" in code:
            fields = {name: self.decoded(each) for name, each in code["fields"].items()}
            return _class(code["own"])(**fields)
        if "dict" in code:
            return dict(self._each(item) for item in code["dict"])
        if "named" in code:
            return _class(code["named"])(*self._each(code["elements"]))
        kind = _class(code["node"])
        elements = self._each(code["elements"])
        return pytree.SUPPORTED_NODES[kind].unflatten_fn(elements, self.decoded(code["context"]))

    def _each(self, codes: list[Any]) -> list[Any]:
        return [self.decoded(code) for code in codes]

    def _tensor(self, code: dict[str, Any]) -> torch.Tensor:
        dtype, shape = _dtype(code["dtype"]), code["shape"]
        if len(self._message) == self._begin:  # without data
            return torch.zeros(shape, dtype=dtype, requires_grad=code["grad"])
        size = math.prod(shape) * dtype.itemsize
        if self._at + size > len(self._message):
            raise Error("a message of another process ends within a tensor")
        data = bytearray(self._message[self._at : self._at + size])
        self._at += size
        tensor = torch.frombuffer(data, dtype=dtype) if size else torch.empty(0, dtype=dtype)
        return tensor.reshape(shape).requires_grad_(code["grad"])


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise Error(f"a message of another process has the dtype {name!r}, which torch has not")
    return dtype


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _is_own(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) and kind.__module__.startswith("penstock.torch.")


def _fields(kind: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(kind)


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _class(name: str) -> Any:
    """Returns a container type of this process. Imports nothing."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if isinstance(found, type):
        if _is_named_tuple(found) or found in pytree.SUPPORTED_NODES or _is_own(found):
            return found
    raise Error(f"a message of another process has a value of type {name}, which is not known here")


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
