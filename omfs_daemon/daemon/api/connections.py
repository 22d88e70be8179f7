"""Which connections are open, so that no number of users, or of hosts, keeps the others out."""

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
    who: int | str
    is_answered: bool


class Connections:
    """Those that are open, in the order in which they came. ``who``: a uid, or the address of a host, on which there
    are several users: one more of the same address ends its oldest, as above."""

    def __init__(self, per_user: int = CONNECTIONS_PER_USER, of_users: int = MOST_CONNECTIONS) -> None:
        self._per_user = per_user
        self._of_users = of_users
        self._open: dict[socket, _Open] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        with self._lock:
            return len(self._open)

    def take(self, connection: socket, who: int | str) -> bool:
        """Whether one more of this user or address may stay, in the place of another one if need be."""
        with self._lock:
            own = [one for one, each in self._open.items() if each.who == who]
            if len(own) >= self._per_user and (isinstance(who, int) or not self._end_oldest(own)):
                return False
            if who != 0:
                others = [one for one, each in self._open.items() if each.who != 0]
                if len(others) >= self._of_users and not self._end_oldest(others):
                    return False
            self._open[connection] = _Open(who, is_answered=False)
            return True

    def _end_oldest(self, connections: list[socket]) -> bool:
        """Of these one that makes room, if there is one."""
        oldest = next((one for one in connections if not self._open[one].is_answered), None)
        if oldest is None:
            return False
        del self._open[oldest]
        with suppress(OSError):  # it may have ended by itself
            oldest.shutdown(SHUT_RDWR)  # its thread wakes up, and closes it
        return True

    def answer(self, connection: socket, make: Callable[[], bytes]) -> bytes | None:
        """The answer to a whole request, during which the connection keeps its place; None if it has lost that."""
        with self._lock:
            if connection not in self._open:
                return None
            who = self._open[connection].who
            self._open[connection] = _Open(who, is_answered=True)
        try:
            return make()
        finally:
            with self._lock:
                self._open[connection] = _Open(who, is_answered=False)

    def give(self, connection: socket) -> None:
        with self._lock:
            self._open.pop(connection, None)
