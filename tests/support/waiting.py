"""Waiting for conditions; every limit on waiting in the tests is this one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

LIMIT = 240.0
"""Seconds that anything may take on a busy machine. Only a failing test ever waits so long."""

_SHORTEST, _LONGEST = 0.02, 0.25
_T = TypeVar("_T")


def wait_until(condition: Callable[[], _T], what: str | Callable[[], str], limit: float = LIMIT) -> _T:
    """Wait until the condition holds and return what it gave; AssertionError after ``limit`` seconds, saying for what:
    a function tells it as it is then."""
    end = time.monotonic() + limit
    pause = _SHORTEST
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"waited {limit:g} s for {what if isinstance(what, str) else what()}"
        time.sleep(pause)
        pause = min(1.2 * pause, _LONGEST)
