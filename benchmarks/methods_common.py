"""What the benchmark of the preemption methods shares: a user, a place on disk, clocks, the fsync of the bare tools."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from deploy.zipapps import build

HERE = Path(__file__).parent
PYTHON = "/usr/bin/python3"  # one that every user may run
USER = 65534
LIMIT = 300.0
MB = 1_000_000
WHERE = "/var/tmp"  # noqa: S108 - on a disk, unlike /tmp on many machines; the directory in it is ours


class Times(NamedTuple):
    """Seconds out and back; ``cpu``: of processors, out and back together, where known; ``more``: a method's own."""

    out: float
    back: float
    cpu: float = 0.0
    more: Mapping[str, float] = {}


class Rig(Protocol):
    """A method, ready to be measured with fresh memory each time."""

    method: str
    tool: str
    rival: str

    def ours(self, size: int) -> Times:
        """Preempt a program with so many bytes of memory and resume it, as omfs-daemon does."""

    def bare(self, size: int) -> Times:
        """The same with the bare tool."""


class Place:
    """A directory on disk that every user may enter, with what has to be there; gone at the end.

    ``warm``: images stay in the page cache before they are read.
    """

    def __init__(self, warm: bool = False) -> None:
        self._warm = warm
        self.path = Path(tempfile.mkdtemp(prefix="omfs-bench-", dir=WHERE))
        self.path.chmod(0o711)
        self.omfs_run = build("omfs-run", self.path)
        self.omfs_node = build("omfs-node", self.path)
        for name in ("methods_program.py", "methods_worker.py"):
            shutil.copy(HERE / name, self.path)
            (self.path / name).chmod(0o644)
        self._made = 0

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def new(self, uid: int = USER) -> Path:
        """A new directory of this user's."""
        self._made += 1
        path = self.path / f"d{self._made}"
        path.mkdir(0o700)
        os.chown(path, uid, uid)
        return path

    def forget(self, directory: Path) -> None:
        """Drop what lies there from the page cache, unless images are to stay warm."""
        for path in [] if self._warm else directory.rglob("*"):
            if path.is_file() and not path.is_symlink():
                descriptor = os.open(path, os.O_RDONLY)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(descriptor)

    def program(self, size: int, directory: Path) -> list[str]:
        """The command of a program that holds so many bytes; it creates ``directory``/up when it is up."""
        words = [PYTHON, str(self.path / "methods_program.py"), str(size)]
        return [*words, str(directory / "up"), str(directory / "state")]


def start(
    command: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None, quiet: bool = True
) -> subprocess.Popen[bytes]:
    """Start something as the ordinary user, in a session of its own, with its output in ``directory``/said."""
    with (directory / "said").open("ab") as said:
        os.fchown(said.fileno(), USER, USER)
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL if quiet else subprocess.PIPE,
            stdout=said if quiet else subprocess.PIPE,
            stderr=said,
            cwd=directory,
            env=clean_environment() | dict(environment or {}),
            user=USER,
            group=USER,
            extra_groups=[],
            start_new_session=True,
        )


def clean_environment() -> dict[str, str]:
    """The environment without variables that would change what is measured."""
    return {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C.UTF-8", "HOME": "/"}


def until(condition: Callable[[], object], what: str) -> None:
    """Wait; two milliseconds are the resolution of all that is timed."""
    end = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {LIMIT:g} s for {what}")
        time.sleep(0.002)


def until_up(directory: Path) -> int:
    """The pid of the program that works in this directory, when it is up."""
    until((directory / "up").exists, "the program to be up")
    return int((directory / "up").read_text())


def fsync_all(directory: Path) -> int:
    """Put what lies in a directory on disk; its bytes."""
    size = 0
    for path in [*sorted(directory.rglob("*")), directory]:
        if path.is_symlink():
            continue
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            size += os.fstat(descriptor).st_size if path.is_file() else 0
        finally:
            os.close(descriptor)
    return size


def require(moved: int, size: int, what: str) -> None:
    """What is measured must have happened."""
    if moved < 0.95 * size:
        raise RuntimeError(f"{what}: {moved:,} bytes instead of {size:,}")


def cpu() -> float:
    """Seconds of processors that this process and its children have used."""
    return sum(os.times()[:4])
