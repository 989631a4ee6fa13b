"""transformers' Trainer on pipelines: docs/transformers.md."""

from penstock.transformers.trainer import Trainer

__all__ = ["Trainer"]
