"""Jobs that cannot be read, or whose kind is not supported: left to Slurm, named, and no trouble for any other job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from omfs_daemon.cluster.jobs import Allocation, Hold, Job, JobRequest, JobState
from omfs_daemon.cluster.marks import SUBMIT_MARK
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.cluster.snapshot import with_whole_nodes
from omfs_daemon.daemon.failsafe import rescue
from omfs_daemon.policy.rules.queue_order import Band, band_of
from omfs_daemon.testing.fake_slurm.fake_gateway import Fault
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission
from tests.support.fake_site import ORDERS, Site
from tests.whole_daemon.test_process import ALICE, BOB, ROOT, Stand

UNREADABLE = JobRequest(20, nodes=5, memory_per_node=2**60)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def ordered(site: Site) -> set[str]:
    """The jobs that are given orders from now on."""
    refs: set[str] = set()

    def counted(order: Callable[..., object]) -> Callable[..., object]:
        def send(named: str | list[str], *more: object, **options: object) -> object:
            refs.update([named] if isinstance(named, str) else named)
            return order(named, *more, **options)

        return send

    for name in ORDERS:
        setattr(site.gateway, name, counted(getattr(site.gateway, name)))
    return refs


def odd(site: Site, **more: object) -> int:
    return site.slurm.submit(Submission(UNREADABLE, user="eve", account="physics", **more))  # type: ignore[arg-type]


def become_unreadable(site: Site, job_id: int) -> None:
    record = site.slurm.records[job_id]
    record.request, record.shown = replace(record.request, memory_per_node=UNREADABLE.memory_per_node), None
    assert site.job(job_id).set_aside


def test_one_that_cannot_be_read_neither_blinds_the_daemon_nor_gets_orders(site: Site) -> None:
    refs = ordered(site)
    one = odd(site, comment="")
    held = odd(site, hold=Hold.USER)
    bio = [site.submit("bio", run_time=1000) for _ in range(4)]
    site.run(2)
    assert all(report.error is None for report in site.reports)
    physics = site.submit("physics")
    site.run_until(lambda: site.runs(physics), 20)
    assert sum(site.runs(job) for job in bio) == 3
    assert refs.isdisjoint({str(one), str(held)})


@pytest.mark.parametrize("urgent", [True, False])
def test_nobody_is_preempted_for_one(site: Site, urgent: bool) -> None:
    bio = [site.submit("bio", run_time=1000) for _ in range(4)]
    site.run(2)
    partitions = ("urgent",) if urgent else ("main",)
    request = replace(UNREADABLE, partitions=partitions)
    one = site.slurm.submit(Submission(request, account="physics", comment="omfs:method=requeue"))
    site.run(20)
    assert site.runs(*bio)
    assert site.job(one).state is JobState.PENDING


def test_one_that_waits_before_an_urgent_job_does_not_keep_it_from_idle_nodes(site: Site) -> None:
    odd(site, comment="")
    urgent = site.slurm.submit(Submission(JobRequest(4, partitions=("urgent",)), account="bio"))
    site.run_until(lambda: band_of(site.job(urgent)) is Band.URGENT, 10)


def test_one_that_we_hold_stays_held_until_it_can_be_read(site: Site) -> None:
    first = site.submit("physics", 8, method="", hosts=2, run_time=1000)
    site.run_until(lambda: site.runs(first), 20)
    beyond = site.submit("physics", method="", hold=Hold.USER, admin_comment=SUBMIT_MARK)
    site.run_until(lambda: site.job(beyond).hold is Hold.ADMIN, 20)
    record = site.slurm.records[beyond]
    readable, memory = record.request, UNREADABLE.memory_per_node
    record.request, record.shown = replace(readable, memory_per_node=memory), None
    assert site.job(beyond).set_aside
    site.run(30)
    assert site.job(beyond).hold is Hold.ADMIN
    record.request, record.shown = readable, None
    site.slurm.cancel(first)
    site.run_until(lambda: site.runs(beyond), 60)


def test_one_that_runs_is_no_victim_and_its_cpus_are_used(site: Site) -> None:
    request = JobRequest(8, nodes=2, max_nodes=2)
    one = site.slurm.submit(Submission(request, account="bio", comment="omfs:method=requeue"))
    site.run(1)
    become_unreadable(site, one)
    others = [site.submit("bio", run_time=1000) for _ in range(2)]
    site.run(2)
    report = site.reports[-1]
    assert report.plan is not None
    assert {row.account: row.used for row in report.plan.accounts}["bio"] == 16
    physics = [site.submit("physics", run_time=1000) for _ in range(2)]
    site.run_until(lambda: site.runs(*physics), 60)
    assert site.runs(one)
    assert not any(site.runs(job) for job in others)


def test_what_cannot_be_read_of_a_running_one_is_the_whole_of_its_nodes() -> None:
    nodes = {name: Node(name, 4, 100, gres=(("gpu", count),)) for name, count in (("n1", 2), ("n2", 3))}
    job = Job(1, "1", "eve", 1, "bio", JobState.RUNNING, JobRequest(0), 0.0, set_aside="unreadable")
    here = replace(job, allocations=(Allocation("n1", 0, 0), Allocation("n2", 0, 0), Allocation("n9", 0, 0)))
    counted = with_whole_nodes(here, nodes)
    assert counted.allocations == (Allocation("n1", 4, 100), Allocation("n2", 4, 100), Allocation("n9", 0, 0))
    assert counted.request.gres == (("gpu", 3),)
    known = replace(job, allocations=(Allocation("n1", 2, 50),), request=JobRequest(2))
    assert with_whole_nodes(known, nodes) == known
    assert with_whole_nodes(job, nodes) is job


def test_it_is_logged_once_and_counted(site: Site) -> None:
    site.run(1)
    one = odd(site)
    with capture_logs() as lines:
        site.run(5)
    (line,) = [line for line in lines if line["event"] == "jobs_set_aside"]
    assert line["number"] == 1
    assert line["jobs"][0].startswith(f"{one} (eve): ")
    site.slurm.cancel(one)
    site.run(1)
    odd(site)
    with capture_logs() as lines:
        site.run(2)
    assert [line["event"] for line in lines].count("jobs_set_aside") == 1


def test_a_suspended_victim_of_ours_that_is_set_aside_runs_again(site: Site) -> None:
    """What we did to it is undone, although nothing new is decided about it."""
    victims = [site.submit("bio", method="suspend", run_time=1000) for _ in range(4)]
    site.run(2)
    urgent = site.submit("physics", run_time=30)
    site.run_until(lambda: site.runs(urgent), 30)
    (victim,) = [job for job in victims if site.state(job) is JobState.SUSPENDED]
    become_unreadable(site, victim)
    site.run_until(lambda: site.runs(victim), 60)
    assert site.job(victim).set_aside


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


def test_it_is_named_in_status_and_why(stand: Stand) -> None:
    one = stand.slurm.submit(Submission(UNREADABLE, user="alice", account="bio"))
    stand.run(1)
    for caller in (ROOT, ALICE):
        status = stand.service.answers.status(caller)
        assert status["set_aside"] == 1
        assert [(job["job"], job["user"]) for job in status["set_aside_jobs"]] == [(str(one), "alice")]
        why = stand.service.answers.why(caller, str(one))
        assert why["now"].startswith("set aside: ")
        assert why["class"].startswith("set aside")
    assert stand.service.answers.status(BOB)["set_aside_jobs"] == []
    stand.service.close()


def hold_of(stand: Stand, job_id: int) -> Hold:
    job = stand.gateway.find(job_id)
    assert job is not None
    return job.hold


def held_site(stand: Stand) -> tuple[list[int], int]:
    """Jobs that the daemon holds, one that is set aside, and a dead daemon."""
    for _ in range(4):
        stand.submit("alice", "bio", "", run_time=1000)
    stand.run(1)
    owned = [stand.submit("bob", "physics", "", run_time=1000) for _ in range(4)]
    one = stand.slurm.submit(Submission(UNREADABLE, user="eve", account="bio", hold=Hold.USER))
    stand.run(2)
    held = [job for job in owned if hold_of(stand, job) is Hold.ADMIN]
    assert len(held) == 2
    stand.service.close()
    stand.now += 100
    return held, one


def test_the_failsafe_releases_all_others(stand: Stand) -> None:
    held, one = held_site(stand)
    assert rescue(stand.config, stand.gateway, lambda: stand.now) == 0
    assert {hold_of(stand, job) for job in held} == {Hold.NONE}
    assert hold_of(stand, one) is Hold.USER, "not ours"


def test_the_failsafe_says_what_is_still_held(stand: Stand) -> None:
    held, _one = held_site(stand)
    stand.gateway.faults.inject(Fault.REFUSE, ["release"])
    with capture_logs() as lines:
        assert rescue(stand.config, stand.gateway, lambda: stand.now) == 1
    assert (lines[-1]["event"], lines[-1]["released"]) == ("failsafe_released", 0)
    assert lines[-1]["still_held"] == [str(job) for job in held]
    stand.gateway.faults.clear()
    assert rescue(stand.config, stand.gateway, lambda: stand.now) == 0, "they still carry their marks"
    assert {hold_of(stand, job) for job in held} == {Hold.NONE}
