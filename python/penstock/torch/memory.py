"""Where the memory of tensors is."""

from __future__ import annotations

from typing import Any

import torch


def storage_address(value: Any) -> int | None:
    """Returns where a tensor's storage begins; None without memory, or for other objects."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_meta:
        return None
    try:
        return value.untyped_storage().data_ptr() or None
    except RuntimeError:  # a subclass without a storage, or weights in shards
        return None
