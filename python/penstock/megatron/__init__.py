"""Megatron-LM: layouts of layers in stages, and any schedule in an unmodified megatron-core.

``layout`` and ``parse`` need neither torch nor megatron-core; ``install`` needs both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.megatron.layouts import layout, parse

if TYPE_CHECKING:
    from penstock.megatron.installation import Installation, install

__all__ = ["Installation", "install", "layout", "parse"]


def __getattr__(name: str) -> Any:
    """Imports what needs torch and megatron-core when it is first used."""
    if name not in ("Installation", "install"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from penstock.megatron import installation

    return getattr(installation, name)
