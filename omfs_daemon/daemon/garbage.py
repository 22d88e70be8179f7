"""How often Python looks for garbage."""

from __future__ import annotations

import gc

_OBJECTS, _YOUNG, _ALL = 50_000, 10, 100


def collect_garbage_seldom() -> None:
    """For a process with the objects of 100,000 jobs, of which each poll renews some.

    A search of all of them for cycles of references takes about a second, would come in the middle of a poll, and finds
    next to nothing: what a poll replaces is freed by its count of references.
    """
    gc.set_threshold(_OBJECTS, _YOUNG, _ALL)
