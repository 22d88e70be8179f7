"""Compares how jobs should be with how we set them and how they are; returns the orders that are missing. Pure.

The only place that makes orders about fields: holds with their marks, nice, required nodes, licenses. Undoing a
preemption, a pause, and the failsafe are this function with less that is wanted.

- **Holds.** What somebody else holds is not ours to release, and what an administrator has released is not held again
  while it waits (``preemption/our_holds.py``, ``cluster/holds.py``).
- **Other fields.** Who has changed one is unknown, so it counts as the owner's change: ours is put back for as long as
  it is wanted, and theirs after that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from omfs_daemon.cluster.holds import (
    WAIT_WORD,
    admin_comment_of,
    is_held,
    is_held_by_us,
    is_release_observed,
    may_hold,
)
from omfs_daemon.cluster.job_refs import rest_of
from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.marks import MarkWord
from omfs_daemon.preemption.desired import Desired, WantedField, WantedHold
from omfs_daemon.preemption.effects import Chain, Effects
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.our_holds import (
    HELD_BY_OTHERS,
    has_lost_mark,
    is_known_as_others,
    is_ours,
    with_refs_of_now,
)
from omfs_daemon.preemption.ownership import NOBODY, JobField, OwnedField, Value, licenses_of, licenses_value, nodes_of
from omfs_daemon.preemption.records import JobEvent
from omfs_daemon.preemption.restart import SAVED_WITHIN
from omfs_daemon.preemption.state import FieldSet, FieldsLeft, FieldsSet, HoldsOver, State
from omfs_daemon.slurm import orders
from omfs_daemon.slurm.orders import Order

RETURNED_WITHIN = 600.0
"""Seconds after which the daemon no longer tries to give a job back the licenses that it had before it was preempted:
Slurm refuses them, as it does when they have been removed from slurm.conf."""

_NOT_RETURNED = "Slurm refuses the licenses that it gave up while it was preempted: it runs without them"

_BOTH_LICENSES = (JobField.LICENSES, JobField.KEPT_LICENSES)


class _Wanted(NamedTuple):
    """An order, and the preemption that wants it (0: none)."""

    order: Order
    preemption: int = 0


def reconcile(
    desired: Desired, state: State, observation: Observation, now: float, scope: Collection[str] | None = None
) -> Effects:
    """What is missing. ``scope``: the jobs that were observed as they are wanted; None for all. Nothing is concluded of
    others."""
    found: list[_Wanted] = []
    effects = Effects()
    _fields(desired, state, observation, now, scope, effects, found)
    _holds(desired, state, observation, scope, effects, found)
    effects.chains = _chains(found)
    ordered = {ref for wanted in found for ref in orders.refs_of(wanted.order)}
    effects.events_if_taken = [
        event
        for ref, event in (*desired.releases.items(), *desired.holding.items())
        if ref in ordered and ref not in state.preempted  # that it runs again is told instead
    ]
    return effects


# -- nice, nodes, licenses -----------------------------------------------------------------------------------
def _fields(
    desired: Desired,
    state: State,
    observation: Observation,
    now: float,
    scope: Collection[str] | None,
    effects: Effects,
    found: list[_Wanted],
) -> None:
    keys = dict.fromkeys(desired.fields) | {
        (ref, name): None for ref, fields in (state.owned.items() if scope is None else ()) for name in fields
    }
    sets: list[FieldSet] = []
    left: list[tuple[str, JobField]] = []
    missing: dict[str, dict[JobField, tuple[Value, int]]] = {}
    for ref, name in keys:
        job = observation.job(ref)
        if job is None or (scope is not None and ref not in scope):
            continue
        all_owned = state.owned.get(ref, {})
        wanted, owned = desired.fields.get((ref, name)), all_owned.get(name)
        if wanted is None and owned is not None and owned.wanted_by and _has_served(job, name):
            owned = replace(owned, wanted_by=NOBODY, since=now)
            sets.append(FieldSet(ref, name, owned))
        if not _can_change(job, name):
            continue
        seen = _value_of(job, name)
        if wanted is None:
            if owned is None or (name is JobField.NICE and seen == owned.value):
                continue  # a rank stays until the planner changes it
            if _is_refused_for_good(owned, name, now):
                effects.events.append(JobEvent(now, ref, job.user, job.account, "licenses_not_returned", _NOT_RETURNED))
                left.append((ref, name))
            elif seen in _values_of_ours(name, all_owned) and seen != owned.baseline:
                missing.setdefault(ref, {})[name] = owned.baseline, 0
                is_late = name is not JobField.KEPT_LICENSES and now - owned.since > SAVED_WITHIN
                if owned.wanted_by or is_late:
                    sets.append(FieldSet(ref, name, replace(owned, wanted_by=NOBODY, since=now)))
            elif not _is_given_back(owned, now):
                left.append((ref, name))
            continue
        ours = _owned(owned, wanted, seen, now)
        if ours is not None and ours != owned:
            sets.append(FieldSet(ref, name, ours))
        if seen != wanted.value:
            missing.setdefault(ref, {})[name] = wanted.value, wanted.preemption
    if sets:
        effects.records.append(FieldsSet(tuple(sets)))
    if left:
        effects.records.append(FieldsLeft(tuple(left)))
    found += [_Wanted(order, preemption) for ref, values in missing.items() for order, preemption in _set(ref, values)]


def _has_served(job: Job, name: JobField) -> bool:
    """Whether the job runs, so that nobody waits for what we have set: if it is requeued, it gets its own value back at
    once."""
    return job.runs and name is not JobField.NICE


def _is_refused_for_good(owned: OwnedField, name: JobField, now: float) -> bool:
    """Whether Slurm has not let a running job have its licenses back for a long time: they may exist no longer."""
    return name is JobField.KEPT_LICENSES and not owned.wanted_by and now - owned.since > RETURNED_WITHIN


def _is_given_back(owned: OwnedField, now: float) -> bool:
    """Whether it was set back lately: slurmctld may still forget that, and our value must be known as ours then. The
    order may be later than ``since`` by as long as slurmctld may take to save it."""
    return owned.wanted_by == NOBODY and now - owned.since <= 2 * SAVED_WITHIN


def _values_of_ours(name: JobField, owned: Mapping[JobField, OwnedField]) -> Iterable[Value]:
    """What the field is if nobody else has set it: Slurm has one list of licenses for both of ours."""
    names = _BOTH_LICENSES if name in _BOTH_LICENSES else (name,)
    return [owned[each].value for each in names if each in owned]


def _owned(owned: OwnedField | None, wanted: WantedField, seen: Value, now: float) -> OwnedField | None:
    """How the field is owned from now on. Our own value is never taken for one of others."""
    if owned is None:
        return None if seen == wanted.value else OwnedField(wanted.value, seen, wanted.wanted_by, now)
    is_foreign = seen not in (owned.value, owned.baseline, wanted.value)
    since = owned.since if owned.wanted_by == wanted.wanted_by and owned.value == wanted.value else now
    return OwnedField(wanted.value, seen if is_foreign else owned.baseline, wanted.wanted_by, since)


def _can_change(job: Job, name: JobField) -> bool:
    """Slurm refuses the licenses of a suspended job; rank and nodes matter only to a pending one."""
    return job.state is JobState.PENDING or (name is JobField.KEPT_LICENSES and job.runs)


def _value_of(job: Job, name: JobField) -> Value:
    match name:
        case JobField.NICE:
            return job.nice
        case JobField.NODES:
            return tuple(sorted(job.request.required_nodes))
        case JobField.LICENSES | JobField.KEPT_LICENSES:
            return licenses_value(job.licenses)


def _set(ref: str, values: dict[JobField, tuple[Value, int]]) -> Iterable[tuple[Order, int]]:
    """As few orders as possible: nodes, licenses, and nice are set in one."""
    preemption = max(number for _, number in values.values())
    value = values.get(JobField.LICENSES) or values.get(JobField.KEPT_LICENSES)
    licenses = licenses_of(value[0]) if value is not None else None
    nice = values[JobField.NICE][0] if JobField.NICE in values else None
    if nice is not None and not isinstance(nice, int):
        raise TypeError(f"not a nice value: {nice}")
    if JobField.NODES in values:
        yield orders.PinNodes(ref, nodes_of(values[JobField.NODES][0]), licenses, nice), preemption
        return
    if licenses is not None:
        yield orders.SetLicenses((ref,), licenses), preemption
    if nice is not None:
        yield orders.SetNice((ref,), nice), preemption


# -- holds and marks --------------------------------------------------------------------------------------------
def _holds(
    desired: Desired,
    state: State,
    observation: Observation,
    scope: Collection[str] | None,
    effects: Effects,
    found: list[_Wanted],
) -> None:
    jobs = observation.snapshot.jobs
    state = with_refs_of_now(state, observation)
    released = (job.id for ref in desired.releases if (job := observation.job(ref)) is not None)
    named = dict.fromkeys((*desired.holds, *desired.preemptors, *released))
    concerned = jobs.values() if scope is None else [jobs[number] for number in named if number in jobs]
    for job in concerned:
        wanted = desired.holds.get(job.id, {})
        if wanted or _is_marked(job) or job.ref in state.held or job.ref in desired.sentences:
            found += _hold_orders(job, wanted, desired, state, is_all=scope is None)
    if scope is not None:
        return
    over = [ref for ref, number in state.releasing.items() if _is_over(observation.job(ref), number)]
    over += [ref for ref in state.held if _is_given_up(observation.job(ref))]
    if over:
        effects.records.append(HoldsOver(tuple(over)))


def _is_marked(job: Job) -> bool:
    """Whether its hold may be ours: of many jobs few. slurmctld may have forgotten the mark of a job that we preempt by
    a checkpoint."""
    return bool(job.admin_comment) or job.special_exit or WAIT_WORD in job.comment


def _hold_orders(
    job: Job, wanted: dict[str, WantedHold], desired: Desired, state: State, is_all: bool
) -> list[_Wanted]:
    sentence = desired.sentences.get(job.ref, "")
    if job.state is JobState.PENDING and admin_comment_of(job).word is MarkWord.HELD and not is_held(job):
        # Else a later hold by somebody else would look like ours, where job_submit.lua has not recorded the release.
        return [_Wanted(orders.MarkJobs((job.ref,), MarkWord.ADMIN_RELEASED))]
    if job.state is JobState.PENDING:
        found = [*_hold_pending(job, wanted, state), *_release(job, wanted, desired, state, sentence, is_all)]
    else:
        found = _mark_running(job, wanted.get(job.ref), state, sentence)
    if sentence and not found and not wanted:
        word = admin_comment_of(job).word
        kept = word if word in (MarkWord.HELD, MarkWord.STOPPING) else MarkWord.RELEASED
        found = [_Wanted(orders.MarkJobs((job.ref,), kept, sentence))]
    return found


def _hold_pending(job: Job, wanted: dict[str, WantedHold], state: State) -> Iterable[_Wanted]:
    for ref, hold in wanted.items():
        if hold.word is MarkWord.HELD and not hold.as_is and (may_hold(job) or has_lost_mark(job, state)):
            yield _Wanted(orders.HoldJobs((ref,), hold.sentence), hold.preemption)


def _release(
    job: Job, wanted: dict[str, WantedHold], desired: Desired, state: State, sentence: str, is_all: bool
) -> Iterable[_Wanted]:
    """The job, or the tasks of it that nobody wants to be held; not ``is_all``: preemptors alone. Their releases belong
    to their preemptions: no victim is preempted if Slurm refuses one.

    What somebody else holds loses our mark: job_submit.lua would refuse its release to its owner.
    """
    if job.ref in wanted:
        return
    if not is_ours(job, state):
        word = admin_comment_of(job).word
        if not wanted and (word is MarkWord.STOPPING or (word is MarkWord.HELD and is_held(job))):
            yield _Wanted(orders.MarkJobs((job.ref,), MarkWord.RELEASED, sentence))
        return
    preemptors = desired.preemptors.get(job.id, {})
    if not preemptors and job.ref not in state.preempted and has_lost_mark(job, state):
        # The planner did not know that this hold is ours; once it is marked again, admission decides.
        yield _Wanted(orders.MarkJobs((job.ref,), MarkWord.HELD, sentence))
        return
    if not wanted and preemptors.keys() <= {job.ref}:
        yield _Wanted(orders.ReleaseJobs((job.ref,), sentence), preemptors.get(job.ref, 0))
        return
    for ref, preemption in preemptors.items():
        yield _Wanted(orders.ReleaseJobs((ref,), sentence), preemption)
    if is_all:
        known = [ref for task in job.task_ids if (ref := f"{job.array_id}_{task}") in desired.releases]
        rest = rest_of(job.array_id or job.id, job.task_ids, [*wanted, *preemptors, *known])
        for ref in (*known, *([rest] if rest else [])):
            yield _Wanted(orders.ReleaseJobs((ref,), sentence))


def _mark_running(job: Job, wanted: WantedHold | None, state: State, sentence: str) -> list[_Wanted]:
    """A running job is held only right before it is requeued, and once: if an administrator releases it then, it waits
    without a hold. One that an administrator holds meanwhile is no longer ours to mark. What is not preempted has no
    mark of a hold or of a preemption: a later hold or suspension by somebody else must not look like ours."""
    word = admin_comment_of(job).word
    if wanted is None:
        if job.runs and is_held_by_us(job):
            return [_Wanted(orders.ReleaseJobs((job.ref,), sentence))]
        if job.runs and not is_held(job) and word in (MarkWord.HELD, MarkWord.STOPPING, MarkWord.ADMIN_RELEASED):
            return [_Wanted(orders.MarkJobs((job.ref,), MarkWord.RELEASED, sentence))]
        return []
    if wanted.word is MarkWord.HELD:
        may = job.runs and not is_held(job) and word not in (MarkWord.HELD, MarkWord.ADMIN_RELEASED)
        return [_Wanted(orders.HoldJobs((job.ref,), wanted.sentence), wanted.preemption)] if may else []
    if word is MarkWord.STOPPING or job.state is JobState.COMPLETING:
        return []
    if is_held(job) and word is not MarkWord.HELD:
        # Somebody else does, also once it has left its nodes.
        order = orders.MarkJobs((job.ref,), MarkWord.RELEASED, HELD_BY_OTHERS)
        is_marked = word is MarkWord.ADMIN_HELD or is_known_as_others(job)
        return [] if is_marked else [_Wanted(order, wanted.preemption)]
    return [_Wanted(orders.MarkJobs((job.ref,), MarkWord.STOPPING, wanted.sentence), wanted.preemption)]


def _is_over(job: Job | None, number: int) -> bool:
    return job is not None and is_release_observed(job, number)


def _is_given_up(job: Job | None) -> bool:
    """Whether the hold is over: somebody else has ended it, or Slurm has lost it. A hold that is still wanted is
    ordered again, with a new number."""
    return job is not None and job.state in (JobState.PENDING, JobState.RUNNING) and not is_held(job)


# -- chains -------------------------------------------------------------------------------------------------------
def _chains(found: list[_Wanted]) -> list[Chain]:
    """A chain for each preemption; what no preemption wants is merged where it is the same for several jobs, and each
    of these orders is a chain of its own."""
    by_preemption: dict[int, list[Order]] = {}
    for wanted in found:
        by_preemption.setdefault(wanted.preemption, []).append(wanted.order)
    others = orders.merge_orders(by_preemption.pop(0, []))
    chains = [Chain(tuple(orders.merge_orders(listed)), preemption=number) for number, listed in by_preemption.items()]
    return [*chains, *(Chain((order,)) for order in others)]
