"""Runs each test on the test device, and checks that no access was without order."""

import faulthandler
from collections.abc import Iterator

import pytest
import torch
from on_test_device import races, take_report

_LIMIT_S = 240


@pytest.fixture(autouse=True)
def limits() -> Iterator[None]:
    """One intra-op thread, a seed, a time limit for each test; and no access without order."""
    faulthandler.dump_traceback_later(_LIMIT_S, exit=True)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.backends.cuda.enable_flash_sdp(False)  # the CPU's flag, too; the device has no such op
    take_report()
    yield
    assert races() == []
    faulthandler.cancel_dump_traceback_later()
