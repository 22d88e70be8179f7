"""The control socket: one JSON request line in, one JSON answer line out, then the connection ends.

Answers are ``{"ok": {...}}`` or ``{"error": LINE, "kind": "refused" | "input" | "denied" | "fault"}``. Anybody
may connect; :mod:`~omfs_daemon.daemon.api.operations` lists who may do what.
"""

from __future__ import annotations

import json
import socket
import socketserver
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import structlog

from omfs_daemon.daemon.api.callers import Caller, Peer, Role, peer_of, user_name
from omfs_daemon.daemon.api.connections import Connections
from omfs_daemon.daemon.api.operations import Control, perform, takes_turns_itself
from omfs_daemon.daemon.api.shared_core import UsersTurns
from omfs_daemon.errors import ConfigError, ControlError, DeniedError, OmfsError

LONGEST_REQUEST = 1 << 20
REQUEST_SECONDS = 5.0
ANSWER_SECONDS = 30.0
TOO_MANY = "too many requests at once: try again"


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

    @property
    def connections(self) -> int:
        """How many are open now."""
        return len(self._server.connections)

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
    request_queue_size = 1024  # a full queue refuses root, too

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
        self.connections = Connections()
        self.turns = UsersTurns()
        self.log = structlog.get_logger("control")
        super().__init__(str(path), _Connection)

    def caller(self, peer: Peer) -> Caller:
        role = Role.OPERATOR if self.may_operate(peer) else Role.USER
        return Caller(peer.uid, peer.gid, user_name(peer.uid), role)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Refuse one too many before it costs a thread; what does not fit into its buffer is lost."""
        peer = self.peer(request)
        if self.connections.take(request, peer.uid):
            super().process_request(request, peer)
            return
        request.setblocking(False)
        with suppress(OSError):
            request.send(_line(_failure(ControlError(TOO_MANY), "refused")))
        self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        self.connections.give(request)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        self.log.exception("control_connection_failed")


class _Connection(socketserver.BaseRequestHandler):
    """One connection. A client that hangs up or is slow costs only its own thread, and not for long."""

    server: _Server
    request: socket.socket
    client_address: Peer

    def handle(self) -> None:
        with suppress(OSError):  # it hung up, was too slow, or had to make room
            line = _read_line(self.request, time.monotonic() + self.server.request_seconds)
            answer = self.server.connections.answer(
                self.request, lambda: _line(self._result(self.client_address, line))
            )
            if answer is not None:
                self.request.settimeout(ANSWER_SECONDS)
                self.request.sendall(answer)

    def _result(self, peer: Peer, line: bytes | None) -> dict[str, object]:
        try:
            if line is None:
                raise ConfigError(f"request: must be one line of at most {LONGEST_REQUEST} bytes")
            caller, control = self.server.caller(peer), self.server.control
            with nullcontext() if caller.is_operator else self.server.turns.turn(caller.uid):
                request = _decoded(line)
                if not takes_turns_itself(request):
                    return {"ok": perform(control, caller, request)}
            return {"ok": perform(control, caller, request)}
        except DeniedError as error:
            return _failure(error, "denied")
        except ConfigError as error:
            return _failure(error, "input")
        except OmfsError as error:
            return _failure(error, "refused")
        except Exception:
            self.server.log.exception("control_request_failed")
            return _failure(ControlError("internal error: see the daemon's log"), "fault")


def _line(answer: dict[str, object]) -> bytes:
    return json.dumps(answer).encode() + b"\n"


def _failure(error: Exception, kind: str) -> dict[str, object]:
    return {"error": " ".join(str(error).split()), "kind": kind}


def _decoded(line: bytes) -> object:
    try:
        found: object = json.loads(line)
        if b"\\u" in line:  # half of a surrogate pair is no text: neither SQLite nor Slurm takes it
            json.dumps(found, ensure_ascii=False).encode()
        return found
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
