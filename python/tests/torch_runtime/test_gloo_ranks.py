"""The helper of these tests: a rank that hangs or fails is reported, and no process is left."""

from __future__ import annotations

import multiprocessing

import pytest
import torch
import torch.distributed as dist
from gloo_ranks import run_ranks


def wait_for_rank_1(rank: int) -> None:
    if rank == 0:
        dist.recv(torch.zeros(1), src=1)


def fail_on_rank_1(rank: int) -> None:
    assert rank == 0, "rank 1 has failed"
    dist.recv(torch.zeros(1), src=1)


def test_kills_ranks_that_hang() -> None:
    with pytest.raises(AssertionError, match="rank 0 hangs"):
        run_ranks(2, wait_for_rank_1, seconds=1)
    assert not multiprocessing.active_children()


def test_reports_ranks_that_fail() -> None:
    with pytest.raises(AssertionError, match="rank 1 has failed"):
        run_ranks(2, fail_on_rank_1)
    assert not multiprocessing.active_children()
