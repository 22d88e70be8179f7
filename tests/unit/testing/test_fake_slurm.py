"""The fake's own side: its clock, its accounts of work, its faults. What it shares with Slurm is in tests/contract."""

from __future__ import annotations

import random
from math import inf

import pytest

from omfs_daemon.cluster.jobs import Hold, JobRequest, JobState
from omfs_daemon.errors import GatewayError, GatewayTimeout
from omfs_daemon.testing.fake_slurm.controller import FakeSlurm
from omfs_daemon.testing.fake_slurm.fake_gateway import FakeGateway, Fault
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission
from tests.support.comments import HELD, RELEASED


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def slurm(clock: Clock) -> FakeSlurm:
    return FakeSlurm.uniform(clock)


@pytest.fixture
def gateway(slurm: FakeSlurm) -> FakeGateway:
    return FakeGateway(slurm)


def state(gateway: FakeGateway, job_id: int) -> JobState:
    job = gateway.find(job_id)
    assert job is not None
    return job.state


def test_a_job_runs_to_its_end_and_its_work_is_counted(clock: Clock, slurm: FakeSlurm, gateway: FakeGateway) -> None:
    job = slurm.submit(Submission(JobRequest(16), run_time=60))
    assert state(gateway, job) is JobState.RUNNING
    clock.wait(61)
    assert state(gateway, job) is JobState.ENDED
    assert slurm.history[job].done == 60
    assert slurm.history[job].outcome == "COMPLETED"
    assert gateway.jobs() == []


def test_a_requeued_job_loses_its_work_and_then_does_all_of_it(
    clock: Clock, slurm: FakeSlurm, gateway: FakeGateway
) -> None:
    job = slurm.submit(Submission(JobRequest(1), run_time=60))
    clock.wait(20)
    assert gateway.requeue([str(job)]) == []
    gateway.release([str(job)], RELEASED)
    clock.wait(100)
    assert slurm.history[job].lost == 20
    assert slurm.history[job].done == 60
    assert len(slurm.history[job].starts) == 2


def test_work_saved_by_a_signal_survives_a_requeue(clock: Clock, slurm: FakeSlurm, gateway: FakeGateway) -> None:
    job = slurm.submit(Submission(JobRequest(1), run_time=60, saves_on="USR1"))
    clock.wait(20)
    gateway.signal(str(job), "USR1")
    clock.wait(5)
    gateway.requeue([str(job)])
    gateway.release([str(job)], RELEASED)
    clock.wait(50)
    assert slurm.history[job].lost == 5
    assert slurm.history[job].done == 60


def test_a_time_limit_ends_a_job_and_stands_still_while_it_is_suspended(
    clock: Clock, slurm: FakeSlurm, gateway: FakeGateway
) -> None:
    job = slurm.submit(Submission(JobRequest(1), run_time=100, time_limit=30))
    clock.wait(10)
    gateway.suspend([str(job)])
    clock.wait(1000)
    gateway.resume([str(job)])
    clock.wait(19)
    assert state(gateway, job) is JobState.RUNNING
    clock.wait(2)
    assert slurm.history[job].outcome == "TIMEOUT"
    assert slurm.history[job].done == 30


def test_what_a_released_job_waits_for_shows_at_the_next_tick(
    clock: Clock, slurm: FakeSlurm, gateway: FakeGateway
) -> None:
    first = slurm.submit(Submission(JobRequest(1)))
    job = slurm.submit(Submission(JobRequest(1), after=(first,)))
    gateway.hold([str(job)], HELD)
    gateway.release([str(job)], RELEASED)
    shown = []
    for _ in range(2):
        (seen,) = [one for one in gateway.jobs() if one.id == job]
        shown.append((seen.hold, seen.reason, seen.eligible))
        clock.now += slurm.timing.sched_interval
    assert shown == [(Hold.NONE, "None", inf), (Hold.NONE, "Dependency", inf)]


def test_an_ended_job_is_known_for_min_job_age(clock: Clock, slurm: FakeSlurm, gateway: FakeGateway) -> None:
    job = slurm.submit(Submission(JobRequest(1), run_time=1))
    clock.wait(300)
    assert state(gateway, job) is JobState.ENDED
    clock.wait(2)
    assert gateway.find(job) is None
    assert slurm.history[job].outcome == "COMPLETED"


def test_processes_show_a_resume_over_busy_cpus(clock: Clock, slurm: FakeSlurm, gateway: FakeGateway) -> None:
    first = slurm.submit(Submission(JobRequest(16)))
    gateway.suspend([str(first)])
    slurm.submit(Submission(JobRequest(16), run_time=60))
    clock.wait(2)
    gateway.resume([str(first)])
    assert set(slurm.processes().values()) == {8}
    clock.wait(60)
    assert set(slurm.processes().values()) == {4}
    assert all(node.cpus_taken == 0 for node in gateway.nodes())


def test_a_dead_controller(slurm: FakeSlurm, gateway: FakeGateway) -> None:
    gateway.faults.inject(Fault.DEAD)
    with pytest.raises(GatewayError):
        gateway.jobs()
    gateway.faults.clear()
    assert gateway.jobs() == []


def test_a_hanging_call_costs_time_and_does_nothing(clock: Clock, slurm: FakeSlurm, gateway: FakeGateway) -> None:
    job = slurm.submit(Submission(JobRequest(1)))
    gateway.faults.wait = lambda: clock.wait(10)
    gateway.faults.inject(Fault.HANG, ["suspend"], times=1)
    with pytest.raises(GatewayTimeout):
        gateway.suspend([str(job)])
    assert clock.now == 1010
    assert state(gateway, job) is JobState.RUNNING
    assert gateway.suspend([str(job)]) == []


def test_a_late_answer_comes_after_the_order_took_effect(slurm: FakeSlurm, gateway: FakeGateway) -> None:
    job = slurm.submit(Submission(JobRequest(1)))
    gateway.faults.inject(Fault.LATE, ["requeue"])
    with pytest.raises(GatewayTimeout):
        gateway.requeue([str(job)])
    assert state(gateway, job) is JobState.COMPLETING


def test_a_stale_answer(slurm: FakeSlurm, gateway: FakeGateway) -> None:
    before = gateway.jobs()
    gateway.faults.inject(Fault.STALE, ["jobs"], times=1)
    slurm.submit(Submission(JobRequest(1)))
    assert gateway.jobs() == before
    assert len(gateway.jobs()) == 1


@pytest.mark.parametrize(("fault", "refused"), [(Fault.IGNORE, 0), (Fault.REFUSE, 1)])
def test_orders_that_are_not_carried_out(slurm: FakeSlurm, gateway: FakeGateway, fault: Fault, refused: int) -> None:
    job = slurm.submit(Submission(JobRequest(1), hold=Hold.USER))
    gateway.faults.inject(fault, ["release"])
    assert len(gateway.release([str(job)], RELEASED)) == refused
    found = gateway.find(job)
    assert found is not None and found.hold is Hold.USER


def test_a_state_is_misreported_once(slurm: FakeSlurm, gateway: FakeGateway) -> None:
    job = slurm.submit(Submission(JobRequest(1)))
    gateway.faults.misreport(job, JobState.SUSPENDED)
    assert [one.state for one in gateway.jobs()] == [JobState.SUSPENDED]
    assert [one.state for one in gateway.jobs()] == [JobState.RUNNING]


def test_unchanged_jobs_are_the_same_objects(slurm: FakeSlurm, gateway: FakeGateway) -> None:
    slurm.submit(Submission(JobRequest(16)))
    waiting = slurm.submit(Submission(JobRequest(1)))
    first = {job.id: job for job in gateway.jobs()}
    assert next(job for job in gateway.jobs() if job.id == waiting) is first[waiting]


@pytest.mark.parametrize("seed", range(5))
def test_no_job_is_lost_and_no_cpu_given_twice_whatever_happens(seed: int) -> None:
    dice = random.Random(seed)
    clock = Clock()
    slurm = FakeSlurm.uniform(clock)
    gateway = FakeGateway(slurm)
    for _ in range(150):
        clock.wait(dice.expovariate(0.5))
        _something_happens(dice, slurm, gateway)
        assert max(slurm.processes().values()) <= 4
        assert all(
            0 <= node.cpus_taken <= node.cpus and 0 <= node.memory_taken <= node.memory for node in gateway.nodes()
        )
    for node in slurm.fake_nodes:
        slurm.node_up(node)
    while jobs := gateway.jobs():
        gateway.release([job.ref for job in jobs], RELEASED)
        gateway.resume([job.ref for job in jobs if job.state is JobState.SUSPENDED][:1])
        clock.wait(10)
        assert clock.now < 1e6, jobs
    assert {one.outcome for one in slurm.history.values()} <= {"COMPLETED", "NODE_FAIL"}
    assert all(one.done == pytest.approx(20) for one in slurm.history.values() if one.outcome == "COMPLETED")
    assert all((node.cpus_taken, node.memory_taken) == (0, 0) for node in gateway.nodes())


def _something_happens(dice: random.Random, slurm: FakeSlurm, gateway: FakeGateway) -> None:
    """Anything but a resume over busy CPUs."""
    jobs = gateway.jobs()
    ref = [dice.choice(jobs).ref] if jobs else []
    node = dice.choice(list(slurm.fake_nodes))
    match dice.randrange(8):
        case 0 | 1 | 2:
            nodes = dice.choice((1, 1, 2))
            request = JobRequest(dice.choice((2, 3, 6)), nodes, memory_per_cpu=1 << 30)
            array = (1, 2, 3) if dice.random() < 0.2 else ()
            slurm.submit(Submission(request, run_time=20, array=array, requeue=dice.random() < 0.8))
        case 3:
            gateway.requeue(ref)
        case 4:
            gateway.suspend(ref)
        case 5:
            gateway.release(ref, RELEASED)
        case 6:
            slurm.node_down(node)
        case 7:
            slurm.node_up(node)
