"""The transport to omfs-node: what any of them does, and a child process on this machine.

The command is a constant list of words without shell metacharacters, and the request goes by stdin: nothing that a
user can choose is ever quoted.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from omfs_daemon.daemon.node_client.node_answers import OmfsNodeAnswer, failed, printable_line, read_answer
from omfs_daemon.errors import ConfigError
from omfs_daemon.protocol.node_request import VERSION

Request = Mapping[str, object]

GRACE = 5.0
"""Seconds for the start and the answer of omfs-node, which keeps its own timeout."""

STDERR_BYTES = 4096
"""So much of what omfs-node writes to stderr is kept."""

_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}\Z")


class Transport(Protocol):
    """Sends one request to several nodes. Thread-safe."""

    def run(self, nodes: Sequence[str], request: Request, timeout: float) -> dict[str, OmfsNodeAnswer]:
        """The answer of each node, whatever happens; ``timeout``: seconds that omfs-node itself may take.

        ``node`` and ``timeout`` are put into the request here.
        """


class Local:
    """omfs-node as a child process: where the slurmds of all nodes run on this machine (tests, demo)."""

    def __init__(
        self, command: Sequence[str], fanout: int = 16, variables: Mapping[str, str] | None = None, grace: float = GRACE
    ) -> None:
        if not command or not command[0].startswith("/"):
            raise ConfigError("omfs-node's command must begin with an absolute path")
        self._command = tuple(command)
        self._fanout = fanout
        self._grace = grace
        self._environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", **(variables or {})}

    def run(self, nodes: Sequence[str], request: Request, timeout: float) -> dict[str, OmfsNodeAnswer]:
        nodes, answers = valid_names(nodes)
        if nodes:
            with ThreadPoolExecutor(min(self._fanout, len(nodes)), thread_name_prefix="omfs-node") as pool:
                answers |= zip(nodes, pool.map(lambda node: self._one(node, request, timeout), nodes), strict=True)
        return answers

    def _one(self, node: str, request: Request, timeout: float) -> OmfsNodeAnswer:
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
            printed, errors = process.communicate(request_text(request, node, timeout), timeout=timeout + self._grace)
        except subprocess.TimeoutExpired:
            return failed("timeout", f"no answer within {timeout + self._grace:g} s")
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        return answer_of(process.returncode, printed, errors)


def valid_names(nodes: Sequence[str]) -> tuple[list[str], dict[str, OmfsNodeAnswer]]:
    """The valid node names; the others are answered at once."""
    invalid = {node: failed("unreachable", f"{node!r} is no name of a node") for node in nodes if not _NODE.match(node)}
    return [node for node in dict.fromkeys(nodes) if node not in invalid], invalid


def request_text(request: Request, node: str, timeout: float) -> bytes:
    return json.dumps({"version": VERSION, **request, "node": node, "timeout": timeout}).encode()


def answer_of(code: int | None, printed: bytes, errors: bytes) -> OmfsNodeAnswer:
    """Exit code 0 means that an answer was printed; ssh uses 255 for its own failures."""
    if code == 0:
        return read_answer(printed)
    message = printable_line(errors[:STDERR_BYTES].decode("utf-8", errors="replace"))
    return failed("unreachable", f"exit {code}: {message}" if message else f"exit {code}")
