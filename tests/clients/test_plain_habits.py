"""Slurm's own commands beside omfsd, while their jobs are preempted (docs/clients.md)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import JobState
from tests.support.client_site import ClientRun, urgent
from tests.support.daemons import Daemon
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.clients]

SCRIPT = "#!/bin/sh\nwhile [ ! -e {folder}/end ]; do sleep 0.1; done\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="omfs-habits-") as directory:
        (Path(directory) / "job.sh").write_text(SCRIPT.format(folder=directory))
        yield Path(directory)


def one_job(daemon: Daemon) -> int:
    wait_until(lambda: len(daemon.gateway.jobs()) == 1, "the job")
    (job,) = daemon.gateway.jobs()
    daemon.wait_running(job.id)
    return job.id


def preempted(daemon: Daemon, job: int, away: JobState) -> None:
    first = urgent(daemon)
    assert daemon.job(job).state is away
    daemon.let_end(first)
    daemon.wait_running(job)


@pytest.mark.parametrize(("method", "away"), [("requeue", JobState.PENDING), ("suspend", JobState.SUSPENDED)])
def test_sbatch_waits_and_dependent_jobs_do(daemon: Daemon, folder: Path, method: str, away: JobState) -> None:
    options = ["--wait", "-A", "bio", "-o", "/dev/null", f"--omfs-method={method}", str(folder / "job.sh")]
    run = ClientRun(daemon.slurm, folder, *options, python="sbatch")
    try:
        job = one_job(daemon)
        after = daemon.slurm.submit("true", "-A", "bio", f"--dependency=afterok:{job}", "--omfs-method=requeue")
        preempted(daemon, job, away)
        assert daemon.job(after).state is JobState.PENDING
        assert not run.has_ended()
        run.end()
        assert run.exit_code() == 0
    finally:
        run.kill()
    daemon.wait_rest()
    assert daemon.completed([job, after])


def test_srun_is_suspended_and_goes_on(daemon: Daemon, folder: Path) -> None:
    options = ["-A", "bio", "--omfs-method=suspend", "sh", str(folder / "job.sh")]
    run = ClientRun(daemon.slurm, folder, *options, python="srun")
    try:
        job = one_job(daemon)
        preempted(daemon, job, JobState.SUSPENDED)
        assert not run.has_ended()
        run.end()
        assert run.exit_code() == 0
    finally:
        run.kill()
    daemon.wait_rest()
