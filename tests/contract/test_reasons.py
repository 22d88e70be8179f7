"""What Slurm's reason for a waiting job proves (``omfs_daemon/preemption/proof.py``)."""

from __future__ import annotations

from omfs_daemon.cluster.jobs import Hold, JobRequest
from omfs_daemon.preemption.proof import RESOURCES
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission
from tests.support.clusters import NODES, World

FIRST = -1_000_000


def fill(world: World) -> None:
    for name in NODES:
        world.running(Submission(JobRequest(4, required_nodes=frozenset({name}))))


def first_on(world: World, node: str, nice: int = FIRST, **more: object) -> int:
    """A held job that is ranked first and pinned, then released."""
    job = world.submit(Submission(JobRequest(4, max_nodes=1), hold=Hold.USER, **more))  # type: ignore[arg-type]
    assert world.job(job).reason == "JobHeldUser"
    ref = str(job)
    assert not world.gateway.set_nice([ref], nice)
    assert not world.gateway.pin(ref, [node])
    assert not world.gateway.release([ref], "")
    return job


def test_jobs_that_are_first_on_their_nodes_wait_for_resources(world: World) -> None:
    fill(world)
    world.submit(Submission(JobRequest(16, nodes=4, max_nodes=4)))
    jobs = [first_on(world, node) for node in NODES[:3]]
    world.until(lambda: all(world.job(job).reason == RESOURCES for job in jobs))


def test_another_rank_or_other_nodes_reset_the_reason(world: World) -> None:
    """So a reason that is seen with them is newer."""
    fill(world)
    job = first_on(world, "n1")
    for node in ("n2", "n3"):
        world.until(lambda: world.job(job).reason == RESOURCES)
        assert not world.gateway.pin(str(job), [node])
        assert world.job(job).reason in ("", "None", RESOURCES)  # a pass of Slurm's may come between
        world.until(lambda: world.job(job).reason == RESOURCES)


def test_a_job_behind_another_one_on_its_node_never_waits_for_plain_resources(world: World) -> None:
    fill(world)
    before = first_on(world, "n1", 2 * FIRST)
    world.until(lambda: world.job(before).reason == RESOURCES)
    behind = first_on(world, "n1")
    assert world.stays(lambda: world.job(behind).reason != RESOURCES)


def test_a_license_is_looked_at_before_resources(world: World) -> None:
    world.running(Submission(JobRequest(1), licenses=(("ve_n1", 2),)))
    fill_left = [Submission(JobRequest(4, required_nodes=frozenset({name}))) for name in NODES[1:]]
    for each in fill_left:
        world.running(each)
    job = first_on(world, "n2", licenses=(("ve_n1", 1),))
    world.until(lambda: world.job(job).reason == "Licenses")
    assert world.stays(lambda: world.job(job).reason in ("Licenses", "", "None"))
