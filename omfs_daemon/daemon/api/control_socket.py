"""The control socket: one JSON request line in, one JSON answer line out, then the connection ends.

Answers are ``{"ok": {...}}`` or ``{"error": LINE, "kind": "refused" | "input" | "denied" | "fault"}``. Anybody
may connect; :mod:`~omfs_daemon.daemon.api.operations` lists who may do what.
"""

from __future__ import annotations

import json
import socket
import socketserver
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Lock, Thread

import structlog

from omfs_daemon.daemon.api.callers import Caller, Peer, Role, peer_of, user_name
from omfs_daemon.daemon.api.operations import Control, perform
from omfs_daemon.errors import ConfigError, ControlError, DeniedError, OmfsError

LONGEST_REQUEST = 1 << 20
REQUEST_SECONDS = 5.0
ANSWER_SECONDS = 30.0
CONNECTIONS_PER_USER = 8


class ControlServer:
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
            self._server = _Server(path, handler, may_operate, peer, request_seconds)
            path.chmod(0o666)  # anybody may connect: access is decided by uid, not by file permission
        except OSError as error:
            raise ControlError(f"{path}: cannot listen: {error.strerror or error}") from error
        self._inode = path.stat().st_ino
        self._thread = Thread(target=self._server.serve_forever, args=(0.1,), name="control", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop listening and remove the socket, unless another daemon's is there by now."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(timeout=2.0)
        self._server.server_close()
        if self._path.exists() and self._path.stat().st_ino == self._inode:
            self._path.unlink()

    def __enter__(self) -> ControlServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(
        self,
        path: Path,
        control: Control,
        may_operate: Callable[[Peer], bool],
        peer: Callable[[socket.socket], Peer],
        request_seconds: float,
    ) -> None:
        self.control = control
        self.may_operate = may_operate
        self.peer = peer
        self.request_seconds = request_seconds
        self.connections = _ConnectionLimit(CONNECTIONS_PER_USER)
        self.log = structlog.get_logger("control")
        super().__init__(str(path), _Connection)

    def caller(self, peer: Peer) -> Caller:
        role = Role.OPERATOR if self.may_operate(peer) else Role.USER
        return Caller(peer.uid, peer.gid, user_name(peer.uid), role)

    def handle_error(self, request: object, client_address: object) -> None:
        self.log.exception("control_connection_failed")


class _Connection(socketserver.BaseRequestHandler):
    """One connection. A client that hangs up or is slow costs only its own thread, and not for long."""

    server: _Server
    request: socket.socket

    def handle(self) -> None:
        peer = self.server.peer(self.request)
        if not self.server.connections.take(peer.uid):
            self._answer(_failure(ControlError("too many requests at once: try again"), "refused"))
            return
        try:
            line = _read_line(self.request, time.monotonic() + self.server.request_seconds)
            self._answer(self._result(peer, line))
        except (TimeoutError, ConnectionError):
            return
        finally:
            self.server.connections.give(peer.uid)

    def _result(self, peer: Peer, line: bytes | None) -> dict[str, object]:
        try:
            if line is None:
                raise ConfigError(f"request: must be one line of at most {LONGEST_REQUEST} bytes")
            return {"ok": perform(self.server.control, self.server.caller(peer), _decoded(line))}
        except DeniedError as error:
            return _failure(error, "denied")
        except ConfigError as error:
            return _failure(error, "input")
        except OmfsError as error:
            return _failure(error, "refused")
        except Exception:
            self.server.log.exception("control_request_failed")
            return _failure(ControlError("internal error: see the daemon's log"), "fault")

    def _answer(self, answer: dict[str, object]) -> None:
        self.request.settimeout(ANSWER_SECONDS)
        self.request.sendall(json.dumps(answer).encode() + b"\n")


class _ConnectionLimit:
    """How many connections each user has, so that none can keep the others out."""

    def __init__(self, per_user: int) -> None:
        self._per_user = per_user
        self._open: Counter[int] = Counter()
        self._lock = Lock()

    def take(self, uid: int) -> bool:
        with self._lock:
            if self._open[uid] >= self._per_user:
                return False
            self._open[uid] += 1
            return True

    def give(self, uid: int) -> None:
        with self._lock:
            self._open[uid] -= 1
            if not self._open[uid]:
                del self._open[uid]


def _failure(error: Exception, kind: str) -> dict[str, object]:
    return {"error": " ".join(str(error).split()), "kind": kind}


def _decoded(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"request: must be JSON ({error})") from error


def _read_line(connection: socket.socket, deadline: float) -> bytes | None:
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
        if len(received) > LONGEST_REQUEST:
            return None
    return bytes(received[: received.index(b"\n")])
