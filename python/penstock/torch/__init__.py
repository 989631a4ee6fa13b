"""PyTorch: its own pipeline runtime with our schedules, and costs and times of real models."""

from penstock.torch.profile import profile
from penstock.torch.record import record
from penstock.torch.runtime import runtime

__all__ = ["profile", "record", "runtime"]
