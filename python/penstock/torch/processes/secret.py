"""The secret that all processes of a run share, and nobody else knows."""

from __future__ import annotations

import contextlib
import os
import pathlib
import secrets
import stat

from penstock import Error

_LEAST, _MOST = 16, 4096  # bytes
_WANTED = f"at least {_LEAST} bytes that cannot be guessed, as `openssl rand -hex 32` prints them"


def read() -> bytes:
    """Returns the value of PENSTOCK_SECRET, else the content of the file PENSTOCK_SECRET_FILE.

    Without them, returns the content of ``penstock/secret`` in the user's configuration folder,
    which the first process of this user makes.

    Raises:
        Error: the secret is too short, others can read its file, or it cannot be read or made.
    """
    value = os.environ.get("PENSTOCK_SECRET")
    if value:
        return _checked(value.encode(), "PENSTOCK_SECRET")
    named = os.environ.get("PENSTOCK_SECRET_FILE")
    path = pathlib.Path(named) if named else _default_path()
    try:
        if not named and not path.exists():
            _make(path)
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # does not wait for a FIFO's writer
        try:
            _check_owner(os.fstat(file), path)
            return _checked(os.read(file, _MOST).strip(), str(path))
        finally:
            os.close(file)
    except OSError as error:
        raise Error(f"the secret of the processes cannot be read: {error}: set PENSTOCK_SECRET to {_WANTED}") from None


def _default_path() -> pathlib.Path:
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return pathlib.Path(folder) / "penstock" / "secret"


def _make(path: pathlib.Path) -> None:
    """Makes the file, unless another process does at the same time."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    own = path.with_name(f"secret.{secrets.token_hex(8)}")
    try:
        with open(os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32) + "\n")
        with contextlib.suppress(FileExistsError):
            os.link(own, path)  # other processes see the whole file or none
    finally:
        own.unlink(missing_ok=True)


def _check_owner(status: os.stat_result, path: pathlib.Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise Error(f"{path} is not a file: give a file with {_WANTED}")
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise Error(f"{path} holds the secret of the processes, but is not only yours: run chmod 600 {path}")


def _checked(secret: bytes, where: str) -> bytes:
    if len(secret) < _LEAST:
        raise Error(f"{where} has {len(secret)} bytes: give {_WANTED}")
    return secret
