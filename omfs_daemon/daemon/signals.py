"""What systemd and operators tell omfsd by signals."""

from __future__ import annotations

import signal
from collections.abc import Callable
from threading import Event
from types import FrameType


class Signals:
    """``ending``: SIGTERM or SIGINT came. ``reloading``: SIGHUP came; whoever reloads clears it. ``wake`` is called on
    each, for a loop that rests."""

    def __init__(self) -> None:
        self.ending = Event()
        self.reloading = Event()
        self.wake: Callable[[], None] = lambda: None

    def catch(self) -> None:
        """From now on; in the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._sets(self.ending))
        signal.signal(signal.SIGHUP, self._sets(self.reloading))

    def _sets(self, event: Event) -> Callable[[int, FrameType | None], None]:
        def caught(_number: int, _frame: FrameType | None) -> None:
            event.set()
            self.wake()

        return caught
