"""Loads the test device of tests/engine/device: asynchronous devices on the CPU.

It stays registered in the process, so tests on it run in a process of their own.
"""

import contextlib
import ctypes
import pathlib
import types

import torch

_BUILD = pathlib.Path(__file__).parents[2] / "build" / "release"
_library = ctypes.CDLL(str(_BUILD / "tests" / "engine" / "device" / "libpenstock_test_device.so"), ctypes.RTLD_GLOBAL)
_library.penstock_test_device_report.restype = ctypes.c_char_p


def _module() -> types.ModuleType:
    """Returns what torch calls of a device's module."""
    module = types.ModuleType("torch.test_device")
    table = {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "current_device": lambda: 0,
        "device": lambda _: contextlib.nullcontext(),
        # Its random ops are the CPU's.
        "get_rng_state": lambda _device=0: torch.get_rng_state(),
        "set_rng_state": lambda state, _device=0: torch.set_rng_state(state),
        "_is_in_bad_fork": lambda: False,
        "manual_seed_all": lambda _seed: None,
        "get_amp_supported_dtype": lambda: [torch.bfloat16],
        "is_autocast_enabled": lambda: torch.is_autocast_enabled("test_device"),
    }
    for name, value in table.items():
        setattr(module, name, value)
    return module


# As on CUDA, a module that moves keeps its parameters.
torch.__future__.set_swap_module_params_on_conversion(True)
torch._register_device_module("test_device", _module())


def take_report() -> list[str]:
    """Returns what happened since the last call: "race: ..." and "host: ...", a line each."""
    text: bytes = _library.penstock_test_device_report()
    return text.decode().splitlines()


def races() -> list[str]:
    """Returns the accesses without order since the last report was taken."""
    return [line for line in take_report() if line.startswith("race")]
