"""omfsd's side of the root process, which it has forked, or reaches as omfs-root.service."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from threading import Lock

import structlog

from omfs_daemon import __version__
from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.node_client.node_answers import OmfsNodeAnswer, failed
from omfs_daemon.daemon.node_client.service import transport
from omfs_daemon.daemon.node_client.transport import Request, Transport
from omfs_daemon.daemon.root_process.messages import (
    SLURM,
    HelloRequest,
    JobWorkRequest,
    ProbeRequest,
    QuestionRequest,
    ReloadRequest,
    RootProcessError,
    RootRequest,
    WakeFilesRequest,
    read_reply,
    request_bytes,
)
from omfs_daemon.errors import ConfigError
from omfs_daemon.protocol.node_request import PROBE

_MORE_SECONDS = 60.0
"""What the root process may take beyond the nodes' time: it asks Slurm, and connects."""

_CONNECT_SECONDS = 10.0  # systemd accepts for a service that is not up yet


class RootClient:
    """Asks the root process; thread-safe. As a ``Transport``, it leaves to the root process what the configuration and
    slurmctld say: the job's owner, the methods' options, and where Slurm is on the nodes.

    ``requests``: the socket that both had before the fork, or where omfs-root.service listens. ``fanout``: of the
    configuration. If the root process has ended, each call fails, which is logged once; the service is reached again
    once it has been restarted.
    """

    def __init__(self, requests: socket.socket | Path, fanout: int) -> None:
        self._address = requests if isinstance(requests, Path) else None
        self._requests = None if isinstance(requests, Path) else requests
        self._lock = Lock()
        self._fanout = fanout
        self._has_ended = False

    def greet(self) -> None:
        """RootProcessError if the root process does not serve this omfsd."""
        self._ask(HelloRequest(do="hello", version=__version__), _MORE_SECONDS)

    def run(self, nodes: Sequence[str], request: Request, timeout: float) -> dict[str, OmfsNodeAnswer]:
        rounds = ceil(len(nodes) / self._fanout)
        try:
            answers = self._ask(_root_request(nodes, request, timeout), rounds * (timeout + _MORE_SECONDS))
        except RootProcessError as error:
            return dict.fromkeys(nodes, failed("root_process", str(error)))
        return {node: answers.get(node, failed("unreachable", "nothing came back")) for node in nodes}

    def give_wake_files(self) -> None:
        """Give the wake files to SlurmUser; RootProcessError if that fails."""
        self._ask(WakeFilesRequest(do="give_wake_files"), _MORE_SECONDS)

    def put_question(self, job: int, nodes: Sequence[str]) -> str:
        """As ``slurm/question.py``'s; RootProcessError if the question could not be put."""
        request = QuestionRequest(do="ask", job=job, nodes=tuple(nodes))
        return self._ask(request, _MORE_SECONDS)[SLURM].message

    def reload(self) -> None:
        """Have the methods' options read from the configuration file anew; ConfigError if that fails."""
        try:
            self._ask(ReloadRequest(do="reload"), _MORE_SECONDS)
        except RootProcessError as error:
            if not self._has_ended:  # else there is nothing to reload, and everything else may be
                raise ConfigError(str(error)) from None

    def close(self) -> None:
        """The root process ends with this; work under way on nodes goes on there and is not waited for."""
        self._has_ended = True
        if self._requests is not None:
            self._requests.close()

    def _ask(self, request: RootRequest, limit: float) -> dict[str, OmfsNodeAnswer]:
        ours, theirs = socket.socketpair()
        with ours:
            try:
                with theirs:
                    self._hand_over(theirs)
                ours.settimeout(limit)
                ours.sendall(request_bytes(request))
                ours.shutdown(socket.SHUT_WR)
                reply = b"".join(iter(lambda: ours.recv(1 << 16), b""))
            except TimeoutError:
                raise RootProcessError(f"the root process did not answer within {limit:g} s") from None
            except OSError:
                reply = b""
        self._note_end(bool(reply))
        if not reply and self._address is not None:
            raise RootProcessError(f"{self._address}: no root process answers: see `systemctl status omfs-root.socket`")
        return read_reply(reply)

    def _hand_over(self, request: socket.socket) -> None:
        with self._lock:
            if self._requests is not None:
                try:
                    _hand_over(request, self._requests)
                    return
                except OSError:
                    if self._address is None:
                        raise
                    self._requests.close()
                    self._requests = None
            if self._address is not None:
                self._requests = _connected(self._address)
                _hand_over(request, self._requests)

    def _note_end(self, is_alive: bool) -> None:
        if is_alive and self._address is not None:
            self._has_ended = False
        if not is_alive and not self._has_ended:
            self._has_ended = True
            what = "omfsd is restarted" if self._address is None else "it is started again"
            text = f"no work on nodes until {what}; methods that need it are not used"
            structlog.get_logger("root").error("root_process_ended", message=text)


def node_transport(config: Config, root: RootClient | None) -> Transport | None:
    """How omfsd reaches its nodes: through the root process where there is one. None where no worker is configured."""
    return transport(config) if root is None or config.nodes.worker == "none" else root


def _connected(address: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(_CONNECT_SECONDS)
        connection.connect(str(address))
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return connection


def _hand_over(request: socket.socket, requests: socket.socket) -> None:
    socket.send_fds(requests, [b"?"], [request.fileno()])


def _root_request(nodes: Sequence[str], request: Request, timeout: float) -> RootRequest:
    if request["do"] == PROBE:
        return ProbeRequest(do="probe", nodes=tuple(nodes), timeout=timeout)
    return JobWorkRequest.model_validate(
        {
            "do": request["do"],
            "job": request["job"],
            "method": request["method"],
            "nodes": tuple(nodes),
            "timeout": timeout,
            "resume": request.get("continue", False),
            "suspended": request.get("suspended", False),
        }
    )
