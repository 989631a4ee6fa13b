"""One intra-op thread, a seed, and a time limit for each test: a hung pipeline must not hang CI."""

import faulthandler
from collections.abc import Iterator

import pytest
import torch

_LIMIT_S = 240


@pytest.fixture(autouse=True)
def limits() -> Iterator[None]:
    faulthandler.dump_traceback_later(_LIMIT_S, exit=True)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    faulthandler.cancel_dump_traceback_later()
