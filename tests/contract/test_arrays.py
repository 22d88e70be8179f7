"""Job arrays: one job for the waiting rest, one for every task that has its own fate."""

from __future__ import annotations

from omfs_daemon.cluster.jobs import Hold, JobRequest, JobState
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission
from tests.support.clusters import World
from tests.support.comments import HELD, RELEASED

FULL = Submission(JobRequest(16, nodes=4, max_nodes=4))
WAITING = Submission(JobRequest(4, max_nodes=1), array=(1, 2, 3, 4, 5))


def test_the_waiting_rest_is_one_job(world: World) -> None:
    world.running(FULL)
    array = world.submit(WAITING)
    rest = world.listed(array)
    assert rest is not None
    assert (rest.tasks, rest.task_ids, rest.array_id) == (5, (1, 2, 3, 4, 5), array)
    assert rest.ref == f"{array}_[1-5]"


def test_a_started_task_is_a_job_of_its_own(world: World) -> None:
    array = world.submit(WAITING)
    world.until(lambda: sum(job.state is JobState.RUNNING for job in world.tasks(array).values()) == 4)
    tasks = world.tasks(array)
    running = [task for task, job in tasks.items() if job.state is JobState.RUNNING]
    assert running == [1, 2, 3, 4]
    assert [tasks[task].ref for task in running] == [f"{array}_{task}" for task in running]
    assert len({job.id for job in tasks.values()}) == 5
    assert tasks[5].id == array and tasks[5].tasks == 1
    assert all(job.tasks == 1 for job in tasks.values())


def test_a_requeued_task_stays_a_job_of_its_own(world: World) -> None:
    array = world.submit(WAITING)
    world.until(lambda: world.tasks(array)[2].state is JobState.RUNNING)
    ref = world.tasks(array)[2].ref
    assert world.gateway.hold([ref], HELD) == []
    assert world.gateway.requeue([ref]) == []
    world.until(lambda: world.tasks(array)[2].state is JobState.PENDING)
    requeued = world.tasks(array)[2]
    assert (requeued.task_ids, requeued.hold, requeued.restarts) == ((2,), Hold.ADMIN, 1)
    assert world.tasks(array)[1].state is JobState.RUNNING
    assert world.gateway.release([requeued.ref], RELEASED) == []
    assert world.tasks(array)[2].hold is Hold.NONE


def test_a_waiting_task_is_held_alone(world: World) -> None:
    world.running(FULL)
    array = world.submit(WAITING)
    assert world.gateway.hold([f"{array}_3"], HELD) == []
    held = {task for task, job in world.tasks(array).items() if job.hold is Hold.ADMIN}
    assert held == {3}
    assert {task: job.admin_comment for task, job in world.tasks(array).items() if job.admin_comment} == {3: HELD}


def test_a_part_that_is_split_off_copies_the_mark(world: World) -> None:
    world.running(FULL)
    array = world.submit(WAITING)
    rest = world.listed(array)
    assert rest is not None
    assert world.gateway.hold([rest.ref], HELD) == []
    assert world.gateway.release([f"{array}_[4-5]"], RELEASED) == []
    tasks = world.tasks(array)
    assert {task: (job.hold, job.admin_comment) for task, job in tasks.items()} == {
        **dict.fromkeys((1, 2, 3), (Hold.ADMIN, HELD)),
        **dict.fromkeys((4, 5), (Hold.NONE, RELEASED)),
    }
    assert world.gateway.hold([f"{array}_2"], "omfs:held:9?") == []
    assert world.gateway.set_nice([f"{array}_1"], 5) == []
    assert {task: job.admin_comment for task, job in world.tasks(array).items()} == {
        1: HELD, 2: "omfs:held:9?", 3: HELD, 4: RELEASED, 5: RELEASED,
    }  # fmt: skip


def test_the_id_of_an_array_names_all_of_its_tasks_running_ones_too(world: World) -> None:
    array = world.submit(WAITING)
    world.until(lambda: sum(job.state is JobState.RUNNING for job in world.tasks(array).values()) == 4)
    assert world.gateway.hold([str(array)], HELD) == []
    assert {(job.priority, job.admin_comment) for job in world.tasks(array).values()} == {(0, HELD)}
    assert world.gateway.release([str(array)], RELEASED) == []
    assert all(job.priority > 0 and job.admin_comment == RELEASED for job in world.tasks(array).values())


def test_the_reference_of_the_rest_reaches_all_of_it(world: World) -> None:
    world.running(FULL)
    array = world.submit(WAITING)
    rest = world.listed(array)
    assert rest is not None
    assert world.gateway.set_nice([rest.ref], -40) == []
    assert world.gateway.hold([rest.ref], HELD) == []
    assert {(job.hold, job.nice) for job in world.tasks(array).values()} == {(Hold.ADMIN, -40)}
    rest = world.listed(array)
    assert rest is not None
    assert world.gateway.release([rest.ref], RELEASED) == []
    assert {job.hold for job in world.tasks(array).values()} == {Hold.NONE}


def test_a_task_is_found_by_its_raw_id(world: World) -> None:
    array = world.submit(WAITING)
    world.until(lambda: world.tasks(array)[1].state is JobState.RUNNING)
    task = world.tasks(array)[1]
    assert world.job(task.id).ref == f"{array}_1"


def test_a_task_is_found_by_its_reference_until_slurm_forgets_it(world: World) -> None:
    array = world.submit(WAITING)
    waiting = world.gateway.find(f"{array}_5")
    assert waiting is not None and 5 in waiting.task_ids
    world.until(lambda: world.tasks(array)[1].state is JobState.RUNNING)
    task = world.tasks(array)[1]
    world.cancel(array)
    world.until(lambda: not world.tasks(array))
    for ref in (f"{array}_1", task.id):
        found = world.gateway.find(ref)
        assert found is not None
        assert (found.id, found.ref, found.state, found.start) == (task.id, f"{array}_1", JobState.ENDED, task.start)
    assert world.gateway.find(f"{array}_77") is None


def test_a_task_can_be_suspended(world: World) -> None:
    array = world.submit(WAITING)
    world.until(lambda: world.tasks(array)[1].state is JobState.RUNNING)
    assert world.gateway.suspend([f"{array}_1"]) == []
    assert world.tasks(array)[1].state is JobState.SUSPENDED
    assert world.gateway.resume([f"{array}_1"]) == []
    assert world.tasks(array)[1].state is JobState.RUNNING


def test_an_unknown_task_is_refused(world: World) -> None:
    world.running(FULL)
    array = world.submit(WAITING)
    assert [refusal.ref for refusal in world.gateway.hold([f"{array}_77"], HELD)] == [f"{array}_77"]


def test_canceling_an_array_ends_all_of_it(world: World) -> None:
    array = world.submit(WAITING)
    world.until(lambda: world.tasks(array)[1].state is JobState.RUNNING)
    world.cancel(array)
    world.until(lambda: not world.tasks(array))


STEPPED = Submission(JobRequest(4, max_nodes=1), array=tuple(range(0, 21, 2)))


def test_a_stepped_array_takes_every_order(world: World) -> None:
    """Slurm prints ``0-20:2`` and does not take it back: one such job would have all others refused with it."""
    world.running(FULL)
    array, other = world.submit(STEPPED), world.submit(Submission(JobRequest(4)))
    rest = world.listed(array)
    assert rest is not None
    assert (rest.task_ids, rest.ref) == (STEPPED.array, f"{array}_[{','.join(map(str, STEPPED.array))}]")
    refs = [rest.ref, str(other)]
    assert world.gateway.hold(refs, HELD) == []
    assert world.gateway.set_nice(refs, -40) == []
    shown = [*world.tasks(array).values(), world.job(other)]
    assert {(job.hold, job.nice, job.admin_comment) for job in shown} == {(Hold.ADMIN, -40, HELD)}
    assert world.gateway.release(refs, RELEASED) == []
    assert {job.hold for job in (*world.tasks(array).values(), world.job(other))} == {Hold.NONE}


def test_an_order_for_unknown_tasks_reaches_the_others_and_is_refused(world: World) -> None:
    world.running(FULL)
    array = world.submit(WAITING)
    ref = f"{array}_[4-7]"
    assert [refusal.ref for refusal in world.gateway.hold([ref], HELD)] == [ref]
    assert {task for task, job in world.tasks(array).items() if job.hold is Hold.ADMIN} == {4, 5}
