"""Which connections to the control socket are open, so that no number of users keeps the others out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from socket import SHUT_RDWR, socket
from threading import Lock
from typing import NamedTuple

CONNECTIONS_PER_USER = 8
MOST_CONNECTIONS = 64
"""Of all users but root: one person may have many user ids (subuid(5)). One more ends the oldest that has sent no
request, or does not read its answer."""


class _Open(NamedTuple):
    uid: int
    is_answered: bool


class Connections:
    """Those that are open, in the order in which they came."""

    def __init__(self, per_user: int = CONNECTIONS_PER_USER, of_users: int = MOST_CONNECTIONS) -> None:
        self._per_user = per_user
        self._of_users = of_users
        self._open: dict[socket, _Open] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        with self._lock:
            return len(self._open)

    def take(self, connection: socket, uid: int) -> bool:
        """Whether one more of this user may stay, in the place of another one if need be."""
        with self._lock:
            if sum(each.uid == uid for each in self._open.values()) >= self._per_user:
                return False
            if uid != 0 and sum(each.uid != 0 for each in self._open.values()) >= self._of_users:
                oldest = next((one for one, each in self._open.items() if each.uid and not each.is_answered), None)
                if oldest is None:
                    return False
                del self._open[oldest]
                with suppress(OSError):  # it may have ended by itself
                    oldest.shutdown(SHUT_RDWR)  # its thread wakes up, and closes it
            self._open[connection] = _Open(uid, is_answered=False)
            return True

    def answer(self, connection: socket, make: Callable[[], bytes]) -> bytes | None:
        """The answer to a whole request, during which the connection keeps its place; None if it has lost that."""
        with self._lock:
            if connection not in self._open:
                return None
            uid = self._open[connection].uid
            self._open[connection] = _Open(uid, is_answered=True)
        try:
            return make()
        finally:
            with self._lock:
                self._open[connection] = _Open(uid, is_answered=False)

    def give(self, connection: socket) -> None:
        with self._lock:
            self._open.pop(connection, None)
