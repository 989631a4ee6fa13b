"""Timelines: arrays, explanations, reports, measured runs."""

from __future__ import annotations

import copy
import functools
import inspect
import pathlib
import pickle
import threading

import numpy as np
import pytest

import penstock

SCHEDULE = penstock.schedule("1f1b", ranks=2, microbatches=3)
RUN = SCHEDULE.simulate(penstock.Costs.uniform(1, 1, 2, comm=0.5))


def test_times_are_arrays() -> None:
    times = RUN.times(1)
    assert times.shape == (6, 2) and times.dtype == np.float64
    assert times[0].tolist() == [1.5, 2.5]
    assert not times.flags.writeable
    run = SCHEDULE.simulate()
    kept = run.times(0)
    del run
    assert kept[0].tolist() == [0, 1]
    actions = RUN.actions(1)
    assert actions.dtype == penstock.TIMED_ACTION
    assert actions["end"].max() <= RUN.makespan
    assert actions["microbatch"].tolist() == SCHEDULE.lanes[1]["microbatch"].tolist()
    for rank in (-1, 2):
        with pytest.raises(IndexError):
            RUN.times(rank)


def test_figures() -> None:
    assert RUN.per_rank["busy"].tolist() == [12, 12]
    assert RUN.makespan == max(RUN.times(rank).max() for rank in (0, 1))
    assert RUN.message_count == 6 == len(RUN.messages)
    message = RUN.messages[0]
    assert (message["from_rank"], message["to_rank"], message["arrived"] - message["sent"]) == (0, 1, 0.5)
    curve = RUN.memory(0)
    assert curve[:, 1].max() == RUN.peak_memory == RUN.per_rank["peak_memory"][0]


def test_explanation() -> None:
    idle = sum(RUN.makespan - busy for busy in RUN.per_rank["busy"])
    assert sum(RUN.bubble_causes.values()) == pytest.approx(idle)
    bubbles = RUN.bubbles(1)
    assert penstock.BUBBLE_CAUSES[bubbles["cause"][0]] == "warm-up"
    assert (bubbles["start"][0], bubbles["end"][0]) == (0, 1)
    assert penstock.BUBBLE_CAUSES[bubbles["cause"][1]] == "communication"
    assert bubbles["waits_for_rank"][0] == 0
    path = RUN.critical_path
    rank, position = path[-1]
    assert RUN.times(rank)[position, 1] == RUN.makespan
    assert RUN.bubbles(0, memory_limit=1.0).dtype == penstock.BUBBLE
    with pytest.raises(penstock.Error, match="memory_limit"):
        RUN.bubbles(0, memory_limit=-1)


def test_later_edits_do_not_change_it() -> None:
    schedule = copy.copy(SCHEDULE)
    run = schedule.simulate()
    schedule.lanes[0] = []
    assert run.times(0).shape == (6, 2)
    assert run.schedule == SCHEDULE


@pytest.mark.parametrize("ending", ["html", "svg", "trace.json"])
def test_reports(ending: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / f"a.{ending}"
    RUN.report(path)
    alone = path.stat().st_size
    assert alone > 1000
    RUN.report(path, penstock.schedule("gpipe", ranks=2, microbatches=3).simulate())
    assert path.stat().st_size > alone
    SCHEDULE.report(str(path))


def test_reports_that_are_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(penstock.Error, match=".html"):
        RUN.report(tmp_path / "a.gif")
    with pytest.raises(penstock.Error):
        RUN.report(tmp_path / "no" / "a.svg")
    with pytest.raises(penstock.Error, match="width"):
        RUN.report(tmp_path / "a.svg", width=3)
    with pytest.raises(penstock.Error, match="no timeline"):
        penstock.compare({})


def test_display(capsys: pytest.CaptureFixture[str]) -> None:
    RUN.show(width=80, color=False)
    shown = capsys.readouterr().out
    assert shown.count("rank ") == 2 and max(map(len, shown.splitlines())) <= 80
    SCHEDULE.show()
    with pytest.raises(penstock.Error, match="width"):
        RUN.show(width=1)
    assert "<svg" in RUN._repr_html_() and "<svg" in SCHEDULE._repr_html_()
    assert "<td>zbv</td>" in penstock.schedules()._repr_html_()
    broken = copy.copy(SCHEDULE)
    broken.lanes[0] = ["0F0"]
    assert "not a valid schedule" in broken._repr_html_()
    large = penstock.schedule("1f1b", ranks=8, microbatches=2000).simulate()
    assert len(large._repr_html_()) < 2000


def test_comparison() -> None:
    compared = penstock.compare({"a": RUN, "b<": SCHEDULE.simulate()})
    assert [row["timeline"] for row in compared.rows] == ["a", "b<"]
    assert compared.rows[0]["makespan"] == RUN.makespan
    assert "b&lt;" in compared._repr_html_() and "makespan" in str(compared)
    assert "<svg" in compared.svg()
    assert list(penstock.compare([RUN, RUN, RUN]).timelines) == ["simulated", "simulated 2", "simulated 3"]


def test_measured_next_to_predicted(tmp_path: pathlib.Path) -> None:
    times = [RUN.times(rank) * 1.5 + 100 for rank in range(2)]
    measured = penstock.Timeline.from_times(SCHEDULE, times, time_unit="", costs=RUN.costs)
    assert measured.makespan == pytest.approx(1.5 * RUN.makespan)
    assert measured.times(0)[0, 0] == 0
    assert measured.bubble == pytest.approx(RUN.bubble)
    assert measured.peak_memory == RUN.peak_memory
    assert len(measured.messages) == 0
    assert sum(measured.bubble_causes.values()) > 0
    path = tmp_path / "a.html"
    penstock.compare({"predicted": RUN, "measured": measured}).report(path)
    page = path.read_text()
    assert "predicted" in page and "measured" in page
    seconds = penstock.Timeline.from_times(SCHEDULE, times)
    assert seconds.time_unit == "s"
    with pytest.raises(penstock.Error, match="no costs"):
        seconds.memory(0)
    with pytest.raises(penstock.Error, match="in seconds"):
        RUN.report(path, seconds)


@pytest.mark.parametrize(
    "times",
    [
        [],
        [np.zeros((6, 2))],
        [np.zeros((5, 2))] * 2,
        [np.zeros((6, 3))] * 2,
        [np.zeros(6)] * 2,
        [np.full((6, 2), np.nan)] * 2,
        [np.full((6, 2), [2.0, 1.0])] * 2,
        [np.full((6, 2), [0, np.inf])] * 2,
        [[["a", "b"]] * 6] * 2,
        [[]] * 2,
    ],
)
def test_times_that_do_not_fit(times: list[object]) -> None:
    with pytest.raises(penstock.Error):
        penstock.Timeline.from_times(SCHEDULE, times)  # type: ignore[arg-type]


def test_pickle_copy_and_equality() -> None:
    assert pickle.loads(pickle.dumps(RUN)) == RUN == copy.deepcopy(RUN)
    assert SCHEDULE.simulate() != RUN
    times = [RUN.times(0), RUN.times(1)]
    measured = penstock.Timeline.from_times(SCHEDULE, times, costs=RUN.costs)
    for line in (RUN, measured, penstock.Timeline.from_times(SCHEDULE, times, time_unit="")):
        restored = pickle.loads(pickle.dumps(line))
        assert restored == line
        for name, member in inspect.getmembers(type(line)):
            if name[0] != "_" and isinstance(member, (property, functools.cached_property)):
                np.testing.assert_equal(getattr(restored, name), getattr(line, name), name)
    assert np.array_equal(pickle.loads(pickle.dumps(measured)).memory(0), measured.memory(0))
    assert measured.peak_memory > 0


def test_threads_share_one_schedule() -> None:
    schedule = penstock.schedule("zbv", ranks=8, microbatches=200)
    expected = schedule.simulate().makespan
    shared = schedule.simulate()
    found: list[float] = []

    def work() -> None:
        for _ in range(5):
            found.append(schedule.simulate().makespan)
            found.append(max(float(shared.times(rank).max()) for rank in range(8)))
            assert shared.messages is not None

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 40
