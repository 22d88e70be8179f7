"""snakemake, dask-jobqueue, and parsl beside omfsd, preempted by requeue and by suspension (docs/clients.md).

With the options that the page names.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import Job, JobState
from tests.support.client_site import PROGRAMS, client_run, urgent
from tests.support.daemons import ROOT, Daemon

pytestmark = [pytest.mark.slurm, pytest.mark.clients]

PYTHON = os.environ.get("OMFS_CLIENTS_PYTHON", str(ROOT / "build" / "clients" / "bin" / "python"))


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="omfs-clients-") as directory:
        yield Path(directory)


def jobs(daemon: Daemon) -> list[Job]:
    return [job for job in daemon.gateway.jobs() if job.account == "bio"]


def started(folder: Path) -> list[int]:
    """How often each of the two tasks has started."""
    return [len(list(folder.glob(f"started-{number}-*"))) for number in (0, 1)]


@pytest.mark.parametrize(("method", "away"), [("requeue", JobState.PENDING), ("suspend", JobState.SUSPENDED)])
@pytest.mark.parametrize("client", ["snakemake", "dask", "parsl"])
def test_its_jobs_are_preempted_and_its_tasks_complete(
    daemon: Daemon, folder: Path, client: str, method: str, away: JobState
) -> None:
    with client_run(
        daemon.slurm, folder, str(PROGRAMS / f"{client}_client.py"), str(folder), method, python=PYTHON
    ) as run:
        run.wait_until(lambda: started(folder) == [1, 1], "its tasks")
        before = jobs(daemon)
        assert [f"omfs:method={method}" in job.comment.split() for job in before] == [True, True]
        if client == "snakemake":
            assert [job.comment.startswith("rule_wait_wildcards_") for job in before] == [True, True]
        first = urgent(daemon)
        assert {job.ref: job.state for job in jobs(daemon)} == {job.ref: away for job in before}
        daemon.let_end(first)
        again = {job.ref: JobState.RUNNING for job in before}
        run.wait_until(lambda: {job.ref: job.state for job in jobs(daemon)} == again, "its jobs to run again")
        if method == "requeue":
            run.wait_until(lambda: min(started(folder)) > 1, "its tasks to run again")
        run.end()
        assert run.result() == [0, 1]
    assert method == "requeue" or started(folder) == [1, 1], "nothing was run twice"
    daemon.wait_rest()
