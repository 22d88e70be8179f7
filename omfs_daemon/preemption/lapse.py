"""Whether a real-time job is still due for which others are being preempted. Pure.

Slurm lets owners raise the time limit of a waiting job: one of a minute is due within seconds, and would then run for a
day.
"""

from __future__ import annotations

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.policy.realtime_standing import counted_limit, waits_since
from omfs_daemon.policy.rules.classes import Rules, classify
from omfs_daemon.policy.rules.slowdown_laws import threshold_crossing
from omfs_daemon.preemption.preemption import Preemption
from omfs_daemon.preemption.progress import ObservedCluster
from omfs_daemon.preemption.realtime_memory import RealtimeMemory


def is_due_no_more(
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
