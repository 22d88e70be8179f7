"""The transport to omfs-node over ssh or rsh, by ClusterShell's workers."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from typing import Any

from ClusterShell.Event import EventHandler
from ClusterShell.Task import task_self
from ClusterShell.Worker.EngineClient import EngineClientEOF
from ClusterShell.Worker.Rsh import WorkerRsh
from ClusterShell.Worker.Ssh import WorkerSsh

from omfs_daemon.daemon.node_client.node_answers import LIMIT, OmfsNodeAnswer, failed
from omfs_daemon.daemon.node_client.transport import (
    GRACE,
    STDERR_BYTES,
    Request,
    answer_of,
    request_text,
    valid_names,
)
from omfs_daemon.errors import ConfigError

_WORD = re.compile(r"[A-Za-z0-9_./=+-]+\Z")
_MOST = LIMIT + 256 * 1024  # bytes of all that a node prints


class _Bounded:
    """Mixed into ClusterShell's clients: hangs up on a compromised node that never stops sending.

    ClusterShell buffers a line until it ends and scans all of it whenever more comes; short lines cost it a tenth of a
    millisecond each. So data is taken as it comes.
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


class Remote:
    """omfs-node over ssh (or rsh): ClusterShell runs at most ``fanout`` at once.

    ``command``: words of letters, digits and ``_./=+-`` only, for the remote side passes them to a shell.
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
        grace: float = GRACE,
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
        self._grace = grace
        settings = {"ssh_path": ssh_path, "ssh_options": ssh_options, "ssh_user": ssh_user}
        self._settings: dict[str, object] = {name: value for name, value in settings.items() if value}
        self._settings |= {"fanout": fanout, "connect_timeout": connect_timeout}

    def run(self, nodes: Sequence[str], request: Request, timeout: float) -> dict[str, OmfsNodeAnswer]:
        nodes, answers = valid_names(nodes)
        if nodes:
            answers |= _in_own_thread(lambda: self._run(nodes, request, timeout), len(nodes))
        return {node: answers.get(node, failed("unreachable", "nothing came back")) for node in (*nodes, *answers)}

    def _run(self, nodes: Sequence[str], request: Request, timeout: float) -> dict[str, OmfsNodeAnswer]:
        limit = timeout + self._grace + self._connect_timeout
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
                worker.write(request_text(request, node, timeout))
                worker.set_write_eof()
            task.resume()
            return {node: listener.answer() for node, listener in listeners.items()}
        finally:
            task.abort(kill=True)


class _Listener(EventHandler):  # type: ignore[misc]
    """Collects what one node prints."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._printed = bytearray()
        self._errors = bytearray()
        self._code: int | None = None
        self._timed_out = False
        self._received = 0

    def take(self, data: bytes, is_error: bool) -> bool:
        """Keep what was printed; False if it is more than any answer may be."""
        self._received += len(data)
        kept, most = (self._errors, STDERR_BYTES) if is_error else (self._printed, LIMIT + 1)
        kept += data[: max(0, most - len(kept))]
        return self._received <= _MOST

    def ev_hup(self, worker: Any, node: str, rc: int | None) -> None:
        self._code = rc

    def ev_close(self, worker: Any, timedout: bool) -> None:
        self._timed_out = timedout

    def answer(self) -> OmfsNodeAnswer:
        if self._received > _MOST:
            return failed("bad_answer", f"more than {_MOST} bytes")
        if self._timed_out:
            return failed("timeout", f"no answer within {self._limit:g} s")
        return answer_of(self._code, bytes(self._printed), bytes(self._errors))


def _in_own_thread(work: Any, count: int) -> dict[str, OmfsNodeAnswer]:
    """ClusterShell keeps a task, with its state, for each thread forever: a thread of its own leaves none."""
    done: list[dict[str, OmfsNodeAnswer]] = []
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
