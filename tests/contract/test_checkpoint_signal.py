"""A job that is asked by a signal to save its work and to leave: exit 101, SPECIAL_EXIT."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omfs_daemon.cluster.jobs import Hold, Job, JobRequest, JobState
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission
from omfs_daemon.testing.fake_slurm.omfs_run_behavior import OmfsRunBehavior, OnUsr1
from tests.support.clusters import World
from tests.support.comments import HELD, RELEASED

WHAT = Submission(
    JobRequest(1, excluded_nodes=frozenset({"n4"})),
    comment="mine",
    nice=7,
    requeue=False,
    licenses=(("ve_n1", 1),),
    launched=OmfsRunBehavior(),
)


def says(world: World, job: int, state: str, run: int = 0) -> bool:
    return world.job(job).comment.startswith(f"mine omfs:run={run}:{state}:method=dmtcp")


def ready(world: World, on_usr1: OnUsr1 = OnUsr1.CHECKPOINT) -> int:
    """A job that may be requeued: since 24.05 Slurm lets one end for good that may not, whatever its exit code."""
    job = world.running(replace(WHAT, launched=OmfsRunBehavior(on_usr1=on_usr1)))
    assert world.gateway.allow_requeue([str(job)]) == []
    world.until(lambda: says(world, job, "ready"))
    return job


def stopped(world: World) -> int:
    job = ready(world)
    assert world.gateway.signal(str(job), "USR1", batch_only=True) == []
    world.until(lambda: world.waits(job))
    return job


def listed(world: World, job: int) -> Job:
    shown = world.listed(job)
    assert shown is not None
    return shown


def test_exit_101_puts_a_job_back_held_by_its_owner_s_hold(world: World) -> None:
    job = stopped(world)
    shown = listed(world, job)
    assert (shown.state, shown.hold, shown.reason, shown.priority) == (JobState.PENDING, Hold.USER, "JobHeldUser", 0)
    assert (shown.restarts, shown.run_time, shown.allocations) == (1, 0, ())
    assert (shown.nice, shown.licenses, shown.request) == (7, WHAT.licenses, shown.request)
    assert shown.request.excluded_nodes == {"n4"}
    assert says(world, job, "stopped")
    assert world.stays(lambda: world.waits(job))


def test_its_dependents_go_on_waiting(world: World) -> None:
    job = ready(world)
    dependent = world.submit(Submission(JobRequest(1), after=(job,)))
    world.gateway.signal(str(job), "USR1", batch_only=True)
    world.until(lambda: world.waits(job))
    assert world.stays(lambda: world.waits(dependent))


def test_released_it_runs_again_and_reports_that_this_run_is_ready(world: World) -> None:
    job = ready(world)
    begun = world.now()
    assert world.gateway.signal(str(job), "USR1", batch_only=True) == []
    world.until(lambda: world.waits(job))
    assert world.gateway.requeue([str(job)]) == []
    assert world.gateway.release([str(job)], RELEASED) == []
    assert listed(world, job).hold is Hold.NONE
    world.until(lambda: world.runs(job))
    assert world.now() - begun > 5, "cred_expire"
    world.until(lambda: says(world, job, "ready", run=1))
    assert world.job(job).restarts == 1


def test_held_by_an_administrator_its_owner_cannot_release_it(world: World) -> None:
    job = stopped(world)
    assert world.gateway.hold([str(job)], HELD) == []
    assert (listed(world, job).hold, listed(world, job).reason) == (Hold.ADMIN, "JobHeldAdmin")
    assert listed(world, job).special_exit and listed(world, job).admin_comment == HELD
    assert not world.user_release(job)
    assert world.gateway.release([str(job)], RELEASED) == []
    world.until(lambda: world.runs(job))


def test_else_its_owner_can(world: World) -> None:
    assert world.user_release(stopped(world))


def test_held_it_is_ranked_pinned_and_given_licenses(world: World) -> None:
    job = stopped(world)
    assert world.gateway.set_nice([str(job)], 9) == []
    assert world.gateway.pin(str(job), ["n2"], (("ve_n2", 1),)) == []
    shown = listed(world, job)
    assert (shown.nice, shown.request.required_nodes, shown.licenses) == (9, {"n2"}, (("ve_n2", 1),))


def test_a_checkpoint_that_fails_leaves_it_running(world: World) -> None:
    job = ready(world, OnUsr1.FAIL)
    world.gateway.signal(str(job), "USR1", batch_only=True)
    world.until(lambda: says(world, job, "failed"))
    assert world.stays(lambda: world.runs(job), 1)


def test_a_launcher_that_hangs_leaves_it_running(world: World) -> None:
    job = ready(world, OnUsr1.IGNORE)
    world.gateway.signal(str(job), "USR1", batch_only=True)
    assert world.stays(lambda: world.runs(job) and says(world, job, "ready"))


def test_a_script_that_does_not_wait_for_the_signal_dies_of_it(world: World) -> None:
    job = ready(world, OnUsr1.DIE)
    world.gateway.signal(str(job), "USR1", batch_only=True)
    world.until(lambda: world.is_in(job, JobState.ENDED))


@pytest.mark.parametrize("batch_only", [True, False])
def test_a_suspended_job_takes_no_signal(world: World, batch_only: bool) -> None:
    job = ready(world)
    world.gateway.suspend([str(job)])
    assert [refusal.ref for refusal in world.gateway.signal(str(job), "USR1", batch_only)] == [str(job)]
    world.gateway.resume([str(job)])
    assert world.stays(lambda: world.runs(job) and says(world, job, "ready"))
