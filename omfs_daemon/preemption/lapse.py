"""What makes a preemption that was begun needless or unwanted, whatever becomes of its jobs. Pure.

A real-time job may be due no longer: Slurm lets owners raise the time limit of a waiting job; one of a minute is due
within seconds, and would then run for a day. And an operator may exempt a victim.
"""

from __future__ import annotations

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.policy.realtime_standing import counted_limit, waits_since
from omfs_daemon.policy.rules.classes import Rules, classify
from omfs_daemon.policy.rules.slowdown_laws import threshold_crossing
from omfs_daemon.preemption.methods.base import PreemptionProgress
from omfs_daemon.preemption.preemption import Preemption, PreemptionOutcome, Step
from omfs_daemon.preemption.progress import MethodSettings, ObservedCluster, progress_of
from omfs_daemon.preemption.realtime_memory import RealtimeMemory
from omfs_daemon.preemption.settings import Settings


def lapsed(
    preemption: Preemption, view: ObservedCluster, known: RealtimeMemory, settings: Settings, now: float
) -> PreemptionOutcome | None:
    """As what it is to be undone; None if it goes on."""
    if _is_due_no_more(preemption, view, known, settings.rules, now):
        return PreemptionOutcome.NOT_DUE
    if _spares_exempted(preemption, view, settings.rules, settings.method_settings, now):
        return PreemptionOutcome.EXEMPTED
    return None


def _is_due_no_more(
    preemption: Preemption, view: ObservedCluster, known: RealtimeMemory, rules: Rules, now: float
) -> bool:
    """Whether it waits, and would not have reached the least threshold of its class now."""
    job = view.job(preemption.preemptor.ref)
    if not preemption.is_for_realtime or job is None or job.state is not JobState.PENDING:
        return False
    terms = classify(rules, job).realtime
    if terms is None:
        return True
    since, limit = waits_since(job, known.runs), counted_limit(job, known.limits)
    return now < threshold_crossing(since, limit, min(terms.act_at))


def _spares_exempted(
    preemption: Preemption, view: ObservedCluster, rules: Rules, method_settings: MethodSettings, now: float
) -> bool:
    """Whether an operator has exempted a victim to which nothing was done yet; what was ordered already goes on."""
    if preemption.step not in (Step.PROVING, Step.STOPPING) or not rules.exemptions:
        return False
    found = ((victim, view.job(victim.ref)) for victim in preemption.victims if not victim.ends_by_itself)
    exempted = [victim for victim, job in found if job is not None and rules.exemptions.of(job, now) is not None]
    untouched = PreemptionProgress.UNTOUCHED
    return any(progress_of(victim, view, method_settings) is untouched for victim in exempted)
