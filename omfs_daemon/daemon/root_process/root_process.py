"""The root process: does what needs root for an omfsd that runs as another user.

It takes verbs from a fixed list (``messages.py``) and trusts nothing else that omfsd says: whose job it is and where it
runs it reads from slurmctld, and the methods' options and the command on the nodes from the configuration. Each request
comes as a socket of its own, sent over the one that both had before omfsd gave up root, or over a connection to
omfs-root.service (``root_service.py``); nobody else can reach it.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import structlog

from omfs_daemon import __version__
from omfs_daemon.config.load import load
from omfs_daemon.config.schema import WAKE_FILE, WAKE_LATER_FILE, Config
from omfs_daemon.daemon.node_client.node_answers import OmfsNodeAnswer, failed
from omfs_daemon.daemon.node_client.service import options, slurm_on_nodes
from omfs_daemon.daemon.node_client.transport import Request, Transport
from omfs_daemon.daemon.root_process.messages import (
    MOST_BYTES,
    SLURM,
    HelloRequest,
    JobWorkRequest,
    ProbeRequest,
    QuestionRequest,
    ReloadRequest,
    RootProcessError,
    WakeFilesRequest,
    read_root_request,
    reply_bytes,
)
from omfs_daemon.errors import GatewayError, OmfsError
from omfs_daemon.preemption.methods.node_work import NodeAction, NodeWork
from omfs_daemon.preemption.methods.registry import installed
from omfs_daemon.protocol.node_request import PROBE
from omfs_daemon.slurm.commands.command_gateway import CommandGateway
from omfs_daemon.slurm.commands.squeue_fields import JobRow, row_nodes
from omfs_daemon.slurm.commands.values import whole
from omfs_daemon.slurm.question import PERMITS, give_permits, put_question
from omfs_daemon.slurm.settings_check import slurm_user

_AT_ONCE = 40  # more than omfsd's work queue and probes ask at a time
_REQUEST_SECONDS = 5.0


class RootProcess:
    """``path``: of the configuration file; ``nodes``: None where no worker is configured; ``user``: omfsd's uid."""

    def __init__(self, config: Config, path: Path, gateway: CommandGateway, nodes: Transport | None, user: int) -> None:
        self._config = config
        self._path = path
        self._gateway = gateway
        self._nodes = nodes
        self._user = user
        self._options = options(config, installed())
        self._slurm = slurm_on_nodes(config)
        self._log = structlog.get_logger("root")

    def serve(self, requests: socket.socket) -> None:
        """Serve until omfsd closes its end or dies; work under way is not waited for."""
        serve_requests(requests, self.reply)

    def reply(self, text: bytes) -> bytes:
        """Carry out a request."""
        try:
            return reply_bytes(self._do(text))
        except OmfsError as error:
            self._log.warning("root_request_refused", error=str(error))
            return reply_bytes({}, str(error))
        except Exception as error:
            self._log.exception("root_request_failed")
            return reply_bytes({}, f"{type(error).__name__}: {error}")

    def _do(self, text: bytes) -> dict[str, OmfsNodeAnswer]:
        match read_root_request(text):
            case HelloRequest(version=version):
                if version != __version__:
                    restart = "systemctl restart omfs-root.service omfsd.service"
                    raise RootProcessError(
                        f"the root process is of version {__version__}, omfsd of {version}: {restart}"
                    )
            case JobWorkRequest() as work:
                return self._work(work)
            case ProbeRequest(nodes=nodes, timeout=timeout):
                known = {node.name for node in self._gateway.nodes()}
                request = {"do": PROBE, "options": self._options, "slurm": self._slurm}
                return self._run(nodes, known, request, timeout)
            case WakeFilesRequest():
                self._give_wake_files()
            case QuestionRequest(job=job, nodes=nodes):
                return {SLURM: OmfsNodeAnswer(ok=True, message=self._ask(job, nodes))}
            case ReloadRequest():
                self._options = options(load(self._path), installed())
        return {}

    def _work(self, wanted: JobWorkRequest) -> dict[str, OmfsNodeAnswer]:
        if wanted.method not in self._options:
            raise RootProcessError(f"{wanted.method[:40]!r} is no method on nodes that a class names")
        job = self._job(wanted.job)
        work = NodeWork(
            job.job_id,
            wanted.job,
            _owner(job),
            row_nodes(job),
            NodeAction(wanted.do),
            wanted.method,
            resume=wanted.resume,
            suspended=wanted.suspended,
            options=self._options[wanted.method],
            slurm=self._slurm,
        )
        return self._run(wanted.nodes, set(work.nodes), work.request(), wanted.timeout)

    def _ask(self, job: int, nodes: Sequence[str]) -> str:
        if not nodes:
            raise RootProcessError("no nodes")
        uid, permits = self._slurm_uid(), self._config.daemon.run_dir / PERMITS
        give_permits(permits, self._user, uid)
        return put_question(self._gateway, job, nodes, self._config.slurm.conf, permits, uid)

    def _slurm_uid(self) -> int:
        uid = slurm_user(self._gateway.settings().values)
        if uid is None:
            raise GatewayError("Slurm does not say who SlurmUser is")
        return uid

    def _job(self, job_id: int) -> JobRow:
        rows = self._gateway.rows([job_id])
        for row in rows:  # an array's id gives its tasks as well
            if row.job_id == str(job_id):
                return row
        raise RootProcessError(f"Slurm has no job {job_id} that has not ended")

    def _run(
        self, nodes: Sequence[str], known: set[str], request: Request, timeout: float
    ) -> dict[str, OmfsNodeAnswer]:
        if self._nodes is None:
            raise RootProcessError("no worker for the nodes is configured")
        strange = {node: failed("not_on_node", "Slurm does not show it there") for node in nodes if node not in known}
        here = [node for node in nodes if node in known]
        return strange | (self._nodes.run(here, request, timeout) if here else {})

    def _give_wake_files(self) -> None:
        """To SlurmUser, as whom job_submit.lua and epilog_slurmctld open them."""
        uid = self._slurm_uid()
        for name in (WAKE_FILE, WAKE_LATER_FILE):
            self._give(self._config.daemon.run_dir / name, uid)

    def _give(self, path: Path, uid: int) -> None:
        """omfsd's user owns the directory, so the file may be a link to any other: only one that is theirs is given
        away."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise RootProcessError(f"{path}: {error.strerror}") from None
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_uid not in (self._user, uid):
                raise RootProcessError(f"{path}: not a file of uid {self._user}")
            os.fchown(descriptor, uid, -1)
        finally:
            os.close(descriptor)


def serve_requests(requests: socket.socket, reply: Callable[[bytes], bytes]) -> None:
    """Answer what comes over this socket by ``reply`` until the other end closes it; what is under way is not waited
    for."""
    workers = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="omfs-root")
    while True:
        sent, descriptors, _, _ = socket.recv_fds(requests, 1, 1, socket.MSG_CMSG_CLOEXEC)
        if not sent:
            workers.shutdown(wait=False)
            return
        for descriptor in descriptors:
            workers.submit(_serve_one, descriptor, reply)


def _serve_one(descriptor: int, reply: Callable[[bytes], bytes]) -> None:
    with suppress(OSError), socket.socket(fileno=descriptor) as connection:
        connection.settimeout(_REQUEST_SECONDS)
        text = _read_all(connection)
        connection.settimeout(None)
        connection.sendall(reply(text))


def _owner(job: JobRow) -> int:
    """The uid; RootProcessError for root's own jobs, which are no user's to be stopped."""
    uid = whole(job.uid)
    if uid <= 0:
        raise RootProcessError(f"job {job.job_id} is root's, or nobody's")
    return uid


def _read_all(connection: socket.socket) -> bytes:
    """What was sent until the other end finished, or a little more than a request may have."""
    received = bytearray()
    while len(received) <= MOST_BYTES and (part := connection.recv(1 << 16)):
        received += part
    return bytes(received)
