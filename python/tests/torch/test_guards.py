"""A step trains what the code says now: values, modules and modes that change between steps."""

from __future__ import annotations

import ctypes
import functools
import gc
import io
import mmap
import os
import pathlib
import random
import sqlite3
import sys
import threading
import time
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from reference import Around, assert_equal, gradients, mlp, mse, pipeline
from torch import nn
from torch.nn.utils import prune

import penstock.torch as pt

Read = Callable[[], Any]
Write = Callable[[Any], None]


# Where a value is. Each returns how code reads it, and how a user changes it.


def in_closure(value: Any) -> tuple[Read, Write]:
    def write(new: Any) -> None:
        nonlocal value
        value = new

    return lambda: value, write


def in_module(value: Any) -> tuple[Read, Write]:
    holder = nn.Module()
    holder.value = value
    return lambda: holder.value, lambda new: setattr(holder, "value", new)


def in_dict(value: Any) -> tuple[Read, Write]:
    table = {"value": value}
    return lambda: table["value"], lambda new: table.update(value=new)


def in_containers(value: Any) -> tuple[Read, Write]:
    outer = {"inner": [({"value": value},)]}
    return lambda: outer["inner"][0][0]["value"], lambda new: outer["inner"][0][0].update(value=new)


def in_object(value: Any) -> tuple[Read, Write]:
    holder = types.SimpleNamespace(inner=types.SimpleNamespace(value=value))
    return lambda: holder.inner.value, lambda new: setattr(holder.inner, "value", new)


def in_global(value: Any) -> tuple[Read, Write]:
    space: dict[str, Any] = {"value": value, "__name__": "program"}
    exec(compile("def read(): return value", "program.py", "exec"), space)
    return space["read"], lambda new: space.update(value=new)


def in_class(value: Any) -> tuple[Read, Write]:
    kind = type("Settings", (), {"value": value})
    return lambda: kind.value, lambda new: setattr(kind, "value", new)  # type: ignore[attr-defined]


def in_default(value: Any) -> tuple[Read, Write]:
    def read(value: Any = value) -> Any:
        return value

    return read, lambda new: setattr(read, "__defaults__", (new,))


# More of these, through which code reads without naming the holder.


def in_slot_of_own_name(value: Any) -> tuple[Read, Write]:
    class Holder:
        __slots__ = ("__value",)

        def read(self) -> Any:
            return self.__value

        def write(self, new: Any) -> None:
            self.__value = new

    holder = Holder()
    holder.write(value)
    return holder.read, holder.write


def in_partial(value: Any) -> tuple[Read, Write]:
    read = functools.partial(lambda value: value, value)
    return read, lambda new: read.__setstate__((read.func, (new,), {}, None))  # type: ignore[attr-defined]


def in_bound_dict(value: Any) -> tuple[Read, Write]:
    table = {"value": value}
    get = table.get
    return lambda: get("value"), lambda new: table.update(value=new)


def in_bound_list(value: Any) -> tuple[Read, Write]:
    items = [value]
    get = items.__getitem__
    return lambda: get(0), lambda new: items.__setitem__(0, new)


def in_view(value: Any) -> tuple[Read, Write]:
    table = {"value": value}
    values = table.values()
    return lambda: next(iter(values)), lambda new: table.update(value=new)


def in_proxy(value: Any) -> tuple[Read, Write]:
    holder = nn.Module()
    holder.value = value
    proxy = weakref.proxy(holder)
    return lambda: proxy.value, lambda new: setattr(holder, "value", new)


def in_weak_method(value: Any) -> tuple[Read, Write]:
    class Holder:
        def read(self) -> Any:
            return self.value  # type: ignore[attr-defined]

    holder = Holder()
    holder.value = value  # type: ignore[attr-defined]
    method: Any = weakref.WeakMethod(holder.read)
    return lambda: method()(), lambda new: setattr(holder, "value", new)


def in_imported_module(value: Any) -> tuple[Read, Write]:
    def write(new: Any) -> None:
        module = types.ModuleType("settings_of_a_user")
        module.__dict__.update(value=new)
        sys.modules["settings_of_a_user"] = module

    def read() -> Any:
        import settings_of_a_user  # type: ignore[import-not-found]

        return settings_of_a_user.value

    write(value)
    return read, write


def in_pattern(value: Any) -> tuple[Read, Write]:
    space: dict[str, Any] = {"__name__": "program"}
    program = """
class Holder:
    __match_args__ = ("value",)
holder = Holder()
def read():
    match holder:
        case Holder(found):
            return found
"""
    exec(compile(program, "program.py", "exec"), space)
    space["holder"].value = value
    return space["read"], lambda new: setattr(space["holder"], "value", new)


def in_subclass(value: Any) -> tuple[Read, Write]:
    class Base:
        pass

    kept = [type("First", (Base,), {"value": value})]

    def write(new: Any) -> None:
        kept.append(type("Other", (Base,), {"value": new}))

    return lambda: Base.__subclasses__()[-1].value, write  # type: ignore[attr-defined]


def in_replaced_attributes(value: Any) -> tuple[Read, Write]:
    holder = nn.Module()
    holder.value = value
    return lambda: holder.value, lambda new: setattr(holder, "__dict__", {**vars(holder), "value": new})


def in_made_name(value: Any) -> tuple[Read, Write]:
    holder, number = types.SimpleNamespace(value1=value), 1
    return lambda: getattr(holder, f"value{number}"), lambda new: setattr(holder, "value1", new)


def in_gradient(value: Any) -> tuple[Read, Write]:
    holder = torch.ones(16)

    def write(new: Any) -> None:
        holder.grad = torch.full((16,), float(new))

    write(value)
    return lambda: holder.grad, write


class Text(str):
    """Has attributes, unlike other texts."""


def in_text(value: Any) -> tuple[Read, Write]:
    holder = Text()
    holder.value = value  # type: ignore[attr-defined]
    return lambda: holder.value, lambda new: setattr(holder, "value", new)  # type: ignore[attr-defined]


def in_exception(value: Any) -> tuple[Read, Write]:
    holder = ValueError(value)
    return lambda: holder.args[0], lambda new: setattr(holder, "args", (new,))


def in_event(value: Any) -> tuple[Read, Write]:
    holder = threading.Event()

    def write(new: Any) -> None:
        (holder.set if float(torch.as_tensor(new).max()) > 1 else holder.clear)()

    write(value)
    return lambda: 2.0 if holder.is_set() else 1.0, write


PLACES = (in_closure, in_module, in_dict, in_containers, in_object, in_global, in_class, in_default)

# By kind: values one after the other, and what code computes with one.
KINDS: dict[str, tuple[Callable[[], list[Any]], Callable[[Any, Any], Any]]] = {
    "number": (lambda: [0.5, 2.0, 2, 0.5], lambda value, x: x * value),
    "text": (lambda: ["tanh", "sin", "tanh"], lambda value, x: getattr(torch, value)(x)),
    "flag": (lambda: [True, False, True], lambda value, x: torch.tanh(x) if value else x),
    "nothing": (lambda: [None, 3.0, None], lambda value, x: x if value is None else x * value),
    "tensor": (lambda: [torch.full((16,), n) for n in (1.0, 3.0, 1.0)], lambda value, x: x * value),
    "tuple": (lambda: [(1.0, 2.0), (3.0, 2.0), (3.0, 4.0)], lambda value, x: x * value[0] + value[1]),
    "list": (lambda: [[1.0], [1.0, 2.0], []], lambda value, x: x * (1 + sum(value))),
    "function": (lambda: [torch.tanh, torch.sin, lambda x: x * 2], lambda value, x: value(x)),
}


def program(use: Callable[[Any, Any], Any], read: Read, where: str) -> tuple[list[nn.Module], Any]:
    """Stages and a loss, some of which use a value."""

    def stage(inner: nn.Module, x: torch.Tensor) -> Any:
        return use(read(), inner(x))

    def plain(inner: nn.Module, x: torch.Tensor) -> Any:
        return inner(x)

    def loss(output: torch.Tensor, targets: torch.Tensor) -> Any:
        return mse(use(read(), output), targets)

    stages: list[nn.Module] = [Around(plain if where == "loss" else stage), Around(stage if where == "stages" else plain)]
    return stages, mse if where in ("stage", "stages") else loss


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_values_that_code_reads_are_the_ones_of_now(kind: str, place: Any) -> None:
    make, use = KINDS[kind]
    for where in ("loss", "stage", "stages", "stage and loss"):
        values = make()
        read, write = place(values[0])
        stages, loss = program(use, read, where)
        pipe = pipeline(stages, loss=loss, optimizer=None)
        for value in values:
            write(value)
            assert_equal(pipe, stages, loss, torch.randn(8, 16), torch.randn(8, 16))


@pytest.mark.parametrize(
    "place",
    [in_slot_of_own_name, in_partial, in_bound_dict, in_bound_list, in_view, in_proxy, in_weak_method, in_imported_module]
    + [in_pattern, in_subclass, in_made_name, in_gradient, in_replaced_attributes, in_text, in_exception, in_event],
    ids=lambda place: place.__name__,
)
def test_values_whose_holder_code_does_not_name_are_the_ones_of_now(place: Any) -> None:
    read, write = place(0.5)
    for where in ("loss", "stages"):
        stages, loss = program(lambda value, x: x * value, read, where)
        pipe = pipeline(stages, loss=loss, optimizer=None)
        values = [0.5, 2, 3.0, *(torch.full((16,), number) for number in (1.0, 2.0, 3.0))]
        for value in values[:3] if place is in_gradient else values:
            write(value)
            assert_equal(pipe, stages, loss, torch.randn(8, 16), torch.randn(8, 16))


class Values(ctypes.Structure):
    _fields_ = (("value", ctypes.c_double),)


_OF_PROCESS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Any]] = {
    "sys": (sys.getrecursionlimit, sys.setrecursionlimit, 3000),
    "gc": (lambda: gc.get_threshold()[0], gc.set_threshold, 900),
    "threads": (torch.get_num_threads, torch.set_num_threads, 2),
    "backends": (lambda: int(torch.backends.mkldnn.enabled), lambda value: torch.backends.mkldnn.set_flags(bool(value)), 0),
}


@pytest.mark.parametrize("kind", _OF_PROCESS)
def test_settings_of_the_process_are_the_ones_of_now(kind: str) -> None:
    read, write, other = _OF_PROCESS[kind]
    stages: list[nn.Module] = [Around(lambda inner, x: inner(x) * (read() / 1000 + 1)), mlp()]
    pipe = pipeline(stages, optimizer=None)
    before = read()
    try:
        for value in (before, other):
            write(value)
            assert_equal(pipe, stages, mse, torch.randn(8, 16), torch.randn(8, 16))
    finally:
        write(before)


def test_getters_that_return_a_new_object_each_time_are_no_settings() -> None:
    stages: list[nn.Module] = [Around(lambda inner, x: inner(x) * (2 if sys._getframe().f_back else 1)), mlp()]
    pipe = pipeline(stages, optimizer=None)
    for _ in range(2):
        assert_equal(pipe, stages, mse, torch.randn(8, 16), torch.randn(8, 16))
    assert pipe.changes == []


def test_bytes_of_structures_streams_and_maps_are_the_ones_of_now() -> None:
    values, stream, mapped = Values(1.0), io.BytesIO(b"a"), mmap.mmap(-1, 8)
    stages: list[nn.Module] = [Around(lambda inner, x: inner(x) * values.value * stream.getvalue()[0] * (mapped[0] + 1)), mlp()]
    pipe = pipeline(stages, optimizer=None)
    for value, text, byte in ((1.0, b"a", 0), (3.0, b"a", 0), (3.0, b"b", 0), (3.0, b"b", 1)):
        values.value = value
        mapped[0] = byte
        stream.seek(0)
        stream.write(text)
        assert_equal(pipe, stages, mse, torch.randn(8, 16), torch.randn(8, 16))


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_tensors_that_code_reads_follow_without_another_capture(place: Any) -> None:
    for where in ("loss", "stage", "stages", "stage and loss"):
        read, _ = place(torch.ones(16))
        stages, loss = program(lambda value, x: x * value[:16], read, where)
        pipe = pipeline(stages, loss=loss, optimizer=None)
        for number in range(3):
            read().fill_(number + 1.5)
            assert_equal(pipe, stages, loss, torch.randn(8, 16), torch.randn(8, 16))
        assert pipe.changes == []


def test_views_that_are_read_before_their_base_follow() -> None:
    base = torch.ones(2, 16)
    stages: list[nn.Module] = [Around(lambda inner, x: inner(x) * base[1] + base.sum(0)), mlp()]
    pipe = pipeline(stages, optimizer=None)
    for number in range(2):
        base[1].fill_(number + 2.0)
        assert_equal(pipe, stages, mse, torch.randn(8, 16), torch.randn(8, 16))


def test_tensors_whose_values_decide_are_captured_again() -> None:
    scale = torch.tensor(1.0)
    stages: list[nn.Module] = [Around(lambda inner, x: inner(x) * scale.item() if scale > 0 else inner(x)), mlp()]
    pipe = pipeline(stages, optimizer=None)
    for value in (2.0, 3.0, -1.0):
        scale.fill_(value)
        assert_equal(pipe, stages, mse, torch.randn(8, 16), torch.randn(8, 16))
    assert len(pipe.changes) == 2


@pytest.mark.parametrize("read", [torch.Tensor.tolist, torch.Tensor.numpy])
def test_tensors_that_code_reads_in_python_are_captured_again(read: Callable[[torch.Tensor], Any]) -> None:
    scale = torch.ones(4)
    stages: list[nn.Module] = [Around(lambda inner, x: inner(x) * float(read(scale)[0])), mlp()]
    pipe = pipeline(stages, optimizer=None)
    for value in (1.0, 3.0, 2.0):
        scale.fill_(value)
        assert_equal(pipe, stages, mse, torch.randn(8, 16), torch.randn(8, 16))


def test_arrays_and_masks_are_the_ones_of_now() -> None:
    array, mask = np.ones(16, dtype=np.float32), torch.zeros(16, dtype=torch.bool)

    def use(inner: nn.Module, x: torch.Tensor) -> Any:
        result = inner(x) * torch.from_numpy(array)
        return result.masked_fill(mask, 0.0)

    stages: list[nn.Module] = [Around(use), mlp()]
    pipe = pipeline(stages, optimizer=None)
    for number in range(3):
        array[number] = 3.0
        mask[number] = True
        assert_equal(pipe, stages, mse, torch.randn(8, 16), torch.randn(8, 16))


def test_values_that_return_are_not_captured_again() -> None:
    flag = {"on": True}
    stages: list[nn.Module] = [Around(lambda inner, x: inner(x) * 2 if flag["on"] else inner(x)), mlp()]
    pipe = pipeline(stages, optimizer=None)
    kept = set()
    for number in range(6):
        flag["on"] = number % 2 == 0
        assert_equal(pipe, stages, mse, torch.randn(8, 16), torch.randn(8, 16))
        kept.add(id(pipe._built))
    assert len(kept) == 2


def counts(inner: nn.Module, x: torch.Tensor) -> Any:
    inner.calls = getattr(inner, "calls", 0) + 1
    return inner(x) * inner.calls


def appends(inner: nn.Module, x: torch.Tensor) -> Any:
    inner.outputs.append(1.0)  # type: ignore[union-attr, operator]
    return inner(x) * sum(inner.outputs)  # type: ignore[arg-type]


HELD = io.StringIO("text")
DATABASE = sqlite3.connect(":memory:", check_same_thread=False)
POINTER = ctypes.pointer(ctypes.c_double(1.0))
REFUSED: dict[str, tuple[Callable[[nn.Module, Any], Any], str]] = {
    "random": (lambda inner, x: inner(x) * random.random(), r"test_guards.py:\d+ in <lambda>: random.random"),
    "numpy.random": (lambda inner, x: inner(x) * np.random.rand(), "draws from 'numpy.random'"),
    "generator": (lambda inner, x: inner(x) + torch.rand(16, generator=torch.Generator(x.device)), r"generator=\) draws other numbers"),
    "clock": (lambda inner, x: inner(x) * time.time(), r"test_guards.py:\d+ in <lambda>: time.time"),
    "held file": (lambda inner, x: inner(x) * len(HELD.read()), r"test_guards.py:\d+ in <lambda>: StringIO.read"),
    "size of a file": (lambda inner, x: inner(x) * pathlib.Path(__file__).stat().st_size, r"test_guards.py:\d+ in <lambda>: posix.stat"),
    "existence of a file": (lambda inner, x: inner(x) * os.path.exists("x"), r"test_guards.py:\d+ in <lambda>: posix.stat"),
    "file of NumPy": (lambda inner, x: inner(x) * np.fromfile(__file__, np.uint8)[0], r"test_guards.py:\d+ in <lambda>: numpy.fromfile"),
    "pointer": (lambda inner, x: inner(x) * POINTER.contents.value, "'POINTER' is a pointer"),
    "file": (lambda inner, x: inner(x) * len(open(__file__).read()), r"test_guards.py:\d+ in <lambda>: io.open"),
    "database": (lambda inner, x: inner(x) * DATABASE.execute("SELECT 1").fetchone()[0], r"test_guards.py:\d+ in <lambda>: Connection.execute"),
    "thread": (lambda inner, x: [threading.Thread(target=len, args=("",)).start(), inner(x)][1], r"in <lambda>: thread.start_new_thread"),
    "seed": (lambda inner, x: [torch.manual_seed(0), inner(x)][1], "torch.manual_seed"),
    "counter": (counts, r"test_guards.py:\d+ in counts: '.*calls' is changed by the code itself"),
    "list": (appends, "is changed by the code itself"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_differs_from_step_to_step_is_refused_with_its_line(kind: str) -> None:
    function, text = REFUSED[kind]
    stages = [Around(function), mlp()]
    stages[0].inner[0].outputs = [1.0]  # type: ignore[index, union-attr]
    with pytest.raises(pt.Error, match=text):
        pipeline(stages).step(torch.randn(8, 16), torch.randn(8, 16))


def test_imports_of_the_code_are_not_what_it_reads(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "late_module.py").write_text("import random, time\nSTARTED = time.time() + random.random()\ndef f(x): return x * 2\n")
    monkeypatch.syspath_prepend(tmp_path)

    def use(inner: nn.Module, x: torch.Tensor) -> Any:
        import late_module  # type: ignore[import-not-found]

        return late_module.f(inner(x))

    pipeline([Around(use), mlp()]).step(torch.randn(8, 16), torch.randn(8, 16))


def test_a_program_that_is_being_imported_is_guarded(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "program_of_a_user.py").write_text(
        "import random\nimport torch\nfrom reference import Around, mlp, pipeline\n"
        "stages = [Around(lambda inner, x: inner(x) * random.random()), mlp()]\n"
        "pipeline(stages).step(torch.randn(8, 16), torch.randn(8, 16))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(pt.Error, match=r"program_of_a_user.py:4 in <lambda>: random.random"):
        import program_of_a_user  # type: ignore[import-not-found]  # noqa: F401


def test_iterators_that_code_holds_are_refused() -> None:
    numbers = iter([1.0, 2.0])
    with pytest.raises(pt.Error, match="'numbers' is an iterator"):
        pipeline([Around(lambda inner, x: inner(x) * next(numbers)), mlp()]).step(torch.randn(8, 16), torch.randn(8, 16))


def test_counters_that_no_code_reads_warn_once() -> None:
    def use(inner: nn.Module, x: torch.Tensor) -> Any:
        inner.calls += 1  # type: ignore[operator]
        return inner(x)

    stages: list[nn.Module] = [Around(use), mlp()]
    stages[0].inner[0].calls = 0  # type: ignore[index, union-attr]
    pipe = pipeline(stages)
    with pytest.warns(UserWarning, match="is counted by the code"):
        pipe.step(torch.randn(8, 16), torch.randn(8, 16))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipe.step(torch.randn(8, 16), torch.randn(8, 16))


def test_values_that_no_code_reads_do_not_capture_again() -> None:
    stages: list[nn.Module] = [mlp(), mlp()]
    pipe = pipeline(stages)
    for number in range(3):
        stages[0].epoch = number  # type: ignore[assignment]
        stages[1][0].note = f"step {number}"  # type: ignore[index]
        pipe.step(torch.randn(8, 16), torch.randn(8, 16))
        pipe.eval_step(torch.randn(8, 16), torch.randn(8, 16))
    assert pipe.changes == []


def test_values_of_made_names_that_change_nothing_at_first_count_later() -> None:
    """Equal graphs do not prove that no code reads a value."""
    holder, number = types.SimpleNamespace(value1=0.25), 1
    stages: list[nn.Module] = [Around(lambda inner, x: inner(x) * max(getattr(holder, f"value{number}"), 1.0)), mlp()]
    pipe = pipeline(stages, optimizer=None)
    for value in (0.25, 0.5, 3.0, 4.0):
        holder.value1 = value
        assert_equal(pipe, stages, mse, torch.randn(8, 16), torch.randn(8, 16))
    holder.epoch = 0
    pipe.step(torch.randn(8, 16), torch.randn(8, 16))
    count = len(pipe.changes)
    for epoch in range(1, 4):
        holder.epoch = epoch
        pipe.step(torch.randn(8, 16), torch.randn(8, 16))
    assert len(pipe.changes) <= count + 1


def test_new_shapes_and_structures_read_values_of_now() -> None:
    scale = {"all": 1.0, "rows": 1.0}
    stages: list[nn.Module] = [Around(lambda inner, x: inner(x) * scale["rows" if len(x) > 2 else "all"]), mlp()]
    pipe = pipeline(stages, optimizer=None)
    for number in range(4):
        scale["rows"] = number + 1.0
        for samples in (8, 16):
            assert_equal(pipe, stages, mse, torch.randn(samples, 16), torch.randn(samples, 16))


def test_constant_masks_are_indices_whose_values_are_the_ones_of_now() -> None:
    mask = torch.arange(16) < 8

    def use(inner: nn.Module, x: torch.Tensor) -> Any:
        return inner(x)[:, mask] * 2

    stages: list[nn.Module] = [Around(use, mlp()), nn.Linear(8, 16)]
    pipe = pipeline(stages, optimizer=None)
    for number in range(3):
        mask.copy_(mask.roll(number))
        assert_equal(pipe, stages, mse, torch.randn(8, 16), torch.randn(8, 16))


@pytest.mark.parametrize("norm", ["weight_norm", "spectral_norm", "prune"])
def test_hooks_that_compute_a_weight_are_captured(norm: str) -> None:
    layer: Any = nn.Linear(16, 16)
    if norm == "prune":
        prune.l1_unstructured(layer, "weight", amount=0.3)
    else:
        layer = getattr(nn.utils, norm)(layer)
    stages: list[nn.Module] = [nn.Sequential(layer, mlp()), mlp()]
    pipe = pipeline(stages, optimizer=None)
    for samples in (8, 16, 8):
        pipe.step(torch.randn(samples, 16), torch.randn(samples, 16))
        pipe.eval_step(torch.randn(samples, 16), torch.randn(samples, 16))
    assert pipe.changes == []
    gradients(stages)
    if norm != "spectral_norm":  # It updates its vectors in each forward.
        assert_equal(pipe, stages, mse, torch.randn(8, 16), torch.randn(8, 16))


def test_functions_that_only_a_library_holds_read_values_of_now() -> None:
    settings = {"scale": 1.0}

    @functools.singledispatch
    def scaled(_: object) -> Any:
        raise TypeError

    scaled.register(torch.Tensor, lambda x: x * settings["scale"])
    stages: list[nn.Module] = [Around(lambda inner, x: scaled(inner(x))), mlp()]
    pipe = pipeline(stages, optimizer=None)
    for scale in (1.0, 2.0):
        settings["scale"] = scale
        assert_equal(pipe, stages, mse, torch.randn(8, 16), torch.randn(8, 16))
