"""What the demo needs besides its script: a directory, signals that end it properly, and proof that nothing is left."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

import psutil

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LEAVE_LIMIT = 5.0
_POLL = 0.1
_SHARED_TMP = "/tmp"  # noqa: S108 — mkdtemp makes a name of its own; TMPDIR may be closed to the jobs' owners


def make_directory() -> Path:
    """A new directory that other users can enter."""
    directory = Path(tempfile.mkdtemp(prefix="omfs-demo-", dir=_SHARED_TMP))
    directory.chmod(0o755)
    return directory


class Interrupted(BaseException):
    """A signal ends the demo; like KeyboardInterrupt, it is not an error."""


class Interrupts:
    """Signals interrupt what runs under :meth:`enabled`, also one that came before, but never the cleanup."""

    def __init__(self) -> None:
        self._enabled = False
        self._pending = ""
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._on_signal) for number in _ENDING}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    @contextmanager
    def enabled(self) -> Iterator[None]:
        self._enabled = True
        try:
            self._raise_pending()
            yield
        finally:
            self._enabled = False

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._pending = signal.Signals(number).name
        if self._enabled:
            self._raise_pending()

    def _raise_pending(self) -> None:
        if self._pending:
            self._enabled = False
            raise Interrupted(f"ended by {self._pending}")


def end_left(directory: Path) -> list[str]:
    """Kill children of ours that still work in the directory; what then still runs there, whoever started it.

    A signal may come between the start of a process and the moment in which its number is remembered.
    """
    ours = set(psutil.Process().children(recursive=True))
    for process in ours.intersection(_working_in(directory)):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    end = time.monotonic() + _LEAVE_LIMIT
    while (left := _working_in(directory)) and time.monotonic() < end:
        time.sleep(_POLL)
    return [str(process.pid) for process in left]


def _working_in(directory: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it has ended, or belongs to another user
            if process.pid != os.getpid() and _names(process, str(directory)):
                found.append(process)
    return found


def _names(process: psutil.Process, directory: str) -> bool:
    """Zombies have no command line any more."""
    texts = (*process.cmdline(), process.cwd(), *process.environ().values())
    return any(directory in text for text in texts)
