"""Real Slurm clusters for all tests that are marked ``slurm``; they fail, never skip, if it cannot be brought up."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from tests.helpers import wait_until

SHAPE = Shape(
    gres={"n1": "ve:2", "n2": "gpu:a100:2,gpu:v100:1"},
    features={"n1": "fast,ve", "n2": "fast"},
    partitions=("PartitionName=whole Nodes=n3,n4 OverSubscribe=EXCLUSIVE",),
    options={"KillWait": "2"},
)


@pytest.fixture
def slurm(_session_slurm: LocalSlurm) -> Iterator[LocalSlurm]:
    """A real cluster of four nodes (``SHAPE``), shared by the session; no job of a test outlives it."""
    yield _session_slurm
    clear(_session_slurm)


@pytest.fixture
def own_slurm() -> Iterator[Callable[..., LocalSlurm]]:
    """Make clusters that a test may break: takes what LocalSlurm takes after the directory, starts and ends them."""
    started: list[LocalSlurm] = []

    def make(shape: Shape | None = None, **options: object) -> LocalSlurm:
        cluster = LocalSlurm(_directory(), shape, **options)  # type: ignore[arg-type]
        started.append(cluster)
        cluster.start()
        return cluster

    try:
        yield make
    finally:
        for cluster in started:
            cluster.stop()
            shutil.rmtree(cluster.directory, ignore_errors=True)


@pytest.fixture(scope="session")
def _session_slurm() -> Iterator[LocalSlurm]:
    directory = _directory()
    try:
        with LocalSlurm(directory, SHAPE) as cluster:
            yield cluster
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def clear(cluster: LocalSlurm) -> None:
    """Cancel all jobs and wait until they are gone."""
    command = cluster.command

    def gone() -> bool:
        listed = command("squeue", "--noheader", "--format=%A").stdout.split()
        if listed:
            command("scancel", "--signal=KILL", *listed, check=False)  # at once, without KillWait
            command("scancel", *listed, check=False)
        return not listed

    wait_until(gone, 30, "all jobs to end")


def _directory() -> Path:
    # Not pytest's tmp_path: other users submit jobs too and must be able to enter it.
    return Path(tempfile.mkdtemp(prefix="omfs-slurm-"))
