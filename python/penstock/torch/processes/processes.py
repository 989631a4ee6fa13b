"""The processes of a run: one, or several that torchrun or mpirun started."""

from __future__ import annotations

import atexit
import functools
import ipaddress
import itertools
import os
import socket
import sys
import zlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

import penstock
from penstock import Error
from penstock.torch.arguments import line_of
from penstock.torch.batch.batches import Structure
from penstock.torch.engine import engine
from penstock.torch.mesh.planes import Plane
from penstock.torch.processes import secret
from penstock.torch.processes.place import place
from penstock.torch.processes.sameness import Facts, compare
from penstock.torch.processes.store import Store, Unpublished, open_store

dist: Any = torch.distributed  # its stores are not in its types

#: What the next stage is compiled for: the outputs of a stage, their structure, and the number of
#: its first random op.
Examples = tuple[list[torch.Tensor], Structure, int]

_LOOPBACK = "127.0.0.1"  # on one machine, its interface always works
_SECONDS = 300.0  # for all processes to start, and for a stage to be compiled


class Processes:
    """This process among the run's, or among the ones of a plane."""

    def __init__(
        self,
        handle: Any,
        process: int = 0,
        processes: int = 1,
        store: Store | None = None,
        plane: Plane | None = None,
        everyone: Processes | None = None,
    ) -> None:
        """``everyone``: the processes of all planes of the mesh."""
        self.handle, self.process, self.processes, self._own_store = (handle, process, processes, store)
        self.plane, self.everyone = plane, everyone or self
        self._pipelines = self._evaluations = 0
        #: Letters of evaluations that have arrived, by evaluation and key.
        self.letters: dict[tuple[int, Any], Any] = {}

    @property
    def _store(self) -> Store:
        assert self._own_store is not None  # there are several processes
        return self._own_store

    @property
    def are_alone(self) -> bool:
        """Whether the run has no other process."""
        return self.everyone.processes == 1

    def number_of(self, process: int) -> int:
        """Returns the number of a process in the run, by which errors name it."""
        return process if self.plane is None else self.plane.numbers[process]

    def own_of(self, of_all: list[Any]) -> list[Any]:
        """Returns the values of these processes among the ones of everyone."""
        return of_all if self.plane is None else [of_all[number] for number in self.plane.numbers]

    def cores(self) -> int:
        """Returns how many cores this process should use."""
        local = int(os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") or self.everyone.processes)
        return max(1, len(os.sched_getaffinity(0)) // local)

    def send_examples(self, pipeline: int, stage: int, examples: Examples) -> None:
        """Publishes the outputs of a stage, for the process that compiles the next one."""
        tensors, structure, random_op = examples
        content = {"outputs": structure.fill(tensors), "random_op": random_op, "forms": structure.forms}
        self._store.set(_key(pipeline, stage), content, with_data=False)

    def send_failure(self, pipeline: int, stage: int, line: str) -> None:
        """Publishes instead that the stage cannot be compiled."""
        if not line.startswith("process "):
            line = f"process {self.number_of(self.process)}: {line}"
        self._store.set(_key(pipeline, stage), {"failure": line})

    def receive_examples(self, pipeline: int, stage: int) -> Examples:
        """Returns zeros like the outputs of a stage of another process, once it is compiled.

        Raises Error if it cannot be compiled.
        """
        try:
            content = self._store.get(_key(pipeline, stage))
        except Unpublished as error:
            raise Error(f"no process has compiled stage {stage} after {_SECONDS:.0f} s: see their errors") from error
        if "failure" in content:
            raise Error(content["failure"])
        structure, tensors = Structure.of(content["outputs"])
        return tensors, structure.with_forms(content["forms"]), content["random_op"]

    def gather(self, pipeline: int, name: str, value: Any) -> list[Any]:
        """Returns the values of all processes, by process."""
        if self.processes == 1:
            return [value]
        key = f"penstock/{pipeline}/{name}"
        self._store.set(f"{key}/{self.process}", value)
        return [self._store.get(f"{key}/{other}") for other in range(self.processes)]

    def check_same(self, pipeline: int, shared: list[tuple[int, ...]]) -> None:
        """Raises Error unless all processes have the same stages that share weights."""
        for other, theirs in enumerate(self.gather(pipeline, "shared", shared)):
            if theirs != shared:
                raise Error(
                    f"process {self.number_of(self.process)} has the modules of stages {shared} that share weights, but process "
                    f"{self.number_of(other)} has {theirs}: pass these modules on every process"
                )

    def check_loss(self, pipeline: int, names: list[str]) -> None:
        """Raises Error unless all processes have the same parameters in the loss."""
        names = [name.partition(".")[2] for name in names]
        for theirs in self.gather(pipeline, "loss", names):
            if theirs != names:
                raise Error(
                    f"the loss brings the parameters {names} on process {self.number_of(self.process)}, but "
                    f"{theirs} on another: pass the stages that have them on every process"
                )

    def check_equal(self, pipeline: int, contents: dict[int, dict[str, int]]) -> None:
        """Raises Error unless replicas on other processes begin with equal weights.

        Args:
            contents: by stage of the model and name, a checksum of each tensor.
        """
        for other, theirs in enumerate(self.gather(pipeline, "contents", contents)):
            for stage, name in ((s, n) for s in contents.keys() & theirs.keys() for n in theirs[s]):
                if contents[stage].get(name) != theirs[stage][name]:
                    raise Error(
                        f"stage {stage}: '{name}' has other values on process {self.number_of(other)} than on "
                        f"process {self.number_of(self.process)}, but replicas begin with equal ones: call "
                        "torch.manual_seed before the modules are made, or load the same state"
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
        if self.processes > 1:
            self._store.set(f"penstock/{pipeline}/metrics", names)

    def metrics_of(self, pipeline: int) -> tuple[str, ...]:
        """Returns the names that the process of the last stage publishes."""
        return tuple(self._store.get(f"penstock/{pipeline}/metrics"))


_joined: dict[tuple[str, torch.device], Processes] = {}


def connected() -> Processes | None:
    """Returns the processes of the run if they have joined."""
    return next(iter(_joined.values()), None)


def join(transport: str = "tcp", device_of: Callable[[], torch.device] = lambda: torch.device("cpu")) -> Processes:
    """Returns the processes of the run. The first call waits until all have called it.

    Args:
        transport: how they exchange frames, "tcp" or "c10d".
        device_of: returns the device whose tensors c10d moves.

    Raises:
        Error: on all processes, if one of them cannot join, or they have different versions or transports.
    """
    process, processes = place()
    if processes == 1:
        return _alone()
    device, failure = torch.device("cpu"), None
    if transport == "c10d":
        try:
            device = device_of()
            _check_initialized()
        except Error as error:
            failure = str(error)
    if (transport, device) in _joined and failure is None:
        return _joined[transport, device]
    store, is_local = _meet(process, processes)
    _compare_starts(store, process, processes, transport, failure)
    if transport == "c10d":
        handle = _over_c10d(process, processes, store, device)
    else:
        handle = _over_tcp(process, processes, store, is_local)
    atexit.register(handle.leave)
    made = _joined[transport, device] = Processes(handle, process, processes, store)
    return made


_planes: dict[tuple[Any, ...], Processes] = {}


def join_plane(plane: Plane) -> Processes:
    """Returns the processes of a plane. The first call waits until all processes of the run have called it."""
    everyone = join()
    process, processes = plane.process, len(plane.numbers)
    key = (plane.name, plane.numbers, plane.tensor, plane.context)
    if key not in _planes:
        store, handle = None, engine.Processes()
        if processes > 1:
            whole, is_local = _meet(everyone.process, everyone.processes)
            store = whole.under(f"mesh {len(_planes)} {plane.name} {plane.numbers}")
            handle = _over_tcp(process, processes, store, is_local, list(plane.numbers))
            atexit.register(handle.leave)
        _planes[key] = Processes(handle, process, processes, store, plane, everyone)
    return _planes[key]


@functools.cache
def _alone() -> Processes:
    return Processes(engine.Processes())


@functools.cache
def _meet(process: int, processes: int) -> tuple[Store, bool]:
    """Returns the store of the run, and whether all processes are on this machine."""
    shared = _shared_store(process, processes)
    shared.set_timeout(timedelta(seconds=_SECONDS))
    return open_store(shared, secret.read(), process, processes)


_starts = itertools.count()


def _compare_starts(store: Store, process: int, processes: int, transport: str, failure: str | None) -> None:
    """Raises Error on all processes unless all can connect to each other."""
    versions = {
        "Penstock": penstock.__version__,
        "torch": str(torch.__version__),
        "Python": ".".join(map(str, sys.version_info[:2])),
    }
    facts = [
        Facts("", "install the same versions on all machines", {f"the version of {name}": of for name, of in versions.items()}),
        Facts("", "pass the same arguments to Pipeline on every process", {"transport": repr(transport)}),
    ]
    start = f"penstock/start/{next(_starts)}"
    store.set(f"{start}/{process}", (failure, facts))
    starts = [store.get(f"{start}/{other}") for other in range(processes)]
    compare([facts for _, facts in starts])
    for other, (failed, _) in enumerate(starts):
        if failed is not None:
            raise Error(failed if other == process else f"process {other}: {failed}")


def _check_initialized() -> None:
    if not dist.is_initialized():
        raise Error(
            "transport is 'c10d', whose groups torch.distributed makes: call torch.distributed.init_process_group() before"
        )


def _over_tcp(process: int, processes: int, store: Store, is_local: bool, numbers: Sequence[int] = ()) -> Any:
    """``numbers``: of the processes, in errors; empty: their own."""
    listener = engine.listen(_LOOPBACK if is_local else os.environ.get("PENSTOCK_INTERFACE", ""))
    store.set(f"penstock/address/{process}", listener.address)
    addresses = [store.get(f"penstock/address/{other}") for other in range(processes)]
    machine = socket.gethostname()
    return engine.Processes.connect(listener, process, addresses, store.key, machine, _SECONDS, list(numbers))


_groups: list[Any] = []  # torch knows them by weak references


def _over_c10d(process: int, processes: int, store: Store, device: torch.device) -> Any:
    """Makes a group of torch.distributed for each directed edge, which all processes do together."""
    backend = "gloo"
    if device.type != "cpu":
        backend = f"cpu:gloo,{device.type}:{dist.get_default_backend_for_device(device)}"
    to, from_ = [""] * processes, [""] * processes
    for sender in range(processes):
        for receiver in (other for other in range(processes) if other != sender):
            group = dist.new_group([sender, receiver], backend=backend)
            if process in (sender, receiver):
                _groups.append(group)
                names, other = (to, receiver) if process == sender else (from_, sender)
                names[other] = group.group_name
    store.set(f"penstock/machine/{process}", socket.gethostname())
    machines = [store.get(f"penstock/machine/{other}") for other in range(processes)]
    return engine.Processes.over_c10d(process, to, from_, str(device), machines)


def _shared_store(process: int, processes: int) -> Any:
    """Returns a store that all processes share: torch.distributed's, torchrun's, or our own."""
    if dist.is_initialized():
        return dist.PrefixStore("penstock", dist.distributed_c10d._get_default_store())
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    is_local = _has_local_launcher(processes) or (address is not None and _is_loopback(address))
    if address and port:
        if is_local and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
            return _loopback_store(int(port), process, processes)
        return dist.PrefixStore("penstock", next(dist.rendezvous("env://", rank=process, world_size=processes))[0])
    if not is_local:
        raise Error("the processes are on several machines: set MASTER_ADDR and MASTER_PORT to the address of rank 0")
    # The job's name gives all processes the same port.
    job = os.environ.get("PMIX_NAMESPACE") or os.environ.get("OMPI_MCA_ess_base_jobid") or str(os.getppid())
    return _loopback_store(20000 + zlib.crc32(job.encode()) % 30000, process, processes)


def _has_local_launcher(processes: int) -> bool:
    """Returns whether the launcher says that all processes are on this machine."""
    local = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE")
    return local is not None and int(local) == processes


def _is_loopback(name: str) -> bool:
    try:
        return all(ipaddress.ip_address(each[4][0]).is_loopback for each in socket.getaddrinfo(name, None))
    except OSError:  # rendezvous names the error
        return False


def _loopback_store(port: int, process: int, processes: int) -> Any:
    """Returns torch's store, which by itself would listen on all interfaces."""
    timeout = timedelta(seconds=_SECONDS)
    if process > 0:
        return dist.TCPStore(_LOOPBACK, port, processes, False, timeout)
    try:
        listener = socket.create_server((_LOOPBACK, port))
    except OSError as error:
        raise Error(
            f"the store of the processes cannot listen at {_LOOPBACK}:{port}: {error.strerror}: "
            "set MASTER_ADDR to 127.0.0.1 and MASTER_PORT to a free port"
        ) from None
    return dist.TCPStore(_LOOPBACK, port, processes, True, timeout, master_listen_fd=listener.detach())


def failure_line(error: BaseException) -> str:
    """Returns the line by which other processes fail, too."""
    if isinstance(error, (Error, RuntimeError)):
        return str(error).split("\n", 1)[0]
    return line_of(error)


def _key(pipeline: int, stage: int) -> str:
    return f"penstock/{pipeline}/{stage}"
