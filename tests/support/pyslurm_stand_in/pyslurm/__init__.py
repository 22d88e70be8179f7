"""A stand-in for PySlurm's modern interface (22.5.3): the same names, over a unix socket to the test's fake Slurm.

``OMFS_STAND_IN_SOCKET`` names the socket (``tests/support/pyslurm_stand_in/server.py``), ``OMFS_STAND_IN_IMPORT`` what
goes wrong in the import.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

__version__ = os.environ.get("OMFS_STAND_IN_VERSION", "22.5.3")
__all__ = ["Job", "JobSubmitDescription", "Jobs", "RPCError"]

_ERROR = os.environ.get("OMFS_STAND_IN_IMPORT")
if _ERROR == "ends":  # as Slurm's library does without a slurm.conf
    print("fatal: Could not establish a configuration source", file=sys.stderr, flush=True)
    os._exit(1)
if _ERROR == "fails":
    raise ImportError("libslurm.so.38: cannot open shared object file: No such file or directory")
if _ERROR == "hangs":
    threading.Event().wait()
if _ERROR == "prints":
    os.write(1, b"what a library prints\n")


class RPCError(Exception):
    def __init__(self, errno: int = -1, msg: str | None = None) -> None:
        self.errno, self.msg = errno, msg
        super().__init__(msg)


class JobSubmitDescription:
    def __init__(self, **kwargs: Any) -> None:
        self._fields = kwargs


class Job:
    def __init__(self, job_id: int) -> None:
        self._shown: dict[str, Any] = {"id": job_id}

    def __getattr__(self, name: str) -> Any:
        try:
            value = self._shown[name]
        except KeyError:
            raise AttributeError(name) from None
        if isinstance(value, dict) and "raises" in value:
            raise IndexError(value["raises"])
        return value

    @staticmethod
    def load(job_id: int) -> Job:
        job = Job(job_id)
        job._shown = _ask("load", job_id)
        return job

    def hold(self, mode: str | None = None) -> None:
        self.modify(JobSubmitDescription(priority=0))

    def release(self) -> None:
        self.modify(JobSubmitDescription(priority=2**32 - 1))

    def requeue(self, hold: bool = False) -> None:
        _ask("requeue", self.id)

    def suspend(self) -> None:
        _ask("suspend", self.id)

    def unsuspend(self) -> None:
        _ask("resume", self.id)

    def modify(self, changes: JobSubmitDescription) -> None:
        _ask("modify", self.id, **changes._fields)

    def send_signal(self, signal: str | int, steps: str = "children", hurry: bool = False) -> None:
        _ask("signal", self.id)


class Jobs(dict[int, Job]):
    @staticmethod
    def load(preload_passwd_info: bool = False, frozen: bool = False) -> Jobs:
        jobs = Jobs()
        for shown in _ask("jobs", 0):
            jobs[shown["id"]] = job = Job(shown["id"])
            job._shown = shown
        return jobs


class _Line:
    """The connection to the test's process."""

    def __init__(self) -> None:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(os.environ["OMFS_STAND_IN_SOCKET"])
        self._stream = connection.makefile("rw", encoding="utf-8")

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        print(json.dumps(request), file=self._stream, flush=True)
        answer: dict[str, Any] = json.loads(self._stream.readline())
        return answer


_line: _Line | None = None


def _ask(what: str, job_id: int, **fields: Any) -> Any:
    global _line
    if _line is None:
        _line = _Line()
    answer = _line.ask({"what": what, "id": job_id, "fields": fields})
    match answer.get("fault"):
        case "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hangs":
            threading.Event().wait()
        case "prints":
            os.write(1, b"what a library prints\n")
        case "garbles":  # on the very stream of the answers
            for number in range(3, 64):
                if _is_pipe_of_answers(number):
                    os.write(number, b"no answer\n")
    if "errno" in answer:
        raise RPCError(answer["errno"], answer["message"])
    return answer["value"]


def _is_pipe_of_answers(number: int) -> bool:
    try:
        return str(Path(f"/proc/self/fd/{number}").readlink()).startswith("pipe:")
    except OSError:
        return False
