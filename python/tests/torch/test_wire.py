"""Values between processes: what is sent arrives, and what a stranger sends runs no code."""

from __future__ import annotations

import collections
import json
import math
import os
import pathlib
import pickle
import random
import re
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils import _pytree as pytree
from transformers.modeling_outputs import BaseModelOutputWithPast

import penstock
import penstock.torch as pt
from penstock.torch.processes import wire


class Pair(NamedTuple):
    first: Any
    second: Any


VALUES: list[Any] = [
    None,
    [True, 1, -1.5, math.inf, "text", ""],
    (),
    {"a": [1], 2: {None: (3,)}},
    torch.float32,
    torch.arange(6).reshape(2, 3).t(),
    torch.tensor(1.5),
    torch.empty(0, 4, dtype=torch.bfloat16),
    torch.tensor([True, False]),
    torch.randn(3, requires_grad=True),
    torch.view_as_complex(torch.randn(2, 2)).conj(),
    [torch.ones(2, dtype=torch.int8), torch.zeros(3, dtype=torch.float64)],
    Pair(torch.ones(2), [1]),
    collections.OrderedDict(b=1, a=torch.ones(1)),
    BaseModelOutputWithPast(last_hidden_state=torch.randn(2, 2), hidden_states=(torch.ones(1),)),
]


def same(a: Any, b: Any) -> bool:
    leaves, spec = pytree.tree_flatten(a)
    others, other = pytree.tree_flatten(b)
    return spec == other and all(
        x.dtype == y.dtype and x.shape == y.shape and torch.equal(x, y) and x.requires_grad == y.requires_grad
        if isinstance(x, torch.Tensor)
        else x == y
        for x, y in zip(leaves, others, strict=True)
    )


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_what_is_sent_arrives(value: Any) -> None:
    assert same(wire.loads(wire.dumps(value)), value)
    of_types = wire.loads(wire.dumps(value, with_data=False))
    for sent, found in zip(pytree.tree_leaves(value), pytree.tree_leaves(of_types), strict=True):
        if isinstance(sent, torch.Tensor):
            assert (sent.shape, sent.dtype) == (found.shape, found.dtype)


@pytest.mark.parametrize("value", [object(), 1j, print, torch.ones(2).to_sparse()])
def test_what_cannot_be_sent_is_named(value: Any) -> None:
    with pytest.raises(penstock.Error, match="cannot be sent to another process"):
        wire.dumps([value])


class _RunsCode:
    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._path),)


def test_messages_of_strangers_run_no_code_and_are_errors(tmp_path: pathlib.Path) -> None:
    def message(header: Any) -> bytes:
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text

    hostile = [
        pickle.dumps(_RunsCode(tmp_path / "ran")),
        message(pickle.dumps(_RunsCode(tmp_path / "ran"))),
        message({"node": "os:system", "elements": ["true"], "context": None}),
        message({"named": "builtins:eval", "elements": ["1"]}),
        message({"node": "this:s", "elements": [], "context": None}),
        message({"tensor": {"dtype": "float32", "shape": [2**60], "grad": False}}) + b"x",
        message({"tensor": {"dtype": "load", "shape": [1], "grad": False}}) + b"x",
        message({"tensor": {"dtype": "float32", "shape": [-1], "grad": False}}) + b"x",
        message({"dict": [[1]]}),
        message({}),
        message(b"[" * 100_000),
        b"",
    ]
    good, dice = wire.dumps(VALUES), random.Random(1)
    for _ in range(300):
        damaged = bytearray(good)
        for _ in range(dice.randint(1, 4)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        hostile.append(bytes(damaged[: dice.randint(0, len(damaged))]))
    for each in hostile:
        try:
            wire.loads(each)
        except penstock.Error as error:
            assert "\n" not in str(error)
    assert not (tmp_path / "ran").exists()


def test_nothing_in_the_package_unpickles() -> None:
    folder = pathlib.Path(pt.__file__).parents[1]
    for file in folder.rglob("*.py"):
        text = file.read_text()
        loads = re.findall(r"torch\.load\([^)]*\)", text)
        assert "pickle.load" not in text and all("weights_only=True" in each for each in loads), file
