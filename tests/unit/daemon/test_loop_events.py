"""What happened in Slurm counts until a poll has certainly shown it."""

from __future__ import annotations

import sys
from itertools import count
from threading import Thread
from types import FrameType
from typing import Any

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


@pytest.mark.parametrize("line", range(3))
def test_what_is_touched_while_a_poll_begins_is_for_that_one_or_for_the_next(events: LoopEvents, line: int) -> None:
    """Another thread touches before each line of its begin in turn."""
    toucher, lines, code = Thread(target=events.touch), count(), LoopEvents.begin_poll.__code__

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code is not code:
            return None
        if event == "line" and next(lines) == line:
            toucher.start()
            toucher.join(0.05)  # or it waits for the lock
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        events.begin_poll(PollKind.URGENT)
    finally:
        sys.settrace(before)
    toucher.join()
    assert (events.woken_at, events.is_touched) in [(100.0, False), (None, True)]
    assert events.wake.is_set()
