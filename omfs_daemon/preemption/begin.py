"""From the plan's suggestion to the preemption's first state: pure."""

from __future__ import annotations

from collections.abc import Set
from omfs_daemon.cluster import run_report as launched
from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.preempt_methods import SUSPEND
from omfs_daemon.cluster.snapshot import Stopped
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.preemption.preemption import Beneficiary
from omfs_daemon.preemption.preemption import VictimState
from omfs_daemon.policy.arrays.free_resources import freed_gres
from omfs_daemon.policy.rules.queue_order import Band
from omfs_daemon.policy.plan import Reclaim
from omfs_daemon.policy.plan import Victim
from omfs_daemon.cluster.holds import is_held_by_us
from omfs_daemon.policy.rules.queue_order import nice_in
from omfs_daemon.policy.rules.queue_order import own_nice
from omfs_daemon.policy.rules.classes import classify


def _victim(victim: Victim, job: Job, settings: Settings) -> VictimState:
    """What only now can be told of it: afterwards its licences are off, and its word is another."""
    traits = settings.rules.method(victim.method)
    run = launched.of(job)
    resort = classify(settings.rules, job).last_resort
    keeps = None if traits.leaves else settings.books.without(job.licenses, traits.frees, job.on_nodes)
    gives = keeps is not None and keeps != job.licenses
    return VictimState(
        ref=victim.ref,
        account=victim.account,
        user=job.user,
        method=victim.method,
        cpus=victim.cpus,
        start=job.start or 0.0,
        last_resort=resort if resort != victim.method else "",
        failed_before=run.times if run is not None else 0,
        licenses=job.licenses,
        keeps=keeps if gives else None,
        gres=freed_gres(job, traits) if gives else (),
    )


def _beneficiary(
    reclaim: Reclaim, job: Job, stopped: Stopped | None, taken: Set[str], settings: Settings
) -> Beneficiary:
    """``taken``: the generic resources that victims have."""
    licenses = settings.books.placed(job.licenses, [share.node for share in reclaim.shares])
    return Beneficiary(
        ref=reclaim.beneficiary,
        account=reclaim.account,
        user=job.user,
        urgent=reclaim.urgent,
        suspended=reclaim.suspended,
        submitted=reclaim.submitted,
        shares=reclaim.shares,
        nice=nice_in(job, Band.BENEFICIARY),
        nice_before=own_nice(job),
        held_before=job.hold is not Hold.NONE and is_held_by_us(job),
        required_before=tuple(sorted(job.request.required_nodes)),
        licenses=licenses if licenses != job.licenses and not reclaim.suspended else None,
        licenses_before=job.licenses,
        method=stopped.method if stopped is not None else SUSPEND.name,
        lacks_devices=not taken.isdisjoint(name for name, _ in (stopped.gres if stopped is not None else ())),
    )
