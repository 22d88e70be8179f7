"""What slurmctld has forgotten of our orders when it was killed, and the orders that make up for it. Pure.

slurmctld saves its state up to five seconds late. After a crash it shows jobs as they were before orders that it had
taken, although their processes have ended or stopped: a requeued job is shown running for ever, or as FAILED; a
suspended one runs, and a resumed one is suspended; one of which both are forgotten, or whose nodes have not been told
yet, is shown running, as it should be, and stands still. So the journal keeps each such order until the slurmctld that
took it must have saved it.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import NamedTuple

from omfs_daemon.cluster.holds import is_held
from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.preemption.desired import sentence_of
from omfs_daemon.preemption.effects import Chain, Effects
from omfs_daemon.preemption.methods.suspend import SuspendMethod
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.records import JobEvent
from omfs_daemon.preemption.state import JobPreempted, OrdersSaved, State, TransitionsOrdered, UnsavedOrder, Verb
from omfs_daemon.slurm import orders
from omfs_daemon.slurm.orders import Order

SAVED_WITHIN = 10.0
"""Seconds after which slurmctld has saved what it has done; it does so every five (measured: at most 4.9 s late)."""


_STATE = {Verb.REQUEUE: JobState.COMPLETING, Verb.SUSPEND: JobState.SUSPENDED}
"""What jobs are shown as whose orders are repeated: nobody may take them for running. Those whose orders still wait
are shown as COMPLETING, so that nobody resumes them either."""


class Forgotten(NamedTuple):
    """``observation``: with the jobs whose orders are repeated as if these had been carried out."""

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


def of_other_boots(state: State, boot: str) -> dict[str, int]:
    """Raw ids, by reference, of the jobs whose orders another slurmctld has taken than the present one."""
    return {ref: order.id for ref, order in state.unsaved.items() if order.boot != boot}


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
        again = _again(ref, order, job, observation.ended(ref), wanted)
        if job is not None and _is_suspended_again(order, job) and ref not in wanted:
            # What it was marked with since it ran is not forgotten.
            effects.records.append(JobPreempted(ref, now, SuspendMethod.traits.name, ""))
        if again is None and job is not None:
            repeated[ref] = replace(order, boot=boot, at=now)  # the present slurmctld may forget it, too
            continue
        if again is None:
            saved.append(ref)
            continue
        if job is not None and not unregistered.isdisjoint(job.on_nodes):
            leaving.append(replace(job, state=JobState.COMPLETING))
            continue
        if job is not None and (order.verb is Verb.REQUEUE or (order.verb is Verb.SUSPEND and ref in wanted)):
            leaving.append(replace(job, state=_STATE[order.verb]))
        effects.chains.append(again)
        known = job or observation.ended(ref)
        if known is not None:
            text = f"slurmctld was restarted and had forgotten that it was to {order.verb} the job: ordered again"
            effects.events.append(JobEvent(now, ref, known.user, known.account, "ordered_again", text))
    if saved:
        effects.records.append(OrdersSaved(tuple(saved)))
    if repeated:
        effects.records.append(TransitionsOrdered(repeated))
    return Forgotten(effects, observation.with_jobs(leaving) if leaving else observation)


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
    if job is None or not job.runs or job.start != order.start:
        return None
    match order.verb:
        case Verb.REQUEUE:
            hold: tuple[Order, ...] = ()
            if wanted.get(ref) and not is_held(job):
                hold = (orders.HoldJobs((ref,), wanted[ref]),)
            return Chain(hold, (orders.RequeueJobs((ref,)),))
        case Verb.SUSPEND if ref in wanted:
            return Chain(transitions=(orders.SuspendJobs((ref,)),))
        case Verb.SUSPEND | Verb.RESUME:
            # Its processes have stopped, or may have; Slurm resumes only what it knows to be suspended.
            return Chain(transitions=(orders.SuspendJobs((ref,)), orders.ResumeJobs((ref,))))
