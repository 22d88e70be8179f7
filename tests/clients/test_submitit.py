"""submitit beside omfsd: its jobs are warned, save their work, and go on from it (docs/clients.md)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import JobState
from tests.support.amounts import is_soak
from tests.support.client_site import PROGRAMS, ClientRun, client_run, urgent
from tests.support.daemons import Daemon
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slurm

JOBS = 6 if is_soak() else 2


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="omfs-submitit-") as directory:
        yield Path(directory)


def submitted(run: ClientRun, daemon: Daemon) -> list[str]:
    """The references of its jobs, which count."""
    run.wait_for("submitted", *(f"counts-{number}-from-0" for number in range(JOBS)))
    array = (run.folder / "submitted").read_text()
    return [f"{array}_{number}" for number in range(JOBS)]


def states(daemon: Daemon, refs: list[str]) -> set[JobState | None]:
    found = {job.ref: job.state for job in daemon.gateway.jobs()}
    return {found.get(ref) for ref in refs}


def submitit(daemon: Daemon, folder: Path, *options: str) -> tuple[str, ...]:
    return (str(PROGRAMS / "submitit_client.py"), str(folder), str(JOBS), "account=bio", *options)


def test_its_jobs_save_their_work_on_the_signal_and_go_on_from_it(daemon: Daemon, folder: Path) -> None:
    """Though its class would suspend them: the submit plug-in excludes that for submitit."""
    with client_run(daemon.slurm, folder, *submitit(daemon, folder, "omfs_signal=USR2")) as run:
        refs = submitted(run, daemon)
        comments = {job.comment for job in daemon.gateway.jobs() if job.ref in refs}
        assert comments == {"omfs:signal=USR2 omfs:exclude=suspend,pageout,ve_swap"}
        first = urgent(daemon)
        daemon.let_end(first)
        wait_until(
            lambda: states(daemon, refs) == {JobState.RUNNING}, lambda: f"{daemon.observation()} {daemon.tail()}"
        )
        assert list(folder.glob("ended-*")) == [], "it never takes them for ended"
        run.end()
        found = run.result()
    assert [result["begun_at"] >= 5 for result in found] == [True] * JOBS, found
    daemon.wait_rest()


@pytest.mark.clients
def test_it_takes_suspended_jobs_for_ended_ones(daemon: Daemon, folder: Path) -> None:
    """Why that is excluded. The jobs complete all the same."""
    with client_run(daemon.slurm, folder, *submitit(daemon, folder, "omfs_method=suspend")) as run:
        refs = submitted(run, daemon)
        first = urgent(daemon)
        assert states(daemon, refs) == {JobState.SUSPENDED}
        run.wait_for("ended-SUSPENDED")
        daemon.let_end(first)
        wait_until(
            lambda: states(daemon, refs) == {JobState.RUNNING}, lambda: f"{daemon.observation()} {daemon.tail()}"
        )
        run.end()
        run.result()
    daemon.wait_rest()
