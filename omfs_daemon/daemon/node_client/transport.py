"""The way to omfs-node on compute nodes: as a child process on this machine, or over ClusterShell's workers.

The command is a constant list of words that no shell reads otherwise, and the request goes by stdin; so nothing that
anybody can choose is ever quoted.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from ClusterShell.Event import EventHandler
from ClusterShell.Task import task_self
from ClusterShell.Worker.EngineClient import EngineClientEOF
from ClusterShell.Worker.Rsh import WorkerRsh
from ClusterShell.Worker.Ssh import WorkerSsh

from omfs_daemon.errors import ConfigError
from omfs_daemon.daemon.node_client.node_answers import LIMIT
from omfs_daemon.daemon.node_client.node_answers import Answer
from omfs_daemon.daemon.node_client.node_answers import failed
from omfs_daemon.daemon.node_client.node_answers import one_line
from omfs_daemon.daemon.node_client.node_answers import read

Request = Mapping[str, object]

_WORD = re.compile(r"[A-Za-z0-9_./=+-]+\Z")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}\Z")
# omfs-node keeps its own time; this is for starting it, and for its answer to come back.
_GRACE = 5.0
_STDERR = 4096
_MOST = LIMIT + 256 * 1024  # bytes of all that a node prints


class _Bounded:
    """Made part of ClusterShell's clients: a node that was taken over and never stops talking is hung up on.

    ClusterShell keeps a line until it ends, and looks at all of it again whenever more comes; short lines cost it a
    tenth of a millisecond each. So what comes is taken as it comes.
    """

    def _handle_read(self, sname: str) -> None:
        worker = self.worker  # type: ignore[attr-defined]
        data = self._read(sname)  # type: ignore[attr-defined]
        if not worker.eh.take(data, sname == worker.SNAME_STDERR):
            self.abort()  # type: ignore[attr-defined]
            raise EngineClientEOF


class _BoundedSshClient(_Bounded, WorkerSsh.SHELL_CLASS):  # type: ignore[misc]
    pass


class _BoundedRshClient(_Bounded, WorkerRsh.SHELL_CLASS):  # type: ignore[misc]
    pass


class _BoundedSsh(WorkerSsh):  # type: ignore[misc]
    SHELL_CLASS = _BoundedSshClient


class _BoundedRsh(WorkerRsh):  # type: ignore[misc]
    SHELL_CLASS = _BoundedRshClient


WORKERS = {"ssh": _BoundedSsh, "rsh": _BoundedRsh}


class Transport(Protocol):
    """Has one request done on several nodes. Thread-safe."""

    def run(self, nodes: Sequence[str], request: Request, timeout: float) -> dict[str, Answer]:
        """The answer of each node, whatever happens; ``timeout`` is what omfs-node itself may take, in seconds.

        ``node`` and ``timeout`` are put into the request here.
        """


class Local:
    """omfs-node as a child process: where the slurmds of all nodes run on this machine (tests, demo)."""

    def __init__(self, command: Sequence[str], fanout: int = 16, variables: Mapping[str, str] | None = None) -> None:
        if not command or not command[0].startswith("/"):
            raise ConfigError("omfs-node's command must begin with an absolute path")
        self._command = tuple(command)
        self._fanout = fanout
        self._environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", **(variables or {})}

    def run(self, nodes: Sequence[str], request: Request, timeout: float) -> dict[str, Answer]:
        nodes, answers = _sound(nodes)
        if nodes:
            with ThreadPoolExecutor(min(self._fanout, len(nodes)), thread_name_prefix="omfs-node") as pool:
                answers |= zip(nodes, pool.map(lambda node: self._one(node, request, timeout), nodes), strict=True)
        return answers

    def _one(self, node: str, request: Request, timeout: float) -> Answer:
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            return failed("unreachable", f"cannot run {self._command[0]}: {error.strerror}")
        try:
            printed, errors = process.communicate(_text(request, node, timeout), timeout=timeout + _GRACE)
        except subprocess.TimeoutExpired:
            return failed("timeout", f"no answer within {timeout + _GRACE:g} s")
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        return _judge(process.returncode, printed, errors)


class Remote:
    """omfs-node over ssh (or rsh): ClusterShell runs at most ``fanout`` at once.

    ``command``: words of letters, digits and ``_./=+-`` only, for the other side gives them to a shell.
    ``ssh_path``, ``ssh_options``, ``ssh_user``: as in clush.conf; "" leaves them to ClusterShell's defaults.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        worker: str = "ssh",
        fanout: int = 64,
        connect_timeout: float = 5.0,
        ssh_path: str = "",
        ssh_options: str = "",
        ssh_user: str = "",
    ) -> None:
        for word in command:
            if not _WORD.match(word):
                raise ConfigError(f"omfs-node's command: {word!r} may hold letters, digits and _./=+- only")
        if not command or not command[0].startswith("/"):
            raise ConfigError("omfs-node's command must begin with an absolute path")
        if worker not in WORKERS:
            raise ConfigError(f"worker {worker!r} is not known; allowed: {', '.join(WORKERS)}")
        self._command = " ".join(command)
        self._worker = WORKERS[worker]
        self._connect_timeout = connect_timeout
        settings = {"ssh_path": ssh_path, "ssh_options": ssh_options, "ssh_user": ssh_user}
        self._settings: dict[str, object] = {name: value for name, value in settings.items() if value}
        self._settings |= {"fanout": fanout, "connect_timeout": connect_timeout}

    def run(self, nodes: Sequence[str], request: Request, timeout: float) -> dict[str, Answer]:
        nodes, answers = _sound(nodes)
        if nodes:
            answers |= _in_own_thread(lambda: self._run(nodes, request, timeout), len(nodes))
        return {node: answers.get(node, failed("unreachable", "nothing came back")) for node in (*nodes, *answers)}

    def _run(self, nodes: Sequence[str], request: Request, timeout: float) -> dict[str, Answer]:
        limit = timeout + _GRACE + self._connect_timeout
        task = task_self()
        try:
            for name, value in self._settings.items():
                task.set_info(name, value)
            task.set_default("distant_worker", self._worker)
            listeners = {}
            for node in nodes:
                listeners[node] = listener = _Listener(limit)
                worker = task.shell(
                    self._command, nodes=node, handler=listener, timeout=limit, stderr=True, stdin=True, tree=False
                )
                worker.write(_text(request, node, timeout))
                worker.set_write_eof()
            task.resume()
            return {node: listener.answer() for node, listener in listeners.items()}
        finally:
            task.abort(kill=True)


class _Listener(EventHandler):  # type: ignore[misc]
    """Gathers what one node prints."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._printed = bytearray()
        self._errors = bytearray()
        self._code: int | None = None
        self._timed_out = False
        self._given = 0

    def take(self, data: bytes, is_error: bool) -> bool:
        """Keep what was printed; False if it is more than any answer."""
        self._given += len(data)
        kept, most = (self._errors, _STDERR) if is_error else (self._printed, LIMIT + 1)
        kept += data[: max(0, most - len(kept))]
        return self._given <= _MOST

    def ev_hup(self, worker: Any, node: str, rc: int | None) -> None:
        self._code = rc

    def ev_close(self, worker: Any, timedout: bool) -> None:
        self._timed_out = timedout

    def answer(self) -> Answer:
        if self._given > _MOST:
            return failed("bad_answer", f"more than {_MOST} bytes")
        if self._timed_out:
            return failed("timeout", f"no answer within {self._limit:g} s")
        return _judge(self._code, bytes(self._printed), bytes(self._errors))


def _in_own_thread(work: Any, count: int) -> dict[str, Answer]:
    """ClusterShell keeps a task for each thread for ever, and its state with it: a thread of its own leaves none."""
    done: list[dict[str, Answer]] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            done.append(work())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, name=f"omfs-nodes-{count}", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise RuntimeError(f"ClusterShell: {errors[0]}") from errors[0]
    return done[0]


def _sound(nodes: Sequence[str]) -> tuple[list[str], dict[str, Answer]]:
    """The names that can be names of nodes; the others are answered at once."""
    odd = {node: failed("unreachable", f"{node!r} is no name of a node") for node in nodes if not _NODE.match(node)}
    return [node for node in dict.fromkeys(nodes) if node not in odd], odd


def _text(request: Request, node: str, timeout: float) -> bytes:
    return json.dumps({"version": 1, **request, "node": node, "timeout": timeout}).encode()


def _judge(code: int | None, printed: bytes, errors: bytes) -> Answer:
    """Exit code 0 means that an answer was printed; ssh has 255 for its own failures."""
    if code == 0:
        return read(printed)
    said = one_line(errors[:_STDERR].decode("utf-8", errors="replace"))
    return failed("unreachable", f"exit {code}: {said}" if said else f"exit {code}")
