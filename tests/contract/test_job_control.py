"""Requeue, suspend, resume, signal."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from omfs_daemon.cluster.jobs import Hold, JobRequest, JobState
from omfs_daemon.errors import GatewayTimeout
from omfs_daemon.testing.fake_slurm.fake_jobs import REQUEUED_HELD, Submission
from tests.support.clusters import MB, World
from tests.support.comments import HELD, RELEASED

ONE = Submission(JobRequest(1))
N1 = frozenset({"n1"})
WHOLE_N1 = Submission(JobRequest(4, required_nodes=N1))


def stop(world: World, job: int) -> None:
    """Hold a running job, and requeue it."""
    assert world.gateway.hold([str(job)], HELD) == []
    assert world.gateway.requeue([str(job)]) == []


def requeued(world: World, what: Submission = ONE) -> int:
    """A job that ran and waits now, held."""
    job = world.running(what)
    stop(world, job)
    world.until(lambda: world.waits(job))
    return job


def test_a_running_job_that_is_held_runs_on(world: World) -> None:
    job = world.running(ONE)
    assert world.gateway.hold([str(job)], HELD) == []
    assert (world.job(job).priority, world.job(job).admin_comment) == (0, HELD)
    assert world.stays(lambda: world.runs(job), 1)
    assert world.gateway.release([str(job)], RELEASED) == []
    assert world.job(job).priority > 0
    assert world.runs(job)


def test_a_job_that_was_held_while_it_ran_comes_back_held_with_its_mark(world: World) -> None:
    job = requeued(world)
    shown = world.job(job)
    assert (shown.hold, shown.reason, shown.priority) == (Hold.ADMIN, "JobHeldAdmin", 0)
    assert shown.admin_comment == HELD
    assert not world.user_release(job)
    assert (shown.restarts, shown.run_time, shown.allocations) == (1, 0, ())
    assert world.stays(lambda: world.waits(job))


def test_requeuehold_sets_a_hold_that_the_owner_can_end_even_over_an_administrators(world: World) -> None:
    for is_held in (False, True):
        job = world.running(ONE)
        if is_held:
            world.gateway.hold([str(job)], HELD)
        world.requeue_hold(job)
        world.until(lambda job=job: world.waits(job))  # type: ignore[misc]
        shown = world.job(job)
        assert (shown.hold, shown.reason, shown.priority) == (Hold.USER, REQUEUED_HELD, 0)
        assert shown.admin_comment == (HELD if is_held else "")
        assert world.user_release(job)


def test_a_job_that_nobody_holds_comes_back_unheld(world: World) -> None:
    job = world.running(ONE)
    assert world.gateway.requeue([str(job)]) == []
    world.until(lambda: world.waits(job))
    assert world.job(job).hold is Hold.NONE


def test_a_leaving_job_can_be_held_and_released(world: World) -> None:
    job = world.running(replace(WHOLE_N1, ignores_term=True, run_time=60))
    world.gateway.requeue([str(job)])
    world.until(lambda: world.is_in(job, JobState.COMPLETING), 2)
    assert world.gateway.hold([str(job)], HELD) == []
    world.until(lambda: world.waits(job))
    assert world.job(job).hold is Hold.ADMIN
    job = world.running(replace(WHOLE_N1, ignores_term=True, run_time=60))
    stop(world, job)
    world.until(lambda: world.is_in(job, JobState.COMPLETING), 2)
    assert world.gateway.release([str(job)], RELEASED) == []
    world.until(lambda: world.waits(job))
    assert world.job(job).hold is Hold.NONE


def test_an_ending_job_is_shown_completing_on_its_nodes(world: World) -> None:
    job = world.running(replace(WHOLE_N1, ignores_term=True, run_time=3600))
    other = world.submit(WHOLE_N1)
    begun = world.now()
    stop(world, job)
    world.soon(lambda: world.is_in(job, JobState.COMPLETING), 2)
    listed = world.listed(job)
    assert listed is not None and listed.on_nodes == ("n1",) and listed.restarts == 1
    world.until(lambda: world.waits(job))
    assert world.now() - begun > 4, "KillWait"
    world.soon(lambda: world.runs(other), 2)


def test_nothing_starts_on_a_node_where_a_job_is_completing(world: World) -> None:
    job = world.running(Submission(JobRequest(1, required_nodes=N1), ignores_term=True, run_time=3600))
    stop(world, job)
    world.soon(lambda: world.is_in(job, JobState.COMPLETING), 2)
    other = world.submit(Submission(JobRequest(1, required_nodes=N1)))
    assert world.stays(lambda: world.waits(other))
    world.until(lambda: world.runs(other))


def test_a_released_requeued_job_is_not_eligible_at_once(world: World) -> None:
    begun = world.now()
    job = requeued(world)
    released = world.now()
    assert world.gateway.release([str(job)], RELEASED) == []
    assert world.job(job).hold is Hold.NONE
    reasons = set()

    def starts() -> bool:
        seen = world.job(job)
        reasons.add(seen.reason)
        return seen.state is JobState.RUNNING

    world.until(starts)
    assert world.now() - begun > 5, "cred_expire"
    assert "BeginTime" in reasons
    assert world.job(job).run_time <= world.now() - released


def test_a_requeued_job_keeps_its_rank_and_its_required_nodes(world: World) -> None:
    job = world.running(Submission(JobRequest(1, required_nodes=N1)))
    world.gateway.set_nice([str(job)], -33)
    stop(world, job)
    world.until(lambda: world.waits(job))
    assert world.job(job).request.required_nodes == N1
    assert world.job(job).nice == -33


def test_the_preemptor_that_waits_gets_the_node_of_a_requeued_job_at_once(world: World) -> None:
    victim = world.running(WHOLE_N1)
    preemptor = world.submit(replace(WHOLE_N1, hold=Hold.USER))
    world.gateway.release([str(preemptor)], RELEASED)
    stop(world, victim)
    world.soon(lambda: world.runs(preemptor), 3)


def test_requeuing_twice_is_harmless(world: World) -> None:
    job = world.running(ONE)
    stop(world, job)
    stop(world, job)
    world.until(lambda: world.waits(job))
    world.gateway.requeue([str(job)])
    assert (world.job(job).restarts, world.job(job).hold) == (1, Hold.ADMIN)


def test_a_job_that_may_not_be_requeued_refuses_and_runs_on(world: World) -> None:
    job = world.running(Submission(JobRequest(1), requeue=False))
    world.gateway.hold([str(job)], HELD)
    assert [refusal.ref for refusal in world.gateway.requeue([str(job)])] == [str(job)]
    assert world.runs(job) and world.job(job).priority == 0
    assert world.gateway.release([str(job)], RELEASED) == []
    assert world.runs(job) and world.job(job).priority > 0


def test_requeue_leaves_a_waiting_job_alone(world: World) -> None:
    world.running(WHOLE_N1)
    job = world.submit(Submission(JobRequest(1, required_nodes=N1)))
    world.gateway.requeue([str(job)])
    assert (world.job(job).hold, world.job(job).restarts) == (Hold.NONE, 0)


def test_requeue_never_restarts_an_ended_job(world: World) -> None:
    """``scontrol requeue`` without ``incomplete`` would run a completed job a second time."""
    job = world.submit(Submission(JobRequest(1), run_time=1))
    world.until(lambda: world.is_in(job, JobState.ENDED))
    world.gateway.requeue([str(job)])
    assert world.stays(lambda: world.is_in(job, JobState.ENDED), 1)


def test_a_suspended_job_frees_its_cpus(world: World) -> None:
    victim = world.running(WHOLE_N1)
    preemptor = world.submit(WHOLE_N1)
    assert world.gateway.suspend([str(victim)]) == []
    assert world.is_in(victim, JobState.SUSPENDED)
    world.soon(lambda: world.runs(preemptor), 5)


def test_a_suspended_job_keeps_its_memory(world: World) -> None:
    victim = world.running(Submission(JobRequest(1, memory_per_node=6000 * MB, required_nodes=N1)))
    other = world.submit(Submission(JobRequest(1, memory_per_node=6000 * MB, required_nodes=N1)))
    world.gateway.suspend([str(victim)])
    assert world.stays(lambda: world.waits(other), 3)
    world.until(lambda: (world.node("n1").cpus_taken, world.node("n1").memory_taken) == (0, 6000 * MB))


def test_a_suspended_job_keeps_its_gres(world: World) -> None:
    request = JobRequest(1, gres=(("ve", 2),), required_nodes=N1)
    victim = world.running(Submission(request))
    other = world.submit(Submission(request))
    world.gateway.suspend([str(victim)])
    assert world.stays(lambda: world.waits(other), 3)
    world.cancel(victim)
    world.until(lambda: world.runs(other))


def test_run_time_stands_still_while_a_job_is_suspended(world: World) -> None:
    job = world.running(ONE)
    world.gateway.suspend([str(job)])
    assert world.job(job).priority == 0
    before = world.job(job).run_time
    assert world.stays(lambda: world.job(job).run_time <= before + 1, 3)


def test_suspending_twice_is_harmless(world: World) -> None:
    job = world.running(ONE)
    world.gateway.suspend([str(job)])
    world.gateway.suspend([str(job)])
    assert world.is_in(job, JobState.SUSPENDED)
    assert world.gateway.resume([str(job)]) == []
    world.gateway.resume([str(job)])
    assert world.runs(job) and world.job(job).priority > 0


def test_resume_succeeds_on_busy_cpus_and_spoils_slurms_counts(world: World) -> None:
    first = world.running(WHOLE_N1)
    world.gateway.suspend([str(first)])
    second = world.running(WHOLE_N1)
    assert world.gateway.resume([str(first)]) == []
    assert world.runs(first) and world.runs(second)
    world.cancel(second)
    world.until(lambda: world.is_in(second, JobState.ENDED))
    assert world.runs(first)
    world.until(lambda: world.node("n1").cpus_taken == 0)


def test_a_suspended_job_can_be_requeued(world: World) -> None:
    job = world.running(ONE)
    world.gateway.suspend([str(job)])
    assert world.gateway.requeue([str(job)]) == []
    world.until(lambda: world.waits(job))
    assert (world.job(job).hold, world.job(job).reason) == (Hold.ADMIN, "JobHeldAdmin"), "that of the suspension"
    assert not world.user_release(job)
    world.gateway.release([str(job)], RELEASED)
    world.until(lambda: world.runs(job))


@pytest.mark.parametrize("order", ["suspend", "resume"])
def test_a_waiting_job_cannot_be_suspended_or_resumed(world: World, order: str) -> None:
    job = world.submit(Submission(JobRequest(1), hold=Hold.USER))
    assert [refusal.ref for refusal in getattr(world.gateway, order)([str(job)])] == [str(job)]


def test_a_running_job_cannot_be_resumed(world: World) -> None:
    job = world.running(ONE)
    assert len(world.gateway.resume([str(job)])) == 1


def test_a_job_that_ends_is_not_restarted_by_a_late_resume(world: World) -> None:
    job = world.running(ONE)
    world.gateway.suspend([str(job)])
    world.cancel(job)
    world.until(lambda: world.is_in(job, JobState.ENDED))
    assert len(world.gateway.resume([str(job)])) == 1


@pytest.mark.parametrize("batch_only", [False, True])
def test_a_running_job_takes_a_signal(world: World, batch_only: bool) -> None:
    job = world.running(ONE)
    assert world.gateway.signal(str(job), "CONT", batch_only) == []
    assert world.stays(lambda: world.runs(job), 1)


def test_a_waiting_job_takes_no_signal(world: World) -> None:
    """``scancel`` tries again for most of a minute before it says so: a short timeout may come first."""
    job = world.submit(Submission(JobRequest(1), hold=Hold.USER))
    with contextlib.suppress(GatewayTimeout):
        assert len(world.gateway.signal(str(job), "USR1")) == 1


def test_an_unknown_signal_is_refused(world: World) -> None:
    job = world.running(ONE)
    assert len(world.gateway.signal(str(job), "NOPE")) == 1


def test_a_failed_job_can_be_queued_again_while_slurm_remembers_it(world: World) -> None:
    job = world.running(replace(ONE, run_time=3600))
    assert world.gateway.signal(str(job), "TERM", batch_only=True) == []
    world.until(lambda: world.is_in(job, JobState.ENDED))
    assert world.job(job).failed
    assert world.gateway.requeue_ended([str(job)]) == []
    world.until(lambda: world.waits(job))
    assert not world.job(job).failed
    world.until(lambda: world.runs(job))
    assert world.job(job).restarts == 1


def test_a_job_that_ended_well_has_not_failed(world: World) -> None:
    job = world.running(replace(ONE, run_time=1))
    world.until(lambda: world.is_in(job, JobState.ENDED))
    assert not world.job(job).failed
