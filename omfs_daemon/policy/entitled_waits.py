"""Which jobs wait for what their account owns. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from omfs_daemon.cluster.accounts import AccountTree
from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.policy.plan import Plan, Reason

_FOR_CPUS = (Reason.NOT_ENOUGH_VICTIMS, Reason.BEING_FREED, Reason.ENOUGH_PREEMPTIONS)
_OWNED = (Reason.ENTITLED, Reason.URGENT)
_FOR_NODES = ("", "None", "Resources", "Priority", "BeginTime", "JobHeldAdmin", "JobHeldUser")
"""Slurm's reasons of a job that waits for nothing but nodes; some go stale (``cluster/holds.py``)."""


def entitled_waits(plan: Plan, snapshot: Snapshot, tree: AccountTree, served: Mapping[str, str]) -> dict[str, set[str]]:
    """By account below its entitlement, the jobs that wait for it: of those that are alike, at least one.

    Jobs that wait for anything else than nodes, and those that Slurm would not start, or did not when others were
    preempted for them, do not count. ``served``: by job, the account of those for which others are being preempted.
    """
    below = {row.account for row in plan.accounts if row.used < row.entitled}
    jobs = dict(served)
    jobs |= {wait.ref: wait.account for wait in plan.waits.single if wait.reason in _FOR_CPUS}
    jobs |= {start.ref: start.account for start in plan.starts if start.reason in _OWNED}
    jobs |= {planned.preemptor: planned.account for planned in plan.preemptions if planned.reason in _OWNED}
    found: dict[str, set[str]] = {}
    if not below or not jobs:
        return found
    stuck = {
        job.array_id or job.id
        for job in snapshot.jobs.values()
        if job.hold is Hold.NONE and job.reason not in _FOR_NODES
    }
    for ref, account in jobs.items():
        if int(ref.partition("_")[0]) in stuck:
            continue
        for index in tree.leaf(account).path:
            name = tree.entities[index].name
            if name in below:
                found.setdefault(name, set()).add(ref)
    return found
