"""Signals to the batch shell: noted when they come, acted on by the main loop."""

import fcntl
import os
import select
import signal
import time
from types import FrameType
from typing import List, Optional

ASK = signal.SIGUSR1  # the request for a checkpoint
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
    """What has come and has not been acted on. ``asked``: when the request came (time.monotonic), or None."""

    def __init__(self) -> None:
        self.asked: Optional[float] = None
        self._others: List[int] = []
        self._read = -1

    def install(self) -> None:
        """Catch all of them from now on; the default action of most would end the job."""
        self._read, write = os.pipe()
        for end in (self._read, write):
            fcntl.fcntl(end, fcntl.F_SETFL, fcntl.fcntl(end, fcntl.F_GETFL) | os.O_NONBLOCK)
        signal.set_wakeup_fd(write)
        for number in (ASK, signal.SIGCHLD, *FORWARDED):
            signal.signal(number, self.note)

    def close(self) -> None:
        """Ignore all of them from now on: at its end Python brings the default actions back, which would kill us."""
        for number in (ASK, *FORWARDED):
            signal.signal(number, signal.SIG_IGN)

    def note(self, number: int, frame: Optional[FrameType] = None) -> None:
        if number == ASK:
            if self.asked is None:
                self.asked = time.monotonic()
        elif number != signal.SIGCHLD:
            self._others.append(number)

    def wait(self, seconds: float) -> None:
        """Return when a signal has come (or had come since the last wait), or a child has ended, or time is up."""
        select.select([self._read], [], [], seconds)
        try:
            while os.read(self._read, 512):
                pass
        except BlockingIOError:
            pass

    def take(self) -> List[int]:
        """The signals to pass on, oldest first; each is given once."""
        others, self._others = self._others, []
        return others
