"""On a real Slurm nobody is preempted for a job that it would not start, although only Slurm knows that."""

from __future__ import annotations

import pytest

from tests.support.daemons import Daemon
from tests.support.waiting import LIMIT, wait_until

pytestmark = pytest.mark.slurm

UNCERTAIN = """
from omfs_daemon.policy.start_checks.answer import Answer, AnswerKind
from omfs_daemon.policy.start_checks.static_rules import StartChecks
StartChecks.answer = lambda *arguments, **options: Answer(AnswerKind.UNKNOWN)
from omfs_daemon.cli.omfsd import run
run()
"""
"""An omfsd that never knows beforehand whether Slurm would start a job."""


def outcomes(daemon: Daemon) -> list[str]:
    return [past["outcome"] for past in daemon.ask("history")["preemptions"]]


def restarts(daemon: Daemon, jobs: list[int]) -> int:
    return sum(daemon.job(job).restarts for job in jobs)


def test_a_job_that_lacks_a_license_preempts_nobody_until_it_is_free(daemon: Daemon) -> None:
    holder = daemon.submit("physics", "-L", "matlab:1", method="requeue")
    bio = [daemon.submit("bio", method="requeue") for _ in range(3)]
    daemon.wait_running(holder, *bio)
    daemon.start(UNCERTAIN)
    physics = daemon.submit("physics", "-L", "matlab:1", method="requeue")
    wait_until(lambda: "Licenses" in daemon.why_text(physics), "the reason")
    assert daemon.runs(*bio)
    assert restarts(daemon, bio) == 0
    assert "started" not in outcomes(daemon)
    daemon.slurm.command("scontrol", "update", f"jobid={holder}", "licenses=")
    daemon.wait_running(physics)
    assert restarts(daemon, bio) <= 1
    daemon.let_end(holder, physics, *bio)
    daemon.wait_rest()
    assert daemon.completed([holder, physics, *bio])


def test_jobs_that_lack_only_resources_start_also_many_at_once(daemon: Daemon) -> None:
    bio = [daemon.submit("bio", "-n1", method="requeue") for _ in range(16)]
    daemon.wait_running(*bio)
    daemon.start(UNCERTAIN)
    physics = [daemon.submit("physics", "-n1", method="requeue") for _ in range(8)]
    wait_until(lambda: daemon.runs(*physics), f"{len(physics)} jobs to run; log: {daemon.tail()}", 2 * LIMIT)
    assert restarts(daemon, bio) == 8
    daemon.let_end(*physics, *bio)
    daemon.wait_rest()
    assert daemon.completed([*physics, *bio])
