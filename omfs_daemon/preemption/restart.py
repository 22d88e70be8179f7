"""What slurmctld has forgotten of our orders when it was killed, and the orders that make up for it. Pure.

slurmctld saves its state up to five seconds late. After a crash it shows jobs as they were before orders that it had
taken, although their processes have ended or stopped: a requeued job is shown running for ever, or as FAILED; a
suspended one runs, and a resumed one is suspended; one of which both are forgotten, or whose nodes have not been told
yet, is shown running, as it should be, and stands still. A released job is held again; if its new mark is remembered,
it looks as if an administrator had held it since. So the journal keeps each such order until the slurmctld that took it
must have saved it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from typing import NamedTuple

from omfs_daemon.cluster.holds import admin_comment_of, is_held, is_let_go, is_release_unfinished
from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.preemption.desired import sentence_of
from omfs_daemon.preemption.effects import Chain, Effects
from omfs_daemon.preemption.methods.base import NodeOrder
from omfs_daemon.preemption.methods.suspend import SuspendMethod
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.records import JobEvent
from omfs_daemon.preemption.state import (
    JobPreempted,
    OrdersNumbered,
    OrdersSaved,
    Record,
    State,
    TransitionsOrdered,
)
from omfs_daemon.preemption.unsaved_order import UnsavedOrder, Verb
from omfs_daemon.slurm import orders
from omfs_daemon.slurm.orders import Order, refs_of

SAVED_WITHIN = 10.0
"""Seconds after which slurmctld has saved what it has done; it does so every five (measured: at most 4.9 s late)."""


NODES_STOP_WITHIN = 3.0
"""Seconds that a node takes to suspend a job: SIGTSTP, two seconds, SIGSTOP. Orders for the job that come meanwhile
wait there side by side, and slurmd carries them out in any order: a resume before the suspend leaves it stopped."""


class Forgotten(NamedTuple):
    """``observation``: nobody may take the jobs whose orders are repeated for running, nor resume them at once. Those
    that are to stay suspended are shown so; the others, and those whose orders still wait, as COMPLETING."""

    effects: Effects
    observation: Observation


def odd_jobs(state: State, observation: Observation, now: float) -> frozenset[tuple[str, bool]]:
    """Jobs that do not look as ordered, and whether their orders are about to be forgotten as saved: a job that was odd
    before a restart is odd again then. While there is none, it does not matter whether slurmctld was restarted."""
    wanted = _wanted(state)
    return frozenset(
        (ref, now - order.at > SAVED_WITHIN)
        for ref, order in state.unsaved.items()
        if _is_odd(ref, order, observation, wanted, now)
    )


def _is_odd(ref: str, order: UnsavedOrder, observation: Observation, wanted: Mapping[str, str], now: float) -> bool:
    job = observation.job(ref)
    if job is not None and _is_release_forgotten(order, job):
        return True
    if order.verb is Verb.RELEASE:
        return False
    if job is None:
        return True  # it may have FAILED
    if job.state is JobState.COMPLETING:
        return now - order.at > SAVED_WITHIN
    if order.verb is Verb.RESUME and job.runs:
        return now - order.at > SAVED_WITHIN  # it looks as it should: not worth a question at once
    return _is_suspended_again(order, job) or _again(ref, order, job, None, wanted) is not None


def _is_suspended_again(order: UnsavedOrder, job: Job) -> bool:
    """Whether a job that we have resumed is shown as it was before."""
    return order.verb is Verb.RESUME and job.state is JobState.SUSPENDED and job.start == order.start


def _is_release_forgotten(order: UnsavedOrder, job: Job) -> bool:
    """So it looks, too, if an administrator has held the job since, and the submit plug-in has not recorded it."""
    is_held_again = job.state is JobState.PENDING and is_release_unfinished(job, admin_comment_of(job).number)
    return order.is_released and is_held_again


def of_other_boots(state: State, boot: str) -> dict[str, int]:
    """Raw ids, by reference, of the jobs whose transitions another slurmctld has taken than the present one."""
    others = {ref: order for ref, order in state.unsaved.items() if order.boot != boot}
    return {ref: order.id for ref, order in others.items() if order.verb is not Verb.RELEASE}


def after_restart(
    state: State, observation: Observation, boot: str, now: float, unregistered: Set[str] = frozenset()
) -> Forgotten:
    """``boot``: when the present slurmctld has started, as it says itself. ``unregistered``: nodes that have not
    answered it yet. It would send orders there later, maybe after the next ones, so these wait."""
    effects = Effects()
    wanted = _wanted(state)
    saved: list[str] = []
    repeated: dict[str, UnsavedOrder] = {}
    leaving: list[Job] = []
    for ref, order in state.unsaved.items():
        if order.boot == boot:
            if now - order.at > SAVED_WITHIN:
                saved.append(ref)
            continue
        job = observation.job(ref)
        if job is not None and job.state is JobState.COMPLETING:
            continue  # it returns to the queue, or will be shown as FAILED
        if job is not None and not (order.is_released and is_held(job)) and is_let_go(job, state.sequence):
            saved.append(ref)  # the failsafe has seen to it
            continue
        again = _again(ref, order, job, observation.ended(ref), wanted)
        may_order = job is None or (unregistered.isdisjoint(job.on_nodes) and _is_settled(order, now))
        if job is not None and ref not in wanted and _will_be_resumed(order, job, again is not None and may_order):
            # What it was marked with since it ran is not forgotten.
            effects.records.append(JobPreempted(ref, now, SuspendMethod.traits.name, ""))
        if job is not None and _is_release_forgotten(order, job):
            # It counts as not observed yet, and is ordered again if the job is still to go.
            effects.records.append(OrdersNumbered(admin_comment_of(job).number, releases=(ref,)))
            effects.events.append(_ordered_again(job, Verb.RELEASE, now))
        if again is None and job is not None:
            repeated[ref] = replace(order, boot=boot, at=now)  # the present slurmctld may forget it, too
            continue
        if again is None:
            saved.append(ref)
            continue
        if job is not None:
            stays = may_order and order.verb is Verb.SUSPEND and ref in wanted
            leaving.append(replace(job, state=JobState.SUSPENDED if stays else JobState.COMPLETING))
        if not may_order:
            continue
        effects.chains.append(again)
        known = job or observation.ended(ref)
        if known is not None:
            effects.events.append(_ordered_again(known, order.verb, now))
    if saved:
        effects.records.append(OrdersSaved(tuple(saved)))
    if repeated:
        effects.records.append(TransitionsOrdered(repeated))
    return Forgotten(effects, observation.with_jobs(leaving) if leaving else observation)


def _ordered_again(job: Job, verb: Verb, now: float) -> JobEvent:
    text = f"slurmctld was restarted and had forgotten that it was to {verb} the job: ordered again"
    return JobEvent(now, job.ref, job.user, job.account, "ordered_again", text)


def _will_be_resumed(order: UnsavedOrder, job: Job, is_repeated: bool) -> bool:
    """Whether a job is suspended, or is now, that nobody wants to be."""
    return _is_suspended_again(order, job) or (is_repeated and order.verb is not Verb.REQUEUE)


def _is_settled(order: UnsavedOrder, now: float) -> bool:
    return order.verb is Verb.REQUEUE or now - order.at >= NODES_STOP_WITHIN


def _wanted(state: State) -> Mapping[str, str]:
    """Jobs that are to stay preempted, with a sentence for their owners."""
    under_way = {
        victim.ref: sentence_of(preemption)
        for preemption in state.preemptions.values()
        for victim in preemption.victims
    }
    return dict.fromkeys(state.preempted, "") | under_way


def _again(
    ref: str, order: UnsavedOrder, job: Job | None, ended: Job | None, wanted: Mapping[str, str]
) -> Chain | None:
    """The orders to repeat; None where Slurm still knows of the first one, or it has lost its purpose."""
    if order.verb is Verb.REQUEUE and job is None:
        # Its processes were ended by our order: Slurm takes that for the job's own failure.
        failed = ended is not None and ended.failed and ended.start == order.start
        return Chain(transitions=(orders.RequeueEndedJobs((ref,)),)) if failed else None
    if job is None or not job.runs or job.start != order.start or order.verb is Verb.RELEASE:
        return None
    match order.verb:
        case Verb.REQUEUE:
            hold: tuple[Order, ...] = ()
            if wanted.get(ref) and not is_held(job):
                hold = (orders.HoldJobs((ref,), wanted[ref]),)
            return Chain(hold, (orders.RequeueJobs((ref,)),))
        case Verb.SUSPEND | Verb.RESUME:
            # Its processes have stopped, or may have. Slurm resumes only what it knows to be suspended: if nobody wants
            # that, a later cycle resumes it as any other job.
            return Chain(transitions=(orders.SuspendJobs((ref,)),))


_VERBS: dict[type, Verb] = {
    orders.RequeueJobs: Verb.REQUEUE,
    orders.RequeueEndedJobs: Verb.REQUEUE,
    orders.SuspendJobs: Verb.SUSPEND,
    orders.ResumeJobs: Verb.RESUME,
}


def unsaved_orders(
    chains: Iterable[Chain], observation: Observation, boot: str, now: float, known: Mapping[str, UnsavedOrder]
) -> list[Record]:
    """The orders of now that slurmctld may forget. One that is repeated after a restart stays as it is until its effect
    is observed: the repetition may be lost, too."""
    chains = list(chains)
    found = _unsaved_releases(chains, observation, boot, now, known)
    ordered = ((_VERBS.get(type(action)), action) for chain in chains for action in chain.transitions)
    for verb, action in ordered:
        for ref in refs_of(action) if verb is not None and not isinstance(action, NodeOrder) else ():
            job, before = observation.job(ref) or observation.ended(ref), known.get(ref)
            if job is None or verb is None:
                continue
            is_again = before is not None and before.start == job.start and _repeats(verb, before.verb)
            if before is None or before.boot == boot or not is_again:
                found[ref] = UnsavedOrder(verb, job.id, job.start, boot, now)
    return [TransitionsOrdered(found)] if found else []


def _unsaved_releases(
    chains: Iterable[Chain], observation: Observation, boot: str, now: float, known: Mapping[str, UnsavedOrder]
) -> dict[str, UnsavedOrder]:
    """A requeue before it is kept as long as the release."""
    found: dict[str, UnsavedOrder] = {}
    released = [order for chain in chains for order in chain.fields if isinstance(order, orders.ReleaseJobs)]
    for ref in (ref for order in released for ref in order.refs):
        job, before = observation.job(ref), known.get(ref)
        if job is None or job.state is not JobState.PENDING:
            continue
        if before is None or before.verb is Verb.RELEASE:
            found[ref] = UnsavedOrder(Verb.RELEASE, job.id, job.start, boot, now, is_released=True)
        elif before.boot == boot:
            found[ref] = replace(before, at=now, is_released=True)
    return found


def _repeats(verb: Verb, forgotten: Verb) -> bool:
    """A forgotten resume is repeated by a suspend: a later cycle resumes the job again."""
    return verb is forgotten or (verb, forgotten) == (Verb.SUSPEND, Verb.RESUME)
