"""PyTorch models on Penstock: the engine (Pipeline), and torch's own runtime with our schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock import Error as Error  # not in __all__: it is documented in penstock
from penstock.torch.processes.place import place
from penstock.torch.splitting import split
from penstock.torch.torch_runtime.profile import profile
from penstock.torch.torch_runtime.record import record
from penstock.torch.torch_runtime.runtime import runtime

if TYPE_CHECKING:
    from penstock.torch.optimizers import AdamW
    from penstock.torch.training.pipeline import Pipeline

__all__ = ["AdamW", "Pipeline", "place", "profile", "record", "runtime", "split"]


def __getattr__(name: str) -> Any:
    # On first use, because only these need the engine, which the wheel may not have.
    if name == "Pipeline":
        from penstock.torch.training.pipeline import Pipeline

        return Pipeline
    if name == "AdamW":
        from penstock.torch.optimizers import AdamW

        return AdamW
    raise AttributeError(f"module 'penstock.torch' has no attribute '{name}'")
