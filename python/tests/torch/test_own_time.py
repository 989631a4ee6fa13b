"""Limits count only the time in which this process ran."""

import time

import pytest

from penstock.torch.processes.own_time import OwnTimeLimit


def _looks(limit: OwnTimeLimit, clock: list[float], every: float) -> int:
    looks = 0
    while not limit.is_over():
        clock[0] += every
        looks += 1
    return looks


@pytest.mark.parametrize("seconds", [0.1, 2.0, 300.0])
def test_a_stop_counts_as_one_look(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    every = min(seconds / 100, 0.5)  # often enough that all of the time counts
    looks = seconds / every
    assert abs(_looks(OwnTimeLimit(seconds), clock, every) - looks) <= 1
    stopped = OwnTimeLimit(seconds)
    clock[0] += 1000 * seconds
    assert not stopped.is_over()
    assert 0.7 * looks <= _looks(stopped, clock, every) <= looks + 1
