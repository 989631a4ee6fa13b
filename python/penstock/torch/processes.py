"""The processes of a run: one, or those that mpirun or torchrun started."""

from __future__ import annotations

import os
from typing import Any

from penstock.torch.engine import engine


class Hosts:
    """This process among those of the run. Each runs about the same number of consecutive ranks."""

    def __init__(self, handle: Any, host: int = 0, hosts: int = 1) -> None:
        self.handle, self.host, self.hosts = handle, host, hosts

    def host_of(self, rank: int, ranks: int) -> int:
        """Returns the process that runs a rank."""
        return rank * self.hosts // ranks

    def cores(self) -> int:
        """Returns how many cores this process may use."""
        return len(os.sched_getaffinity(0))


def join() -> Hosts:
    """Returns the processes of the run that started this one."""
    return Hosts(engine.Hosts())
