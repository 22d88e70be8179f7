"""A cluster for the tests of each module, and omfsd on it for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from tests.support.client_site import client_cluster, client_daemon
from tests.support.daemons import Daemon


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalSlurm]:
    with client_cluster() as slurm:
        yield slurm


@pytest.fixture
def daemon(cluster: LocalSlurm) -> Iterator[Daemon]:
    with client_daemon(cluster) as installation:
        yield installation
