"""How long nobody is preempted for a job after attempts in vain."""

from __future__ import annotations

from omfs_daemon.preemption.back_off import URGENT_RETRY, URGENT_RETRY_MOST, retry_seconds


def test_urgent_jobs_never_wait_minutes_for_a_retry() -> None:
    waits = [retry_seconds(True, 300.0, times) for times in range(1, 100)]
    assert waits[0] == URGENT_RETRY and max(waits) == URGENT_RETRY_MOST < 300
    assert waits == sorted(waits)


def test_a_shorter_time_of_the_site_holds_for_urgent_jobs_too() -> None:
    assert retry_seconds(True, 2.0) == 2.0
    assert retry_seconds(True, 0.0, 9) == 0.0


def test_others_wait_as_configured_twice_as_long_each_time_up_to_a_bound() -> None:
    assert [retry_seconds(False, 300.0, times) for times in (1, 2, 3)] == [300.0, 600.0, 1200.0]
    assert retry_seconds(False, 300.0, 1000) == 300.0 * 64
