"""The processes of a run: one, or those that torchrun or mpirun started."""

from __future__ import annotations

import atexit
import functools
import os
import socket
import zlib
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

from penstock import Error
from penstock.torch import wire
from penstock.torch.arguments import line_of
from penstock.torch.batches import Structure
from penstock.torch.engine import engine
from penstock.torch.place import place

dist: Any = torch.distributed  # its stores are not in its types

#: What the next stage is compiled for: the outputs of a stage, their structure, and the number of
#: its first random op.
Examples = tuple[list[torch.Tensor], Structure, int]

_SECONDS = 300.0  # for all processes to start, and for a stage to be compiled


class Hosts:
    """This process among those of the run. Each runs about the same number of consecutive ranks."""

    def __init__(self, handle: Any, host: int = 0, hosts: int = 1, store: Any = None) -> None:
        self.handle, self.host, self.hosts, self._store = handle, host, hosts, store
        self._pipelines = self._evaluations = 0
        #: Letters of evaluations that have arrived, by evaluation and key.
        self.letters: dict[tuple[int, Any], Any] = {}

    def host_of(self, rank: int, ranks: int) -> int:
        """Returns the process that runs a rank."""
        if self.hosts > ranks:
            raise Error(f"{self.hosts} processes cannot share {ranks} ranks: start at most {ranks}")
        return rank * self.hosts // ranks

    def cores(self) -> int:
        """Returns how many cores this process should use."""
        local = int(
            os.environ.get("LOCAL_WORLD_SIZE")
            or os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE")
            or self.hosts
        )
        return max(1, len(os.sched_getaffinity(0)) // local)

    def send_examples(self, pipeline: int, stage: int, examples: Examples) -> None:
        """Publishes the outputs of a stage, for the process that compiles the next one."""
        tensors, structure, random_op = examples
        content = {"outputs": structure.fill(tensors), "random_op": random_op}
        self._store.set(_key(pipeline, stage), wire.dumps(content, with_data=False))

    def send_failure(self, pipeline: int, stage: int, line: str) -> None:
        """Publishes instead that the stage cannot be compiled."""
        if not line.startswith("process "):
            line = f"process {self.host}: {line}"
        self._store.set(_key(pipeline, stage), wire.dumps({"failure": line}))

    def receive_examples(self, pipeline: int, stage: int) -> Examples:
        """Returns zeros like the outputs of a stage of another process, once it is compiled.

        Raises Error if it cannot be compiled.
        """
        try:
            text = self._store.get(_key(pipeline, stage))
        except (RuntimeError, dist.DistError) as error:
            raise Error(
                f"no process has compiled stage {stage} after {_SECONDS:.0f} s: see their errors"
            ) from error
        content = wire.loads(text)
        if "failure" in content:
            raise Error(content["failure"])
        structure, tensors = Structure.of(content["outputs"])
        return tensors, structure, content["random_op"]

    def gather(self, pipeline: int, name: str, value: Any) -> list[Any]:
        """Returns the values of all processes, by process."""
        if self.hosts == 1:
            return [value]
        key = f"penstock/{pipeline}/{name}"
        self._store.set(f"{key}/{self.host}", wire.dumps(value))
        return [wire.loads(self._store.get(f"{key}/{other}")) for other in range(self.hosts)]

    def check_same(self, pipeline: int, shared: list[tuple[int, ...]]) -> None:
        """Raises Error unless all processes have the same stages that share weights."""
        for other, theirs in enumerate(self.gather(pipeline, "shared", shared)):
            if theirs != shared:
                raise Error(
                    f"process {self.host} has the modules of stages {shared} that share weights, "
                    f"but process {other} has {theirs}: pass these modules on every process"
                )

    def check_loss(self, pipeline: int, names: list[str]) -> None:
        """Raises Error unless all processes have the same parameters in the loss."""
        names = [name.partition(".")[2] for name in names]
        for theirs in self.gather(pipeline, "loss", names):
            if theirs != names:
                raise Error(
                    f"the loss brings the parameters {names} on process {self.host}, but {theirs} "
                    "on another: pass the stages that have them on every process"
                )

    def next_pipeline(self) -> int:
        """Returns the number of the next pipeline, the same on all processes."""
        self._pipelines += 1
        return self._pipelines

    def next_evaluation(self) -> int:
        """Returns the number of the next evaluation, the same on all processes."""
        self._evaluations += 1
        for number, key in [each for each in self.letters if each[0] < self._evaluations]:
            del self.letters[number, key]
        return self._evaluations

    def publish_metrics(self, pipeline: int, names: tuple[str, ...]) -> None:
        """Publishes the names of the metrics that the loss returns."""
        if self.hosts > 1:
            self._store.set(f"penstock/{pipeline}/metrics", wire.dumps(names))

    def metrics_of(self, pipeline: int) -> tuple[str, ...]:
        """Returns the names that the process of the last stage publishes."""
        return tuple(wire.loads(self._store.get(f"penstock/{pipeline}/metrics")))


@functools.cache
def join() -> Hosts:
    """Returns the processes of the run. The first call waits until all have called it."""
    host, hosts = place()
    if hosts == 1:
        return Hosts(engine.Hosts())
    store = _store(host, hosts)
    store.set_timeout(timedelta(seconds=_SECONDS))
    # On one machine, the loopback interface always works.
    listener = engine.listen(
        "127.0.0.1" if _is_local(hosts) else os.environ.get("PENSTOCK_INTERFACE", "")
    )
    if host == 0:
        store.set("penstock/run", os.urandom(16).hex())
    store.set(f"penstock/address/{host}", listener.address)
    addresses = [store.get(f"penstock/address/{other}").decode() for other in range(hosts)]
    run = store.get("penstock/run").decode()
    handle = engine.Hosts.connect(listener, host, addresses, run, socket.gethostname(), _SECONDS)
    atexit.register(handle.leave)
    return Hosts(handle, host, hosts, store)


def _is_local(hosts: int) -> bool:
    local = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE")
    return local is not None and int(local) == hosts


def _store(host: int, hosts: int) -> Any:
    """Returns a store that all processes share: torch.distributed's, torchrun's, or our own."""
    if dist.is_initialized():
        return dist.PrefixStore("penstock", dist.distributed_c10d._get_default_store())
    if "MASTER_ADDR" in os.environ and "MASTER_PORT" in os.environ:
        return dist.PrefixStore(
            "penstock", next(dist.rendezvous("env://", rank=host, world_size=hosts))[0]
        )
    if not _is_local(hosts):
        raise Error(
            "the processes are on several machines: set MASTER_ADDR and MASTER_PORT to "
            "the address of rank 0"
        )
    # The job's name gives all processes the same port.
    job = (
        os.environ.get("PMIX_NAMESPACE")
        or os.environ.get("OMPI_MCA_ess_base_jobid")
        or str(os.getppid())
    )
    port = 20000 + zlib.crc32(job.encode()) % 30000
    return dist.TCPStore("127.0.0.1", port, hosts, host == 0, timedelta(seconds=_SECONDS))


def failure_line(error: BaseException) -> str:
    """Returns the line by which other processes fail, too."""
    if isinstance(error, (Error, RuntimeError)):
        return str(error).split("\n", 1)[0]
    return line_of(error)


def _key(pipeline: int, stage: int) -> str:
    return f"penstock/{pipeline}/{stage}"
