"""Each test has a folder for its Trainers, and a time limit: a hung pipeline must not hang CI."""

from __future__ import annotations

import faulthandler
import pathlib
from collections.abc import Iterator

import pytest
from trainers import Runs

_LIMIT_S = 240


@pytest.fixture(autouse=True)
def limits() -> Iterator[None]:
    faulthandler.dump_traceback_later(_LIMIT_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def runs(tmp_path: pathlib.Path) -> Runs:
    return Runs(tmp_path)
