"""Dividing a whole model into stages: at its layers, or by its graph."""

from penstock.torch.splitting.split import split

__all__ = ["split"]
