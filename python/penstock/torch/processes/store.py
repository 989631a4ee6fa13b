"""What the processes of a run publish for each other, in a store that strangers may reach.

Each value has a code under a key (HMAC-SHA256), so that a value that no process of the run has
published under this name is refused. The key follows from the run's secret and from a number that
each process draws, so values of earlier runs are refused, too.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
from typing import Any

import torch.distributed

from penstock import Error
from penstock.torch.processes import wire

_CODE = 32  # bytes


class Store:
    """A store of torch.distributed in which all values have a code."""

    def __init__(self, store: Any, key: bytes, prefix: str = "") -> None:
        self._store, self.key, self._prefix = store, key, prefix

    def under(self, name: str) -> Store:
        """Returns a part of the store, with names of its own."""
        return Store(self._store, self.key, f"{self._prefix}{name}/")

    def set(self, name: str, value: Any, *, with_data: bool = True) -> None:
        """Publishes a value as `wire` sends it. A name is used once."""
        name, content = self._prefix + name, wire.dumps(value, with_data=with_data)
        self._store.set(name, self._code(name, content) + content)

    def get(self, name: str) -> Any:
        """Waits for a value and returns it.

        Raises:
            Error: it has not been published by a process of this run, or not within the time limit.
        """
        name = self._prefix + name
        try:
            value: bytes = self._store.get(name)
        except (RuntimeError, torch.distributed.DistError) as error:
            raise Unpublished(f"no process has published {name}: see their errors") from error
        content = value[_CODE:]
        if not hmac.compare_digest(value[:_CODE], self._code(name, content)):
            raise Forged(
                f"the store has a value of {name} that no process of this run has published: "
                "another program writes to it, or the processes have different secrets"
            )
        return wire.loads(content)

    def _code(self, name: str, content: bytes) -> bytes:
        return digest(self.key, name.encode(), content)


class Unpublished(Error):
    """Nothing has been published under a name."""


class Forged(Error):
    """Somebody else has published a value."""


def digest(key: bytes, *texts: bytes) -> bytes:
    """Returns a code of the texts under a key."""
    code = hmac.new(key, digestmod="sha256")
    for text in texts:
        code.update(len(text).to_bytes(8, "little") + text)
    return code.digest()


def open_store(store: Any, secret: bytes, process: int, processes: int) -> tuple[Store, bool]:
    """Returns the store of this run, and whether all processes are on this machine.

    Every process calls it.
    """
    # Nobody else knows the secret, so its digests are keys that protect it from other uses.
    known = Store(store, digest(secret, b"penstock greeting"))
    own = [secrets.token_hex(16), _network()]
    known.set(f"greeting/{process}", own)
    greetings = [own if other == process else _greeting(known, other) for other in range(processes)]
    key = digest(secret, b"penstock run", wire.dumps(greetings))
    return Store(store, key), all(each[1] == own[1] for each in greetings)


def _greeting(store: Store, process: int) -> Any:
    try:
        return store.get(f"greeting/{process}")
    except Forged:
        raise Error(
            f"process {process} has another secret than this process, or another program has "
            "written to the store: give all processes the same PENSTOCK_SECRET or "
            "PENSTOCK_SECRET_FILE"
        ) from None


def _network() -> str:
    """Returns what only processes have in common that share a loopback interface."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/net')}"
    except OSError:
        return socket.gethostname()
