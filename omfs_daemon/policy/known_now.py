"""Whether a preemption can be judged by its own jobs alone, where only these were asked for lately.

Since all jobs were polled, others may have ended or started: nothing counts as idle, and what accounts use is unknown.
But a victim that is suspended keeps its memory, so the preemptor needs idle memory: what is idle on nodes that were
asked for lately counts, unless another preemption was decided upon there, whose preemptor may not run yet.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import NamedTuple

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.policy.arrays.free_resources import freed_resources
from omfs_daemon.policy.arrays.placement import serves
from omfs_daemon.policy.plan import Plan, PlannedPreemption
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.policy.working_state import WorkingState


def memory_stays_on(plan: Plan, rules: Rules) -> frozenset[str]:
    """The nodes on which preemptors of this plan's urgent preemptions need memory, and victims keep theirs."""
    return frozenset(
        allocation.node
        for planned in plan.preemptions
        if planned.urgent and any(not rules.method(one.method).leaves for one in planned.victims)
        for allocation in planned.allocations
        if allocation.memory
    )


class AskedLately(NamedTuple):
    """Jobs by raw id, and bytes that were idle, by node."""

    jobs: frozenset[int]
    idle_memory: Mapping[str, int]


def asked_lately(snapshot: Snapshot, since: float) -> AskedLately:
    """What was asked for singly since then."""
    jobs = frozenset(job_id for job_id, at in snapshot.asked.items() if at >= since)
    return AskedLately(
        jobs, {name: idle.bytes for name, idle in snapshot.idle_memory.items() if idle.asked_at >= since}
    )


def is_known_now(
    planned: PlannedPreemption,
    jobs: Mapping[str, Job],
    lately: AskedLately,
    promised: Container[str],
    working_state: WorkingState,
) -> bool:
    """``jobs``: by reference; ``promised``: the nodes of preemptors that other victims are preempted for."""
    rules, node_arrays = working_state.rules, working_state.node_arrays
    preemptor = jobs[planned.preemptor]
    if planned.suspended or not planned.urgent or not rules.urgent_may_take_entitled or preemptor.id not in lately.jobs:
        return False
    free = working_state.capacity.then.emptied()
    for node, idle in lately.idle_memory.items():
        i = node_arrays.index.get(node)
        if i is not None and node not in promised:
            free.memory[i] = idle
    for one in planned.victims:
        victim = jobs.get(one.ref)
        if victim is None or victim.id not in lately.jobs:
            return False
        free.give(freed_resources(node_arrays, victim, rules.method(one.method), working_state.blocks))
    return serves(preemptor.request, free, planned.allocations)
