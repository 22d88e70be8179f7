"""What slurmctld forgets in a crash, and what is ordered again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omfs_daemon.cluster.jobs import Allocation, Hold, Job, JobRequest, JobState
from omfs_daemon.cluster.snapshot import PreemptedJob, Snapshot
from omfs_daemon.preemption.effects import Chain
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.restart import (
    NODES_STOP_WITHIN,
    SAVED_WITHIN,
    after_restart,
    odd_jobs,
    of_other_boots,
    unsaved_orders,
)
from omfs_daemon.preemption.state import (
    JobPreempted,
    OrdersNumbered,
    OrdersSaved,
    State,
    TransitionsOrdered,
)
from omfs_daemon.preemption.state_fold import state_after
from omfs_daemon.preemption.unsaved_order import UnsavedOrder, Verb
from omfs_daemon.slurm.orders import ReleaseJobs, RequeueEndedJobs, RequeueJobs, SuspendJobs

RUNNING = Job(7, "7", "alice", 1000, "bio", JobState.RUNNING, JobRequest(1), 0.0, start=50.0, priority=1)
NOW = 100.0


def observed(*jobs: Job, ended: Job | None = None) -> Observation:
    found = {} if ended is None else {ended.ref: ended}
    return Observation(Snapshot(NOW, {job.id: job for job in jobs}, {}, {}), ended=found)


def ordered(verb: Verb, boot: str = "before", at: float = NOW - NODES_STOP_WITHIN, is_wanted: bool = True) -> State:
    preempted = {"7": PreemptedJob(NOW, verb, "9")} if is_wanted else {}
    return State(unsaved={"7": UnsavedOrder(verb, 7, 50.0, boot, at)}, preempted=preempted)


def again(state: State, observation: Observation, boot: str = "after") -> list[object]:
    effects, _ = after_restart(state, observation, boot, NOW)
    return [action for chain in effects.chains for action in chain.transitions]


@pytest.mark.parametrize("is_wanted", [True, False])
def test_a_requeued_job_that_is_shown_running_is_requeued_though_nobody_wants_it(is_wanted: bool) -> None:
    state = ordered(Verb.REQUEUE, is_wanted=is_wanted)
    assert again(state, observed(RUNNING)) == [RequeueJobs(("7",))]
    _, observation = after_restart(state, observed(RUNNING), "after", NOW)
    job = observation.job("7")
    assert job is not None and not job.runs, "its processes are gone"


def test_a_requeued_job_that_is_shown_failed_is_queued_again() -> None:
    ended = replace(RUNNING, state=JobState.ENDED, failed=True)
    assert again(ordered(Verb.REQUEUE), observed(ended=ended)) == [RequeueEndedJobs(("7",))]
    assert again(ordered(Verb.REQUEUE), observed(ended=replace(ended, failed=False))) == []


@pytest.mark.parametrize("verb", [Verb.REQUEUE, Verb.SUSPEND])
@pytest.mark.parametrize("is_wanted", [True, False])
def test_orders_wait_until_the_nodes_have_registered(verb: Verb, is_wanted: bool) -> None:
    running = replace(RUNNING, allocations=(Allocation("n1", 1, 0),))
    effects, observation = after_restart(ordered(verb, is_wanted=is_wanted), observed(running), "after", NOW, {"n1"})
    assert effects.chains == [] and effects.records == []
    job = observation.job("7")
    assert job is not None and job.state is JobState.COMPLETING, "neither running nor to be resumed"
    others, _ = after_restart(ordered(verb, is_wanted=is_wanted), observed(running), "after", NOW, {"n2"})
    assert others.chains


def test_a_suspended_job_that_is_shown_running_is_suspended_again_or_set_going() -> None:
    assert again(ordered(Verb.SUSPEND), observed(RUNNING)) == [SuspendJobs(("7",))]
    assert is_to_be_resumed(ordered(Verb.SUSPEND, is_wanted=False))


def is_to_be_resumed(state: State) -> bool:
    """It is suspended in this cycle, and may be resumed in the next one."""
    effects, observation = after_restart(state, observed(RUNNING), "after", NOW)
    job = observation.job("7")
    suspended = [action for chain in effects.chains for action in chain.transitions] == [SuspendJobs(("7",))]
    returns = JobPreempted("7", NOW, "suspend", "") in effects.records or "7" in state.preempted
    return suspended and returns and job is not None and job.state is JobState.COMPLETING


@pytest.mark.parametrize("verb", [Verb.SUSPEND, Verb.RESUME])
@pytest.mark.parametrize("is_wanted", [True, False])
def test_a_job_is_not_ordered_about_while_its_nodes_may_still_suspend_it(verb: Verb, is_wanted: bool) -> None:
    """slurmd lets the orders for a job wait side by side, and carries them out in any order."""
    state = ordered(verb, at=NOW - 1, is_wanted=is_wanted)
    effects, observation = after_restart(state, observed(RUNNING), "after", NOW)
    assert (effects.chains, effects.records) == ([], [])
    job = observation.job("7")
    assert job is not None and job.state is JobState.COMPLETING


@pytest.mark.parametrize("is_wanted", [True, False])
def test_a_resumed_job_that_is_shown_running_is_set_going_again(is_wanted: bool) -> None:
    """Its suspension may be forgotten as well, or its nodes may never have been told to resume it."""
    state = ordered(Verb.RESUME, is_wanted=is_wanted)
    assert is_to_be_resumed(state)
    assert odd_jobs(state, observed(RUNNING), NOW) == frozenset(), "most resumed jobs look so"
    assert odd_jobs(state, observed(RUNNING), NOW + SAVED_WITHIN) == {("7", True)}, "and are asked about once"


@pytest.mark.parametrize(
    "seen",
    [
        replace(RUNNING, start=60.0),
        replace(RUNNING, state=JobState.PENDING, start=None),
        replace(RUNNING, state=JobState.SUSPENDED),
    ],
)
@pytest.mark.parametrize("verb", Verb)
def test_what_slurm_still_knows_of_is_not_ordered_again(seen: Job, verb: Verb) -> None:
    state = ordered(verb)
    assert again(state, observed(seen)) == []
    kept = TransitionsOrdered({"7": replace(state.unsaved["7"], boot="after", at=NOW)})
    assert after_restart(state, observed(seen), "after", NOW).effects.records == [kept], "it may be forgotten yet"


def test_a_resumed_job_that_is_shown_suspended_waits_for_its_turn_again() -> None:
    suspended = replace(RUNNING, state=JobState.SUSPENDED)
    state = ordered(Verb.RESUME, is_wanted=False)
    assert odd_jobs(state, observed(suspended), NOW) == {("7", False)}
    records = after_restart(state, observed(suspended), "after", NOW).effects.records
    assert JobPreempted("7", NOW, "suspend", "") in records


@pytest.mark.parametrize(
    ("mark", "is_repeated"), [("omfs:rel:6", False), ("omfs:rel:5", True), ("omfs:stopping:6", True)]
)
@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.SUSPENDED])
def test_a_job_that_the_failsafe_has_let_go_since_is_left(state: JobState, mark: str, is_repeated: bool) -> None:
    before = replace(ordered(Verb.RESUME, is_wanted=False), sequence=5)
    records = after_restart(before, observed(replace(RUNNING, state=state, admin_comment=mark)), "after", NOW).effects
    assert (JobPreempted("7", NOW, "suspend", "") in records.records) is is_repeated
    assert (OrdersSaved(("7",)) in records.records) is not is_repeated


def test_a_later_failure_of_the_jobs_own_is_not_made_up_for() -> None:
    ended = replace(RUNNING, state=JobState.ENDED, failed=True, start=90.0)
    assert again(ordered(Verb.REQUEUE), observed(ended=ended)) == []


def test_what_becomes_of_a_leaving_job_is_waited_for() -> None:
    leaving = replace(RUNNING, state=JobState.COMPLETING)
    effects, _ = after_restart(ordered(Verb.REQUEUE), observed(leaving), "after", NOW)
    assert (effects.chains, effects.records) == ([], [])


def test_an_order_is_kept_until_the_slurmctld_that_took_it_has_saved_it() -> None:
    fresh, old = ordered(Verb.REQUEUE), ordered(Verb.REQUEUE, at=NOW - SAVED_WITHIN - 1)
    assert after_restart(fresh, observed(RUNNING), "before", NOW).effects.records == []
    assert after_restart(old, observed(RUNNING), "before", NOW).effects.records == [OrdersSaved(("7",))]
    assert again(old, observed(RUNNING)) == [RequeueJobs(("7",))], "however long slurmctld was away"


@pytest.mark.parametrize(
    ("seen", "at", "is_odd"),
    [
        (None, NOW - 1, True),  # it may have FAILED
        (RUNNING, NOW - 1, True),
        (replace(RUNNING, state=JobState.PENDING, start=None), NOW - 1, False),
        (replace(RUNNING, start=60.0), NOW - 1, False),
        (replace(RUNNING, state=JobState.COMPLETING), NOW - 1, False),
        (replace(RUNNING, state=JobState.COMPLETING), NOW - SAVED_WITHIN - 1, True),
    ],
)
def test_jobs_that_do_not_look_as_ordered_are_odd(seen: Job | None, at: float, is_odd: bool) -> None:
    observation = observed() if seen is None else observed(seen)
    assert {ref for ref, _ in odd_jobs(ordered(Verb.REQUEUE, at=at), observation, NOW)} == ({"7"} if is_odd else set())


def test_a_job_that_was_odd_before_is_odd_again_when_its_order_is_about_to_be_forgotten() -> None:
    early, late = ordered(Verb.REQUEUE), ordered(Verb.REQUEUE, at=NOW - SAVED_WITHIN - 1)
    assert not odd_jobs(late, observed(RUNNING), NOW) <= odd_jobs(early, observed(RUNNING), NOW)


def test_only_orders_that_another_slurmctld_has_taken_are_looked_up() -> None:
    assert of_other_boots(ordered(Verb.REQUEUE), "before") == {}
    assert of_other_boots(ordered(Verb.REQUEUE), "after") == {"7": 7}


@pytest.mark.parametrize("verb", [Verb.REQUEUE, Verb.SUSPEND, Verb.RESUME])
def test_a_repetition_may_be_lost_too(verb: Verb) -> None:
    """slurmctld has just started, and may not answer: what it had forgotten is kept until the effect is observed."""
    state = ordered(verb, is_wanted=False)
    effects, seen = after_restart(state, observed(RUNNING), "after", NOW)
    assert effects.chains
    assert unsaved_orders(effects.chains, seen, "after", NOW, state.unsaved) == []
    first = UnsavedOrder(Verb.SUSPEND, 7, 50.0, "after", NOW)
    suspend = [Chain(transitions=(SuspendJobs(("7",)),))]
    assert unsaved_orders(suspend, seen, "after", NOW, {}) == [TransitionsOrdered({"7": first})]


WAITING = replace(RUNNING, state=JobState.PENDING, start=None, hold=Hold.NONE, admin_comment="omfs:rel:4")
HELD_AGAIN = replace(WAITING, hold=Hold.ADMIN, priority=0)
RELEASE = [Chain((ReleaseJobs(("7",)),))]


def test_a_release_is_kept_beside_the_requeue_before_it() -> None:
    alone = UnsavedOrder(Verb.RELEASE, 7, None, "before", NOW, is_released=True)
    assert unsaved_orders(RELEASE, observed(WAITING), "before", NOW, {}) == [TransitionsOrdered({"7": alone})]
    before = ordered(Verb.REQUEUE, at=NOW - 9).unsaved
    both = replace(before["7"], at=NOW, is_released=True)
    assert unsaved_orders(RELEASE, observed(WAITING), "before", NOW, before) == [TransitionsOrdered({"7": both})]


@pytest.mark.parametrize("verb", [Verb.RELEASE, Verb.REQUEUE])
def test_a_forgotten_release_counts_as_not_observed(verb: Verb) -> None:
    state = State(unsaved={"7": UnsavedOrder(verb, 7, None, "before", NOW - 1, is_released=True)}, sequence=9)
    assert odd_jobs(state, observed(HELD_AGAIN), NOW) == {("7", False)}
    effects, _ = after_restart(state, observed(HELD_AGAIN), "after", NOW)
    assert OrdersNumbered(4, releases=("7",)) in effects.records
    after = state_after(state, effects.records)
    assert (after.releasing, after.sequence) == ({"7": 4}, 9)
    again, _ = after_restart(after, observed(HELD_AGAIN), "after", NOW + 1)
    assert again.records == [], "of the present slurmctld"


@pytest.mark.parametrize(
    "job",
    [
        WAITING,
        replace(HELD_AGAIN, admin_comment="omfs:held:5"),
        replace(HELD_AGAIN, admin_comment="adm:held"),
        replace(RUNNING, admin_comment="omfs:rel:4"),
    ],
)
def test_a_release_that_slurmctld_remembers_or_that_is_over_is_not_repeated(job: Job) -> None:
    state = State(unsaved={"7": UnsavedOrder(Verb.RELEASE, 7, None, "before", NOW - 1, is_released=True)})
    assert odd_jobs(state, observed(job), NOW) == frozenset()
    effects, _ = after_restart(state, observed(job), "after", NOW)
    assert not effects.events and not any(isinstance(record, OrdersNumbered) for record in effects.records)


def test_a_requeue_that_nobody_released_says_nothing_about_a_hold() -> None:
    assert odd_jobs(ordered(Verb.REQUEUE), observed(HELD_AGAIN), NOW) == frozenset()
