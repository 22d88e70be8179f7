"""Hourly sums of idle CPU time, in the history."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.daemon.store.history_database import HistoryDatabase
from omfs_daemon.daemon.store.idle_hours import HOUR, WRITTEN_EVERY, IdleHour, IdleHours, IdleShare

SPANS = st.lists(st.tuples(st.floats(0.1, 3 * HOUR), st.integers(0, 50), st.integers(0, 50)), max_size=20)


@given(SPANS)
def test_sums_are_those_of_all_that_was_added(spans: list[tuple[float, int, int]]) -> None:
    written: list[IdleShare] = []
    hours = IdleHours(written.extend)
    now = 5 * HOUR - 7
    for seconds, first, second in [*spans, (WRITTEN_EVERY, 0, 0)]:
        hours.add(now, now + seconds, {"limited": first, "down": second})
        now += seconds
    for cause, place in (("limited", 1), ("down", 2)):
        rows = [row for row in written if row.cause == cause]
        assert sum(row.watched for row in rows) == pytest.approx(now - (5 * HOUR - 7))
        assert sum(row.cpu_seconds for row in rows) == pytest.approx(sum(span[0] * span[place] for span in spans))
        assert all(row.begin % HOUR == 0 for row in rows)


def test_a_time_is_divided_at_the_hour(tmp_path: Path) -> None:
    database = HistoryDatabase(tmp_path / "history.sqlite")
    IdleHours(database.add_idle).add(HOUR - 100, HOUR + 60, {"limited": 2, "dependent": 0})
    assert database.idle_hours(0) == [
        IdleHour(0, 100, {"dependent": 0, "limited": 200}),
        IdleHour(HOUR, 60, {"dependent": 0, "limited": 120}),
    ]
    database.close()


def test_little_is_written_until_a_minute_is_over() -> None:
    written: list[list[IdleShare]] = []
    hours = IdleHours(lambda shares: written.append(list(shares)))
    for second in range(0, 55, 5):
        hours.add(second, second + 5, {"limited": 1})
    assert written == []
    hours.add(55, 60, {"limited": 1})
    assert written == [[IdleShare(0, "limited", 60, 60)]]


def test_an_hour_goes_on_in_the_next_daemon_and_is_forgotten_in_time(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    for begin in (10.0, 100.0, HOUR):
        database = HistoryDatabase(path)
        IdleHours(database.add_idle).add(begin, begin + 60, {"limited": 3})
        database.close()
    database = HistoryDatabase(path)
    both = [IdleHour(0, 120, {"limited": 360}), IdleHour(HOUR, 60, {"limited": 180})]
    assert database.idle_hours(0) == both
    assert database.idle_hours(HOUR - 1) == both
    assert database.idle_hours(HOUR) == both[1:]
    database.forget_before(HOUR)
    assert database.idle_hours(0) == both[1:]
    database.close()
