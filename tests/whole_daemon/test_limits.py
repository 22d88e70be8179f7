"""Limits that Slurm enforces: nobody is preempted for a job beyond one, and it starts once the limit is lifted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.cluster.limits import Association, Qos, RunningLimits, SiteLimits, UsageLimits
from omfs_daemon.cluster.marks import SUBMIT_MARK
from tests.support.fake_site import Site

NEVER = 10_000.0
NOBODY_USES_IT = RunningLimits()
ENFORCED = frozenset({"associations", "limits", "qos"})


def limits(each: RunningLimits = NOBODY_USES_IT, **group: Any) -> SiteLimits:
    """Those of QOS high."""
    accounts = ("bio", "physics")
    users = {(account, account, ""): Association(account, account) for account in accounts}
    by_user = dict.fromkeys(range(70_000), each)
    by_account = dict.fromkeys(accounts, NOBODY_USES_IT)
    high = Qos("high", UsageLimits(**group), by_user, by_account, frozenset())
    return SiteLimits(ENFORCED, users, {"high": high})


def full_site(directory: Path) -> tuple[Site, list[int]]:
    site = Site(directory)
    jobs = [site.submit("bio", run_time=NEVER) for _ in range(4)]
    site.run(2)
    assert site.runs(*jobs)
    return site, jobs


def held(site: Site, **more: Any) -> int:
    """A non-preemptible job as the gate holds it, so that Slurm shows no other reason."""
    return site.submit("physics", method="", run_time=NEVER, hold=Hold.USER, admin_comment=SUBMIT_MARK, **more)


def restarts(site: Site, jobs: list[int]) -> int:
    return sum(len(site.slurm.history[job].starts) - 1 for job in jobs)


def reason(site: Site, job: int) -> str:
    plan = site.reports[-1].plan
    assert plan is not None
    return next((wait.text for wait in plan.waits if wait.ref == str(job)), "")


@pytest.mark.parametrize("urgent", [False, True])
@pytest.mark.parametrize(
    ("site_limits", "word"),
    [
        (limits(tres={"cpu": 3}), "QOSGrpCpuLimit"),
        (limits(jobs=0), "QOSGrpJobsLimit"),
        (limits(job_tres={"cpu": 3}), "QOSMaxCpuPerJobLimit"),
        (limits(RunningLimits(0)), "QOSMaxJobsPerUserLimit"),
        (limits(RunningLimits(None, {"cpu": 3})), "QOSMaxCpuPerUserLimit"),
    ],
)
def test_nobody_is_preempted_for_a_job_beyond_a_limit(
    site_limits: SiteLimits, word: str, urgent: bool, tmp_path: Path
) -> None:
    site, jobs = full_site(tmp_path)
    site.slurm.set_limits(site_limits)
    site.run(60)
    physics = held(site, qos="high", urgent=urgent)
    site.run(0.5)
    assert word in reason(site, physics)
    site.run(30)
    assert restarts(site, jobs) == 0 and site.runs(*jobs)
    site.slurm.set_limits(limits())
    site.run_until(lambda: site.runs(physics), limit=120)
    site.run(5)
    assert sum(site.runs(job) for job in jobs) == 3
    assert site.runs(physics)


def test_array_tasks_beyond_the_throttle_preempt_nobody(tmp_path: Path) -> None:
    site, jobs = full_site(tmp_path)
    array = held(site, array=(1, 2), array_throttle=1)
    site.run(60)
    running = [record for record in site.slurm.records.values() if record.array_id == array and record.active]
    assert len(running) == 1
    assert [past.outcome for past in site.history_database.preemptions(100, 0.0)] == ["started"]
    assert sum(site.runs(job) for job in jobs) == 3


def test_a_job_that_slurm_would_not_start_keeps_no_idle_nodes(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.slurm.set_limits(limits(jobs=0))
    jobs = [site.submit("bio", run_time=NEVER) for _ in range(3)]
    refused = held(site, qos="high")
    site.run(2)
    other = held(site)
    site.run(10)
    assert site.runs(*jobs, other) and not site.runs(refused)
    assert restarts(site, jobs) == 0
    plan = site.reports[-1].plan
    assert plan is not None
    assert not plan.preemptions
