"""What happened in Slurm counts until a poll has certainly shown it."""

from __future__ import annotations

import pytest

from omfs_daemon.daemon.loop_events import LoopEvents
from omfs_daemon.daemon.poll_schedule import LATER, PollKind
from omfs_daemon.daemon.signals import Signals


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def events(clock: Clock) -> LoopEvents:
    return LoopEvents(clock, clock, Signals())


def test_what_was_touched_long_before_a_full_poll_is_shown_by_it(events: LoopEvents, clock: Clock) -> None:
    events.touch_later()
    assert events.wake.is_set() and not events.is_touched
    clock.now += LATER
    events.begin_poll(PollKind.FULL)
    assert events.touched_later_at is None


def test_a_job_that_slurm_may_not_have_listed_yet_is_looked_for_once_more(events: LoopEvents, clock: Clock) -> None:
    events.touch_later()
    clock.now += 0.9 * LATER
    events.touch_later()
    assert events.touched_later_at == 100.0, "a burst does not put the poll off"
    clock.now += 0.2 * LATER
    events.begin_poll(PollKind.FULL)
    assert events.touched_later_at == 100.0 + 0.9 * LATER
    clock.now += LATER
    events.begin_poll(PollKind.FULL)
    assert events.touched_later_at is None


def test_an_urgent_poll_does_not_show_it(events: LoopEvents, clock: Clock) -> None:
    events.touch_later()
    events.touch()
    clock.now += LATER
    events.begin_poll(PollKind.URGENT)
    assert (events.touched_later_at, events.is_touched, events.woken_at) == (100.0, False, 100.0)
