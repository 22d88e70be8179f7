"""From a planned preemption to its first state. Pure."""

from __future__ import annotations

from collections.abc import Set
from enum import Enum, auto

from omfs_daemon.cluster.job_shape import shape_of
from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.preempt_methods import ENDS, MethodTraits
from omfs_daemon.cluster.run_report import run_report
from omfs_daemon.policy.arrays.free_resources import freed_gres
from omfs_daemon.policy.plan import TEXT, PlannedPreemption, Reason, Victim
from omfs_daemon.policy.rules.classes import classify
from omfs_daemon.policy.rules.queue_order import Band, nice_in
from omfs_daemon.preemption.effects import Effects
from omfs_daemon.preemption.methods.suspend import SuspendMethod
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.preemption import Preemption, Preemptor, Step, VictimState
from omfs_daemon.preemption.records import JobEvent
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.preemption.state import PreemptionChanged, State


class Beginning(Enum):
    """What is done first. STOP: the victims are preempted. RELEASE: the preemptor is released, and Slurm's reason is
    read. ASK: Slurm is asked a question."""

    STOP = auto()
    RELEASE = auto()
    ASK = auto()


def begin_preemption(
    planned: PlannedPreemption,
    number: int,
    first: Beginning,
    state: State,
    observation: Observation,
    now: float,
    settings: Settings,
) -> Effects | None:
    """A preemption that the validator accepted; None if its jobs are no longer as planned."""
    preemptor = observation.job(planned.preemptor)
    victims = [(victim, observation.job(victim.ref)) for victim in planned.victims]
    present = [(victim, job) for victim, job in victims if job is not None and job.runs]
    wanted = JobState.SUSPENDED if planned.suspended else JobState.PENDING
    if preemptor is None or preemptor.state is not wanted or len(present) < len(victims):
        return None
    taken = {name for _, job in present for name, _ in job.request.gres}
    preemption = Preemption(
        id=number,
        step=Step.STOPPING if first is Beginning.STOP else Step.PROVING,
        begun=now,
        since=now,
        reason=planned.reason.value,
        preemptor=_preemptor_of(planned, preemptor, state, taken, settings),
        victims=tuple(_victim_of(victim, job, state, settings) for victim, job in present),
        asks=first is Beginning.ASK,
        retried=planned.preemptor in state.backoff.until,
    )
    events = [started_event(preemption, now)] if first is Beginning.STOP and preemption.victims else []
    return Effects(records=[PreemptionChanged(preemption)], events=events, begun=[preemption])


def started_event(preemption: Preemption, now: float) -> JobEvent:
    preemptor = preemption.preemptor
    refs = [victim.ref for victim in preemption.victims if not victim.ends_by_itself]
    text = f"preempting {', '.join(refs)} for it: {TEXT[Reason(preemption.reason)]}"
    data: dict[str, object] = {"victims": refs}
    return JobEvent(now, preemptor.ref, preemptor.user, preemptor.account, "preemption_started", text, data)


def _victim_of(victim: Victim, job: Job, state: State, settings: Settings) -> VictimState:
    """Recorded now, because its licenses and its job comment will change."""
    traits = settings.rules.method(victim.method)
    run = run_report(job)
    job_class = classify(settings.rules, job)
    resort = job_class.last_resort
    keeps = None if traits.leaves else settings.node_licenses.without(job.licenses, traits.frees, job.on_nodes)
    gives = keeps is not None and keeps != job.licenses
    return VictimState(
        ref=victim.ref,
        account=victim.account,
        user=job.user,
        method=victim.method,
        cpus=victim.cpus,
        start=job.start or 0.0,
        last_resort=resort if victim.method not in (resort, ENDS.name) else "",
        failed_before=run.times if run is not None else 0,
        keeps=keeps if gives else None,
        gres=freed_gres(job, traits) if gives else (),
        waits_since=_waits_since(job, traits, state) if traits.leaves else 0.0,
        signal=job_class.signal,
    )


def _waits_since(job: Job, traits: MethodTraits, state: State) -> float:
    """Slurm shows a requeued job as submitted when it was requeued."""
    past = state.past_preemptions.get(job.ref)
    since = past.waits_since if past is not None and past.waits_since else job.submit
    return since + job.run_time if traits.keeps_work else since


def _preemptor_of(planned: PlannedPreemption, job: Job, state: State, taken: Set[str], settings: Settings) -> Preemptor:
    """``taken``: the generic resources that victims have."""
    preempted, unstarted = state.preempted.get(planned.preemptor), state.backoff.unstarted.get(planned.preemptor)
    licenses = settings.node_licenses.placed(job.licenses, [allocation.node for allocation in planned.allocations])
    return Preemptor(
        ref=planned.preemptor,
        account=planned.account,
        user=job.user,
        urgent=planned.urgent,
        suspended=planned.suspended,
        submitted=planned.submitted,
        allocations=planned.allocations,
        nice=nice_in(job, Band.PREEMPTOR),
        licenses=licenses if licenses != job.licenses and not planned.suspended else None,
        method=preempted.method if preempted is not None else SuspendMethod.traits.name,
        lacks_devices=not taken.isdisjoint(name for name, _ in (preempted.gres if preempted is not None else ())),
        restarts=job.restarts,
        run_time=job.run_time,
        shape=shape_of(job),
        doubted=unstarted.reason if unstarted is not None and unstarted.in_vain else "",
    )
