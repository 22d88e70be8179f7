"""An urgent job whose victim lets go slowly takes others beside, once; what is not needed returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.preemption.beside import NO_PROGRESS
from omfs_daemon.testing.fake_slurm.omfs_run_behavior import OmfsRunBehavior
from tests.support.amounts import sample
from tests.support.fake_site import Site
from tests.support.preemption_cases import (
    Act,
    check_peace,
    check_running_as_before,
    lost,
    methods_site,
    play,
    preemptor,
    victim,
)

LONG = 500.0


def site_of(directory: Path, hosts: int, **settings: float) -> Site:
    """With Slurm's own KillWait."""
    site = methods_site(directory, hosts=hosts, **settings)
    site.slurm.timing = replace(site.slurm.timing, kill_wait=30.0)
    return site


def requeued(site: Site, node: str, slow: bool = False, time_limit: float = 10_000.0, run_time: float = LONG) -> int:
    """``slow``: it ignores SIGTERM, so that Slurm kills it after KillWait."""
    return site.submit("bio", method="requeue", on=node, run_time=run_time, time_limit=time_limit, ignores_term=slow)


def past(site: Site) -> list[tuple[str, list[str]]]:
    """The preemptions that are over: outcome and victims."""
    found = site.history_database.preemptions(10, 0.0)
    return sorted((one.outcome, [str(victim["job"]) for victim in one.victims]) for one in found)


def begun(site: Site) -> int:
    return site.journal.state.next_preemption - 1


def settle(site: Site) -> None:
    site.run_until(lambda: not site.journal.state.preemptions, limit=120)


def test_others_are_taken_beside_a_slow_victim(tmp_path: Path) -> None:
    site = site_of(tmp_path, hosts=2)
    slow, quick = requeued(site, "n1", slow=True, time_limit=20_000.0), requeued(site, "n2")
    site.run(2)
    urgent = preemptor(site, "requeue", run_time=60.0)
    site.run(NO_PROGRESS)
    assert begun(site) == 1 and site.runs(quick)
    site.run_until(lambda: site.runs(urgent), limit=4)
    assert site.job(urgent).on_nodes == ("n2",)
    assert site.state(slow) is JobState.COMPLETING
    settle(site)
    assert past(site) == [("started", [str(quick)]), ("started_elsewhere", [str(slow)])]
    state = site.journal.state
    assert not state.spared and not state.failures, "it was within its own timeout"
    site.run_until(lambda: site.runs(slow), limit=20)
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
    check_peace(site)


def test_that_is_done_once(tmp_path: Path) -> None:
    site = site_of(tmp_path, hosts=4)
    jobs = [requeued(site, f"n{number}", slow=True) for number in range(1, 5)]
    site.run(2)
    urgent = preemptor(site, "requeue")
    site.run_until(lambda: site.runs(urgent), limit=60)
    assert begun(site) == 2
    assert sum(site.runs(job) for job in jobs) == 2
    settle(site)
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
    check_peace(site)


def test_what_is_not_needed_in_the_end_runs_on(tmp_path: Path) -> None:
    """The slow victim lets go first after all."""
    site = site_of(tmp_path, hosts=2)
    slow = requeued(site, "n1", slow=True, time_limit=20_000.0)
    other = victim(site, "dmtcp", on="n2", run_time=LONG, launched=OmfsRunBehavior(seconds=50.0))
    site.run(3)
    urgent = preemptor(site, "requeue", run_time=30.0)
    site.run_until(lambda: begun(site) == 2, limit=10)
    site.run_until(lambda: site.runs(urgent), limit=60)
    assert site.job(urgent).on_nodes == ("n1",)
    settle(site)
    assert past(site) == [("started", [str(slow)]), ("started_elsewhere", [str(other)])]
    site.run(60)
    assert not site.journal.state.failures.get(str(other)), (
        "it was left to end its checkpoint, and nothing counts against it"
    )
    check_running_as_before(site, other)
    assert lost(site, [other]) == 0


def test_a_job_that_fits_meanwhile_needs_no_victims(tmp_path: Path) -> None:
    site = site_of(tmp_path, hosts=2)
    requeued(site, "n1", slow=True, time_limit=20_000.0)
    ends = site.submit("bio", method="", on="n2", run_time=6.0)
    site.run(2)
    urgent = preemptor(site, "requeue")
    site.run_until(lambda: site.runs(urgent), limit=10)
    assert site.job(urgent).on_nodes == ("n2",)
    assert site.slurm.history[ends].outcome == "COMPLETED"
    settle(site)
    assert past(site)[0] == ("started", [])


def test_a_victim_that_needs_longer_than_others_is_waited_for(tmp_path: Path) -> None:
    """Its time is known, and others are not faster."""
    site = site_of(tmp_path, hosts=2)
    jobs = [victim(site, "pageout", on=f"n{number}", run_time=LONG) for number in (1, 2)]
    site.run(3)
    urgent = preemptor(site, "requeue")
    site.run_until(lambda: site.runs(urgent), limit=60)
    assert begun(site) == 1
    assert sum(site.runs(job) for job in jobs) == 1


def test_an_owner_waits(tmp_path: Path) -> None:
    site = site_of(tmp_path, hosts=2)
    jobs = [requeued(site, f"n{number}", slow=True) for number in (1, 2)]
    site.run(2)
    physics = site.submit("physics", run_time=5.0)
    site.run_until(lambda: site.runs(physics), limit=60)
    assert begun(site) == 1 and sum(site.runs(job) for job in jobs) == 1


def test_a_slow_victim_fails_after_its_own_timeout_only(tmp_path: Path) -> None:
    site = site_of(tmp_path, hosts=2, preempt_timeout=20.0)
    slow, _ = requeued(site, "n1", slow=True, time_limit=20_000.0), requeued(site, "n2")
    site.run(2)
    began = site.now
    urgent = preemptor(site, "requeue", run_time=5.0)
    site.run_until(lambda: str(slow) in site.journal.state.failures, limit=60)
    assert site.now - began > 20
    assert site.slurm.history[urgent].outcome == "COMPLETED"
    site.rest()
    check_peace(site)


SCENARIO: Sequence[tuple[float, Act]] = [
    (0.0, partial(requeued, node="n1", slow=True, time_limit=20_000.0, run_time=20.0)),
    (0.0, partial(requeued, node="n2", run_time=20.0)),
    (2.0, partial(preemptor, method="requeue", run_time=4.0)),
]


def crash_points(directory: Path) -> Sequence[int]:
    directory.mkdir()
    site = site_of(directory, hosts=2)
    play(site, SCENARIO)
    assert begun(site) == 2
    return sample(site.fuse.crash_points(step=2), 8)


def test_killed_anywhere_every_job_ends(tmp_path: Path) -> None:
    for kill_at in crash_points(tmp_path / "whole"):
        directory = tmp_path / str(kill_at)
        directory.mkdir()
        site = site_of(directory, hosts=2)
        site.fuse.kill_at = kill_at
        play(site, SCENARIO)
        assert set(site.outcomes().values()) == {"COMPLETED"}, kill_at
        check_peace(site)
