"""How a benchmark ends when it is told to end early."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def exits_on_sigterm() -> Iterator[None]:
    """SIGTERM becomes SystemExit, so that no cluster, program, or file is left behind."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
