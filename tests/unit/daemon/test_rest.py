"""A pause is over after its time, and when the clock is set back."""

from __future__ import annotations

import pytest

from omfs_daemon.daemon.rest import Rest


@pytest.mark.parametrize(
    ("now", "is_over"),
    [(1000.0, False), (1059.9, False), (1060.0, True), (4600.0, True), (999.9, True), (-2600.0, True)],
)
def test_a_rest_is_over_after_its_time_or_when_the_clock_is_set_back(now: float, is_over: bool) -> None:
    rest = Rest()
    rest.begin(1000.0, 60.0)
    assert rest.is_over(now) is is_over


def test_without_one_there_is_nothing_to_wait_for() -> None:
    assert Rest().is_over(0.0)
