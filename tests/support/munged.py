"""A munged of a test's own, and how a process of root's has credentials made for others."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from omfs_daemon.daemon.api.munge import Munge, Opened
from omfs_daemon.testing.local_slurm.munge import start_munged, works
from tests.support.waiting import LIMIT, wait_until


@contextmanager
def running_munged() -> Iterator[str]:
    """Its socket; it has a key of its own. Needs root."""
    directory = Path(tempfile.mkdtemp(prefix="omfs-munge-"))
    directory.chmod(0o755)
    process, socket = start_munged(directory / "munge")
    try:
        wait_until(lambda: works(socket), "munged")
        yield str(socket)
    finally:
        process.terminate()
        process.wait(LIMIT)
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def as_user(uid: int) -> Iterator[None]:
    """This process, with all of its threads."""
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


class MungeOf(Munge):
    """As a process of this user has it, while no other thread of this one needs munged."""

    def __init__(self, socket: str, uid: int) -> None:
        super().__init__(socket)
        self._uid = uid

    def encode(self, payload: bytes, reader: int) -> bytes:
        with as_user(self._uid):
            return super().encode(payload, reader)

    def decode(self, credential: bytes) -> Opened:
        with as_user(self._uid):
            return super().decode(credential)
