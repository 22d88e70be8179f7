"""A preemptor that we hold: it is released before anybody is preempted."""

from __future__ import annotations

from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import Hold, JobState
from omfs_daemon.preemption.state import Pause, PauseEnded
from omfs_daemon.testing.fake_slurm.fake_gateway import Fault
from tests.support.fake_site import Site
from tests.support.preemption_cases import methods_site, preemptor, victims


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
