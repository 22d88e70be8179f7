"""Which CPUs and devices jobs have, one by one."""

from __future__ import annotations

from omfs_daemon.cluster.jobs import Hold, JobRequest, JobState
from omfs_daemon.cluster.units import CPU, Unit, Units
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission
from tests.support.clusters import MB, World

N1 = frozenset({"n1"})


def on_n1(cpus: int, gpus: int = 0) -> Submission:
    return Submission(JobRequest(cpus, required_nodes=N1, gres=(("gpu", gpus),) if gpus else ()))


def units(world: World, *job_ids: int) -> list[Units]:
    jobs = {job.id: job for job in world.gateway.jobs()}
    found = world.gateway.units([jobs[job_id] for job_id in job_ids])
    return [found[job_id] for job_id in job_ids]


def of_kind(found: Units, kind: str) -> set[int]:
    return {unit.number for unit in found if unit.kind == kind}


def suspend(world: World, job: int) -> None:
    assert world.gateway.suspend([str(job)]) == []
    world.until(lambda: world.is_in(job, JobState.SUSPENDED))


def test_jobs_beside_each_other_have_different_cpus_and_devices(world: World) -> None:
    first, second = world.running(on_n1(3, gpus=1)), world.running(on_n1(1, gpus=1))
    one, other = units(world, first, second)
    assert one.isdisjoint(other)
    assert {unit.node for unit in one | other} == {"n1"}
    assert [len(of_kind(found, CPU)) for found in (one, other)] == [3, 1]
    assert [len(of_kind(found, "gpu")) for found in (one, other)] == [1, 1]


def test_a_job_over_several_nodes_has_units_on_each(world: World) -> None:
    request = JobRequest(6, nodes=2, max_nodes=2, memory_per_cpu=100 * MB, gres=(("gpu", 2), ("ve", 1)))
    job = world.running(Submission(request))
    allocations = world.job(job).allocations
    (found,) = units(world, job)
    assert {unit for unit in found if unit.kind != CPU} == {
        Unit(allocation.node, "gpu", number) for allocation in allocations for number in (0, 1)
    }
    assert {allocation.node: allocation.cpus for allocation in allocations} == {
        allocation.node: len(of_kind(frozenset(u for u in found if u.node == allocation.node), CPU))
        for allocation in allocations
    }


def test_a_suspended_job_keeps_its_units_and_slurm_gives_its_cpus_to_others(world: World) -> None:
    first = world.running(on_n1(4, gpus=1))
    (before,) = units(world, first)
    suspend(world, first)
    second = world.running(on_n1(2, gpus=1))
    one, other = units(world, first, second)
    assert one == before
    assert len(of_kind(one, CPU) & of_kind(other, CPU)) == 2
    assert of_kind(one, "gpu").isdisjoint(of_kind(other, "gpu")), "it gives no device of a suspended job to others"


def test_enough_idle_cpus_are_not_always_those_of_a_suspended_job(world: World) -> None:
    first, second = world.running(on_n1(2)), world.running(on_n1(2))
    suspend(world, first)
    third = world.running(on_n1(2))
    world.cancel(second)
    world.until(lambda: world.node("n1").cpus_taken == 2)
    one, other = units(world, first, third)
    assert one == other


def test_a_task_of_an_array_has_units(world: World) -> None:
    array = world.submit(Submission(JobRequest(1), array=(1, 2)))
    world.until(lambda: all(task.state is JobState.RUNNING for task in world.tasks(array).values()))
    one, other = units(world, *(task.id for task in world.tasks(array).values()))
    assert one.isdisjoint(other)


def test_a_job_that_waits_or_is_gone_is_left_out(world: World) -> None:
    waiting = world.submit(Submission(JobRequest(1), hold=Hold.USER))
    first, second = world.running(on_n1(1)), world.running(on_n1(1))
    jobs = world.gateway.jobs()
    world.cancel(first)
    world.until(lambda: world.is_in(first, JobState.ENDED))
    assert world.gateway.units([job for job in jobs if job.id == waiting]) == {}
    found = world.gateway.units([job for job in world.gateway.jobs() if job.id in (waiting, second)])
    assert set(found) == {second}
