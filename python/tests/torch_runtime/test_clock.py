"""Clocks of accelerators, with a device that only counts."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from penstock.torch.devices import device_of
from penstock.measuring.clock import Clock


class CountingDevice:
    """The module of a device type: each event is recorded a millisecond after the last one."""

    def __init__(self) -> None:
        self.recorded = 0
        self.synchronized = 0
        self.device = nullcontext

    def Event(self, enable_timing: bool) -> Any:  # noqa: N802
        assert enable_timing
        return CountingEvent(self)

    def synchronize(self, device: torch.device) -> None:
        assert device.type == "cuda"
        self.synchronized += 1


class CountingEvent:
    def __init__(self, device: CountingDevice) -> None:
        self.device = device

    def record(self) -> None:
        self.device.recorded += 1
        self.milliseconds = self.device.recorded

    def elapsed_time(self, other: CountingEvent) -> float:
        return other.milliseconds - self.milliseconds


def test_marks_events_on_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    device = CountingDevice()
    monkeypatch.setattr(torch, "get_device_module", lambda _: device)
    before = time.perf_counter_ns()
    clock = Clock(torch.device("cuda:1"))
    marks = [clock.mark(), clock.mark()]
    synchronized = device.synchronized
    start, end = map(clock.nanoseconds, marks)
    assert end - start == pytest.approx(1e6)
    assert before + 1e6 <= start <= time.perf_counter_ns() + 2e6
    assert device.synchronized == synchronized == 2  # marks do not wait


def test_marks_the_cpu() -> None:
    clock = Clock(torch.device("cpu"))
    before, mark, after = time.perf_counter_ns(), clock.mark(), time.perf_counter_ns()
    assert before <= clock.nanoseconds(mark) <= after


def test_finds_the_device() -> None:
    assert device_of(torch.nn.Linear(1, 1, device="meta")) == torch.device("meta")
    assert device_of(torch.nn.BatchNorm1d(1, affine=False)) == torch.device("cpu")
    assert device_of(torch.nn.Identity()) == torch.device("cpu")
