"""Batches: nested tensors, their microbatches and shapes, losses and their weights."""
