"""One intra-op thread, a seed, and a time limit for each test: a hung pipeline must not hang CI.

With PENSTOCK_TESTED_DEVICE=test_device, tensors are on the device of tests/device, and no access
may be without order.
"""

import faulthandler
import os
from collections.abc import Iterator

import pytest
import torch

_LIMIT_S = 240
_DEVICE = os.environ.get("PENSTOCK_TESTED_DEVICE")

if _DEVICE:
    from on_test_device import races, take_report

    # No module moves to the device, as is needed for.
    torch.__future__.set_swap_module_params_on_conversion(False)


@pytest.fixture(autouse=True)
def limits(request: pytest.FixtureRequest) -> Iterator[None]:
    if _DEVICE and request.node.get_closest_marker("cpu"):
        pytest.skip("is about the CPU, or needs ops that the test device lacks")
    faulthandler.dump_traceback_later(_LIMIT_S, exit=True)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if _DEVICE:
        torch.backends.cuda.enable_flash_sdp(False)  # the CPU's flag, too; it has no such op
        take_report()
        torch.set_default_device(_DEVICE)
    yield
    torch.set_default_device(None)
    assert not _DEVICE or races() == []
    faulthandler.cancel_dump_traceback_later()
