"""Where this process is among the processes that torchrun or mpirun started."""

from __future__ import annotations

import os

import torch.distributed as dist

_WORLDS = (
    ("RANK", "WORLD_SIZE"),  # torchrun
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI
    ("PMI_RANK", "PMI_SIZE"),  # MPICH and others
)


def place() -> tuple[int, int]:
    """Returns this process's number and the number of processes: (0, 1) without a launcher.

    Process h of H runs the ranks r of a schedule of R ranks for which ``r * H // R == h``.
    """
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    for rank, size in _WORLDS:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return 0, 1
