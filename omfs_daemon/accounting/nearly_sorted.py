"""Where in a large file of records, nearly sorted by time, those of a period begin."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

SMALLEST = 1 << 20
"""Bytes: less is read from there on instead of looked for more closely."""


def first_byte(path: Path, since: float, slack: float, time_of: Callable[[str], float | None]) -> int:
    """The begin of a line such that all lines before it are of times before ``since``, by bisection.

    time_of  seconds since the epoch of a line; None: none, then one of the lines after it is asked
    slack    seconds by which lines may be out of order

    0 for a file that cannot be entered in its middle, as a pipe.
    """
    if not path.is_file():
        return 0
    low, high = 0, path.stat().st_size
    with path.open("rb") as file:
        while high - low > SMALLEST:
            middle = (low + high) // 2
            file.seek(middle)
            file.readline()
            begin = found = file.tell()
            time = None
            while time is None and found < high:
                time = time_of(file.readline(SMALLEST).decode(errors="replace"))
                found = file.tell()
            if time is not None and time < since - slack:
                low = begin
            else:
                high = middle
        return low
