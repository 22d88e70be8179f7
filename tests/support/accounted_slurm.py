"""A private Slurm with slurmdbd, and two accounts of root's."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from omfs_daemon.testing.local_slurm.slurmdbd import Accounting
from tests.support.waiting import LIMIT


@contextmanager
def accounted_slurm(shape: Shape) -> Iterator[LocalSlurm]:
    """In a directory of its own that every user may read."""
    with tempfile.TemporaryDirectory(prefix="omfs-accounted-") as directory:
        Path(directory).chmod(0o755)
        accounting = Accounting(["bio", "physics"], ["root"])
        with LocalSlurm(Path(directory), shape, accounting=accounting, limit=LIMIT) as slurm:
            yield slurm
