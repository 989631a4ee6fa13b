"""When work starts and ends on a device."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


class Clock:
    """Marks points in time: of the device's current stream, or of the CPU.

    Marks on an accelerator are events, so they neither wait for it nor count its launches as work.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._module = None if device.type == "cpu" else torch.get_device_module(device)
        self.synchronize()
        self._origin = self.mark()
        self.synchronize()
        self._origin_ns = time.perf_counter_ns()

    def synchronize(self) -> None:
        """Waits until the device has done all its work."""
        if self._module is not None:
            self._module.synchronize(self._device)

    def mark(self) -> Any:
        """Returns the present, for ``nanoseconds``."""
        if self._module is None:
            return time.perf_counter_ns()
        with self._on_device():
            event = self._module.Event(enable_timing=True)
            event.record()
        return event

    def nanoseconds(self, mark: Any) -> float:
        """Returns the time of a mark by ``time.perf_counter_ns``. Call ``synchronize`` before."""
        if self._module is None:
            return float(mark)
        return float(self._origin_ns + self._origin.elapsed_time(mark) * 1e6)

    def _on_device(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._module is None else self._module.device(self._device)
