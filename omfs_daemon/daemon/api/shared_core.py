"""The part of a core that estimates for jobs that are not there may take, however many users ask."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from math import ceil, inf
from threading import Lock

from omfs_daemon.errors import ControlError

SHARE_OF_CORE = 0.2
"""All requests together may take this part of a core; the others wait for their turn."""
_LONGEST_WAIT = 20.0
"""Seconds from the beginning of a request to its last turn: a client gives up after 30."""

Turn = Callable[[], AbstractContextManager[None]]
"""What is done in it is done by one request at a time."""


class SharedCore:
    """Lets one request through at a time, and then makes the next wait in proportion to the time that it took. One
    request of each user is answered at a time: else one of them would keep all others from their turn."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep):
        self._monotonic, self._sleep = monotonic, sleep
        self._lock = Lock()
        self._next = -inf
        self._users_lock = Lock()
        self._users: set[int] = set()

    @contextmanager
    def request(self, uid: int) -> Iterator[Turn]:
        """Of a user; ControlError if there is one already, and from a turn that does not come soon."""
        with self._users_lock:
            if uid in self._users:
                raise ControlError("another such request of yours is not answered yet: try again when it is")
            self._users.add(uid)
        try:
            yield partial(self._turn, self._monotonic() + _LONGEST_WAIT)
        finally:
            with self._users_lock:
                self._users.remove(uid)

    @contextmanager
    def _turn(self, deadline: float) -> Iterator[None]:
        if not self._lock.acquire(timeout=max(0.0, deadline - self._monotonic())):
            raise ControlError("too many such requests at once: try again")
        try:
            now = self._monotonic()
            if self._next > deadline:
                raise ControlError(f"too many such requests at once: try again in {ceil(self._next - now)} s")
            self._sleep(max(0.0, self._next - now))
            began = self._monotonic()
            try:
                yield
            finally:
                ended = self._monotonic()
                self._next = ended + (ended - began) * (1 / SHARE_OF_CORE - 1)
        finally:
            self._lock.release()
