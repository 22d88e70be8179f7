"""The process in which PySlurm runs: started when needed, and ended when it fails."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import IO, Any, cast

from omfs_daemon.errors import GatewayError, GatewayTimeout
from omfs_daemon.slurm.commands.run_command import environment

_MODULE = "omfs_daemon.slurm.pyslurm.pyslurm_child"
_ROOT = Path(__file__).resolve().parents[3]
_MOST_BYTES = 1 << 28  # a line of 100,000 jobs has about a tenth of it
_CHUNK = 1 << 16
_ERRORS_KEPT = 4096
_SHOWN = 160
_END_TIMEOUT = 5.0


class PySlurmProcess:
    """``conf`` becomes SLURM_CONF, ``timeout`` is the seconds for each request and for the start, ``python`` the
    interpreter that has pyslurm, ``variables`` are added to its environment.

    A process that dies, hangs or writes anything but an answer is ended; the next request starts another one.
    """

    def __init__(
        self,
        conf: Path | None,
        timeout: float,
        python: str = sys.executable,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._conf = conf
        self._timeout = timeout
        self._python = python
        self._variables = dict(variables or {})
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._finalizer: weakref.finalize[..., PySlurmProcess] | None = None
        self._release = ""

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        return self._process.pid if self._process else None

    def release(self) -> str:
        """The version of the pyslurm that it has imported. GatewayError if it cannot be used, with the reason."""
        with self._lock:
            self._running()
            return self._release

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to one request (``pyslurm_child``).

        GatewayTimeout if none came in time, GatewayError if the process ended or answered that Slurm did not.
        """
        with self._lock:
            process = self._running()
            try:
                answer = self._exchange(process, json.dumps(request).encode() + b"\n")
            except BaseException:
                self._end()
                raise
        if "error" in answer:
            raise GatewayError(f"PySlurm: {answer['error']}")
        return answer

    def close(self) -> None:
        """End the process, if there is one."""
        with self._lock:
            self._end()

    # -- inside, with the lock held ----------------------------------------------------------------
    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end()
        process = self._start()
        try:
            first_line = self._exchange(process, b"")
        except BaseException:
            self._end()
            raise
        if "error" in first_line:
            self._end()
            raise GatewayError(f"PySlurm: {first_line['error']}")
        self._release = str(first_line.get("pyslurm"))
        return process

    def _start(self) -> subprocess.Popen[bytes]:
        variables = environment(self._conf) | self._variables
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_ROOT), variables.get("PYTHONPATH"))))
        try:
            process = subprocess.Popen(
                [self._python, "-P", "-m", _MODULE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=variables,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise GatewayError(f"cannot run {self._python}: {error.strerror}") from None
        self._process, self._finalizer = process, weakref.finalize(self, _kill, process)
        return process

    def _end(self) -> None:
        if self._finalizer is not None:
            self._finalizer()
        self._process = self._finalizer = None

    def _exchange(self, process: subprocess.Popen[bytes], request: bytes) -> dict[str, Any]:
        with contextlib.suppress(BrokenPipeError):  # it has ended: reading shows how
            cast(IO[bytes], process.stdin).write(request)
        line = self._line(process)
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise GatewayError(f"PySlurm's process did not write an answer: {_text(line)!r}")
        return answer

    def _line(self, process: subprocess.Popen[bytes]) -> bytes:
        stdout, stderr = cast(IO[bytes], process.stdout), cast(IO[bytes], process.stderr)
        end = time.monotonic() + self._timeout
        line, errors = bytearray(), b""
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            selector.register(stderr, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select(max(0.0, end - time.monotonic()))]
                if not ready and time.monotonic() >= end:
                    raise GatewayTimeout(f"PySlurm: no answer from Slurm within {self._timeout:g} s")
                if stderr in ready:
                    written = os.read(stderr.fileno(), _CHUNK)
                    errors = (errors + written)[-_ERRORS_KEPT:]
                    if not written:
                        selector.unregister(stderr)
                if stdout in ready:
                    chunk = os.read(stdout.fileno(), _CHUNK)
                    line += chunk
                    if not chunk:
                        raise GatewayError(_ended(process, errors))
                    if chunk.endswith(b"\n") or len(line) > _MOST_BYTES:
                        return bytes(line)


def _ended(process: subprocess.Popen[bytes], errors: bytes) -> str:
    """How it ended, and its last message: a library that ends a process prints why."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        _, rest = process.communicate(timeout=_END_TIMEOUT)
        errors += rest
    messages = _text(errors).strip().splitlines()
    how = f"signal {-process.returncode}" if (process.returncode or 0) < 0 else f"exit code {process.returncode}"
    return f"PySlurm's process ended ({how}){': ' + messages[-1] if messages else ''}"


def _text(output: bytes) -> str:
    return output[-_SHOWN:].decode(errors="replace")


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    with contextlib.suppress(subprocess.TimeoutExpired):  # stuck in the kernel; it ends later
        process.wait(_END_TIMEOUT)
