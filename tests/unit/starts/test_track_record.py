"""p90 by how late starts have come."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np
import pytest

from omfs_daemon.predict.start_times import StartQuantiles
from omfs_daemon.starts.track_record import (
    ENOUGH,
    LATEST,
    NOTED_EVERY,
    NotedStart,
    TrackRecord,
    lateness,
    widened,
)


def noted(expected: float, came: float, moments: int = 1, job: int = 1) -> NotedStart:
    return NotedStart(job, 0.0, expected, expected, moments, 0.0, came)


def record(noted: Sequence[NotedStart] = ()) -> TrackRecord:
    return TrackRecord(np.random.default_rng(1), noted)


def quantiles(p50: float, p90: float | None = None) -> StartQuantiles:
    return StartQuantiles(p50, p50, p50 if p90 is None else p90)


def test_nothing_is_concluded_from_few_starts_or_from_early_ones() -> None:
    late = [noted(100.0, 10_000.0)] * (ENOUGH - 1)
    assert lateness(late) == lateness([]) == 1.0
    assert lateness([*late, late[0]]) > 1.0
    assert lateness([noted(10_000.0, 10.0)] * 200) == 1.0
    start = StartQuantiles(10.0, 20.0, 30.0)
    assert widened(start, 1.0) == start


def test_a_start_counts_for_all_moments_of_its_job() -> None:
    early, late = [noted(100.0, 100.0)] * 90, [noted(100.0, 1540.0)] * 5
    assert lateness([*early, *late]) == 1.0, "one start in nineteen"
    assert lateness([*early, *(one._replace(moments=10) for one in late)]) == 10.0, "but every third moment"


def test_nine_in_ten_starts_come_before_p90_however_wrong_the_draws_are() -> None:
    random = np.random.default_rng(1)
    expected = random.lognormal(8, 1, 2000)
    came = expected * random.lognormal(0.5, 1.5, 2000)
    waits = [noted(*pair) for pair in zip(expected.tolist(), came.tolist(), strict=True)]
    held = [
        wait.wait <= widened(quantiles(wait.p50), lateness(waits[at - 200 : at])).p90
        for at, wait in enumerate(waits)
        if at >= 200
    ]
    assert np.mean(held) == pytest.approx(0.9, abs=0.02)


def test_a_start_that_is_never_stays_so() -> None:
    assert widened(quantiles(inf), 3.0) == quantiles(inf)
    assert widened(quantiles(0.0), 2.0).p90 == 60.0


def test_a_start_is_noted_when_a_job_is_seen_and_after_each_hour_of_waiting() -> None:
    found = record()
    assert found.is_due(7, 1000.0)
    found.note(7, 1000.0, quantiles(50.0))
    assert not found.is_due(7, 1000.0 + NOTED_EVERY - 1)
    assert found.is_due(7, 1000.0 + NOTED_EVERY)
    assert found.is_due(7, 0.0), "the clock was set back"
    assert found.is_due(8, 1000.0)


def test_each_moment_of_a_job_is_as_likely_to_be_kept() -> None:
    found, moments = record(), 4
    for job in range(2000):
        kept = [found.note(job, hour * NOTED_EVERY, quantiles(float(hour))) for hour in range(moments)][-1]
        assert (kept.moments, kept.last) == (moments, (moments - 1) * NOTED_EVERY)
    started = [one for job in range(2000) if (one := found.began(job, 1e6)) is not None]
    counts = np.bincount([int(one.p50) for one in started])
    assert counts.sum() == 2000
    assert counts.min() > 400, "each about 500 times"


def test_a_start_counts_at_once_and_only_the_latest_do() -> None:
    found = record()
    for job in range(LATEST):
        found.note(job, 0.0, quantiles(40.0, 1000.0))
        assert found.began(job, 1040.0) is not None
        assert found.late == (11.0 if job + 1 >= ENOUGH else 1.0)
    assert found.held() == (0.0, LATEST)
    for job in range(LATEST):
        found.note(job, 0.0, quantiles(40.0, 1000.0))
        found.began(job, 900.0)
    assert found.late == 9.6
    assert found.held() == (1.0, LATEST)


def test_what_tells_nothing_of_starts() -> None:
    found = record()
    assert found.began(1, 5.0) is None
    found.note(1, 0.0, quantiles(inf))
    assert not found.is_due(1, 5.0)
    assert found.began(1, 5.0) is None, "nothing was foreseen"
    found.note(2, 0.0, quantiles(5.0))
    found.note(3, 0.0, quantiles(5.0))
    assert found.keep_only({3}) == [2]
    assert found.began(2, 9.0) is None
    assert found.held() == (None, 0)


def test_a_record_goes_on_where_it_was() -> None:
    known = [noted(40.0, 1040.0 + job, job=job) for job in range(ENOUGH)]
    found = record([NotedStart(99, 0.0, 40.0, 60.0, 3, 7200.0), *reversed(known)])
    assert found.late == lateness(known)
    assert not found.is_due(99, 7300.0)
    assert found.began(99, 9000.0) is not None
    assert found.held() == (0.0, ENOUGH + 1)
