"""Nodes on which Slurm does not start what seems to fit there are learned: one preemption in vain is enough."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.daemon.api.callers import Caller, Role
from omfs_daemon.daemon.api.why_view import why_view
from omfs_daemon.preemption.doubts import DOUBTED_FOR, doubted_by_request
from omfs_daemon.testing.fake_slurm.fake_jobs import Record
from tests.support.fake_site import Site, site_rules

NEVER = 10_000.0
RETRY = 20.0
KEPT = DOUBTED_FOR * RETRY


def site_with(directory: Path, hosts: int = 2, says: bool = False, **settings: float) -> tuple[Site, list[int]]:
    """Full of a borrower's jobs; four CPUs never fit on n1 for others, which nothing shows."""
    rules = site_rules()
    site = Site(directory, rules, hosts, **{"retry_after": RETRY, "start_timeout": 5.0, **settings})
    jobs = [site.submit("chem", run_time=NEVER, on=f"n{number}") for number in range(1, hosts + 1)]
    site.run(2)
    assert site.runs(*jobs)

    def unfit(record: Record) -> Collection[str]:
        return () if record.what.account == "chem" or record.request.cpus < 4 else ("n1",)

    site.slurm.let_not_fit(unfit, says)
    return site, jobs


def outcomes(site: Site) -> list[str]:
    """Of preemptions that took victims."""
    past = [one.outcome for one in reversed(site.history_database.preemptions(100, 0.0))]
    return [outcome for outcome in past if outcome != "not_startable"]


def doubted(site: Site) -> set[str]:
    found = doubted_by_request(site.journal.state.backoff.doubts, site.now)
    return set().union(*found.values())


def why(site: Site, job: int) -> str:
    report, state = site.reports[-1], site.journal.state
    rules, plan = site.settings.rules, report.plan
    return why_view(Caller(0, 0, "root", Role.OPERATOR), str(job), report, state, rules, site.history_database, plan)[
        "now"
    ]


def urgent(site: Site, **more: float) -> int:
    return site.submit("alarm", urgent=True, method="", run_time=5.0, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("says", [False, True])
def test_the_next_job_of_such_a_request_gets_other_nodes(says: bool, tmp_path: Path) -> None:
    site, jobs = site_with(tmp_path, says=says, hosts=3)
    for job in jobs[1:]:
        site.slurm.set_time_limit(site.slurm.records[job], NEVER)  # the job on n1 is the first victim of an urgent job
    first = urgent(site)
    site.run_until(lambda: bool(outcomes(site)), limit=60)
    assert outcomes(site) == ["not_started_in_time"]
    assert doubted(site) == {"n1"}
    site.run(2)
    other = site.submit("physics", urgent=True, method="", run_time=NEVER, user="ann")
    site.run_until(lambda: site.state(other) is JobState.RUNNING, limit=60)
    assert "n1" not in site.job(other).on_nodes
    assert outcomes(site).count("not_started_in_time") == 1
    site.run(KEPT / 2)
    assert outcomes(site).count("not_started_in_time") == 1
    assert site.slurm.history[first].outcome == ("COMPLETED" if says else ""), "Slurm's reason has changed, or not"


def test_it_is_explained(tmp_path: Path) -> None:
    site, _ = site_with(tmp_path, hosts=1)
    urgent(site)
    site.run_until(lambda: bool(outcomes(site)), limit=60)
    other = urgent(site)
    site.run(3 * RETRY)
    assert outcomes(site) == ["not_started_in_time"], "the back-off of such jobs is over, but there is no other node"
    assert "Not planned on n1" in why(site, other)
    small = urgent(site, cpus=2)
    site.run_until(lambda: site.runs(small), limit=10)
    assert "n1" in doubted(site), "another request says nothing about it"


def test_a_job_that_runs_there_ends_the_doubt(tmp_path: Path) -> None:
    site, jobs = site_with(tmp_path, hosts=1)
    first = urgent(site)
    site.run_until(lambda: doubted(site) == {"n1"}, limit=60)
    site.slurm.let_not_fit(lambda _: ())
    site.run(5)
    site.slurm.cancel(jobs[0])
    site.run_until(lambda: site.runs(first), limit=10)
    site.run(1)
    assert not site.journal.state.backoff.doubts


def test_the_doubt_ends_by_itself_and_comes_back_for_longer(tmp_path: Path) -> None:
    site, _ = site_with(tmp_path, hosts=1)
    urgent(site)
    site.run_until(lambda: doubted(site) == {"n1"}, limit=60)
    began = site.now
    urgent(site)
    site.run_until(lambda: outcomes(site) == ["not_started_in_time"] * 2, limit=2 * KEPT)
    assert site.now - began > KEPT
    (doubt,) = site.journal.state.backoff.doubts.values()
    assert doubt.times == 2 and doubt.until - site.now > 1.5 * KEPT
    urgent(site)
    site.run(1.5 * KEPT, step=2.0)
    assert len(outcomes(site)) == 2


def test_it_is_remembered_after_a_crash(tmp_path: Path) -> None:
    site, _ = site_with(tmp_path, hosts=1)
    urgent(site)
    site.run_until(lambda: doubted(site) == {"n1"}, limit=60)
    site.die()
    site.start_daemon()
    urgent(site)
    site.run(3 * RETRY)
    assert doubted(site) == {"n1"} and len(outcomes(site)) == 1


def test_nodes_that_others_have_taken_are_not_doubted(tmp_path: Path) -> None:
    site, _ = site_with(tmp_path, hosts=1)
    site.slurm.let_not_fit(lambda record: ("n1",) if record.what.account == "alarm" else ())
    site.settings = replace(site.settings, start_timeout=20.0)
    urgent(site)
    site.run_until(lambda: any(p.step == "starting" for p in site.journal.state.preemptions.values()), limit=20)
    taker = site.slurm.submit(replace(site.slurm.records[site.submitted[0]].what, account="physics", nice=-(2**31) + 2))
    site.run_until(lambda: site.runs(taker), limit=15)
    site.run_until(lambda: bool(outcomes(site)), limit=60)
    assert not doubted(site)
