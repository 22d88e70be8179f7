"""One installation of omfsd per test, on the session's real Slurm."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from tests.support.daemons import Daemon


@pytest.fixture
def daemon(slurm: LocalSlurm) -> Iterator[Daemon]:
    """Not started yet; ended with the test."""
    directory = Path(tempfile.mkdtemp(prefix="omfsd-"))
    installation = Daemon(slurm, directory)
    try:
        yield installation
    finally:
        installation.kill()
        shutil.rmtree(directory, ignore_errors=True)
