"""A user who submits and cancels jobs again and again does not keep others from their work."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from omfs_daemon.policy.plan import Reason
from omfs_daemon.testing.fake_slurm.people import Actor, People
from tests.support.fake_site import Site, site_rules

QUANTUM = 600.0
ALLOWED = 4
NEVER = 100_000.0


@pytest.fixture(autouse=True)
def fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fdatasync", lambda _: None)
    monkeypatch.setattr("os.fsync", lambda _: None)


def borrowed_site(directory: Path, ignores_term: bool = False) -> Site:
    """Every CPU is lent to bio, whose jobs are past their quantum."""
    site = Site(directory, site_rules(QUANTUM, max_preemptions_per_hour=ALLOWED))
    for _ in range(16):
        site.submit("bio", cpus=1, run_time=NEVER, ignores_term=ignores_term)
    site.run(2)
    site.run(QUANTUM, step=10.0)
    return site


def serve(site: Site, run_time: float, times: int, pause: float = 6.0, **more: bool) -> int:
    """So many jobs of a user one after the other, each canceled or ended after so many seconds; returns for how many
    of them others were preempted."""
    before = len(site.history_database.preemptions(1000, 0.0))
    for _ in range(times):
        job = site.submit("physics", cpus=1, run_time=run_time, **more)  # type: ignore[arg-type]
        site.run(pause)
        site.slurm.cancel(job)
        site.run(1)
    return len(site.history_database.preemptions(1000, 0.0)) - before


@pytest.mark.parametrize("run_time", [NEVER, 3.0])
def test_brief_jobs_of_one_user_cost_others_little(run_time: float, tmp_path: Path) -> None:
    site = borrowed_site(tmp_path)
    assert serve(site, run_time, 10) == ALLOWED + 1
    waiting = site.submit("physics", cpus=1, run_time=NEVER)
    site.run(2)
    assert {wait.ref: wait.reason for wait in site.reports[-1].plan.waits}[str(waiting)] is Reason.BRIEF_JOBS
    other = site.submit("physics", cpus=1, run_time=NEVER, user="another")
    site.run_until(lambda: site.runs(other), limit=10)
    site.run_until(lambda: site.runs(waiting), limit=QUANTUM, step=5.0)


def test_a_job_that_its_owner_requeues_again_and_again_counts_each_time(tmp_path: Path) -> None:
    site = borrowed_site(tmp_path)
    job = site.submit("physics", cpus=1, run_time=NEVER)
    for _ in range(10):
        site.run(6.0)
        if site.runs(job):
            assert site.slurm.requeue_hold(job)
            assert site.slurm.user_release(job)
    assert len(site.history_database.preemptions(1000, 0.0)) == ALLOWED + 1


def test_so_does_one_that_its_owner_holds_while_others_are_preempted_for_it(tmp_path: Path) -> None:
    site = borrowed_site(tmp_path, ignores_term=True)
    for _ in range(10):
        job = site.submit("physics", cpus=1, run_time=NEVER)
        site.run(2.0)
        assert site.slurm.user_hold(job)
        site.run(10.0)
    preemptions = site.history_database.preemptions(1000, 0.0)
    assert [preemption.outcome for preemption in preemptions] == ["preemptor_held"] * (ALLOWED + 1)


@pytest.mark.parametrize("way", ["begin", "dependency"])
def test_k23_so_does_one_that_its_owner_delays_while_others_are_preempted_for_it(tmp_path: Path, way: str) -> None:
    """And lets start again, so that it lacks but resources: that ends the back-off of what Slurm has not started."""
    site = borrowed_site(tmp_path, ignores_term=True)
    people, other = People(site.slurm), site.submit("bio", cpus=1, run_time=NEVER)
    job, end = site.submit("physics", cpus=1, run_time=NEVER), site.now + 800.0
    while site.now < end:
        with suppress(AssertionError):  # at last it has to wait
            site.run_until(lambda: bool(site.journal.state.preemptions), limit=30.0)
        if way == "begin":
            people.set_begin(job, Actor.OWNER, site.now + 62.0)
        else:
            people.set_dependency(job, Actor.OWNER, other)
        site.run(64.0, step=2.0)
        if way == "dependency":
            people.set_dependency(job, Actor.OWNER, 0)
    preemptions = site.history_database.preemptions(1000, 0.0)
    assert [preemption.outcome for preemption in preemptions] == ["not_started_in_time"] * (ALLOWED + 1)


def test_one_that_is_preempted_in_turn_does_not_count(tmp_path: Path) -> None:
    site = borrowed_site(tmp_path)
    job = site.submit("physics", cpus=1, run_time=NEVER)
    site.run_until(lambda: site.runs(job), limit=10)
    site.submit("alarm", cpus=4, urgent=True, run_time=NEVER, on=site.job(job).allocations[0].node)
    site.run_until(lambda: str(job) in site.journal.state.preempted, limit=10)
    site.run(70.0)
    assert not site.journal.state.backoff.served
    assert not site.journal.state.backoff.users


def test_urgent_jobs_and_jobs_that_stay_do_not_count(tmp_path: Path) -> None:
    site = borrowed_site(tmp_path)
    assert serve(site, NEVER, ALLOWED + 2, urgent=True) == ALLOWED + 2
    (tmp_path / "stay").mkdir()
    site = borrowed_site(tmp_path / "stay")
    assert serve(site, NEVER, ALLOWED + 2, pause=70.0) == ALLOWED + 2


def test_it_is_forgotten_after_an_hour(tmp_path: Path) -> None:
    site = borrowed_site(tmp_path)
    serve(site, NEVER, 6)
    site.run(3700, step=20.0)
    assert serve(site, NEVER, 1) == 1
    (backoff,) = site.journal.state.backoff.users.values()
    assert len(backoff.brief) == 1
