"""PyTorch models on Penstock: the engine (Pipeline), and torch's own runtime with our schedules."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from penstock import Error as Error  # not in __all__: it is documented in penstock
from penstock.needs import needs

needs("penstock.torch", "torch")

from penstock.torch.processes.place import place  # noqa: E402

if TYPE_CHECKING:
    from penstock.torch.mesh.random_parts import part_of_random
    from penstock.torch.optimizers import AdamW
    from penstock.torch.splitting import split
    from penstock.torch.torch_runtime.profile import profile
    from penstock.torch.torch_runtime.record import record
    from penstock.torch.torch_runtime.runtime import runtime
    from penstock.torch.training.pipeline import Pipeline

__all__ = ["AdamW", "Pipeline", "part_of_random", "place", "profile", "record", "runtime", "split"]

# Imported on first use: these need the engine, which the wheel may not have, or torch.distributed.pipelining, which takes as long to
# import as half of torch.
_MODULES = {
    "AdamW": "penstock.torch.optimizers",
    "Pipeline": "penstock.torch.training.pipeline",
    "part_of_random": "penstock.torch.mesh.random_parts",
    "profile": "penstock.torch.torch_runtime.profile",
    "record": "penstock.torch.torch_runtime.record",
    "runtime": "penstock.torch.torch_runtime.runtime",
    "split": "penstock.torch.splitting",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'penstock.torch' has no attribute '{name}'")
    value = globals()[name] = getattr(importlib.import_module(_MODULES[name]), name)
    return value
