"""From a planned preemption to its first state. Pure."""

from __future__ import annotations

from collections.abc import Set

from omfs_daemon.cluster.job_shape import shape_of
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.preempt_methods import ENDS, MethodTraits
from omfs_daemon.cluster.run_report import run_report
from omfs_daemon.policy.arrays.free_resources import freed_gres
from omfs_daemon.policy.plan import PlannedPreemption, Victim
from omfs_daemon.policy.rules.classes import classify
from omfs_daemon.policy.rules.queue_order import Band, nice_in
from omfs_daemon.preemption.methods.suspend import SuspendMethod
from omfs_daemon.preemption.preemption import Preemptor, VictimState
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.preemption.state import State


def victim_of(victim: Victim, job: Job, state: State, settings: Settings) -> VictimState:
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


def preemptor_of(planned: PlannedPreemption, job: Job, state: State, taken: Set[str], settings: Settings) -> Preemptor:
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
        retried=planned.preemptor in state.backoff.until,
    )
