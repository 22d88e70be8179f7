"""p90 by how late starts have come."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from omfs_daemon.predict.start_times import StartQuantiles
from omfs_daemon.starts.track_record import ENOUGH, ForeseenWait, lateness, widened


def test_nothing_is_concluded_from_few_starts_or_from_early_ones() -> None:
    late = [ForeseenWait(100.0, 10_000.0)] * (ENOUGH - 1)
    assert lateness(late) == lateness([]) == 1.0
    assert lateness([*late, late[0]]) > 1.0
    assert lateness([ForeseenWait(10_000.0, 10.0)] * 200) == 1.0
    start = StartQuantiles(10.0, 20.0, 30.0)
    assert widened(start, 1.0) == start


def test_nine_in_ten_starts_come_before_p90_however_wrong_the_draws_are() -> None:
    random = np.random.default_rng(1)
    expected = random.lognormal(8, 1, 2000)
    came = expected * random.lognormal(0.5, 1.5, 2000)
    waits = [ForeseenWait(*pair) for pair in zip(expected.tolist(), came.tolist(), strict=True)]
    held = [
        wait.came <= widened(StartQuantiles(0.0, wait.expected, wait.expected), lateness(waits[at - 200 : at])).p90
        for at, wait in enumerate(waits)
        if at >= 200
    ]
    assert np.mean(held) == pytest.approx(0.9, abs=0.02)


def test_a_start_that_is_never_stays_so() -> None:
    assert widened(StartQuantiles(inf, inf, inf), 3.0) == StartQuantiles(inf, inf, inf)
    assert widened(StartQuantiles(0.0, 0.0, 0.0), 2.0).p90 == 60.0
