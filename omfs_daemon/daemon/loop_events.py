"""What other threads and signals tell the loop."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock

from omfs_daemon.daemon.poll_schedule import LATER, PollKind
from omfs_daemon.daemon.signals import Signals


class LoopEvents:
    """``wake`` is set whenever the loop is to look whether there is something to do.

    ``woken_at``: when that happened in Slurm, perhaps urgent, for which the latest poll was made; None if it was made
    for something else. ``touched_later_at``: since when something that is not urgent has happened that a full poll may
    not have shown. Times are of ``clock`` and of ``monotonic``.
    """

    def __init__(self, clock: Callable[[], float], monotonic: Callable[[], float], signals: Signals) -> None:
        self.wake = Event()
        self.signals = signals
        self.standing_down = Event()
        self.woken_at: float | None = None
        self._touched_at: float | None = None
        self.touched_later_at: float | None = None
        self._last_touched_later = float("-inf")
        self._lock = Lock()
        self._changed = Event()
        self._clock = clock
        self._monotonic = monotonic

    def touch(self) -> None:
        """Something happened in Slurm that may be urgent."""
        with self._lock:
            if self._touched_at is None:
                self._touched_at = self._clock()
        self.wake.set()

    def touch_later(self) -> None:
        """Something else happened there."""
        with self._lock:
            self._last_touched_later = self._monotonic()
            if self.touched_later_at is None:
                self.touched_later_at = self._last_touched_later
        self.wake.set()

    def change(self) -> None:
        """Something else is new: the next full poll comes as soon as the poll schedule allows."""
        self._changed.set()
        self.wake.set()

    def stand_down(self) -> None:
        """End the loop after the cycle under way: another daemon acts."""
        self.standing_down.set()
        self.wake.set()

    @property
    def is_over(self) -> bool:
        return self.signals.ending.is_set() or self.standing_down.is_set()

    @property
    def is_touched(self) -> bool:
        return self._touched_at is not None

    @property
    def is_changed(self) -> bool:
        return self._changed.is_set()

    @property
    def is_interrupted(self) -> bool:
        """Whether the loop is to end its rest before the next poll is due."""
        return self.is_over or self.signals.reloading.is_set()

    def begin_poll(self, poll: PollKind) -> None:
        """The poll that follows is for what has happened so far."""
        with self._lock:
            self.woken_at, self._touched_at = self._touched_at, None
        if poll is PollKind.FULL:
            self._changed.clear()
            self._serve_later()

    def _serve_later(self) -> None:
        """A job that was submitted just now may not be listed yet: it is looked for once more."""
        with self._lock:
            is_new = self._monotonic() - self._last_touched_later < LATER
            self.touched_later_at = self._last_touched_later if is_new else None
