"""Stages without a part of the backward, in Python."""

from __future__ import annotations

import pickle

import penstock
import pytest


def test_schedules_leave_out_what_stages_lack() -> None:
    made = penstock.schedule("1f1b", ranks=3, microbatches=4, frozen=[0], adapters=[2])
    assert (made.frozen, made.adapters) == ((0,), (2,))
    assert made.texts(0) == ["0F0", "0F1", "0F2", "0F3"]
    assert "2I0" in made.texts(2) and "2W0" not in made.texts(2)
    assert made == penstock.schedule("1f1b", ranks=3, microbatches=4).without_backward(frozen=[0], adapters=[2])
    assert made.simulate().makespan <= penstock.schedule("1f1b", ranks=3, microbatches=4).simulate().makespan


def test_they_are_kept_by_texts_and_pickles() -> None:
    made = penstock.schedule("zb-h1", ranks=3, microbatches=3, frozen="0-1")
    read = penstock.Schedule.from_csv(made.to_csv())
    assert (read.frozen, read.texts(2)) == ((0, 1), made.texts(2))
    assert pickle.loads(pickle.dumps(made)) == made


def test_lanes_that_lack_actions_are_faults_unless_they_are_declared() -> None:
    lanes = [["0F0"], ["1F0", "1B0"]]
    assert penstock.Schedule([0, 1], lanes).validate()
    assert not penstock.Schedule([0, 1], lanes, frozen=[0]).validate()
    with pytest.raises(penstock.Error, match="stages 0 to 1"):
        penstock.Schedule([0, 1], lanes, frozen=[2])
