"""Writes a tool's files to disk while it still writes: most tools leave all of that to the final fsync."""

import os
import stat
import threading
from typing import Dict

_EVERY = 0.1  # seconds between two checks
_STEP = 64 * 1024 * 1024  # bytes that a file must have grown; the final fsync writes the rest


class WriteBack:
    """While this context is open, growing files in ``directory`` are written to disk. Errors are ignored."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._ended = threading.Event()
        self._written: Dict[int, int] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "WriteBack":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()  # without join: an fsync may take long, and the caller's own waits for the same data

    def _run(self) -> None:
        while not self._ended.wait(_EVERY):
            try:
                for name in os.listdir(self._directory):
                    self._write_out(os.path.join(self._directory, name))
            except OSError:
                continue  # renamed or removed meanwhile

    def _write_out(self, path: str) -> None:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size < self._written.get(found.st_ino, 0) + _STEP:
            return
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        self._written[found.st_ino] = found.st_size
