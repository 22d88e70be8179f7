"""A heterogeneous job is one job: seen, held, released, ranked, suspended, and requeued as a whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omfs_daemon.cluster.holds import is_held
from omfs_daemon.cluster.jobs import Hold, Job, JobRequest, JobState
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission
from tests.support.clusters import MB, World
from tests.support.comments import HELD, RELEASED

ONE = JobRequest(2, max_nodes=1, memory_per_cpu=100 * MB)
TWO = JobRequest(4, nodes=2, max_nodes=2, memory_per_cpu=200 * MB, gres=(("ve", 1),))
WHOLE = Submission(ONE, parts=(TWO,))


def whole(world: World, job_id: int) -> Job:
    """It is listed once, as it is found."""
    listed = [job for job in world.gateway.jobs() if job.id <= job_id <= job.id + len(job.parts)]
    assert [job.id for job in listed] == [job_id]
    found = world.job(job_id)
    assert found.ref == str(job_id) and not found.set_aside
    return found


def test_it_waits_with_what_all_parts_request(world: World) -> None:
    job_id = world.submit(replace(WHOLE, hold=Hold.USER, licenses=(("ve", 3),), comment="omfs:method=requeue"))
    job = whole(world, job_id)
    assert (job.state, job.hold, job.request.cpus, job.request.nodes) == (JobState.PENDING, Hold.USER, 6, 3)
    assert [part.id for part in job.parts] == [job_id, job_id + 1]
    first, second = job.request.parts
    assert (first.cpus, first.nodes, first.gres) == (2, 1, ())
    assert (second.cpus, second.nodes, second.gres) == (4, 2, (("ve", 1),))
    assert job.comment == "omfs:method=requeue"
    assert job.request.partitions == ("main",)


def test_each_part_has_nodes_of_its_own(world: World) -> None:
    world.running(Submission(JobRequest(4, required_nodes=frozenset({"n1"}))))
    job = whole(world, world.running(WHOLE))
    assert sorted(job.on_nodes) == ["n2", "n3", "n4"]
    assert [sum(one.cpus for one in part.allocations) for part in job.parts] == [2, 4]
    assert sum(one.memory for one in job.parts[1].allocations) == 800 * MB
    assert job.partition == "main" and job.start is not None
    assert set(world.gateway.units([job])) == {job.id}


def test_it_starts_with_all_parts_or_not_at_all(world: World) -> None:
    """They would fit on the CPUs of two nodes."""
    for node in ("n1", "n2"):
        world.running(Submission(JobRequest(4, required_nodes=frozenset({node}))))
    small = JobRequest(1, max_nodes=1)
    job_id = world.submit(Submission(small, parts=(small, small)))
    assert world.stays(lambda: world.waits(job_id))
    assert not world.job(job_id).set_aside


def test_it_is_held_marked_ranked_and_released_as_a_whole(world: World) -> None:
    job_id = world.submit(replace(WHOLE, hold=Hold.USER))
    ref = str(job_id)
    assert world.gateway.hold([ref], HELD) == []
    held = whole(world, job_id)
    assert (held.hold, held.reason, held.admin_comment) == (Hold.ADMIN, "JobHeldAdmin", HELD)
    assert world.gateway.set_nice([ref], -700) == []
    assert whole(world, job_id).nice == -700
    assert not world.user_release(job_id)
    assert world.gateway.release([ref], RELEASED) == []
    world.until(lambda: world.runs(job_id))
    assert (world.job(job_id).admin_comment, world.job(job_id).nice) == (RELEASED, -700)


def test_it_is_suspended_and_resumed_as_a_whole(world: World) -> None:
    job_id = world.running(WHOLE)
    assert world.gateway.suspend([str(job_id)]) == []
    world.until(lambda: world.is_in(job_id, JobState.SUSPENDED))
    assert len(whole(world, job_id).parts) == 2
    filler = world.running(Submission(JobRequest(16, nodes=4, max_nodes=4)))
    world.cancel(filler)
    world.until(lambda: world.is_in(filler, JobState.ENDED))
    assert world.gateway.resume([str(job_id)]) == []
    world.until(lambda: world.runs(job_id))


def test_it_is_requeued_as_a_whole_and_stays_held(world: World) -> None:
    job_id = world.running(WHOLE)
    assert world.gateway.hold([str(job_id)], HELD) == []
    assert is_held(whole(world, job_id))
    assert world.gateway.requeue([str(job_id)]) == []
    world.until(lambda: world.waits(job_id))
    back = whole(world, job_id)
    assert (back.hold, back.admin_comment, back.restarts, back.on_nodes) == (Hold.ADMIN, HELD, 1, ())
    assert world.gateway.release([str(job_id)], RELEASED) == []
    world.until(lambda: world.runs(job_id))
    assert len(whole(world, job_id).parts) == 2


def test_what_is_left_of_one_of_which_a_part_has_ended_is_suspended_and_resumed(world: World) -> None:
    job_id = world.running(WHOLE)
    world.cancel_part(job_id, 1)
    world.until(lambda: bool(world.job(job_id).ended_part))
    world.until(lambda: len(world.job(job_id).allocations) == 1)
    job = whole(world, job_id)
    assert (job.ended_part, job.state) == (f"{job_id}+1", JobState.RUNNING)
    assert job.allocations == job.parts[0].allocations and len(job.parts) == 1
    assert world.gateway.set_admin_comment([str(job_id)], HELD) == []
    assert world.gateway.suspend([str(job_id)]) == []
    world.until(lambda: world.is_in(job_id, JobState.SUSPENDED))
    assert world.gateway.resume([str(job_id)]) == []
    world.until(lambda: world.runs(job_id))
    assert world.job(job_id).admin_comment == HELD


def test_one_of_which_a_part_has_ended_never_starts_again(world: World) -> None:
    job_id = world.running(WHOLE)
    world.cancel_part(job_id, 1)
    world.until(lambda: bool(world.job(job_id).ended_part))
    assert world.gateway.requeue([str(job_id)]) == []
    world.until(lambda: world.waits(job_id))
    assert "has ended" in world.job(job_id).set_aside
    assert world.stays(lambda: world.waits(job_id), 10)


@pytest.mark.parametrize("at", [0, 1])
def test_a_part_is_found_as_its_whole(world: World, at: int) -> None:
    job_id = world.submit(replace(WHOLE, hold=Hold.USER))
    found = world.gateway.find(job_id + at)
    assert found is not None and found.id == job_id


def test_an_ended_one_is_found(world: World) -> None:
    job_id = world.running(WHOLE)
    world.cancel(job_id)
    world.until(lambda: world.is_in(job_id, JobState.ENDED))
    assert world.listed(job_id) is None
    assert [ended.state for ended in world.gateway.ended_jobs() if ended.job.id == job_id] == ["CANCELLED"]
