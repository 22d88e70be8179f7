"""What keeps a job waiting besides resources, and Slurm's word for it, as far as Slurm knows it without slurmdbd."""

from __future__ import annotations

import pytest

from omfs_daemon.cluster.jobs import Hold, JobRequest
from omfs_daemon.preemption.proof import RESOURCES
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission
from tests.support.clusters import NODES, World

ONE_CPU = JobRequest(1, max_nodes=1)
HOUR = 3600.0


def pinned(node: str, cpus: int = 1, **more: object) -> JobRequest:
    return JobRequest(cpus, max_nodes=1, required_nodes=frozenset({node}), **more)  # type: ignore[arg-type]


def test_no_more_tasks_than_the_throttle_allows_run(world: World) -> None:
    array = world.submit(Submission(ONE_CPU, array=(1, 2, 3), array_throttle=2, run_time=6))

    def states() -> list[str]:
        return sorted(job.state for job in world.tasks(array).values())

    world.until(lambda: "JobArrayTaskLimit" in {job.reason for job in world.tasks(array).values()})
    world.until(lambda: states() == ["PENDING", "RUNNING", "RUNNING"])
    world.until(lambda: states() == ["RUNNING"])


@pytest.mark.parametrize(
    ("option", "value", "usual", "word"),
    [("State", "DOWN", "UP", "PartitionDown"), ("MaxTime", "30", "UNLIMITED", "PartitionTimeLimit")],
)
def test_a_partition_keeps_jobs_waiting(world: World, option: str, value: str, usual: str, word: str) -> None:
    job = world.submit(Submission(ONE_CPU, hold=Hold.USER, time_limit=HOUR))
    world.update_partition("main", option, value)
    assert not world.gateway.release([str(job)], "")
    world.until(lambda: world.job(job).reason == word)
    assert world.stays(lambda: world.waits(job))
    world.update_partition("main", option, usual)
    world.until(lambda: world.runs(job))


@pytest.mark.parametrize("is_now", [True, False])
def test_nodes_that_are_reserved_before_a_job_would_end_are_not_used(world: World, is_now: bool) -> None:
    world.reserve("later", "n1", is_now)
    brief = world.submit(Submission(pinned("n1"), time_limit=60))
    long = world.submit(Submission(pinned("n1"), time_limit=2 * 24 * HOUR))
    anywhere = [world.submit(Submission(JobRequest(4, max_nodes=1), time_limit=2 * 24 * HOUR)) for _ in range(4)]
    world.until(lambda: sum(world.runs(job) for job in anywhere) == 3)
    world.until(lambda: world.job(long).reason == "ReqNodeNotAvail, May be reserved for other job")
    assert world.stays(lambda: world.runs(brief) is not is_now and world.waits(long))
    assert sum(world.runs(job) for job in anywhere) == 3
    world.end_reservation("later")
    world.until(lambda: world.runs(long))


@pytest.mark.parametrize("tier", ["1", "2"])
def test_the_nodes_of_a_partition_whose_first_job_waits_are_kept(world: World, tier: str) -> None:
    """Slurm calls them unavailable, whichever nodes the first job could have."""
    world.update_partition("small", "PriorityTier", tier)
    for name in NODES:
        world.running(Submission(pinned(name, 2)))
    world.submit(Submission(JobRequest(4, max_nodes=1, partitions=("small",))))
    behind = world.submit(Submission(pinned("n3", 4)))
    apart = world.submit(Submission(pinned("n1", 4)))
    world.until(lambda: world.job(behind).reason == "ReqNodeNotAvail, UnavailableNodes:n3")
    world.until(lambda: world.job(apart).reason == RESOURCES)
