"""What makes a preemption that was begun needless or unwanted, whatever becomes of its jobs. Pure.

A real-time job may be due no longer: Slurm lets owners raise the time limit of a waiting job; one of a minute is due
within seconds, and would then run for a day. An operator may exempt a victim. And with other rules, or another class of
a job, what was decided may be forbidden now: no job loses work by rules that are no longer in force.
"""

from __future__ import annotations

from dataclasses import replace

from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.policy.realtime_standing import counted_limit, waits_since
from omfs_daemon.policy.rules.classes import JobClass, Rules, classify
from omfs_daemon.policy.rules.slowdown_laws import threshold_crossing
from omfs_daemon.preemption.methods.base import PreemptionProgress
from omfs_daemon.preemption.preemption import Preemption, PreemptionOutcome, Step, VictimState
from omfs_daemon.preemption.progress import ObservedCluster, progress_of
from omfs_daemon.preemption.realtime_memory import RealtimeMemory
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.protocol.job_comment import METHOD_KEY


def lapsed(
    preemption: Preemption, view: ObservedCluster, known: RealtimeMemory, settings: Settings, now: float
) -> PreemptionOutcome | None:
    """As what it is to be undone; None if it goes on."""
    if _is_due_no_more(preemption, view, known, settings.rules, now):
        return PreemptionOutcome.NOT_DUE
    untouched = _untouched(preemption, view, settings)
    if any(settings.rules.exemptions.of(job, now) is not None for _, job in untouched):
        return PreemptionOutcome.EXEMPTED
    if untouched and _is_urgent_no_more(preemption, view, settings.rules):
        return PreemptionOutcome.RULES_CHANGED
    if any(_is_forbidden(victim, job, settings.rules) for victim, job in untouched):
        return PreemptionOutcome.RULES_CHANGED
    return None


def with_last_resorts_in_force(preemption: Preemption, view: ObservedCluster, rules: Rules) -> Preemption:
    """Without the last resorts that the victims' classes no longer have; the same object if they have all."""
    victims = tuple(_with_last_resort_in_force(victim, view.job(victim.ref), rules) for victim in preemption.victims)
    return preemption if victims == preemption.victims else replace(preemption, victims=victims)


def _with_last_resort_in_force(victim: VictimState, job: Job | None, rules: Rules) -> VictimState:
    if not victim.last_resort or job is None or job.set_aside:
        return victim
    job_class = _class_by_rules(victim, job, rules)
    return victim if job_class.last_resort == victim.last_resort else replace(victim, last_resort="")


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


def _untouched(preemption: Preemption, view: ObservedCluster, settings: Settings) -> list[tuple[VictimState, Job]]:
    """Victims to which nothing was done yet: what was ordered already goes on."""
    if preemption.step not in (Step.PROVING, Step.STOPPING):
        return []
    found = ((victim, view.job(victim.ref)) for victim in preemption.victims if not victim.ends_by_itself)
    return [
        (victim, job)
        for victim, job in found
        if job is not None and progress_of(victim, view, settings.method_settings) is PreemptionProgress.UNTOUCHED
    ]


def _is_urgent_no_more(preemption: Preemption, view: ObservedCluster, rules: Rules) -> bool:
    """Whether it was chosen as an urgent job, still waits, and is in a class that is not urgent."""
    job = view.job(preemption.preemptor.ref)
    if not preemption.preemptor.urgent or job is None or job.holds_cpus or job.set_aside:
        return False
    return not classify(rules, job).urgent


def _is_forbidden(victim: VictimState, job: Job, rules: Rules) -> bool:
    """Whether its class no longer allows its method, whatever its owner wants now. Of a job that cannot be read now the
    class is not known."""
    if job.set_aside:
        return False
    now, asked = classify(rules, job), _class_by_rules(victim, job, rules)
    is_last_resort = bool(now.methods) and victim.method == asked.last_resort
    return not (now.allows(victim.method) or asked.allows(victim.method) or is_last_resort)


def _class_by_rules(victim: VictimState, job: Job, rules: Rules) -> JobClass:
    """Its class if its owner still wanted the method: else another word in its comment, time and again, would undo
    whatever it is to give way for."""
    return classify(rules, replace(job, comment=f"{METHOD_KEY}{victim.method}"))
