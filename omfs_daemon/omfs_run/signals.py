"""Signals to the batch shell: recorded when they arrive, handled by the main loop."""

import fcntl
import os
import select
import signal
import time
from types import FrameType
from typing import List, Optional

CHECKPOINT = signal.SIGUSR1  # requests a checkpoint
FORWARDED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGXCPU,
)


class Inbox:
    """Signals not handled yet. ``requested``: when a checkpoint was requested (time.monotonic), or None."""

    def __init__(self) -> None:
        self.requested: Optional[float] = None
        self._others: List[int] = []
        self._read = -1

    def install(self) -> None:
        """Catch all of them from now on: the default action of most would end the job."""
        self._read, write = os.pipe()
        for end in (self._read, write):
            fcntl.fcntl(end, fcntl.F_SETFL, fcntl.fcntl(end, fcntl.F_GETFL) | os.O_NONBLOCK)
        signal.set_wakeup_fd(write)
        for number in (CHECKPOINT, signal.SIGCHLD, *FORWARDED):
            signal.signal(number, self.record)

    def close(self) -> None:
        """Ignore all of them from now on: at exit Python restores the default actions, which would kill us."""
        for number in (CHECKPOINT, *FORWARDED):
            signal.signal(number, signal.SIG_IGN)

    def record(self, number: int, frame: Optional[FrameType] = None) -> None:
        if number == CHECKPOINT:
            if self.requested is None:
                self.requested = time.monotonic()
        elif number != signal.SIGCHLD:
            self._others.append(number)

    def wait(self, seconds: float) -> None:
        """Return when a signal has arrived since the last wait, a child has ended, or time is up."""
        select.select([self._read], [], [], seconds)
        try:
            while os.read(self._read, 512):
                pass
        except BlockingIOError:
            pass

    def take(self) -> List[int]:
        """The signals to pass on, oldest first; each is returned once."""
        others, self._others = self._others, []
        return others
