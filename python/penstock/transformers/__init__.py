"""transformers' Trainer on pipelines: docs/transformers.md."""

from penstock.needs import needs

needs("penstock.transformers", "torch", "transformers", "accelerate")

from penstock.transformers.trainer import Trainer  # noqa: E402

__all__ = ["Trainer"]
