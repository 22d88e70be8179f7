"""Who starts where: resources, order, backfill."""

from __future__ import annotations

from omfs_daemon.cluster.jobs import JobRequest
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission
from tests.support.clusters import MB, NODES, World

N1 = frozenset({"n1"})


def test_memory_limits_what_starts(world: World) -> None:
    request = JobRequest(1, memory_per_cpu=5000 * MB, required_nodes=N1)
    world.running(Submission(request))
    second = world.submit(Submission(request))
    assert world.stays(lambda: world.waits(second))


def test_gres_limits_what_starts(world: World) -> None:
    request = JobRequest(1, gres=(("ve", 1),), required_nodes=N1)
    world.running(Submission(request))
    world.running(Submission(request))
    third = world.submit(Submission(request))
    assert world.stays(lambda: world.waits(third))


def test_features_choose_nodes(world: World) -> None:
    jobs = [world.running(Submission(JobRequest(4, max_nodes=1, features="fast"))) for _ in range(2)]
    assert {world.job(job).on_nodes for job in jobs} == {("n1",), ("n2",)}
    third = world.submit(Submission(JobRequest(4, max_nodes=1, features="fast")))
    assert world.stays(lambda: world.waits(third))


def test_an_exclusive_job_takes_whole_idle_nodes(world: World) -> None:
    for name in NODES[:3]:
        world.running(Submission(JobRequest(1, required_nodes=frozenset({name}))))
    job = world.running(Submission(JobRequest(1, exclusive=True)))
    assert [(allocation.node, allocation.cpus) for allocation in world.job(job).allocations] == [("n4", 4)]


def test_excluded_nodes_are_not_used(world: World) -> None:
    job = world.running(Submission(JobRequest(1, excluded_nodes=frozenset({"n1", "n2", "n3"}))))
    assert world.job(job).on_nodes == ("n4",)


def test_a_partition_limits_the_nodes(world: World) -> None:
    job = world.running(Submission(JobRequest(8, partitions=("small",))))
    assert set(world.job(job).on_nodes) == {"n3", "n4"}


def test_cpus_per_node_are_a_minimum(world: World) -> None:
    for name in NODES[:3]:
        world.running(Submission(JobRequest(2, required_nodes=frozenset({name}))))
    job = world.running(Submission(JobRequest(3, max_nodes=1, min_cpus_per_node=3)))
    assert world.job(job).on_nodes == ("n4",)


def test_a_small_job_passes_a_blocked_big_one_that_has_no_start_in_sight(world: World) -> None:
    world.running(Submission(JobRequest(4, required_nodes=N1)))
    big = world.submit(Submission(JobRequest(16, nodes=4, max_nodes=4)))
    small = world.submit(Submission(JobRequest(1)))
    world.until(lambda: world.runs(small))
    assert world.waits(big)


def test_backfill_starts_only_what_ends_before_the_blocked_job_starts(world: World) -> None:
    world.running(Submission(JobRequest(4, required_nodes=N1), time_limit=600))
    big = world.submit(Submission(JobRequest(16, nodes=4, max_nodes=4), time_limit=600))
    long = world.submit(Submission(JobRequest(1), time_limit=1200))
    short = world.submit(Submission(JobRequest(1), time_limit=120))
    world.until(lambda: world.runs(short))
    assert world.waits(big)
    assert world.stays(lambda: world.waits(long))


def test_a_pinned_waiting_job_keeps_its_nodes_and_blocks_no_other(world: World) -> None:
    world.running(Submission(JobRequest(2, required_nodes=N1), time_limit=600))
    pinned = world.submit(Submission(JobRequest(4, max_nodes=1, required_nodes=N1), time_limit=600))
    same = world.submit(Submission(JobRequest(2, required_nodes=N1), time_limit=6000))
    elsewhere = world.submit(Submission(JobRequest(2), time_limit=6000))
    world.until(lambda: world.runs(elsewhere))
    assert world.stays(lambda: world.waits(same) and world.waits(pinned))


def test_a_dependent_job_waits(world: World) -> None:
    first = world.running(Submission(JobRequest(1)))
    second = world.submit(Submission(JobRequest(1), after=(first,)))
    world.until(lambda: world.job(second).reason == "Dependency")
    world.cancel(first)
    world.until(lambda: world.runs(second))
