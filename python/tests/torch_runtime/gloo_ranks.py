"""Runs a function on several ranks: real processes with Gloo, killed if they hang."""

from __future__ import annotations

import datetime
import multiprocessing.connection
import os
import pathlib
import pickle
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import Any

from forks import CONTEXT

SECONDS = 180  # after which a rank counts as hung; compiling takes a minute on a busy machine


def run_ranks(ranks: int, function: Callable[..., Any], *args: Any, seconds: float = SECONDS) -> list[Any]:
    """Returns what ``function(rank, *args)`` returns on each rank of a new process group.

    Raises:
        AssertionError: a rank failed or hung; has the trace of each rank that failed.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-ranks-") as folder:
        pipes, processes = [], []
        for rank in range(ranks):
            receiver, sender = CONTEXT.Pipe(duplex=False)
            process = CONTEXT.Process(target=_run_rank, args=(sender, rank, ranks, folder, function, args), daemon=True)
            process.start()
            sender.close()
            pipes.append(receiver)
            processes.append(process)
        try:
            return _collect(pipes, seconds)
        finally:
            for process in processes:
                process.join(1)
                if process.is_alive():
                    process.kill()
                    process.join()


def _collect(pipes: list[Any], seconds: float) -> list[Any]:
    deadline = time.monotonic() + seconds
    results: dict[int, Any] = {}
    failures = []
    waiting = {pipe: rank for rank, pipe in enumerate(pipes)}
    while waiting:
        ready = multiprocessing.connection.wait(waiting, max(0.0, deadline - time.monotonic()))
        if not ready:
            failures += [f"rank {rank} hangs" for rank in waiting.values()]
            break
        for pipe in ready:
            rank = waiting.pop(pipe)
            try:
                results[rank], failure = pickle.loads(pipe.recv_bytes())
            except EOFError:
                failure = "died"
            if failure:
                failures.append(f"rank {rank}: {failure}")
                # The others may wait for it: they get a second to fail too.
                deadline = min(deadline, time.monotonic() + 1)
    assert not failures, "\n".join(failures)
    return [results[rank] for rank in range(len(pipes))]


def _run_rank(sender: Any, rank: int, ranks: int, folder: str, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    import torch
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo",
            store=dist.FileStore(str(pathlib.Path(folder) / "store"), ranks),
            rank=rank,
            world_size=ranks,
            timeout=datetime.timedelta(seconds=SECONDS),
        )
        # Not send(), which would share the memory of tensors with a process that ends.
        sender.send_bytes(pickle.dumps((function(rank, *args), None)))
        dist.barrier()
    except BaseException:  # pylint: disable=broad-except
        sender.send_bytes(pickle.dumps((None, traceback.format_exc())))
