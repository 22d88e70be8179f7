"""Other victims for an urgent job whose victims let go slowly. Pure.

If a victim has not let go after a few seconds, and longer than it should have taken, jobs that are expected to be
faster are preempted for the same job on other nodes: once, and the first preemption goes on. The job starts where it
can first. The victims of the other preemption return, those that were not touched at once; the slow one counts as
failed only if it exceeds its own timeout.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf

from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.snapshot import PreemptionHistory, Snapshot
from omfs_daemon.policy.arrays.snapshot_arrays import SnapshotArrays
from omfs_daemon.policy.plan import Plan, PlannedPreemption, Reason
from omfs_daemon.policy.planner import make_plan
from omfs_daemon.policy.validator import Conditions, Verdict, validate
from omfs_daemon.policy.victims.method_availability import MethodAvailability
from omfs_daemon.preemption.back_off import as_requested
from omfs_daemon.preemption.begin import Beginning, begin_preemption
from omfs_daemon.preemption.effects import Effects
from omfs_daemon.preemption.methods.base import PreemptionProgress
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.preemption import Preemption, Step, VictimState
from omfs_daemon.preemption.progress import progress_of
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.preemption.state import PreemptionChanged, State
from omfs_daemon.preemption.state_fold import state_after

NO_PROGRESS = 5.0
"""Seconds after which a victim is slow, or later if it was expected to take longer."""


def take_beside(
    state: State, observation: Observation, snapshot: Snapshot, now: float, settings: Settings, conditions: Conditions
) -> Effects:
    """Further preemptions for urgent jobs; ``snapshot``: without the nodes that are doubted for a job."""
    effects = Effects()
    for slow in [one for one in state.preemptions.values() if _may_take_beside(one, now)]:
        left = _left(slow, observation, now, settings)
        if left > 0:
            after = state_after(state, effects.records)
            effects.add(_beside(slow, left, after, observation, snapshot, now, settings, conditions))
    return effects


def _may_take_beside(preemption: Preemption, now: float) -> bool:
    preemptor = preemption.preemptor
    is_urgent = preemptor.urgent and not preemptor.suspended
    is_slow = preemption.step is Step.STOPPING and now - preemption.since > NO_PROGRESS
    return is_urgent and is_slow and not preemption.beside


def _left(slow: Preemption, observation: Observation, now: float, settings: Settings) -> float:
    """Seconds until the last victim lets go, as far as can be told: one that is late may take its whole timeout."""
    waited, chosen, snapshot = now - slow.since, settings.method_settings, observation.snapshot
    availability = MethodAvailability(settings.rules, snapshot.facts, snapshot.sizes)

    def left(victim: VictimState, job: Job) -> float:
        expected = availability.cost(job, victim.method).preempt
        return (expected if expected > waited else chosen.preempt_limit(victim)) - waited

    return max((left(victim, job) for victim, job in _holding_on(slow, observation, settings)), default=0.0)


def _holding_on(slow: Preemption, observation: Observation, settings: Settings) -> Iterator[tuple[VictimState, Job]]:
    for victim in slow.victims:
        job = observation.job(victim.ref)
        far = progress_of(victim, observation, settings.method_settings)
        if job is not None and far is not PreemptionProgress.PREEMPTED:
            yield victim, job


def _beside(
    slow: Preemption,
    left: float,
    state: State,
    observation: Observation,
    snapshot: Snapshot,
    now: float,
    settings: Settings,
    conditions: Conditions,
) -> Effects:
    """The preemption beside a slow one, if there is one that takes less time than is ``left``."""
    waiting = observation.job(slow.preemptor.ref)
    if waiting is None or waiting.state is not JobState.PENDING or waiting.licenses:
        return Effects()  # licenses that it requests come from the present victims
    job = as_requested(waiting, state.owned.get(slow.preemptor.ref, {}))
    planned = _planned(slow, job, state, snapshot, now, settings, conditions)
    if planned is None or planned[1] >= left:
        return Effects()
    asked, number = observation.with_jobs([job]), state.next_preemption
    effects = begin_preemption(planned[0], number, Beginning.STOP, state, asked, now, settings) or Effects()
    for begun in effects.begun[:1]:
        beside = replace(begun, beside=slow.id)
        effects.begun = [beside]
        effects.records = [PreemptionChanged(replace(slow, beside=number)), PreemptionChanged(beside)]
    return effects


def _planned(
    slow: Preemption,
    job: Job,
    state: State,
    snapshot: Snapshot,
    now: float,
    settings: Settings,
    conditions: Conditions,
) -> tuple[PlannedPreemption, float] | None:
    """What the policy decides if the job alone waits and its present victims are spared, and the seconds that this is
    expected to take."""
    rules = settings.rules
    jobs = {number: one for number, one in snapshot.jobs.items() if one.state is not JobState.PENDING}
    snapshot = replace(snapshot, jobs={**jobs, job.id: job})
    arrays, history = SnapshotArrays(snapshot), _history_without(slow, state, settings)
    plan = _for_one(make_plan(snapshot, history, rules, now, arrays), slow, job)
    verdict: Verdict = validate(plan, snapshot, history, rules, now, conditions, arrays)
    for planned in verdict.preemptions:
        return planned, max((cost.preempt for cost in verdict.costs.values()), default=0.0)
    return None


def _history_without(slow: Preemption, state: State, settings: Settings) -> PreemptionHistory:
    others = {number: one for number, one in state.preemptions.items() if number != slow.id}
    spared = {**state.spared, **dict.fromkeys((victim.ref for victim in slow.victims), inf)}
    return replace(state, preemptions=others, spared=spared).preemption_history(settings.rules.methods)


def _for_one(plan: Plan, slow: Preemption, job: Job) -> Plan:
    """What the plan has for this job; one that fits meanwhile needs no victims."""
    ref = slow.preemptor.ref
    found = [planned for planned in plan.preemptions if planned.preemptor == ref]
    found += [
        PlannedPreemption(ref, start.account, Reason.URGENT, True, False, start.allocations, (), job.submit)
        for start in plan.starts
        if start.ref == ref
    ]
    return Plan(plan.taken, plan.now, preemptions=tuple(found))
