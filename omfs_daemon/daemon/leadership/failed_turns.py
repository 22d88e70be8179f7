"""Takeovers that came to nothing. Each has used an epoch, of which there are as many as a name has room for."""

from __future__ import annotations

from collections.abc import Callable

from omfs_daemon.daemon.leadership.leadership import since_boot

FIRST_WAIT, LONGEST_WAIT = 2.0, 60.0


class FailedTurns:
    """In a row. After each, the next takeover waits twice as long."""

    def __init__(self, clock: Callable[[], float] = since_boot) -> None:
        self._clock = clock
        self._why = ""
        self._wait = 0.0
        self._failed_at = 0.0

    def add(self, why: str) -> None:
        self._why, self._failed_at = why, self._clock()
        self._wait = min(max(2 * self._wait, FIRST_WAIT), LONGEST_WAIT)

    def clear(self) -> None:
        """One has begun."""
        self._wait = 0.0

    @property
    def why_not_yet(self) -> str:
        """Why none is to be tried now, "" if it may be."""
        if self._clock() - self._failed_at >= self._wait:
            return ""
        return f"a takeover failed: {self._why}; the next one is tried {self._wait:g} s later"
