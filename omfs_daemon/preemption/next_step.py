"""The next step of a preemption, from what is observed and the time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from omfs_daemon.cluster.holds import is_unfit
from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.cluster.scope import is_out_of_scope
from omfs_daemon.preemption.methods.base import PreemptionProgress
from omfs_daemon.preemption.methods.node_work import NodeWorkState
from omfs_daemon.preemption.preemption import Preemption, PreemptionOutcome, Preemptor, Step, VictimState
from omfs_daemon.preemption.progress import MethodSettings, ObservedCluster, moving_in, progress_of, runs_still, seen_of
from omfs_daemon.preemption.proof import ASKED_FOR, Proof, is_asked, proof_by_answer, proof_of
from omfs_daemon.slurm.question import GRANTED


class Circumstances(NamedTuple):
    """From what the next state of a preemption follows.

    ``is_fresh``: the validator accepted it on an observation that is still recent. After a crash, an outage, or too
    long a time it is not: no job that still runs is preempted any more, and the planner decides again. ``is_held``:
    somebody else, or Slurm, holds the preemptor.
    """

    view: ObservedCluster
    now: float
    method_settings: MethodSettings
    is_fresh: bool
    is_held: bool


def next_state(preemption: Preemption, seen: Circumstances) -> Preemption:
    """The state that follows from what is observed; the same object if none follows yet."""
    if any(map(is_out_of_scope, _jobs_of(preemption, seen.view))):
        return _out_of_scope(preemption, seen)
    match preemption.step:
        case Step.PROVING:
            return _after_proving(preemption, seen)
        case Step.STOPPING:
            return _after_stopping(preemption, seen)
        case Step.STARTING:
            return _after_starting(preemption, seen)
    return preemption


def _jobs_of(preemption: Preemption, view: ObservedCluster) -> list[Job]:
    found = map(view.job, (preemption.preemptor.ref, *(victim.ref for victim in preemption.victims)))
    return [job for job in found if job is not None]


def _out_of_scope(preemption: Preemption, seen: Circumstances) -> Preemption:
    """The scope, or a job, has changed: what we did to the jobs is undone, unless the preemptor runs already."""
    step = Step.UNDONE if preemption.step is Step.STOPPING else Step.DONE
    found = _what_became_of_preemptor(preemption, step, seen)
    return found or _enter(preemption, Step.UNDONE, seen.now, PreemptionOutcome.OUT_OF_SCOPE)


def _enter(preemption: Preemption, step: Step, now: float, outcome: PreemptionOutcome | None = None) -> Preemption:
    return replace(preemption, step=step, since=now, outcome=outcome or preemption.outcome, asks=False)


def _after_proving(preemption: Preemption, seen: Circumstances) -> Preemption:
    """No victim was touched yet."""
    preemptor, view, now, method_settings = preemption.preemptor, seen.view, seen.now, seen.method_settings
    found = _what_became_of_preemptor(preemption, Step.DONE, seen) or _without_its_nodes(preemption, view, now)
    if found is not None:
        return found
    if preemptor.ref in dict(preemption.refused):
        return _enter(preemption, Step.UNDONE, now, PreemptionOutcome.REFUSED)
    job = view.job(preemptor.ref)
    if job is None or not seen.is_fresh:
        return _enter(preemption, Step.UNDONE, now, PreemptionOutcome.TOO_OLD)
    if preemption.asks:
        return _after_asking(preemption, job, view, now)
    if not is_asked(job, preemptor):
        is_late = now - preemption.since > method_settings.start
        return _enter(preemption, Step.UNDONE, now, PreemptionOutcome.NOT_PROVEN) if is_late else preemption
    proof = proof_of(job, preemptor)
    if proof is Proof.YES:
        return _enter(preemption, Step.STOPPING, now)
    word = replace(preemption, refused=(*preemption.refused, (preemptor.ref, job.reason)))
    if proof is Proof.NO:
        return _enter(word, Step.UNDONE, now, PreemptionOutcome.NOT_STARTABLE)
    if not preemption.is_released:
        return replace(preemption, is_released=True, since=now)
    is_late = now - preemption.since > method_settings.proof
    return _enter(word, Step.UNDONE, now, PreemptionOutcome.NOT_PROVEN) if is_late else preemption


def _after_asking(preemption: Preemption, job: Job, view: ObservedCluster, now: float) -> Preemption:
    """Without an answer others are preempted once. A copy that would have started needs no victims: the job itself is
    to start, then."""
    answer = view.answers.get(preemption.id)
    if answer is None:
        return _enter(preemption, Step.STOPPING, now) if now - preemption.since > ASKED_FOR else preemption
    if answer == GRANTED:
        return replace(preemption, asks=False, since=now)
    victims = [victim for each in preemption.victims if (victim := view.job(each.ref)) is not None]
    if proof_by_answer(answer, job, victims) is not Proof.NO:
        return _enter(preemption, Step.STOPPING, now)
    word = replace(preemption, refused=(*preemption.refused, (preemption.preemptor.ref, answer)))
    return _enter(word, Step.UNDONE, now, PreemptionOutcome.NOT_STARTABLE)


def _after_stopping(preemption: Preemption, seen: Circumstances) -> Preemption:
    view, now, method_settings, is_fresh, _ = seen
    progress = {victim.ref: progress_of(victim, view, method_settings) for victim in preemption.victims}
    if all(far is PreemptionProgress.PREEMPTED for far in progress.values()):
        return _enter(preemption, Step.STARTING, now)
    may_spare = PreemptionProgress.UNTOUCHED in progress.values()
    may_spare = may_spare or any(map(method_settings.is_careful, preemption.victims))
    # While work is saved, other jobs may end, so that the preemptor runs already, or it may be gone, or be held.
    needless = _what_became_of_preemptor(preemption, Step.UNDONE, seen) if may_spare else None
    needless = needless or _without_its_nodes(preemption, view, now) or _without_its_cpus(preemption, view, now)
    if needless is not None:
        return needless
    refused = dict(preemption.refused)
    if preemption.preemptor.ref in refused or any(runs_still(v, view) for v in preemption.victims if v.ref in refused):
        return _enter(preemption, Step.UNDONE, now, PreemptionOutcome.REFUSED)
    untouched = [v for v in preemption.victims if progress[v.ref] is PreemptionProgress.UNTOUCHED]
    if (untouched and not is_fresh) or any(_is_resized(victim, view) for victim in untouched):
        return _enter(preemption, Step.UNDONE, now, PreemptionOutcome.TOO_OLD)
    if method_settings.moves_in_first(preemption) and moving_in(preemption, view) is NodeWorkState.FAILED:
        return _enter(preemption, Step.UNDONE, now, PreemptionOutcome.NOT_STARTED)
    failed = [v for v in preemption.victims if progress[v.ref] is PreemptionProgress.FAILED]
    late = [
        v
        for v in preemption.victims
        if progress[v.ref] is not PreemptionProgress.PREEMPTED and _is_late(v, preemption, now, method_settings)
    ]
    if not failed and not late:
        return preemption
    if not failed and all(victim.ends_by_itself for victim in late):
        # They were only predicted to have ended by now, and nothing was asked of them.
        return _enter(preemption, Step.UNDONE, now, PreemptionOutcome.TOO_OLD)
    if is_fresh and all(victim.without_mercy for victim in (*failed, *late)):
        return _without_mercy(preemption, {victim.ref for victim in (*failed, *late)}, now)
    reports = [(victim.ref, _why_failed(victim, view, method_settings)) for victim in failed]
    reports += [(victim.ref, _how_late(victim, method_settings)) for victim in late if victim not in failed]
    return replace(
        _enter(preemption, Step.UNDONE, now, PreemptionOutcome.VICTIM_STAYED), refused=(*preemption.refused, *reports)
    )


def _without_its_nodes(preemption: Preemption, view: ObservedCluster, now: float) -> Preemption | None:
    """While a node is freed it may be drained, reserved, powered down, or die, or its partition may be closed. The
    preemptor cannot start there then, and is planned anew."""
    preemptor = preemption.preemptor
    job = view.job(preemptor.ref)
    if job is None or job.holds_cpus:
        return None
    nodes = [allocation.node for allocation in preemptor.allocations]
    lost = [name for name in nodes if not _is_usable(name, job, preemptor, view)]
    if not lost:
        return None
    report = (preemptor.ref, f"Slurm would not start it on {', '.join(lost)}")
    undone = _enter(preemption, Step.UNDONE, now, PreemptionOutcome.NODE_LOST)
    return replace(undone, refused=(*preemption.refused, report))


def _without_its_cpus(preemption: Preemption, view: ObservedCluster, now: float) -> Preemption | None:
    """Victims that save their work leave one after the other. Until the last one has left, the preemptor cannot start,
    and Slurm's backfill, which knows only their time limits, gives the CPUs of the first one to a job of lower rank.
    The preemptor is planned anew then, without waiting for that job to end. Once all victims have left, a job that
    starts there shows that Slurm does not want to start the preemptor: others must not be preempted for it. Which came
    first is not seen if both happened between two polls; where a bound is in danger, that is once taken for chance."""
    preemptor = preemption.preemptor
    job = view.job(preemptor.ref)
    if job is None or job.holds_cpus or preemptor.suspended:
        return None
    leaving = [found for v in preemption.victims if runs_still(v, view) and (found := view.job(v.ref)) is not None]
    all_left = preemption.since if preemption.step is Step.STARTING else inf
    may_be_chance = all_left == inf or (preemption.is_for_realtime and not preemption.retried)
    takers = view.taken_by(preemptor.allocations, leaving, preemption.begun, all_left) if may_be_chance else []
    if not takers:
        return None
    report = (preemptor.ref, f"Slurm has started {', '.join(takers)} there")
    undone = _enter(preemption, Step.UNDONE, now, PreemptionOutcome.CPUS_TAKEN)
    return replace(undone, refused=(*preemption.refused, report))


def _is_usable(name: str, job: Job, preemptor: Preemptor, view: ObservedCluster) -> bool:
    """A suspended job is resumed wherever it could run on."""
    node = view.node(name)
    if node is None or preemptor.suspended:
        return node is not None and node.works
    return node.up and name not in job.kept_off and _is_open(node, job, view)


def _is_open(node: Node, job: Job, view: ObservedCluster) -> bool:
    """Whether jobs start in any of the job's partitions that has the node."""
    found = [view.partition(name) for name in job.request.partitions if name in node.partitions]
    return not found or any(partition is None or partition.up for partition in found)


def _is_resized(victim: VictimState, view: ObservedCluster) -> bool:
    """Whether it has other CPUs than when it was chosen, so that preempting it may free too little."""
    job = view.job(victim.ref)
    return job is not None and job.holds_cpus and sum(each.cpus for each in job.allocations) != victim.cpus


def taken_by_others(preemption: Preemption, view: ObservedCluster) -> bool:
    """Whether jobs that are not its victims run on CPUs of a suspended preemptor: it cannot be resumed then."""
    job = view.job(preemption.preemptor.ref) if preemption.preemptor.suspended else None
    if job is None or job.state is not JobState.SUSPENDED:
        return False
    others = view.in_the_way(job).difference(victim.ref for victim in preemption.victims)
    return any(other is not None and other.runs for other in map(view.job, others))


def _is_late(victim: VictimState, preemption: Preemption, now: float, method_settings: MethodSettings) -> bool:
    """A quick victim waits until all careful ones are done; its own timeout starts then."""
    patience = (
        method_settings.moving(preemption.preemptor)
        if method_settings.is_careful(victim)
        else method_settings.patience(preemption)
    )
    return now - preemption.since > method_settings.preempt_limit(victim) + patience


def _without_mercy(preemption: Preemption, refs: set[str], now: float) -> Preemption:
    """What their class explicitly allows for jobs that could not be preempted with their work kept, and the requeue of
    those that were warned of it."""
    victims = tuple(victim.without_mercy or victim if victim.ref in refs else victim for victim in preemption.victims)
    return replace(preemption, victims=victims, since=now)


def _why_failed(victim: VictimState, view: ObservedCluster, method_settings: MethodSettings) -> str:
    job = view.job(victim.ref)
    why = "" if job is None else method_settings.method(victim).why_failed(seen_of(victim, job, view))
    return f"job {victim.ref} could not be preempted ({victim.method}): {why or 'no reason given'}"


def _how_late(victim: VictimState, method_settings: MethodSettings) -> str:
    limit = method_settings.preempt_limit(victim)
    return f"job {victim.ref} took longer than {limit:g} s to be preempted ({victim.method})"


def _after_starting(preemption: Preemption, seen: Circumstances) -> Preemption:
    view, now, method_settings, *_ = seen
    found = _what_became_of_preemptor(preemption, Step.DONE, seen) or _without_its_nodes(preemption, view, now)
    found = found or _without_its_cpus(preemption, view, now)
    if found is not None:
        return found
    if now - preemption.since > method_settings.start_limit(preemption.preemptor):
        return _enter(preemption, Step.UNDONE, now, PreemptionOutcome.NOT_STARTED)
    return preemption


def _what_became_of_preemptor(preemption: Preemption, step: Step, seen: Circumstances) -> Preemption | None:
    """None while it waits. ``step``: the step to enter if it needs its preemption no longer.

    It may have started and ended, or been requeued, between two polls. A suspended one that is leaving has not run for
    that.
    """
    preemptor, view, now = preemption.preemptor, seen.view, seen.now
    job = view.job(preemptor.ref)
    if job is None:
        return _after_end(preemption, step, view.ended(preemptor.ref), now)
    if job.runs or (job.holds_cpus and not preemptor.suspended):
        at = now if preemptor.suspended or job.start is None else job.start
        return _started(preemption, step, now, at, job.on_nodes)
    if is_unfit(job):
        # On the nodes that we chose. Before any victim was touched, this is Slurm's answer.
        is_asking = preemption.step is Step.PROVING
        return None if is_asking else _enter(preemption, Step.UNDONE, now, PreemptionOutcome.NOT_STARTED)
    if seen.is_held:
        return _enter(preemption, Step.UNDONE, now, PreemptionOutcome.PREEMPTOR_HELD)
    if job.restarts > preemptor.restarts:
        return _enter(preemption, Step.UNDONE, now, PreemptionOutcome.PREEMPTOR_REQUEUED)
    if taken_by_others(preemption, view):
        return _enter(preemption, Step.UNDONE, now, PreemptionOutcome.NOT_STARTED)
    return None


def _after_end(preemption: Preemption, step: Step, job: Job | None, now: float) -> Preemption:
    """``job``: the preemptor, if Slurm remembers it. It has no start if it was canceled while it waited."""
    preemptor = preemption.preemptor
    if job is not None and job.restarts > preemptor.restarts:
        return _enter(preemption, step, now, PreemptionOutcome.PREEMPTOR_REQUEUED)
    if job is not None and preemptor.suspended and job.run_time > preemptor.run_time:
        return _started(preemption, step, now, None)
    if job is not None and job.start is not None and job.start >= int(preemption.begun):
        return _started(preemption, step, now, job.start)
    return _enter(preemption, step, now, PreemptionOutcome.PREEMPTOR_GONE)


def _started(preemption: Preemption, step: Step, now: float, at: float | None, nodes: Sequence[str] = ()) -> Preemption:
    """``nodes``: where it has, if that is known."""
    mine = {allocation.node for allocation in preemption.preemptor.allocations}
    if preemption.beside and nodes and not mine.issuperset(nodes):
        return _enter(preemption, step, now, PreemptionOutcome.STARTED_ELSEWHERE)
    return replace(_enter(preemption, step, now, PreemptionOutcome.STARTED), started_at=at)
