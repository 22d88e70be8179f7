"""A server to which anybody may connect: its connections are few, and none waits long for a request."""

from __future__ import annotations

import socket
import socketserver
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, Self

import structlog

from omfs_daemon.daemon.api.connections import Connections

REQUEST_SECONDS = 5.0
ANSWER_SECONDS = 30.0


class BoundedServer(ABC, socketserver.ThreadingMixIn):
    """A thread for each connection, for one request. ``bound`` comes before ``__init__`` of the server itself."""

    daemon_threads = True
    block_on_close = False

    def bound(self, connections: Connections, too_many: bytes, request_seconds: float) -> None:
        """``too_many``: what one too many is told."""
        self.connections = connections
        self.too_many = too_many
        self.request_seconds = request_seconds
        self.log = structlog.get_logger("control")

    @abstractmethod
    def identity(self, connection: socket.socket, address: Any) -> tuple[Any, int | str]:
        """Who has connected, for the handler (``client_address``), and for the bounds."""

    def process_request(self, request: Any, client_address: Any) -> None:
        """Refuse one too many before it costs a thread; what does not fit into its buffer is lost."""
        who, bounded = self.identity(request, client_address)
        if self.connections.take(request, bounded):
            super().process_request(request, who)
            return
        request.setblocking(False)
        with suppress(OSError):
            request.send(self.too_many)
        self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        self.connections.give(request)
        super().shutdown_request(request)  # type: ignore[misc]

    def handle_error(self, request: object, client_address: object) -> None:
        self.log.exception("control_connection_failed")


class Listener:
    """A server in a thread of its own, from ``start`` to ``close``."""

    def __init__(self, server: Any, name: str) -> None:
        self._server = server
        self._thread = Thread(target=server.serve_forever, args=(0.1,), name=name, daemon=True)

    @property
    def connections(self) -> int:
        """How many are open now."""
        return len(self._server.connections)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(timeout=2.0)
        self._server.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class OneRequest(ABC, socketserver.BaseRequestHandler):
    """One connection. A client that hangs up or is slow costs only its own thread, and not for long."""

    server: Any
    request: socket.socket
    longest: int

    def handle(self) -> None:
        with suppress(OSError):  # it hung up, was too slow, or had to make room
            line = read_line(self.request, time.monotonic() + self.server.request_seconds, self.longest)
            answer = self.answer(line)
            if answer is not None:
                self.request.settimeout(ANSWER_SECONDS)
                self.request.sendall(answer)

    @abstractmethod
    def answer(self, line: bytes | None) -> bytes | None:
        """To a request of at most ``longest`` bytes; None: to a longer one. None if it has lost its place."""

    def in_its_place(self, make: Callable[[], bytes]) -> bytes | None:
        """What ``make`` returns, during which no other connection takes the place of this one."""
        connections: Connections = self.server.connections
        return connections.answer(self.request, make)


def read_line(connection: socket.socket, deadline: float, longest: int) -> bytes | None:
    """The bytes up to the newline; None if there are too many. TimeoutError once the deadline has passed."""
    received = bytearray()
    while b"\n" not in received[-65536:]:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        part = connection.recv(65536)
        if not part:
            raise ConnectionError("the client hung up")
        received += part
        if len(received) > longest:
            return None
    return bytes(received[: received.index(b"\n")])
