"""Jobs whose time is up before the slowest victim lets go are left to run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.preempt_methods import MethodSpeed
from omfs_daemon.testing.fake_slurm.omfs_run_behavior import OmfsRunBehavior
from tests.support.fake_site import Killed, Site
from tests.support.preemption_cases import check_peace, lost, methods_site, preemptor, victim


def site_with(directory: Path, ends_after: float, saves: float = 20.0, **settings: float) -> tuple[Site, int, int, int]:
    """One job each on three nodes: one that saves its work, which takes 20 s, one whose time is up soon, and one that
    can be requeued."""
    site = methods_site(directory, hosts=3, **settings)
    speeds = {"dmtcp": MethodSpeed(preempt_seconds=20.0)}
    site.settings = replace(site.settings, rules=replace(site.settings.rules, speeds=speeds))
    slow = victim(site, "dmtcp", on="n1", run_time=60.0, launched=OmfsRunBehavior(seconds=saves))
    ends = site.submit("bio", on="n2", run_time=300.0, time_limit=ends_after)
    other = site.submit("bio", on="n3", run_time=60.0, time_limit=600.0)
    site.run_until(lambda: site.runs(slow, ends, other), limit=20)
    return site, slow, ends, other


def wide(site: Site, **more: float) -> int:
    return preemptor(site, "requeue", cpus=12, hosts=3, **more)


def starts(site: Site, job: int) -> int:
    return len(site.slurm.history[job].starts)


def test_it_runs_to_its_end(tmp_path: Path) -> None:
    site, slow, ends, other = site_with(tmp_path, ends_after=15.0)
    site.run(2)
    urgent = wide(site, run_time=5.0)
    began = site.now
    site.run(5)
    assert site.runs(ends, other), "the quick one waits until the others are safe"
    site.run_until(lambda: site.runs(urgent), limit=40)
    assert site.now - began < 30
    assert (starts(site, ends), site.slurm.history[ends].outcome) == (1, "TIMEOUT")
    site.run(2)
    (past,) = site.history_database.preemptions(10, 0.0)
    assert {str(one["job"]): (one["method"], bool(one["preempted"])) for one in past.victims} == {
        str(slow): ("dmtcp", True),
        str(ends): ("ends", False),
        str(other): ("requeue", True),
    }
    assert all(event.event != "preempted" for event in site.history_database.of_job(str(ends)))
    site.rest()
    assert lost(site, [slow]) == 0
    check_peace(site)


def test_one_that_has_more_time_is_preempted(tmp_path: Path) -> None:
    site, _, ends, _ = site_with(tmp_path, ends_after=60.0)
    site.run(2)
    urgent = wide(site, run_time=5.0)
    site.run_until(lambda: site.runs(urgent), limit=40)
    assert site.state(ends) is JobState.PENDING
    site.rest()
    check_peace(site)


def test_one_that_gets_more_time_meanwhile_is_preempted_after_all(tmp_path: Path) -> None:
    """That it did not end counts against nobody: nothing was asked of it."""
    site, slow, ends, other = site_with(tmp_path, ends_after=15.0, preempt_timeout=30.0)
    site.run(2)
    urgent = wide(site, run_time=5.0)
    site.run(3)
    site.slurm.set_time_limit(site.slurm.records[ends], 400.0)
    site.run(20)
    assert starts(site, other) == 1, "nobody is preempted who waits for it"
    site.run_until(lambda: site.slurm.history[urgent].outcome == "COMPLETED", limit=90)
    assert not site.journal.state.failures
    outcomes = {past.outcome for past in site.history_database.preemptions(10, 0.0)}
    assert outcomes == {"decision_too_old", "started"}
    site.rest()
    assert lost(site, [slow]) == 0
    check_peace(site)


def test_after_a_crash_it_still_runs_to_its_end(tmp_path: Path) -> None:
    site, _, ends, _ = site_with(tmp_path, ends_after=15.0)
    site.run(2)
    urgent = wide(site, run_time=5.0)
    site.run(3)
    site.fuse.kill_at = site.fuse.acts + 1
    try:
        site.run(30)
    except Killed:
        site.die()
        site.start_daemon()
    site.run_until(lambda: site.slurm.history[urgent].outcome == "COMPLETED", limit=200)
    assert starts(site, ends) == 1
    site.rest()
    check_peace(site)
