"""The settings of torch and of the process that code may ask for, as values that steps compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

#: The path of torch's settings: default dtype, precision and others.
SETTING = "a setting of torch"
#: Kinds of values that never change.
VALUES: tuple[Any, ...] = (
    *(type(None), bool, int, float, complex, str, bytes, range, slice, type(...), type(NotImplemented)),
    *(torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format),
)


def settings() -> tuple[Any, ...]:
    """Returns what torch is set to: dtype, determinism, precision, gradients, modes and hooks."""
    return (  # each a function in C, because every step calls them
        torch.get_default_dtype(),
        torch._C._get_deterministic_algorithms(),
        torch._C._get_float32_matmul_precision(),
        torch.is_grad_enabled(),
        _function_modes() if torch._C._len_torch_function_stack() > 0 else None,
        torch._C._len_torch_dispatch_stack(),
        torch._C._autograd._top_saved_tensors_default_hooks(True) is None,
    )


def _function_modes() -> tuple[Any, ...]:
    modes = [torch._C._get_function_stack_at(index) for index in range(torch._C._len_torch_function_stack())]
    return torch.get_default_device(), *(id(type(each)) for each in modes)


def setting(getter: Callable[[], Any]) -> Any:
    """Returns what a function without arguments returns, if steps can compare it; otherwise None."""
    try:
        value = getter()
    except TypeError:  # It needs arguments, so it asks about these.
        return None
    return value if isinstance(value, (*VALUES, tuple)) else None  # Others, such as frames, may be new in each call.
