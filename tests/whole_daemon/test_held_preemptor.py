"""A preemptor that we hold: it is released before anybody is preempted."""

from __future__ import annotations

from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import Hold, JobState
from omfs_daemon.cluster.marks import SUBMIT_MARK, MarkWord
from omfs_daemon.preemption.state import Pause, PauseEnded
from omfs_daemon.testing.fake_slurm.fake_gateway import Fault
from omfs_daemon.testing.fake_slurm.omfs_run_behavior import OmfsRunBehavior
from omfs_daemon.testing.fake_slurm.restarts import SavedState
from tests.support.fake_site import Site
from tests.support.preemption_cases import lost, methods_site, preemptor, victim, victims, word_of


def held_preemptor(directory: Path, array: tuple[int, ...] = ()) -> tuple[Site, int, list[int]]:
    """The daemon starts again while a job that it holds could preempt a borrower; the job, and those of bio."""
    site = Site(directory, hosts=2)
    site.submit("physics", method="", run_time=30)
    bio = [site.submit("bio", run_time=500)]
    site.run(2)
    held = site.submit("physics", method="", run_time=30, array=array)
    site.run(2)
    assert site.job(held).hold is Hold.ADMIN
    site.die()
    bio.append(site.submit("bio", run_time=500))
    site.now += 40
    site.slurm.catch_up()
    assert site.runs(*bio)
    site.start_daemon()
    return site, held, bio


def test_nobody_is_preempted_for_a_job_that_slurm_does_not_release(tmp_path: Path) -> None:
    site, held, bio = held_preemptor(tmp_path)
    site.gateway.faults.inject(Fault.REFUSE, ["release"])
    site.run(20)
    assert site.runs(*bio)
    assert site.job(held).hold is Hold.ADMIN
    assert site.history_database.preemptions(10, 0.0)[0].outcome == "refused_by_slurm"


def test_nobody_is_preempted_for_it_during_a_pause(tmp_path: Path) -> None:
    site, held, bio = held_preemptor(tmp_path)
    site.journal.write(Pause("root", site.now))
    site.run(5)
    assert site.runs(*bio) and not site.runs(held)
    site.journal.write(PauseEnded("root", site.now))
    site.run_until(lambda: site.runs(held), limit=10)
    site.rest()


@pytest.mark.parametrize("tasks", [(1, 2, 3), (5,)])
def test_the_other_tasks_of_its_array_stay_held(tmp_path: Path, tasks: tuple[int, ...]) -> None:
    site, _, bio = held_preemptor(tmp_path, array=tasks)
    site.run_until(lambda: not site.runs(*bio), limit=10)
    site.run(3)
    mine = [job for job in site.gateway.jobs() if job.account == "physics"]
    assert sum(job.tasks for job in mine if job.hold is Hold.ADMIN) == len(tasks) - 1
    assert sum(job.state is JobState.RUNNING for job in mine) == 1
    site.rest()


def test_a_job_without_nodes_stays_held_during_a_pause(tmp_path: Path) -> None:
    site = methods_site(tmp_path, hosts=1)
    victims(site, "ve_swap", count=1)
    site.journal.write(Pause("root", site.now))
    urgent = preemptor(site, "ve_swap")
    site.run(5)
    assert site.job(urgent).hold is not Hold.NONE


@pytest.mark.parametrize("who", ["owner", "operator"])
def test_nobody_more_is_preempted_for_one_that_is_held_after_its_release(tmp_path: Path, who: str) -> None:
    """It has the mark of the release still, which tells no longer who holds it."""
    site = methods_site(tmp_path, hosts=1)
    slow = victim(site, "dmtcp", cpus=2, on="n1", run_time=200, launched=OmfsRunBehavior("dmtcp", seconds=20))
    quick = site.submit("bio", method="requeue", cpus=2, on="n1", run_time=200)
    site.run(3)
    urgent = preemptor(site, "", cpus=4, hold=Hold.USER, admin_comment=SUBMIT_MARK)
    site.run(5)
    assert site.job(urgent).hold is Hold.NONE and word_of(site, urgent) is MarkWord.RELEASED
    assert site.slurm.user_hold(urgent) if who == "owner" else site.slurm.admin_hold(urgent, is_operator=True)
    site.run(40)
    assert len(site.slurm.history[quick].starts) == 1 and lost(site, [quick]) == 0
    assert site.held() == [str(urgent)]
    assert [one.outcome for one in site.history_database.preemptions(10, 0.0)] == ["preemptor_held"]
    assert not site.journal.state.backoff.until
    assert site.slurm.admin_release(urgent)
    site.run_until(lambda: site.runs(urgent), limit=60)
    site.rest()
    assert lost(site, [slow]) == 0


def test_a_release_that_slurmctld_forgets_is_no_hold_by_others(tmp_path: Path) -> None:
    site = methods_site(tmp_path, hosts=1)
    victim(site, "dmtcp", cpus=4, on="n1", run_time=200, launched=OmfsRunBehavior("dmtcp", seconds=20))
    site.run(3)
    saved: list[SavedState] = []
    site.gateway.between = lambda: saved.append(site.slurm.save())
    urgent = preemptor(site, "", cpus=4, hold=Hold.USER, admin_comment=SUBMIT_MARK)
    site.run_until(lambda: bool(saved) and not site.journal.state.releasing, limit=20)
    site.gateway.between = lambda: None
    site.slurm.restart(saved[0])
    assert site.job(urgent).hold is not Hold.NONE and word_of(site, urgent) is MarkWord.RELEASED
    site.run_until(lambda: bool(site.history_database.preemptions(10, 0.0)), limit=60)
    assert [one.outcome for one in site.history_database.preemptions(10, 0.0)] == ["started"]
