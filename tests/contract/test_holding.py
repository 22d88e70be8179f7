"""Hold, release, rank, pin."""

from __future__ import annotations

from math import inf

import pytest

from omfs_daemon.cluster.jobs import Hold, Job, JobRequest, JobState
from omfs_daemon.slurm.gateway import OrderRefusal
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission
from tests.support.clusters import World
from tests.support.comments import HELD, RELEASED

FULL = Submission(JobRequest(16, nodes=4, max_nodes=4))
ONE = Submission(JobRequest(1))
USER_HELD = Submission(JobRequest(1), hold=Hold.USER)


def after(*jobs: int) -> Submission:
    """A job that is to start when these have ended."""
    return Submission(JobRequest(1), after=jobs)


def test_an_administrators_hold_is_not_the_owners_to_release(world: World) -> None:
    world.running(FULL)
    job = world.submit(ONE)
    assert world.gateway.hold([str(job)], HELD) == []
    assert (world.job(job).hold, world.job(job).reason, world.job(job).priority) == (Hold.ADMIN, "JobHeldAdmin", 0)
    assert not world.user_release(job)
    assert world.job(job).hold is Hold.ADMIN


def test_owners_release_their_own_holds(world: World) -> None:
    job = world.submit(USER_HELD)
    assert world.job(job).hold is Hold.USER
    assert world.user_release(job)
    world.until(lambda: world.runs(job))


def test_the_owners_hold_does_not_weaken_an_administrators(world: World) -> None:
    job = world.submit(USER_HELD)
    world.gateway.hold([str(job)], HELD)
    world.user_hold(job)
    assert not world.user_release(job)


def test_a_users_hold_becomes_an_administrators(world: World) -> None:
    job = world.submit(USER_HELD)
    assert world.gateway.hold([str(job)], HELD) == []
    assert world.job(job).hold is Hold.ADMIN
    assert not world.user_release(job)


@pytest.mark.parametrize("hold", [Hold.USER, Hold.ADMIN])
def test_release_ends_any_hold(world: World, hold: Hold) -> None:
    job = world.submit(USER_HELD)
    if hold is Hold.ADMIN:
        world.gateway.hold([str(job)], HELD)
    assert world.gateway.release([str(job)], RELEASED) == []
    world.soon(lambda: world.runs(job), 5)


def test_what_a_job_waits_for_is_seen_held_or_not(world: World) -> None:
    first = world.running(ONE)
    job = world.submit(after(first))
    for hold in (Hold.NONE, Hold.ADMIN):
        assert (world.job(job).hold, world.job(job).eligible) == (hold, inf)
        world.gateway.hold([str(job)], HELD)
    world.gateway.release([str(job)], RELEASED)
    seen = world.job(job)
    assert (seen.hold, seen.eligible) == (Hold.NONE, inf)
    assert seen.reason in ("", "None", "Dependency") and seen.priority > 0
    world.until(lambda: world.job(job).reason == "Dependency")
    assert world.job(job).eligible == inf
    world.cancel(first)
    world.until(lambda: world.runs(job))


def test_a_job_just_released_waits_no_more_for_one_that_has_ended(world: World) -> None:
    first = world.running(ONE)
    job = world.submit(after(first))
    world.gateway.hold([str(job)], HELD)
    world.cancel(first)
    world.until(lambda: world.job(job).eligible is None)
    assert world.stays(lambda: world.waits(job), 1)
    world.gateway.release([str(job)], RELEASED)
    seen: list[Job] = []

    def starts() -> bool:
        seen.append(world.job(job))
        return seen[-1].state is JobState.RUNNING

    world.soon(starts, 5)
    assert {(one.hold, one.eligible == inf, one.priority > 0) for one in seen} == {(Hold.NONE, False, True)}
    assert not {one.reason for one in seen if one.state is JobState.PENDING} & {"Dependency", "JobHeldAdmin"}


def test_a_held_job_stays_while_nodes_are_idle(world: World) -> None:
    job = world.submit(USER_HELD)
    assert world.stays(lambda: world.waits(job))


def test_a_hold_writes_its_mark_in_the_same_step(world: World) -> None:
    world.running(FULL)
    job = world.submit(ONE)
    assert world.gateway.hold([str(job)], HELD) == []
    assert (world.job(job).hold, world.job(job).admin_comment) == (Hold.ADMIN, HELD)
    assert world.gateway.release([str(job)], RELEASED) == []
    assert (world.job(job).hold, world.job(job).admin_comment) == (Hold.NONE, RELEASED)


def test_the_mark_of_a_hold_survives_holds_and_releases_by_others(world: World) -> None:
    world.running(FULL)
    job = world.submit(ONE)
    world.gateway.hold([str(job)], HELD)
    world.admin_release(job)
    assert (world.job(job).hold, world.job(job).admin_comment) == (Hold.NONE, HELD)
    assert world.user_hold(job)
    assert (world.job(job).reason, world.job(job).admin_comment) == ("JobHeldUser", HELD)
    world.admin_hold(job)
    assert (world.job(job).reason, world.job(job).admin_comment) == ("JobHeldAdmin", HELD)


def test_a_release_of_a_job_that_is_not_held_resets_its_nice(world: World) -> None:
    world.running(FULL)
    job = world.submit(ONE)
    world.gateway.hold([str(job)], HELD)
    world.gateway.set_nice([str(job)], -400)
    world.gateway.release([str(job)], RELEASED)
    assert world.job(job).nice == -400
    world.gateway.release([str(job)], RELEASED)
    assert world.job(job).nice == 0


def test_so_does_that_of_a_running_job_but_not_of_one_that_is_held(world: World) -> None:
    job = world.running(ONE)
    world.gateway.set_nice([str(job)], 70)
    world.gateway.hold([str(job)], HELD)
    world.gateway.release([str(job)], RELEASED)
    assert world.job(job).nice == 70
    world.gateway.release([str(job)], RELEASED)
    assert world.job(job).nice == 0


def test_hold_and_release_keep_nice(world: World) -> None:
    world.running(FULL)
    job = world.submit(ONE)
    assert world.gateway.set_nice([str(job)], -70) == []
    world.gateway.hold([str(job)], HELD)
    assert world.job(job).nice == -70
    assert world.gateway.set_nice([str(job)], -400) == []
    world.gateway.release([str(job)], RELEASED)
    assert (world.job(job).nice, world.job(job).hold) == (-400, Hold.NONE)
    world.until(lambda: world.job(job).priority >= 400)


def test_holding_and_releasing_twice_is_harmless(world: World) -> None:
    world.running(FULL)
    job = world.submit(ONE)
    for _ in range(2):
        assert world.gateway.hold([str(job)], HELD) == []
    assert world.job(job).hold is Hold.ADMIN
    for _ in range(2):
        assert world.gateway.release([str(job)], RELEASED) == []
    assert world.job(job).hold is Hold.NONE


def test_a_lower_nice_starts_first(world: World) -> None:
    first = world.running(FULL)
    whole = Submission(JobRequest(16, nodes=4, max_nodes=4))
    early, late = world.submit(whole), world.submit(whole)
    assert world.gateway.set_nice([str(late)], -500) == []
    world.cancel(first)
    world.until(lambda: world.runs(late))
    assert world.waits(early)


def test_equal_jobs_start_in_the_order_of_submission(world: World) -> None:
    first = world.running(FULL)
    whole = Submission(JobRequest(16, nodes=4, max_nodes=4))
    early, late = world.submit(whole), world.submit(whole)
    world.cancel(first)
    world.until(lambda: world.runs(early))
    assert world.waits(late)


def test_hold_and_release_leave_a_running_job_alone(world: World) -> None:
    job = world.running(ONE)
    world.gateway.hold([str(job)], HELD)
    world.gateway.set_nice([str(job)], 5)
    world.gateway.release([str(job)], RELEASED)
    assert world.stays(lambda: world.runs(job), 1)


def test_a_pinned_job_starts_there_only(world: World) -> None:
    world.running(Submission(JobRequest(4, required_nodes=frozenset({"n2"}))))
    job = world.submit(USER_HELD)
    assert world.gateway.pin(str(job), ["n2"]) == []
    assert world.job(job).request.required_nodes == {"n2"}
    world.gateway.release([str(job)], RELEASED)
    assert world.stays(lambda: world.waits(job))
    assert world.gateway.pin(str(job), []) == []
    assert world.job(job).request.required_nodes == frozenset()
    world.until(lambda: world.runs(job))
    assert world.job(job).on_nodes != ("n2",)


def test_a_pin_to_several_nodes_uses_them_all(world: World) -> None:
    job = world.submit(Submission(JobRequest(4, nodes=2, max_nodes=2), hold=Hold.USER))
    assert world.gateway.pin(str(job), ["n2", "n4"]) == []
    world.gateway.release([str(job)], RELEASED)
    world.until(lambda: world.runs(job))
    assert set(world.job(job).on_nodes) == {"n2", "n4"}


def test_nodes_besides_the_pinned_ones_are_found(world: World) -> None:
    job = world.submit(Submission(JobRequest(6, nodes=2, max_nodes=2), hold=Hold.USER))
    world.gateway.pin(str(job), ["n3"])
    world.gateway.release([str(job)], RELEASED)
    world.until(lambda: world.runs(job))
    assert len(world.job(job).on_nodes) == 2 and "n3" in world.job(job).on_nodes


def test_an_impossible_pin_holds_a_job_until_it_is_undone(world: World) -> None:
    job = world.submit(Submission(JobRequest(1, partitions=("small",)), hold=Hold.USER))
    world.gateway.pin(str(job), ["n1"])
    world.gateway.release([str(job)], RELEASED)
    world.until(lambda: world.job(job).reason == "BadConstraints")
    assert (world.job(job).priority, world.job(job).hold) == (0, Hold.USER)
    assert world.gateway.pin(str(job), []) == []
    world.until(lambda: world.runs(job))


def test_a_job_pinned_to_a_drained_node_waits_until_it_is_unpinned(world: World) -> None:
    world.drain("n2")
    job = world.submit(USER_HELD)
    world.gateway.pin(str(job), ["n2"])
    world.gateway.release([str(job)], RELEASED)
    assert world.stays(lambda: world.waits(job))
    world.gateway.pin(str(job), [])
    world.until(lambda: world.runs(job))


@pytest.mark.parametrize("nodes", [["nowhere"], ["n1", "nowhere"]])
def test_a_pin_to_an_unknown_node_is_refused(world: World, nodes: list[str]) -> None:
    job = world.submit(USER_HELD)
    assert [refusal.ref for refusal in world.gateway.pin(str(job), nodes)] == [str(job)]
    assert world.job(job).request.required_nodes == frozenset()


def give(world: World, order: str, *refs: str) -> list[OrderRefusal]:
    """Send an order by name."""
    comments = {"hold": (HELD,), "release": (RELEASED,)}.get(order, ())
    refusals: list[OrderRefusal] = getattr(world.gateway, order)(refs, *comments)
    return refusals


def test_a_running_job_cannot_be_pinned(world: World) -> None:
    job = world.running(ONE)
    assert len(world.gateway.pin(str(job), ["n4"])) == 1


@pytest.mark.parametrize("order", ["hold", "release", "requeue", "suspend", "resume"])
def test_orders_for_unknown_jobs_are_refused_and_the_others_done(world: World, order: str) -> None:
    known = world.running(ONE)
    refused = {refusal.ref for refusal in give(world, order, "999998", str(known), "999999")}
    assert refused >= {"999998", "999999"}
    if order in ("hold", "release", "requeue", "suspend"):
        assert refused == {"999998", "999999"}
    if order in ("requeue", "suspend"):
        assert not world.runs(known)


def test_rank_and_pin_of_unknown_jobs_are_refused(world: World) -> None:
    assert [refusal.ref for refusal in world.gateway.set_nice(["999999"], 5)] == ["999999"]
    assert [refusal.ref for refusal in world.gateway.pin("999999", ["n1"])] == ["999999"]
    assert [refusal.ref for refusal in world.gateway.signal("999999", "USR1")] == ["999999"]


@pytest.mark.parametrize("order", ["hold", "release", "suspend", "resume"])
def test_orders_for_an_ended_job_are_refused(world: World, order: str) -> None:
    job = world.submit(Submission(JobRequest(1), run_time=1))
    world.until(lambda: world.is_in(job, JobState.ENDED))
    assert [refusal.ref for refusal in give(world, order, str(job))] == [str(job)]
    assert world.is_in(job, JobState.ENDED) and world.job(job).admin_comment == ""


def test_an_ended_job_is_refused_a_rank(world: World) -> None:
    job = world.submit(Submission(JobRequest(1), run_time=1))
    world.until(lambda: world.is_in(job, JobState.ENDED))
    assert len(world.gateway.set_nice([str(job)], 3)) == 1


def test_no_references_are_no_orders(world: World) -> None:
    assert world.gateway.hold([], HELD) == world.gateway.release([], RELEASED) == world.gateway.set_nice([], 1) == []


def test_a_deadline_that_passes_while_a_job_is_held_ends_it_once_it_is_released(world: World) -> None:
    job = world.submit(Submission(JobRequest(1), deadline=3, hold=Hold.USER))
    deadline = world.now() + 4
    assert world.job(job).deadline < inf
    world.until(lambda: world.now() > deadline)
    assert world.job(job).hold is Hold.USER, "Slurm ends no job that is held"
    assert world.user_release(job)
    world.until(lambda: world.is_in(job, JobState.ENDED))
    assert not world.job(job).allocations
