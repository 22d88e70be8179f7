"""What is wanted, what we have set, and what Slurm shows, compared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from omfs_daemon.cluster.jobs import Hold, Job, JobRequest, JobState
from omfs_daemon.cluster.marks import MarkWord
from omfs_daemon.cluster.snapshot import PreemptedJob, Snapshot
from omfs_daemon.preemption.desired import Desired, WantedField, WantedHold
from omfs_daemon.preemption.effects import Effects
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.ownership import JobField, OwnedField
from omfs_daemon.preemption.reconcile import reconcile
from omfs_daemon.preemption.restart import SAVED_WITHIN
from omfs_daemon.preemption.state import FieldSet, FieldsLeft, FieldsSet, HoldsOver, State
from omfs_daemon.preemption.state_fold import state_after
from omfs_daemon.slurm.orders import HoldJobs, MarkJobs, Order, PinNodes, ReleaseJobs, SetNice

PENDING = Job(7, "7", "alice", 1000, "bio", JobState.PENDING, JobRequest(1), 0.0, priority=1)
OURS: dict[str, Any] = {"hold": Hold.ADMIN, "reason": "JobHeldAdmin", "priority": 0, "admin_comment": "omfs:held:5"}
THEIRS: dict[str, Any] = {**OURS, "admin_comment": "omfs:rel:5"}
NOW = 100.0


def compared(job: Job, desired: Desired | None = None, state: State | None = None) -> Effects:
    observation = Observation(Snapshot(NOW, {job.id: job}, {}, {}))
    return reconcile(desired or Desired(), state or State(), observation, NOW)


def orders_of(effects: Effects) -> list[Order]:
    return [order for chain in effects.chains for order in chain.fields]


def wants(name: JobField, value: int | tuple[str, ...]) -> Desired:
    return Desired(fields={("7", name): WantedField(value, "rank")})


def owns(name: JobField, value: int | tuple[str, ...], baseline: int | tuple[str, ...]) -> State:
    return State(owned={"7": {name: OwnedField(value, baseline, "rank", 50.0)}})


def pinned(*nodes: str) -> Job:
    return replace(PENDING, request=JobRequest(1, required_nodes=frozenset(nodes)))


def test_what_nobody_wants_and_nobody_set_is_left_alone() -> None:
    assert compared(PENDING) == Effects()
    assert compared(replace(PENDING, **THEIRS)) == Effects()


def test_a_field_is_set_with_what_was_there_before() -> None:
    effects = compared(PENDING, wants(JobField.NICE, -5))
    assert orders_of(effects) == [SetNice(("7",), -5)]
    assert effects.records == [FieldsSet((FieldSet("7", JobField.NICE, OwnedField(-5, 0, "rank", NOW)),))]


def test_a_later_wish_keeps_the_baseline() -> None:
    state = owns(JobField.NODES, ("n1",), ("n9",))
    effects = compared(pinned("n1"), wants(JobField.NODES, ("n2",)), state)
    assert orders_of(effects) == [PinNodes("7", ("n2",))]
    (record,) = effects.records
    assert isinstance(record, FieldsSet) and record.fields[0].owned.baseline == ("n9",)


def test_what_nobody_wants_any_more_goes_back_to_the_baseline_and_is_then_left() -> None:
    state = owns(JobField.NODES, ("n1",), ("n9",))
    assert orders_of(compared(pinned("n1"), state=state)) == [PinNodes("7", ("n9",))]
    assert compared(pinned("n9"), state=state).records == [FieldsLeft((("7", JobField.NODES),))]


def test_what_slurmctld_may_forget_to_set_back_is_still_known_as_ours() -> None:
    back = compared(pinned("n1"), state=owns(JobField.NODES, ("n1",), ()))
    state = state_after(State(), back.records)
    assert compared(pinned(), state=state).records == [], "it may be forgotten yet"
    assert orders_of(compared(pinned("n1"), state=state)) == [PinNodes("7", ())]
    later = Observation(Snapshot(NOW, {7: pinned()}, {}, {}))
    left = reconcile(Desired(), state, later, NOW + 2 * SAVED_WITHIN + 1)
    assert left.records == [FieldsLeft((("7", JobField.NODES),))]


def test_whom_somebody_else_holds_is_not_marked_as_if_we_held_it_once_it_has_left() -> None:
    held_runs = replace(PENDING, state=JobState.RUNNING, priority=0)
    desired = Desired(holds={7: {"7": WantedHold(MarkWord.STOPPING, "", 1)}})
    (mark,) = orders_of(compared(held_runs, desired))
    assert isinstance(mark, MarkJobs) and mark.word is MarkWord.RELEASED
    marked = replace(held_runs, admin_comment=f"omfs:rel:5 {mark.sentence}")
    state = State(preempted={"7": PreemptedJob(NOW, "dmtcp", "9")})
    for seen in (marked, replace(held_runs, admin_comment="adm:held")):
        left = replace(seen, state=JobState.PENDING, hold=Hold.USER, reason="JobHeldUser", special_exit=True)
        assert orders_of(compared(seen, desired)) == orders_of(compared(left, state=state)) == []


@pytest.mark.parametrize("before", ["", "omfs:rel:3 words", "statistics"])
def test_the_hold_of_a_checkpointed_job_whose_mark_slurmctld_has_forgotten_ends(before: str) -> None:
    held: dict[str, Any] = {"hold": Hold.USER, "reason": "JobHeldUser", "priority": 0, "special_exit": True}
    forgotten = replace(PENDING, admin_comment=before, **held)
    state = State(preempted={"7": PreemptedJob(NOW, "dmtcp", "9")})
    assert orders_of(compared(forgotten, state=state)) == [ReleaseJobs(("7",))]


def test_an_owners_change_is_put_right_while_ours_is_wanted_and_counts_afterwards() -> None:
    state = owns(JobField.NODES, ("n1",), ())
    effects = compared(pinned("n3"), wants(JobField.NODES, ("n1",)), state)
    assert orders_of(effects) == [PinNodes("7", ("n1",))]
    (record,) = effects.records
    assert isinstance(record, FieldsSet) and record.fields[0].owned.baseline == ("n3",)
    effects = compared(pinned("n3"), state=state)
    assert orders_of(effects) == [] and effects.records == [FieldsLeft((("7", JobField.NODES),))]


@pytest.mark.parametrize(
    ("seen", "is_wanted", "expected"),
    [
        ({}, True, [HoldJobs(("7",), "why")]),
        ({}, False, []),
        (OURS, True, []),
        (OURS, False, [ReleaseJobs(("7",))]),
        (THEIRS, True, []),
        (THEIRS, False, []),
        ({"admin_comment": "omfs:held:5"}, True, [MarkJobs(("7",), MarkWord.ADMIN_RELEASED)]),
        ({"admin_comment": "omfs:held:5"}, False, [MarkJobs(("7",), MarkWord.ADMIN_RELEASED)]),
        ({"admin_comment": "adm:rel"}, True, []),
    ],
)
def test_holds(seen: dict[str, Any], is_wanted: bool, expected: list[Order]) -> None:
    desired = Desired(holds={7: {"7": WantedHold(MarkWord.HELD, "why")}} if is_wanted else {})
    assert orders_of(compared(replace(PENDING, **seen), desired)) == expected


def test_an_overwritten_mark_is_told_by_the_journal() -> None:
    unmarked = replace(PENDING, **{**OURS, "admin_comment": "a note"})
    assert orders_of(compared(unmarked)) == []
    marked = [MarkJobs(("7",), MarkWord.HELD)]
    assert orders_of(compared(unmarked, state=State(held={"7": 5}))) == marked, "whoever planned did not know"
    preempted = State(held={"7": 5}, preempted={"7": PreemptedJob(1.0, "requeue", "8")})
    assert orders_of(compared(unmarked, state=preempted)) == [ReleaseJobs(("7",))]


@pytest.mark.parametrize("mark", ["", "omfs:rel:3", "omfs:held:5", "adm:rel"])
def test_a_hold_that_is_gone_is_forgotten(mark: str) -> None:
    """Also one that slurmctld lost in a crash: a later hold without a mark is somebody else's."""
    effects = compared(replace(PENDING, admin_comment=mark), state=State(held={"7": 5}))
    assert HoldsOver(("7",)) in effects.records
