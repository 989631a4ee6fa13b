"""The tensors of stages: what is trained, shared, divided among replicas, and must not be replaced."""
