"""Processes that run a script with torch already imported: forks of a server that has imported it once."""

from __future__ import annotations

import atexit
import contextlib
import io
import multiprocessing
import os
import pathlib
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["penstock.torch.training.pipeline"])
_LIMIT_S = 200


class Fork:
    """A process that runs a script. The block ends it."""

    def __init__(self, script: str, *arguments: str, **environment: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-fork-")
        where = pathlib.Path(self._folder.name)
        self._out, self._err = where / "out", where / "err"
        self._out.touch()
        args = (script, arguments, {**os.environ, **environment}, str(self._out), str(self._err))
        self.process = CONTEXT.Process(target=_run, args=args, daemon=True)
        self.process.start()

    def __enter__(self) -> Fork:
        return self

    def __exit__(self, kind: object, error: object, trace: TracebackType | None) -> None:
        self.process.kill()
        self.process.join()
        self._folder.cleanup()

    def lines(self) -> Iterator[str]:
        """Yields the lines that it prints, as they come."""
        deadline = time.monotonic() + _LIMIT_S
        with self._out.open() as file:
            while time.monotonic() < deadline:
                line = file.readline()
                if line:
                    yield line
                elif not self.process.is_alive():
                    return
                else:
                    time.sleep(0.01)

    def ended(self) -> tuple[int | None, str, str]:
        """Waits for its end. Returns its exit code, and what it has printed to both streams."""
        self.process.join(_LIMIT_S)
        return self.process.exitcode, self._out.read_text(), self._err.read_text()


def _run(script: str, arguments: Any, environment: dict[str, str], out: str, err: str) -> None:
    for stream, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    sys.stdout, sys.stderr = (os.fdopen(stream, "w", buffering=1) for stream in (1, 2))
    os.environ.clear()
    os.environ.update(environment)
    import torch

    torch.set_num_threads(1)
    sys.argv = ["script.py", *arguments]
    try:
        exec(compile(script, "script.py", "exec"), {"__name__": "__main__"})  # noqa: S102
    finally:
        atexit._run_exitfuncs()


def world(processes: int, launcher: str = "torchrun") -> list[dict[str, str]]:
    """Returns the environment of each process as a launcher sets it."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    if launcher == "mpirun":
        names = tuple(f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "LOCAL_RANK", "SIZE", "LOCAL_SIZE"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    shared = {"MASTER_ADDR": "localhost", "MASTER_PORT": port}
    if launcher == "mpirun":
        shared = {"PMIX_NAMESPACE": f"job {port}"}
    size = str(processes)
    return [{**shared, **dict(zip(names, (str(rank), str(rank), size, size)))} for rank in range(processes)]


def run_all(
    script: str, *arguments: str, processes: int = 2, launcher: str = "torchrun", **environment: str
) -> list[tuple[int | None, str, str]]:
    """Runs a script in several processes, as a launcher starts them, and returns how they ended."""
    with contextlib.ExitStack() as stack:
        worlds = world(processes, launcher)
        forks = [Fork(script, *arguments, **{**of, **environment}) for of in worlds]
        for fork in forks:
            stack.enter_context(fork)
        return [fork.ended() for fork in forks]


def lines_of(script: str, *arguments: str, prefix: str, processes: int = 1, **others: str) -> list[str]:
    """Returns the sorted lines with a prefix that a script prints: here, or in several processes, which must succeed."""
    if processes == 1:
        printed, before = io.StringIO(), sys.argv
        sys.argv = ["script.py", *arguments]
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile(script, "script.py", "exec"), {})  # noqa: S102
        finally:
            sys.argv = before
        texts = [printed.getvalue()]
    else:
        ended = run_all(script, *arguments, processes=processes, **others)
        assert all(code == 0 for code, _, _ in ended), ended
        texts = [out for _, out, _ in ended]
    return sorted(line for text in texts for line in text.splitlines() if line.startswith(prefix))
