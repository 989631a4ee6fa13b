"""Code that other compilers run: under capture, it runs op by op, because a capture does not see what their kernels compute."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import torch

_jit: Any = torch.jit  # not in torch's types


@contextlib.contextmanager
def interpreted() -> Iterator[None]:
    """Interprets TorchScript, and runs the Python code of functions that torch.compile has made."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(_jit.optimized_execution(False))
        if "torch._dynamo" in sys.modules:  # else nothing is compiled, and importing it takes seconds
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield


@contextlib.contextmanager
def without_nan_checks() -> Iterator[None]:
    """Lets torch.autograd.set_detect_anomaly note lines but not read gradients, which a graph cannot repeat."""
    if not torch.is_anomaly_check_nan_enabled() or not torch.is_anomaly_enabled():
        yield
        return
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        yield
