"""A suspended job is resumed on its own CPUs only when nobody else has them: not merely when enough are idle."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.units import Unit
from omfs_daemon.slurm.gateway import OrderRefusal
from omfs_daemon.testing.fake_slurm.omfs_run_behavior import OmfsRunBehavior
from tests.support.fake_site import Site, site_rules
from tests.whole_daemon.test_preemption_failsafe import failsafe


def units(site: Site, job: Job) -> frozenset[Unit]:
    return site.gateway.units([job]).get(job.id, frozenset())


def sharing(site: Site) -> list[tuple[int, int]]:
    """Jobs that run on the same CPUs."""
    running = [(job.id, units(site, job)) for job in site.gateway.jobs() if job.runs]
    return [(one, other) for (one, mine), (other, theirs) in combinations(running, 2) if mine & theirs]


def run_apart(site: Site, seconds: float) -> None:
    """Some time in which no two jobs may share CPUs."""
    end = site.now + seconds
    while site.now < end:
        site.step()
        assert not sharing(site), site.observation()


def under_way(site: Site) -> set[str]:
    """Those for whom others are being preempted."""
    return {preemption.preemptor.ref for preemption in site.journal.state.preemptions.values()}


def suspended_with_idle_cpus_beside_it(site: Site) -> tuple[int, int]:
    """A suspended job, and an urgent job on its CPUs; as many others of its node are idle."""
    job = site.submit("bio", cpus=2, method="suspend", run_time=600)
    site.run(1)
    beside = site.submit("bio", cpus=2, method="", run_time=600)
    site.run(2)
    urgent = site.submit("alarm", cpus=2, urgent=True, method="", run_time=300)
    site.run_until(lambda: site.runs(urgent), limit=20)
    assert site.state(job) is JobState.SUSPENDED
    site.slurm.cancel(beside)
    return job, urgent


def test_idle_cpus_are_not_enough_if_others_have_its_own(tmp_path: Path) -> None:
    site = Site(tmp_path, hosts=1)
    job, urgent = suspended_with_idle_cpus_beside_it(site)
    run_apart(site, 60)
    assert site.state(job) is JobState.SUSPENDED
    site.slurm.cancel(urgent)
    site.run_until(lambda: site.runs(job), limit=10)
    run_apart(site, 5)


def suspended_for_an_urgent_job(site: Site, seconds: float = 30) -> tuple[int, int]:
    """A job of physics on the first two CPUs, suspended for an urgent one that takes the whole node."""
    job = site.submit("physics", cpus=2, method="suspend", run_time=2000, time_limit=4000)
    site.run(1)
    urgent = site.submit("alarm", cpus=4, urgent=True, method="", run_time=seconds)
    site.run_until(lambda: site.runs(urgent), limit=20)
    assert site.state(job) is JobState.SUSPENDED
    return job, urgent


def borrowers_on_all_cpus(site: Site, urgent: int) -> list[int]:
    """The daemon is away when the urgent job ends: others borrow the CPUs, the one that starts last elsewhere."""
    site.die()
    site.slurm.cancel(urgent)
    site.now += 15
    borrowers = [site.submit("bio", cpus=2, method="requeue", run_time=5000)]
    site.now += 5
    site.slurm.catch_up()
    borrowers.append(site.submit("bio", cpus=2, method="requeue", run_time=5000))
    site.now += 5
    site.slurm.catch_up()
    assert site.runs(*borrowers)
    return borrowers


def test_victims_of_a_suspended_job_are_those_who_have_its_cpus(tmp_path: Path) -> None:
    """Among equals the job that started last is preempted first, but here that would free the wrong CPUs, again each
    time it returns."""
    site = Site(tmp_path, hosts=1)
    job, urgent = suspended_for_an_urgent_job(site)
    first, last = borrowers_on_all_cpus(site, urgent)
    assert units(site, site.job(first)) == units(site, site.job(job))
    site.start_daemon()
    site.run_until(lambda: site.runs(job), limit=30)
    run_apart(site, 400)
    assert site.runs(job, last)
    assert len(site.slurm.history[last].starts) == 1
    assert site.slurm.history[job].suspensions == 1


def test_nobody_is_preempted_for_a_suspended_job_whose_cpus_cannot_be_freed(tmp_path: Path) -> None:
    site = Site(tmp_path, hosts=1)
    job, urgent = suspended_for_an_urgent_job(site)
    site.die()
    site.slurm.cancel(urgent)
    site.now += 15
    kept = site.submit("bio", cpus=2, method="", run_time=300)
    site.now += 5
    site.slurm.catch_up()
    other = site.submit("bio", cpus=2, method="requeue", run_time=5000)
    site.now += 5
    site.slurm.catch_up()
    assert site.runs(kept, other)
    site.start_daemon()
    run_apart(site, 200)
    assert site.runs(kept, other) and site.state(job) is JobState.SUSPENDED
    assert len(site.slurm.history[other].starts) == 1
    site.run_until(lambda: site.runs(job), limit=200)
    run_apart(site, 5)


def test_a_job_that_gets_its_cpus_while_a_victim_writes_its_checkpoint_keeps_them(tmp_path: Path) -> None:
    """The preemption is undone at once: it would be in vain."""
    site = Site(tmp_path, site_rules(methods=("requeue", "suspend", "dmtcp")), hosts=1)
    job, urgent = suspended_for_an_urgent_job(site)
    site.die()
    site.slurm.cancel(urgent)
    site.now += 15
    slow = OmfsRunBehavior(seconds=20)
    victim = site.submit("stranger", cpus=1, method="dmtcp", run_time=900, launched=slow)
    site.submit("stranger", cpus=1, method="", run_time=50)
    site.submit("stranger", cpus=2, method="", run_time=900)
    for _ in range(3):
        site.now += 30
        site.slurm.catch_up()
    assert units(site, site.job(victim)) < units(site, site.job(job))
    assert site.slurm.processes() == {"n1": 3}
    site.start_daemon()
    site.run_until(lambda: str(job) in under_way(site), limit=20)
    late = site.submit("alarm", cpus=1, urgent=True, method="", run_time=300)
    site.run_until(lambda: str(job) not in under_way(site), limit=5)
    run_apart(site, 100)
    assert site.runs(victim, late) and site.state(job) is JobState.SUSPENDED
    assert site.slurm.history[victim].lost == 0 and len(site.slurm.history[victim].starts) <= 2
    outcomes = [preemption.outcome for preemption in site.history_database.preemptions(10, 0.0)]
    assert sorted(outcomes) == ["not_started_in_time", "started"]


def test_a_job_that_got_its_cpus_in_the_same_moment_keeps_them(tmp_path: Path) -> None:
    """Slurm may start a job between the poll and the resume. The resumed one is suspended again, once, and stays so."""
    site = Site(tmp_path, hosts=1)
    job, urgent = suspended_for_an_urgent_job(site)
    site.slurm.cancel(urgent)
    site.run_until(lambda: site.state(urgent) is JobState.ENDED, limit=10)
    late: list[int] = []
    resume = site.gateway.resume

    def resume_too_late(refs: Sequence[str]) -> list[OrderRefusal]:
        late.append(site.submit("bio", cpus=2, method="", run_time=100))
        site.slurm.catch_up()
        site.now += 2
        site.slurm.catch_up()
        return resume(refs)

    site.gateway.resume = resume_too_late  # type: ignore[method-assign]
    site.run_until(lambda: bool(late), limit=10)
    site.gateway.resume = resume  # type: ignore[method-assign]
    assert sharing(site)
    site.step()
    assert site.state(job) is JobState.SUSPENDED and site.runs(*late)
    run_apart(site, 60)
    assert site.state(job) is JobState.SUSPENDED
    events = [event.event for event in site.history_database.of_job(str(job))]
    assert events == ["preempted", "runs_again", "suspended_again"]
    site.run_until(lambda: site.runs(job), limit=100)
    run_apart(site, 5)
    assert site.slurm.history[job].suspensions == 2


def test_of_two_suspended_jobs_with_the_same_cpus_one_is_resumed(tmp_path: Path) -> None:
    site = Site(tmp_path, hosts=1)
    first, urgent = suspended_for_an_urgent_job(site)
    site.slurm.cancel(urgent)
    site.die()
    site.now += 15
    second = site.submit("physics", cpus=2, method="suspend", run_time=2000, time_limit=4000)
    site.slurm.catch_up()
    site.now += 5
    site.slurm.catch_up()
    site.start_daemon()
    another = site.submit("alarm", cpus=4, urgent=True, method="", run_time=20)
    site.run_until(lambda: site.runs(another), limit=20)
    assert {site.state(job) for job in (first, second)} == {JobState.SUSPENDED}
    assert units(site, site.job(first)) == units(site, site.job(second))
    site.run_until(lambda: site.state(another) is JobState.ENDED, limit=60)
    run_apart(site, 60)
    assert sorted((site.state(first), site.state(second))) == [JobState.RUNNING, JobState.SUSPENDED]


@pytest.mark.parametrize("is_readable", [True, False])
def test_a_job_that_has_its_cpus_is_known_by_its_start_where_ids_cannot_be_read(
    tmp_path: Path, is_readable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs that ran beside it before have others; one that started since may have its own."""
    site = Site(tmp_path, hosts=1)
    if not is_readable:
        monkeypatch.setattr(site.gateway, "units", lambda _jobs: {})
    job = site.submit("bio", cpus=2, method="suspend", run_time=600)
    beside = site.submit("bio", cpus=1, method="", run_time=900)
    site.run(10)
    urgent = site.submit("alarm", cpus=2, urgent=True, method="", run_time=100)
    site.run_until(lambda: site.runs(urgent), limit=20)
    site.run(5)
    late = site.submit("bio", cpus=1, method="", run_time=300)
    site.run_until(lambda: site.runs(late), limit=10)
    site.slurm.cancel(urgent)
    site.run_until(lambda: site.state(urgent) is JobState.ENDED, limit=10)
    site.run(20)
    assert site.runs(job) == is_readable, "the late job has the fourth CPU, which only ids tell"
    site.run_until(lambda: site.state(late) is JobState.ENDED, limit=400)
    site.run_until(lambda: site.runs(job), limit=10)
    assert site.runs(beside)


def test_nobody_is_resumed_for_whom_a_waiting_preemptor_comes_in_the_next_cycle(tmp_path: Path) -> None:
    site = Site(tmp_path, site_rules(max_preemptions_per_cycle=1), hosts=2)
    site.submit("bio", cpus=2, on="n2", run_time=900)
    site.run(2)
    job = site.submit("bio", cpus=2, on="n2", method="suspend", run_time=900)
    site.run(2)
    urgent = site.submit("alarm", cpus=2, on="n2", urgent=True, method="", run_time=20)
    site.run_until(lambda: site.runs(urgent), limit=20)
    site.submit("bio", on="n1", run_time=900)
    site.run_until(lambda: site.state(urgent) is JobState.COMPLETING, limit=40, step=0.1)
    more = [site.submit("alarm", urgent=True, method="", run_time=20) for _ in range(2)]
    site.slurm.catch_up()
    site.now += 1
    site.run_until(lambda: site.runs(*more), limit=20)
    assert site.slurm.history[job].suspensions == 1


def test_the_failsafe_resumes_nobody_on_cpus_of_others(tmp_path: Path) -> None:
    site = Site(tmp_path, hosts=1)
    job, urgent = suspended_with_idle_cpus_beside_it(site)
    site.die()
    site.now += 30
    assert failsafe(site) == 1
    assert site.state(job) is JobState.SUSPENDED and site.runs(urgent)
    site.slurm.cancel(urgent)
    site.now += 30
    assert failsafe(site) == 0
    assert site.runs(job) and not sharing(site)
