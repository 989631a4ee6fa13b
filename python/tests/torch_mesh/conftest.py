"""A time limit for each test: hung processes must not hang CI."""

import faulthandler
from collections.abc import Iterator

import pytest

_LIMIT_S = 240


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    faulthandler.dump_traceback_later(_LIMIT_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
