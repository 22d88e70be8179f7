"""The control socket: one request, one answer (:mod:`~omfs_daemon.daemon.api.requests`), then the connection ends.

Anybody may connect.
"""

from __future__ import annotations

import socket
import socketserver
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omfs_daemon.daemon.api.bounded_server import REQUEST_SECONDS, BoundedServer, Listener, OneRequest
from omfs_daemon.daemon.api.callers import Caller, Peer, Role, peer_of, user_name
from omfs_daemon.daemon.api.connections import Connections
from omfs_daemon.daemon.api.operations import Control
from omfs_daemon.daemon.api.requests import TOO_MANY, Requests, failure_line
from omfs_daemon.errors import ConfigError, ControlError

LONGEST_REQUEST = 1 << 20


class ControlServer(Listener):
    """Listens on ``path`` from ``start`` to ``close``; each request is served by a thread of its own.

    ``may_operate`` decides by the peer's ids, which ``peer`` finds. A dead daemon's socket is replaced; ControlError
    if another daemon answers there or the directory is not writable.
    """

    def __init__(
        self,
        path: Path,
        handler: Control,
        may_operate: Callable[[Peer], bool],
        peer: Callable[[socket.socket], Peer] = peer_of,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        self._path = path
        _clear_stale(path)
        try:
            server = _Server(path, Requests(handler), may_operate, peer, request_seconds)
            path.chmod(0o666)  # anybody may connect: access is decided by uid, not by file permission
        except OSError as error:
            raise ControlError(f"{path}: cannot listen: {error.strerror or error}") from error
        self._inode = path.stat().st_ino
        super().__init__(server, "control")

    @property
    def requests(self) -> Requests:
        """What answers them, also those that come another way: all requests of one user wait for each other."""
        requests: Requests = self._server.requests
        return requests

    def close(self) -> None:
        """Stop listening and remove the socket, unless another daemon's is there by now."""
        super().close()
        if self._path.exists() and self._path.stat().st_ino == self._inode:
            self._path.unlink()


def _clear_stale(path: Path) -> None:
    """Remove the socket of a daemon that is gone."""
    if not path.is_socket():
        if path.exists():
            raise ControlError(f"{path}: exists and is not a socket")
        return
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise ControlError(f"{path}: cannot find out whether an omfsd listens there: {error}") from error
        else:
            raise ControlError(f"{path}: another omfsd listens there already")


class _Server(BoundedServer, socketserver.UnixStreamServer):
    request_queue_size = 1024  # a full queue refuses root, too

    def __init__(
        self,
        path: Path,
        requests: Requests,
        may_operate: Callable[[Peer], bool],
        peer: Callable[[socket.socket], Peer],
        request_seconds: float,
    ) -> None:
        self.requests = requests
        self._may_operate = may_operate
        self._peer = peer
        self.bound(Connections(), failure_line(ControlError(TOO_MANY), "refused"), request_seconds)
        super().__init__(str(path), _Connection)

    def identity(self, connection: socket.socket, address: Any) -> tuple[Peer, int]:
        peer = self._peer(connection)
        return peer, peer.uid

    def caller(self, peer: Peer) -> Caller:
        role = Role.OPERATOR if self._may_operate(peer) else Role.USER
        return Caller(peer.uid, peer.gid, user_name(peer.uid), role)


class _Connection(OneRequest):
    longest = LONGEST_REQUEST
    server: _Server
    client_address: Peer

    def answer(self, line: bytes | None) -> bytes | None:
        if line is None:
            too_long = ConfigError(f"request: must be one line of at most {LONGEST_REQUEST} bytes")
            return self.in_its_place(lambda: failure_line(too_long, "input"))
        who = lambda: self.server.caller(self.client_address)  # noqa: E731
        return self.in_its_place(lambda: self.server.requests.answer(who, line))
