"""Meshes of processes: planes, each a pipeline of its own, and the collectives of stages that connect them."""
