"""Pauses by the system clock, which may be set."""

from __future__ import annotations

from math import inf


class Rest:
    """A pause between two questions. A clock that is set back ends it instead of prolonging it."""

    def __init__(self) -> None:
        self._began, self._seconds = -inf, 0.0

    def begin(self, now: float, seconds: float) -> None:
        self._began, self._seconds = now, seconds

    def is_over(self, now: float) -> bool:
        return not 0 <= now - self._began < self._seconds
