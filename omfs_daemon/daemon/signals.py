"""What systemd and operators tell omfsd by signals."""

from __future__ import annotations

import signal
from collections.abc import Callable
from queue import SimpleQueue
from threading import Event, Thread
from types import FrameType


class Signals:
    """``ending``: SIGTERM or SIGINT came. ``reloading``: SIGHUP came; whoever reloads clears it. ``wake`` is called
    after each, for a loop that rests."""

    def __init__(self) -> None:
        self.ending = Event()
        self.reloading = Event()
        self.wake: Callable[[], None] = lambda: None
        self._caught: SimpleQueue[Event] = SimpleQueue()

    def catch(self) -> None:
        """From now on; once, in the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._notes(self.ending))
        signal.signal(signal.SIGHUP, self._notes(self.reloading))
        Thread(target=self._serve, name="signals", daemon=True).start()

    def _notes(self, event: Event) -> Callable[[int, FrameType | None], None]:
        """A handler. It must not set the event itself: whoever it interrupts may hold the event's lock."""
        return lambda _number, _frame: self._caught.put(event)

    def _serve(self) -> None:
        while True:
            self._caught.get().set()
            self.wake()
