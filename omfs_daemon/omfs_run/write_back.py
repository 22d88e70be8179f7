"""Has what a tool writes go to disk while it still writes: most tools leave all of it to the fsync at their end."""

import os
import stat
import threading
from typing import Dict

_EVERY = 0.1  # seconds between two looks
_STEP = 64 * 1024 * 1024  # bytes by which a file has grown before it is worth it; what is left is the fsync's


class Early:
    """While this context is open, files that grow in ``directory`` are written out. A help only: errors are ignored."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._ended = threading.Event()
        self._written: Dict[int, int] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Early":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()  # not waited for: an fsync may last, and whoever comes next waits for the same

    def _run(self) -> None:
        while not self._ended.wait(_EVERY):
            try:
                for name in os.listdir(self._directory):
                    self._write_out(os.path.join(self._directory, name))
            except OSError:
                continue  # renamed or gone meanwhile

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
