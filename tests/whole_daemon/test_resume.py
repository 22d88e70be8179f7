"""Jobs whose memory was moved out come back when others are in their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import Hold, JobState
from omfs_daemon.cluster.marks import SUBMIT_MARK
from omfs_daemon.cluster.preempt_methods import IN
from omfs_daemon.preemption.methods.node_work import NodeAction
from omfs_daemon.testing.fake_slurm.fake_gateway import Fault
from tests.support.fake_omfs_node import GB
from tests.support.fake_site import Site
from tests.support.preemption_cases import (
    ON_NODES,
    VE_SIZE,
    check_peace,
    check_running_as_before,
    lost,
    methods_site,
    preemptor,
    victim,
)


def stopped_job_with_borrowers_in_its_place(site: Site, method: str) -> tuple[int, list[int], int]:
    """A job of physics stands back for an urgent one; when that ends, jobs of bio are on all CPUs."""
    job = victim(site, method, "n1", account="physics", run_time=100, time_limit=1000, size=12 * GB)
    bio = [site.submit("bio", method="requeue", on="n2", run_time=300, time_limit=500)]
    site.run(2)
    assert site.runs(job, *bio)
    urgent = preemptor(site, method, run_time=10)
    site.run_until(lambda: site.runs(urgent), limit=30)
    assert site.state(job) is JobState.SUSPENDED
    return job, bio, urgent


@pytest.mark.parametrize("method", ON_NODES)
def test_an_entitled_job_takes_its_place_back_from_borrowers(method: str, tmp_path: Path) -> None:
    site = methods_site(tmp_path, hosts=2)
    job, bio, urgent = stopped_job_with_borrowers_in_its_place(site, method)
    # The daemon is away when the urgent job ends: somebody borrows the CPUs.
    site.die()
    borrower = site.submit("bio", method="requeue", on="n1", run_time=300, time_limit=500)
    site.now += 15
    site.slurm.catch_up()
    assert site.runs(borrower)
    assert site.slurm.history[urgent].outcome == "COMPLETED"
    site.start_daemon()
    site.run_until(lambda: site.runs(job), limit=60)
    site.run(5)
    check_running_as_before(site, job)
    assert max(site.slurm.processes().values()) <= 4
    assert site.state(borrower) is JobState.PENDING
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
    assert lost(site, [job]) == 0
    check_peace(site)
    assert bio


@pytest.mark.parametrize("method", ON_NODES)
def test_a_backlog_gets_none_of_its_cpus_while_its_memory_comes_in(method: str, tmp_path: Path) -> None:
    """Its memory is moved in before the borrower is preempted; so the borrower is preempted once, and not in vain."""
    site = methods_site(tmp_path, hosts=2)
    job, bio, _ = stopped_job_with_borrowers_in_its_place(site, method)
    site.die()
    borrower = site.submit("bio", method="requeue", on="n1", run_time=300, time_limit=500)
    site.now += 15
    site.slurm.catch_up()
    backlog = [site.submit("bio", method="requeue", run_time=50, time_limit=500) for _ in range(10)]
    site.start_daemon()
    site.run_until(lambda: site.runs(job), limit=60)
    site.run(5)
    check_running_as_before(site, job)
    assert max(site.slurm.processes().values()) <= 4
    assert len(site.slurm.history[borrower].starts) == 1
    assert lost(site, [*bio, *backlog]) == 0
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
    check_peace(site)


@pytest.mark.parametrize("method", ON_NODES)
def test_a_borrower_is_not_preempted_for_a_job_that_cannot_be_moved_in(method: str, tmp_path: Path) -> None:
    site = methods_site(tmp_path, hosts=2)
    job, _, _ = stopped_job_with_borrowers_in_its_place(site, method)
    site.die()
    borrower = site.submit("bio", method="requeue", on="n1", run_time=300, time_limit=500)
    site.now += 15
    site.slurm.catch_up()
    site.nodes.fail(NodeAction.IN, "no_ve_memory")
    site.start_daemon()
    site.run(100, step=1)
    assert site.runs(borrower)
    assert site.slurm.history[borrower].lost == 0
    assert site.history_database.preemptions(10, 0.0)[0].outcome == "not_started_in_time"
    site.nodes.fix()
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
    assert lost(site, [job]) == 0
    check_peace(site)


@pytest.mark.parametrize("method", ON_NODES)
def test_what_a_return_cost_is_recorded_though_slurm_does_not_take_the_mark(method: str, tmp_path: Path) -> None:
    site = methods_site(tmp_path, hosts=1)
    job = victim(site, method, "n1", run_time=100, time_limit=1000)
    site.run_until(lambda: site.runs(job), limit=20)
    urgent = preemptor(site, method, run_time=10)
    site.run_until(lambda: site.runs(urgent), limit=30)
    site.gateway.faults.inject(Fault.DEAD, ["set_admin_comment"])
    site.run_until(lambda: site.runs(job) and str(job) not in site.journal.state.preempted, limit=60)
    site.run(5)
    site.gateway.faults.clear()
    (paid,) = [paid for paid in site.history_database.costs(0.0) if paid.direction == IN]
    assert (paid.job, paid.method) == (str(job), method)
    site.rest()
    check_peace(site)


def test_a_placed_job_that_is_requeued_while_suspended_gets_its_request_back(tmp_path: Path) -> None:
    site = methods_site(tmp_path, hosts=2)
    placed = site.submit(
        "bio",
        method="ve_swap",
        run_time=300,
        size=VE_SIZE,
        licenses=(("ve", 1),),
        hold=Hold.USER,
        admin_comment=SUBMIT_MARK,
    )
    site.submit("bio", method="", on="n2", run_time=300)
    site.run_until(lambda: site.runs(placed), limit=20)
    assert site.job(placed).licenses == (("ve_n1", 1),)
    site.run(65)  # its nodes are wanted no longer
    urgent = preemptor(site, "ve_swap", run_time=30)
    site.run_until(lambda: site.runs(urgent), limit=40)
    assert site.job(placed).licenses == ()
    site.gateway.requeue([str(placed)])
    site.run(5)
    assert site.job(placed).licenses == (("ve", 1),)
    assert not site.job(placed).request.required_nodes


def test_a_job_that_slurm_does_not_suspend_again_is_recorded_once(tmp_path: Path) -> None:
    site = Site(tmp_path, hosts=1)
    job = site.submit("bio", method="suspend", run_time=900)
    site.run(2)
    urgent = site.submit("alarm", urgent=True, method="", run_time=20)
    site.run_until(lambda: site.runs(urgent), limit=20)
    site.gateway.faults.inject(Fault.REFUSE, ["suspend"])
    site.gateway.resume([str(job)])
    site.run(10)
    events = [event.event for event in site.history_database.of_job(str(job))]
    assert events == ["preempted", "runs_again", "suspended_again"]
    site.run_until(lambda: str(job) not in site.journal.state.preempted, limit=40)
    site.rest()
