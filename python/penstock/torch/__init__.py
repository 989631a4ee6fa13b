"""Penstock and PyTorch: torch's own pipeline runtime with our schedules, its costs and its times."""

from penstock.torch.profile import profile
from penstock.torch.record import record
from penstock.torch.runtime import runtime

__all__ = ["profile", "record", "runtime"]
