"""One intra-op thread, a seed, and a time limit for each test: a hung pipeline must not hang CI.

With PENSTOCK_TESTED_DEVICE=test_device, tensors are on the device of tests/engine/device, and no access
may be without order.
"""

import faulthandler
import os
from collections.abc import Iterator

import pytest
import torch

_LIMIT_S = 240
_DEVICE = os.environ.get("PENSTOCK_TESTED_DEVICE")
# Parts of the names of tests that are about the CPU or start processes there, or need what the test
# device lacks: kernels of complex, sparse and recurrent modules, and histograms of integers.
_NOT_THERE = (
    "LSTM",
    "GRU",
    "EmbeddingBag",
    "sparse",
    "eigenvalues",
    "complex",
    "polar",
    "mixture of experts",
    "Mixtral",
    "numpy",
    "test_checkpoints_outside_of_pipelines",
    "test_equal_costs_balance",
    "test_in_place_changes_of_inputs",
    "test_a_learning_rate_in_a_tensor",
    "test_a_batch_that_fails_before_any_update",
    "test_a_failing_stage_is_named",
    "processes",
    "test_gradients_are_exact_with_several_threads",
)

if _DEVICE:
    from on_test_device import races, take_report

    # No module moves to the device, as is needed for.
    torch.__future__.set_swap_module_params_on_conversion(False)


@pytest.fixture(autouse=True)
def limits(request: pytest.FixtureRequest) -> Iterator[None]:
    if _DEVICE and any(part in request.node.nodeid for part in _NOT_THERE):
        pytest.skip("not on the test device")
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
