"""What several tests share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


def wait_until(condition: Callable[[], _T], limit: float, what: str) -> _T:
    """Wait until the condition holds and return what it gave; AssertionError after ``limit`` seconds."""
    end = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"waited {limit:g} s for {what}"
        time.sleep(0.05)
