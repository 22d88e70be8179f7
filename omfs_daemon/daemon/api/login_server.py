"""Answers users on login nodes: over TCP, by credentials of MUNGE (:mod:`~omfs_daemon.daemon.api.login_messages`).

Whoever asks, also root or SlurmUser, is an ordinary user here: root of another host can be anybody there. So nothing
can be changed from there, and nobody sees jobs but their own.
"""

from __future__ import annotations

import socket
import socketserver
import time
from collections.abc import Callable
from math import inf
from threading import Lock
from typing import Any

import structlog

from omfs_daemon.config.login_place import HostPort
from omfs_daemon.daemon.api.bounded_server import REQUEST_SECONDS, BoundedServer, Listener, OneRequest
from omfs_daemon.daemon.api.callers import Caller, Role, user_name
from omfs_daemon.daemon.api.connections import MOST_CONNECTIONS, Connections
from omfs_daemon.daemon.api.login_messages import (
    CREDENTIAL,
    LONGEST_REQUEST,
    OF_FAULT,
    LoginRequest,
    Refusal,
    opened_request,
    sealed_answer,
)
from omfs_daemon.daemon.api.munge import LONGEST_PAYLOAD, Munge, MungeError, MungeFault
from omfs_daemon.daemon.api.requests import TOO_MANY, Requests, failure_line
from omfs_daemon.daemon.api.shared_core import SharedCore
from omfs_daemon.errors import ConfigError, ControlError

CONNECTIONS_PER_HOST = 32
CONNECTIONS_PER_USER = 4
"""Of requests that are known to be theirs."""
SHARE_OF_MUNGED = 0.1
"""Requests are opened one at a time, in this part of the time: Slurm needs the same munged."""
_LONGEST_PAUSE = 0.5
_OPEN_SECONDS = 5.0
_LOG_EVERY = 60.0
_TOO_LONG = "the answer is too long for a login node: ask for less, or on omfsd's own host"


class LoginServer(Listener):
    """Listens on an address from ``start`` to ``close``. ConfigError if it cannot be had."""

    def __init__(
        self,
        address: HostPort,
        requests: Requests,
        munge: Munge,
        request_seconds: float = REQUEST_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        try:
            server = _Server(address, requests, munge, request_seconds, monotonic)
        except (OSError, UnicodeError) as error:  # a name that cannot be one in DNS is a UnicodeError
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(f"daemon.login_address = {address}: cannot listen: {reason}") from error
        super().__init__(server, "login")

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])


class _Server(BoundedServer, socketserver.TCPServer):
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(
        self,
        address: HostPort,
        requests: Requests,
        munge: Munge,
        request_seconds: float,
        monotonic: Callable[[], float],
    ) -> None:
        self.requests = requests
        self.munge = munge
        self.users = Connections(CONNECTIONS_PER_USER, of_users=2 * MOST_CONNECTIONS)
        self.monotonic = monotonic
        self.opening = SharedCore(monotonic, share=SHARE_OF_MUNGED, longest_pause=_LONGEST_PAUSE)
        self.munged_log = _SeldomLine(monotonic)
        self.bound(Connections(CONNECTIONS_PER_HOST), Refusal.BUSY.line, request_seconds)
        flags = socket.AI_PASSIVE
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=flags)
        self.address_family, _, _, _, first = found[0]
        super().__init__((str(first[0]), int(first[1])), _Connection)

    def identity(self, connection: socket.socket, address: Any) -> tuple[None, str]:
        return None, str(address[0])

    def shutdown_request(self, request: Any) -> None:
        self.users.give(request)
        super().shutdown_request(request)

    def refusal(self, error: MungeError) -> bytes:
        if error.fault is MungeFault.MUNGED:
            self.munged_log.write(str(error))
        return OF_FAULT[error.fault].line


class _Connection(OneRequest):
    longest = LONGEST_REQUEST
    server: _Server

    def answer(self, line: bytes | None) -> bytes | None:
        if line is None:
            return Refusal.TOO_LONG.line
        if not CREDENTIAL.fullmatch(line):
            return Refusal.INVALID.line
        return self.in_its_place(lambda: self._answer_to(line))

    def _answer_to(self, credential: bytes) -> bytes:
        server = self.server
        try:
            with server.opening.turn(server.monotonic() + _OPEN_SECONDS):
                request = opened_request(server.munge, credential)
        except ControlError:
            return Refusal.BUSY.line
        except MungeError as error:
            return server.refusal(error)
        return self._sealed(request)

    def _sealed(self, request: LoginRequest) -> bytes:
        if self.server.users.take(self.request, request.peer.uid):
            answer = self.server.requests.answer(lambda: _caller(request), request.line)
        else:
            answer = failure_line(ControlError(TOO_MANY), "refused")
        if len(answer) > LONGEST_PAYLOAD:
            answer = failure_line(ControlError(_TOO_LONG), "refused")
        try:
            return sealed_answer(self.server.munge, request, answer)
        except MungeError as error:
            return self.server.refusal(error)


def _caller(request: LoginRequest) -> Caller:
    uid, gid = request.peer
    return Caller(uid, gid, user_name(uid), Role.USER, is_remote=True)


class _SeldomLine:
    """That munged does not answer, once in a minute: anybody can have it asked."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = Lock()
        self._next = -inf
        self._log = structlog.get_logger("control")

    def write(self, error: str) -> None:
        with self._lock:
            if self._monotonic() < self._next:
                return
            self._next = self._monotonic() + _LOG_EVERY
        self._log.warning("login_munge_failed", error=error, message="login nodes get no answer; all else goes on")
