"""A job of one shape: its program in a directory of its own, what it has counted, and how it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from benchmarks.shapes.shape_list import PYTHON, Shape
from benchmarks.shapes.shape_place import LIMIT, ShapePlace

_T = TypeVar("_T")
NUMBER = 4711
_SYSTEM = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


class ShapeFault(Exception):
    """A gap, a repeat, a wrong end, a hang, or a job that is held: what must not happen."""


class ShapeJob:
    """The runs of one job; ``variables``: what its environment has beside the usual."""

    def __init__(self, place: ShapePlace, shape: Shape, path: str = "", variables: Mapping[str, str] | None = None):
        self.place = place
        self.shape = shape
        self.directory = place.new()
        self.restarts = -1
        self._path = f"{path}:{place.commands}:{_SYSTEM}" if path else f"{place.commands}:{_SYSTEM}"
        self._variables = dict(variables or {})
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, method: str = "") -> None:
        """Begin the first or the next run: under omfs-run, or without a method the bare program."""
        self.restarts += 1
        environment = {
            "PATH": self._path,
            "HOME": str(self.directory),
            "LC_ALL": "C.UTF-8",
            "SHAPE_JOB": str(self.directory),
            "SLURM_JOB_ID": str(NUMBER),
            "SLURM_JOB_UID": str(self.place.user),
            "SLURM_RESTART_COUNT": str(self.restarts),
            "OMFS_LIB": str(self.place.library),
            **self._variables,
        }
        words = self.shape.command(self.place.programs)
        if method:
            where = ["--method", method, "--dir", str(self.directory / "checkpoint")]
            omfs_run = [PYTHON, str(self.place.omfs_run), *where, "--within", str(int(LIMIT * 0.8)), *words]
            words = ["/bin/sh", "-c", 'export SLURM_TASK_PID=$$; exec "$@"', "sh", *omfs_run]
        with (self.directory / "said").open("ab") as said:
            os.fchown(said.fileno(), self.place.user, -1)
            self._process = self._spawn(words, environment, said.fileno())

    def _spawn(self, words: Sequence[str], environment: Mapping[str, str], said: int) -> subprocess.Popen[bytes]:
        as_user = {"user": self.place.user, "extra_groups": []} if os.geteuid() == 0 and self.place.user else {}
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            cwd=self.directory,
            env=environment,
            start_new_session=True,
            **as_user,  # type: ignore[call-overload]
        )

    @property
    def pid(self) -> int:
        assert self._process is not None  # noqa: S101
        return self._process.pid

    def signal(self, number: int) -> None:
        """To the batch shell, as Slurm sends it."""
        os.kill(self.pid, number)

    def ended(self) -> int | None:
        """The exit code of the run as Slurm sees it; None while it lasts."""
        assert self._process is not None  # noqa: S101
        code = self._process.poll()
        return code if code is None or code >= 0 else 128 - code

    def comment(self) -> str:
        """What omfs-run has reported."""
        with contextlib.suppress(FileNotFoundError):
            return (self.directory / "comment").read_text()
        return ""

    def said(self) -> str:
        """The job's output."""
        return (self.directory / "said").read_text(errors="replace")

    def counted(self) -> int:
        """How many steps the slowest worker has done."""
        return min((len(_lines(path)) for path in self._outputs()), default=0)

    def _outputs(self) -> list[Path]:
        return sorted(self.directory.glob("out*"))

    def until(self, condition: Callable[[], _T], what: str) -> _T:
        """Wait; ShapeFault if it takes too long."""
        end = time.monotonic() + LIMIT
        while not (value := condition()):
            if time.monotonic() > end:
                raise ShapeFault(f"hangs: {what}")
            time.sleep(0.05)
        return value

    def finish(self) -> None:
        """Let the program come to its end; ShapeFault unless all was done once and its exit code is right."""
        (self.directory / "finish").touch()
        self.until(lambda: self.ended() is not None, "no end")
        self.require_right_end()

    def require_right_end(self) -> None:
        """ShapeFault unless the program has ended as it must."""
        self.require_whole()
        if self.ended() != self.shape.code:
            raise ShapeFault(f"exit code {self.ended()} instead of {self.shape.code}")

    def require_whole(self) -> None:
        """ShapeFault if a step is missing, was done twice, or if the program has found a fault itself."""
        with contextlib.suppress(FileNotFoundError):
            raise ShapeFault((self.directory / "fault").read_text().strip().splitlines()[0])
        counts = {path.name: _lines(path) for path in self._outputs()}
        printed = [line[len("step ") :] for line in self.said().splitlines() if line.startswith("step ")]
        if self.shape.name == "standard output":
            counts["standard output"] = printed
        for name, lines in counts.items():
            for at, line in enumerate(lines):
                if line != str(at + 1):
                    raise ShapeFault(f"{name}: {line} in place of {at + 1}")

    def refused(self) -> str:
        """What the program was not permitted to do, or ""."""
        with contextlib.suppress(FileNotFoundError):
            return (self.directory / "refused").read_text().strip()
        return ""

    def kill(self) -> None:
        """End what is left of it: all processes with this job's directory in their environment."""
        mark = os.fsencode(f"SHAPE_JOB={self.directory}")
        for _ in range(50):
            pids = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/environ") if _has(path, mark)]
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if self._process is not None:
                self._process.poll()
            if not pids:
                return
            time.sleep(0.1)


def _has(path: Path, mark: bytes) -> bool:
    try:
        return mark in path.read_bytes().split(b"\0")
    except OSError:
        return False


def _lines(path: Path) -> list[str]:
    """Whole lines."""
    return path.read_text(errors="replace").split("\n")[:-1]
