"""Strangers who reach the store of a run, or connect to its processes."""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import secrets
import socket
from collections.abc import Callable
from typing import Any

import pytest
import torch.distributed
from forks import Fork, run_all, world

import penstock
from penstock.torch.processes import secret, wire
from penstock.torch.processes.store import Store, open_store

dist: Any = torch.distributed  # its stores are not in its types

_SECRET = "a secret of these tests"


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> pathlib.Path:
    for name in ("PENSTOCK_SECRET", "PENSTOCK_SECRET_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def test_the_first_process_makes_the_secret_for_all(folder: pathlib.Path) -> None:
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        read = set(pool.map(lambda _: secret.read(), range(64)))
    assert read == {secret.read()} and len(secret.read()) == 64
    assert [each.name for each in (folder / "penstock").iterdir()] == ["secret"]
    assert (folder / "penstock" / "secret").stat().st_mode & 0o777 == 0o600


def test_the_environment_names_the_secret(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / "key"
    file.write_text("a secret in a file\n")
    file.chmod(0o600)
    monkeypatch.setenv("PENSTOCK_SECRET_FILE", str(file))
    assert secret.read() == b"a secret in a file"
    monkeypatch.setenv("PENSTOCK_SECRET", _SECRET)
    assert secret.read() == _SECRET.encode()


def _with_mode(path: pathlib.Path, mode: int) -> None:
    path.write_text(_SECRET)
    path.chmod(mode)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.mkdir(), "is not a file"),
        (lambda path: os.mkfifo(path, 0o600), "is not a file"),
        (lambda path: path.symlink_to("/dev/zero"), "is not a file"),
        (lambda path: path.symlink_to(path), "Too many levels"),
        (lambda path: _with_mode(path, 0o640), "run chmod 600"),
        (lambda path: _with_mode(path, 0o602), "run chmod 600"),
        (lambda path: (path.write_text("short"), path.chmod(0o600)), "has 5 bytes"),
    ],
)
def test_unsuitable_files_are_refused(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[pathlib.Path], Any], message: str
) -> None:
    make(folder / "key")
    monkeypatch.setenv("PENSTOCK_SECRET_FILE", str(folder / "key"))
    with pytest.raises(penstock.Error, match=message) as error:
        secret.read()
    assert "\n" not in str(error.value)


def test_a_short_secret_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SECRET", "123456789012345")
    with pytest.raises(penstock.Error, match="PENSTOCK_SECRET has 15 bytes"):
        secret.read()


def _open(shared: Any, secrets_of: list[bytes]) -> list[tuple[Store, bool]]:
    """Opens the store on threads, one for each process."""
    with concurrent.futures.ThreadPoolExecutor(len(secrets_of)) as pool:
        opened = [pool.submit(open_store, shared, each, process, len(secrets_of)) for process, each in enumerate(secrets_of)]
        return [each.result() for each in opened]


def test_only_processes_of_the_run_are_believed() -> None:
    shared = dist.HashStore()
    (first, is_local), (second, _) = _open(shared, [_SECRET.encode()] * 2)
    assert is_local
    first.set("a", {"x": [1, 2.5]})
    assert second.get("a") == {"x": [1, 2.5]}
    good = shared.get("a")
    for at in range(len(good)):
        shared.set("a", good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(penstock.Error, match="no process of this run has published"):
            second.get("a")
    hostile = [b"", b"x", good[:32], good[:-1], good + b" ", secrets.token_bytes(1000)]
    for value in [*hostile, wire.dumps({"x": [1, 2.5]})]:
        shared.set("a", value)
        with pytest.raises(penstock.Error, match="no process of this run has published"):
            second.get("a")
    shared.set("b", good)  # under another name
    with pytest.raises(penstock.Error, match="no process of this run has published"):
        second.get("b")
    # A value of an earlier run of the same user, with the greetings of then.
    later = dist.HashStore()
    (third, _), _ = _open(later, [_SECRET.encode()] * 2)
    later.set("a", good)
    with pytest.raises(penstock.Error, match="no process of this run has published"):
        third.get("a")


def test_nothing_in_the_store_contains_the_secret_or_the_key() -> None:
    class Spy:
        def __init__(self) -> None:
            self.own, self.seen = dist.HashStore(), b""

        def set(self, name: str, value: bytes) -> None:
            self.seen += value
            self.own.set(name, value)

        def get(self, name: str) -> bytes:
            return bytes(self.own.get(name))

    spy = Spy()
    (store, _), _ = _open(spy, [_SECRET.encode()] * 2)
    store.set("a", 1)
    assert _SECRET.encode() not in spy.seen and store.key not in spy.seen


def test_greetings_of_strangers_are_refused() -> None:
    with pytest.raises(penstock.Error, match="process 1 has another secret than this process"):
        _open(dist.HashStore(), [_SECRET.encode(), b"another secret of tests"])
    for greeting in [b"", b"x" * 100, wire.dumps(["00" * 16, "network"])]:
        shared = dist.HashStore()
        shared.set("greeting/1", greeting)
        with pytest.raises(penstock.Error, match="process 1 has another secret"):
            open_store(shared, _SECRET.encode(), 0, 2)


# Prints where the process listens, and joins the run.
_SCRIPT = r"""
import os, re, glob
from penstock.torch.processes import processes
from penstock.torch.engine import engine

def listeners():
    inodes = {m[1] for each in glob.glob("/proc/self/fd/*")
              if os.path.lexists(each) and (m := re.match(r"socket:.(\d+)", os.readlink(each)))}
    lines = [line.split() for table in ("tcp", "tcp6") for line in open(f"/proc/self/net/{table}")]
    return sorted(l[1].split(":")[0] for l in lines if l[3] == "0A" and l[9] in inodes)

listen = engine.listen
def observed(at):
    listener = listen(at)
    print("listens", *listeners(), flush=True)
    return listener
processes.engine.listen = observed
print("connected", processes.join().processes)
"""


def test_processes_of_one_machine_listen_only_there() -> None:
    (_, first, _), (_, second, _) = run_all(_SCRIPT)
    loopback = "0100007F"
    assert first.splitlines() == [f"listens {loopback} {loopback}", "connected 2"]
    assert second.splitlines() == [f"listens {loopback}", "connected 2"]


def test_a_process_with_another_secret_is_refused_with_one_line() -> None:
    script = "import os; os.environ['PENSTOCK_SECRET'] = 'secret of process ' + os.environ['RANK']"
    for rank, (code, _, errors) in enumerate(run_all(script + _SCRIPT)):
        assert code == 1
        expected = f"Error: process {1 - rank} has another secret than this process"
        assert expected in errors.strip().splitlines()[-1] or "no process has published" in errors


def test_a_port_that_is_taken_is_named() -> None:
    environment = world(2)[0]
    port = environment["MASTER_PORT"]
    with socket.create_server(("127.0.0.1", int(port))), Fork(_SCRIPT, **environment) as first:
        code, _, errors = first.ended()
    assert code == 1
    assert f"cannot listen at 127.0.0.1:{port}: Address already in use" in errors.splitlines()[-1]
