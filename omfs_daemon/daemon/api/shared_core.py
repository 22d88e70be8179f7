"""The part of a core that users' requests may take, however many ask."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from math import ceil, inf
from threading import Lock

from omfs_daemon.errors import ControlError

SHARE_OF_CORE = 0.2
"""All requests for jobs that are not there may together take this part of a core; the others wait for their turn."""
SHARE_OF_VIEWS = 0.3
"""All other requests of users together: a cycle that is decided meanwhile takes at most half as long again."""
_LONGEST_PAUSE = 2.0
"""Seconds after a view that took long: estimates of starts do, once in several seconds, and are kept for the others."""
_LONGEST_WAIT = 20.0
"""Seconds from the beginning of a request to its last turn: a client gives up after 30."""

Turn = Callable[[], AbstractContextManager[None]]
"""What is done in it is done by one request at a time."""


class SharedCore:
    """Lets one request through at a time, and then makes the next wait in proportion to the time that it took. One
    request of each user is answered at a time: else one of them would keep all others from their turn."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        share: float = SHARE_OF_CORE,
        longest_pause: float = inf,
    ) -> None:
        self._monotonic, self._sleep, self._share = monotonic, sleep, share
        self._longest_pause = longest_pause
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
            yield partial(self.turn, self._monotonic() + _LONGEST_WAIT)
        finally:
            with self._users_lock:
                self._users.remove(uid)

    @contextmanager
    def turn(self, deadline: float) -> Iterator[None]:
        """ControlError if it does not come until then."""
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
                self._next = ended + min((ended - began) * (1 / self._share - 1), self._longest_pause)
        finally:
            self._lock.release()


class UsersTurns:
    """Turns of short requests: those of one user wait for each other, and the first of each user for a turn."""

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._core = SharedCore(monotonic, sleep, SHARE_OF_VIEWS, _LONGEST_PAUSE)
        self._monotonic = monotonic
        self._lock = Lock()
        self._users: dict[int, tuple[Lock, int]] = {}

    @contextmanager
    def turn(self, uid: int) -> Iterator[None]:
        """ControlError if it does not come soon."""
        deadline = self._monotonic() + _LONGEST_WAIT
        with self._lock:
            own, waiting = self._users.get(uid, (Lock(), 0))
            self._users[uid] = own, waiting + 1
        try:
            if not own.acquire(timeout=_LONGEST_WAIT):
                raise ControlError("too many requests at once: try again")
            try:
                with self._core.turn(deadline):
                    yield
            finally:
                own.release()
        finally:
            with self._lock:
                own, waiting = self._users[uid]
                if waiting > 1:
                    self._users[uid] = own, waiting - 1
                else:
                    del self._users[uid]
