"""Whether a preemption can be judged by its own jobs alone, where only these were asked for lately.

Since all jobs were polled, others may have ended or started: nothing counts as idle, and what accounts use is unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.policy.arrays.free_resources import freed_resources
from omfs_daemon.policy.arrays.placement import serves
from omfs_daemon.policy.plan import PlannedPreemption
from omfs_daemon.policy.working_state import WorkingState


def is_known_now(
    planned: PlannedPreemption, jobs: Mapping[str, Job], newest: Collection[int], working_state: WorkingState
) -> bool:
    """``jobs``: by reference; ``newest``: by raw id, those that were asked for lately."""
    rules, node_arrays = working_state.rules, working_state.node_arrays
    preemptor = jobs[planned.preemptor]
    if planned.suspended or not planned.urgent or not rules.urgent_may_take_entitled or preemptor.id not in newest:
        return False
    free = working_state.capacity.then.emptied()
    for one in planned.victims:
        victim = jobs.get(one.ref)
        if victim is None or victim.id not in newest:
            return False
        free.give(freed_resources(node_arrays, victim, rules.method(one.method), working_state.blocks))
    return serves(preemptor.request, free, planned.allocations)
