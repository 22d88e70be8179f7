"""What a user tries to have others preempted sooner, or to take another's promise away; two users on a real Slurm."""

from __future__ import annotations

import json
from typing import Any

import pytest

from omfs_daemon.cluster.jobs import JobState
from tests.support.daemons import Daemon
from tests.support.real_realtime import ACT_AT, BOUND, POLL, configure
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slurm

HONEST, GREEDY = "games", "nobody"
MINUTES = 60
"""So long that no threshold is reached within the test."""


@pytest.fixture
def full(daemon: Daemon) -> Daemon:
    """A machine full of jobs that may be preempted, and omfsd."""
    configure(daemon, poll=POLL / 10)
    batch = [daemon.submit("bio", method="requeue") for _ in range(4)]
    daemon.wait_running(*batch)
    daemon.start()
    return daemon


def submit(full: Daemon, user: str, *arguments: str, account: str = "alarm", minutes: int = MINUTES) -> int:
    job = full.submit(account, f"--time={minutes}", *arguments, uid=user)
    full.why(job)
    return job


def update(full: Daemon, user: str, job: int, change: str) -> bool:
    """Whether Slurm takes it from this user."""
    return full.slurm.command("scontrol", "update", f"jobid={job}", change, uid=user, check=False).code == 0


def promised(full: Daemon, job: int) -> dict[str, Any]:
    found: dict[str, Any] = full.why(job)["realtime"]
    return found


def due_at(full: Daemon, job: int) -> float:
    """When jobs are preempted for it, as omfsd sees it now."""
    view = json.loads(full.omfs("when", str(job), "--json", check=False).stdout)
    at: float = next(one["bound"]["acts_at"] for one in (*view["jobs"], *view["none"]))
    return at


def seen(full: Daemon, job: int, limit: float, comment: str) -> None:
    """Until omfsd has polled what Slurm shows of the job."""
    shown = full.job(job)
    assert (shown.time_limit, shown.comment) == (limit, comment)
    before = full.ask("status")["last_poll"]
    wait_until(lambda: full.ask("status")["last_poll"] > before + POLL, "a poll")


def test_no_user_gains_by_what_they_may_write(full: Daemon) -> None:
    honest = submit(full, HONEST)
    tight = submit(full, GREEDY, "--comment=omfs:bound=1.01")
    named = submit(full, GREEDY, "--comment=omfs:class=beamline omfs:bound=1.3", account="bio")
    shorter, looser = submit(full, GREEDY), submit(full, GREEDY)
    for job in (tight, shorter):
        assert (promised(full, job)["bound"], promised(full, job)["act_at"]) == (BOUND, ACT_AT)
    assert promised(full, named) is None
    due = {job: due_at(full, job) for job in (honest, tight, shorter, looser)}
    assert all(at == full.job(job).submit + (ACT_AT - 1) * MINUTES * 60 for job, at in due.items())

    assert update(full, GREEDY, shorter, "timelimit=1")
    seen(full, shorter, 60.0, "")
    assert due_at(full, shorter) == due[shorter], "the time limit at first sight counts"
    full.kill()
    full.start()
    assert due_at(full, shorter) == due[shorter], "after a restart, too"

    assert update(full, GREEDY, looser, "comment=omfs:bound=2")
    seen(full, looser, MINUTES * 60.0, "omfs:bound=2")
    assert due_at(full, looser) == pytest.approx(due[looser] + (2 - BOUND) * MINUTES * 60)
    assert update(full, GREEDY, looser, "comment=omfs:bound=1.01")
    seen(full, looser, MINUTES * 60.0, "omfs:bound=1.01")
    assert due_at(full, looser) == due[looser]

    for change in ("timelimit=1", "comment=omfs:bound=9"):
        assert not update(full, GREEDY, honest, change), change
    assert due_at(full, honest) == due[honest]
    assert {full.job(job).state for job in due} == {JobState.PENDING}
    assert full.ask("history")["preemptions"] == []


def test_who_raises_the_limit_of_a_job_that_waits_is_due_later(full: Daemon) -> None:
    """Slurm lets its owner, until it has started."""
    job = submit(full, GREEDY, minutes=MINUTES)
    assert update(full, GREEDY, job, f"timelimit={2 * MINUTES}")
    seen(full, job, 2 * MINUTES * 60.0, "")
    assert due_at(full, job) == full.job(job).submit + (ACT_AT - 1) * 2 * MINUTES * 60
    full.let_end(*(one.id for one in full.gateway.jobs() if one.account == "bio"))
    full.wait_running(job)
    assert not update(full, GREEDY, job, f"timelimit={3 * MINUTES}")
    full.let_end(job)
