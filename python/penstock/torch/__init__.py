"""PyTorch models on Penstock: the engine (Pipeline), and torch's own runtime with our schedules."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.torch.optimizers import AdamW
    from penstock.torch.pipeline import Pipeline
    from penstock.torch.splitting import split

# By name: its module. They load on first use, because only some need the engine.
_EXPORTS = {
    "AdamW": "penstock.torch.optimizers",
    "Pipeline": "penstock.torch.pipeline",
    "split": "penstock.torch.splitting",
}

__all__ = ["AdamW", "Pipeline", "split"]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'penstock.torch' has no attribute '{name}'")
    return getattr(importlib.import_module(_EXPORTS[name]), name)
