"""What the demo needs besides the story: a directory, signals that end it properly, and proof that nothing is left."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
    """Somebody wants the demo to end; like KeyboardInterrupt, nobody is to take it for an error."""


class Interrupts:
    """Signals end what is done under :meth:`heard`, one that came before it included, and never the taking down."""

    def __init__(self) -> None:
        self._heard = False
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
    def heard(self) -> Iterator[None]:
        self._heard = True
        try:
            self._raise_pending()
            yield
        finally:
            self._heard = False

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._pending = signal.Signals(number).name
        if self._heard:
            self._raise_pending()

    def _raise_pending(self) -> None:
        if self._pending:
            self._heard = False
            raise Interrupted(f"ended by {self._pending}")


def left_running(directory: Path) -> list[str]:
    """Processes of the demo that do not end: our children, and whoever names the directory."""
    end = time.monotonic() + _LEAVE_LIMIT
    while (found := _of_demo(directory)) and time.monotonic() < end:
        time.sleep(_POLL)
    return found


def _of_demo(directory: Path) -> list[str]:
    here = psutil.Process()
    children = set(here.children(recursive=True))
    found = []
    for process in psutil.process_iter():
        try:
            if process != here and (process in children or _names(process, str(directory))):
                found.append(f"{process.name()} ({process.pid})")
        except psutil.Error:  # it ended while we looked, or is none of ours
            continue
    return found


def _names(process: psutil.Process, directory: str) -> bool:
    if process.status() == psutil.STATUS_ZOMBIE:
        return False
    texts = (*process.cmdline(), process.cwd(), *process.environ().values())
    return any(directory in text for text in texts)
