"""History tells what happened, not what was meant: outcomes and start times are Slurm's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.daemon.store.history_database import PastPreemption
from omfs_daemon.preemption.preemption import Step
from omfs_daemon.testing.fake_slurm.omfs_run_behavior import OmfsRunBehavior
from omfs_daemon.testing.fake_slurm.people import Actor, People
from tests.support.fake_site import Site
from tests.support.preemption_cases import check_peace, lost, methods_site, preemptor, victim


def past(site: Site) -> PastPreemption:
    """The one preemption that is over."""
    (found,) = site.history_database.preemptions(10, 0.0)
    return found


def started(site: Site, job: int | str) -> list[float]:
    """Start times that the history gives."""
    data = [event.data for event in site.history_database.of_job(str(job))]
    return [float(str(each["start"])) for each in data if "start" in each]


def full_site(directory: Path) -> tuple[Site, int]:
    """One node, full with a job that is killed when it is preempted."""
    site = Site(directory, hosts=1)
    quick = site.submit("bio", run_time=100)
    site.run(2)
    assert site.runs(quick)
    return site, quick


def begun(site: Site, run_time: float = 1.0, **more: object) -> int:
    """An urgent job, and one cycle, which sends the orders of its preemption."""
    urgent = site.submit("alarm", urgent=True, method="", run_time=run_time, **more)
    site.step(0.05)
    assert site.journal.state.preemptions
    return urgent


def step_of(site: Site) -> Step:
    (preemption,) = site.journal.state.preemptions.values()
    return preemption.step


# -- canceled ----------------------------------------------------------------------------------------------------
def while_work_is_saved(site: Site) -> int:
    slow = victim(site, "dmtcp", on="n1", run_time=200, launched=OmfsRunBehavior("dmtcp", seconds=20))
    site.run(3)
    assert site.runs(slow)
    urgent = preemptor(site, "")
    site.run(5)
    assert step_of(site) is Step.STOPPING
    return urgent


def while_a_victim_leaves(site: Site) -> int:
    site.submit("bio", run_time=100)
    site.run(2)
    return begun(site)


def while_its_owner_defers_it(site: Site) -> int:
    urgent = while_a_victim_leaves(site)
    assert People(site.slurm).set_begin(urgent, Actor.OWNER, site.now + 60)
    site.run(5)
    assert step_of(site) is Step.STARTING
    return urgent


@pytest.mark.parametrize("wait", [while_work_is_saved, while_a_victim_leaves, while_its_owner_defers_it])
def test_a_preemptor_that_is_canceled_while_it_waits_has_not_started(
    tmp_path: Path, wait: Callable[[Site], int]
) -> None:
    site = methods_site(tmp_path, hosts=1)
    urgent = wait(site)
    site.slurm.cancel(urgent)
    site.run(40)
    assert (past(site).outcome, past(site).waited) == ("preemptor_gone", None)
    assert started(site, urgent) == []
    site.rest()
    check_peace(site)


# -- started ------------------------------------------------------------------------------------------------------
def check_started(site: Site, urgent: int, ref: str = "") -> None:
    """As Slurm says."""
    (at,) = site.slurm.history[urgent].starts
    submitted = site.slurm.records[urgent].submitted
    assert (past(site).outcome, past(site).waited) == ("started", at - submitted)
    assert started(site, ref or urgent) == [at]


@pytest.mark.parametrize("run_time", [1.0, 100.0])
def test_a_start_that_is_observed_late_has_slurms_time(tmp_path: Path, run_time: float) -> None:
    """Also of a job that has ended by then."""
    site, _ = full_site(tmp_path)
    urgent = begun(site, run_time)
    site.now += 30
    site.step()
    check_started(site, urgent)


def test_a_preemptor_that_is_canceled_after_its_start_has_started(tmp_path: Path) -> None:
    site, _ = full_site(tmp_path)
    urgent = begun(site, 100)
    site.now += 5
    site.slurm.cancel(urgent)
    site.now += 5
    site.step()
    check_started(site, urgent)


def test_a_preemptor_that_starts_elsewhere_has_slurms_time(tmp_path: Path) -> None:
    site = Site(tmp_path, hosts=2)
    jobs = [site.submit("bio", on=node, run_time=100) for node in ("n1", "n2")]
    site.run(2)
    urgent = begun(site, 100)
    (preemption,) = site.journal.state.preemptions.values()
    (pinned,) = preemption.preemptor.allocations
    site.slurm.drain(pinned.node)
    site.slurm.cancel(next(job for job in jobs if site.runs(job)))
    site.gateway.pin(str(urgent), [])
    site.now += 4
    site.step()
    assert site.job(urgent).on_nodes != (pinned.node,)
    check_started(site, urgent)


def test_a_task_that_came_and_went_between_two_polls_has_started(tmp_path: Path) -> None:
    site, _ = full_site(tmp_path)
    array = begun(site, 1, array=(1, 2))
    site.now += 30
    site.slurm.catch_up()
    task = next(number for number in site.slurm.history if site.slurm.records[number].tasks == (1,))
    site.step()
    found = site.history_database.preemptions(10, 0.0)[-1]
    assert (found.preemptor, found.outcome) == (f"{array}_1", "started")
    assert started(site, f"{array}_1") == site.slurm.history[task].starts


def test_a_preemptor_that_started_and_was_requeued_between_two_polls(tmp_path: Path) -> None:
    """It is not said that it did not start on the nodes that were freed."""
    site, quick = full_site(tmp_path)
    urgent = begun(site, 20)
    site.now += 5
    site.slurm.catch_up()
    assert site.runs(urgent)
    site.gateway.requeue([str(urgent)])
    site.now += 5
    site.step()
    assert (past(site).outcome, past(site).waited) == ("preemptor_requeued", None)
    site.rest()
    assert len(site.slurm.history[urgent].starts) == 2
    assert site.outcomes() == {quick: "COMPLETED", urgent: "COMPLETED"}
    check_peace(site)


# -- suspended preemptors --------------------------------------------------------------------------------------------
def suspended_preemptor(directory: Path, run_time: float) -> tuple[Site, int]:
    """A suspended job of an entitled account takes its place back from a borrower, whose checkpoint takes a while."""
    site = methods_site(directory, hosts=2)
    own = site.submit("physics", method="suspend", on="n1", run_time=run_time)
    site.submit("bio", on="n2", run_time=300)
    site.run(2)
    urgent = preemptor(site, "", run_time=8, on="n1")
    site.run_until(lambda: site.runs(urgent))
    site.run(2)
    assert site.state(own) is JobState.SUSPENDED
    site.die()
    borrower = victim(site, "dmtcp", on="n1", run_time=300, launched=OmfsRunBehavior("dmtcp", seconds=20))
    site.now += 10
    site.slurm.catch_up()
    assert site.runs(borrower)
    site.start_daemon()
    site.run_until(lambda: bool(site.journal.state.preemptions))
    (preemption,) = site.journal.state.preemptions.values()
    assert (preemption.preemptor.ref, preemption.preemptor.suspended) == (str(own), True)
    return site, own


def test_a_suspended_preemptor_that_is_canceled_has_not_run_again(tmp_path: Path) -> None:
    """Nor while it leaves."""
    site, own = suspended_preemptor(tmp_path, 100)
    site.run(5)
    site.slurm.cancel(own)
    assert site.state(own) is JobState.COMPLETING
    site.run(40)
    found = site.history_database.preemptions(10, 0.0)[0]
    assert (found.preemptor, found.outcome, found.waited) == (str(own), "preemptor_gone", None)
    site.rest()
    check_peace(site)


def test_a_suspended_preemptor_that_ended_between_two_polls_has_run(tmp_path: Path) -> None:
    """Slurm does not show when it was resumed."""
    site, own = suspended_preemptor(tmp_path, 5)
    site.run_until(lambda: site.runs(own), limit=60, step=0.05)
    assert site.journal.state.preemptions, "that it runs again has not been observed"
    site.now += 30
    site.step()
    found = site.history_database.preemptions(10, 0.0)[0]
    assert (found.preemptor, found.outcome, found.waited) == (str(own), "started", None)
    assert "has run" in [event.text for event in site.history_database.of_job(str(own))]
    site.rest()


# -- victims ------------------------------------------------------------------------------------------------------
def test_a_victim_that_ended_by_itself_was_not_preempted(tmp_path: Path) -> None:
    site = methods_site(tmp_path, hosts=1)
    slow = victim(site, "dmtcp", cpus=2, on="n1", run_time=200, launched=OmfsRunBehavior("dmtcp", seconds=20))
    quick = site.submit("bio", method="requeue", cpus=2, on="n1", run_time=200)
    site.run(3)
    urgent = preemptor(site, "", cpus=4)
    site.run(5)
    site.slurm.cancel(slow)
    site.run_until(lambda: site.runs(urgent), limit=20)
    site.run(2)
    assert {found["job"]: found["preempted"] for found in past(site).victims} == {str(slow): False, str(quick): True}
    assert "preempting 1 jobs" in site.job(urgent).admin_comment
    site.rest()


def test_a_victim_that_was_spared_was_not_preempted(tmp_path: Path) -> None:
    """A third job on its node ends by itself, so the preemptor starts before a checkpoint is written."""
    site = methods_site(tmp_path, hosts=1)
    third = site.submit("bio", method="", cpus=2, on="n1", run_time=12)
    slow = victim(site, "dmtcp", cpus=1, on="n1", run_time=200, launched=OmfsRunBehavior("dmtcp", seconds=30))
    quick = site.submit("bio", method="requeue", cpus=1, on="n1", run_time=200)
    site.run(3)
    assert site.runs(third, slow, quick)
    urgent = preemptor(site, "", cpus=2)
    site.run_until(lambda: site.runs(urgent), limit=20)
    site.run(5)
    assert past(site).outcome == "started"
    assert {found["job"]: found["preempted"] for found in past(site).victims} == {str(slow): False, str(quick): False}
    assert "preempting" not in site.job(urgent).admin_comment
    site.rest()
    assert lost(site, [quick]) == 0
