"""What OMFS is simulated on, and the trail that it leaves; the same for both engines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from omfs_daemon.policy.rules import laws
from omfs_daemon.simulate.engine.conventions import Jobs
from omfs_daemon.simulate.engine.conventions import prepared
from omfs_daemon.simulate.engine.preemption_costs import StopCosts
from omfs_daemon.simulate.engine.preemption_costs import stop_costs
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.outcome import Segments
from omfs_daemon.simulate.engine.scenario import Setting
from omfs_daemon.simulate.workload.workload import Bools
from omfs_daemon.simulate.workload.workload import Floats
from omfs_daemon.simulate.workload.workload import Ints


class Case(NamedTuple):
    """Arrays have one entry a job, except ``entitled``: CPUs by entity of the tree of accounts.

    held      CPUs that the job holds while it runs: whole nodes on a machine of nodes
    leaf      index of the entity at which the job counts
    fixed     whether it is never stopped, and not urgent; so it must fit into the entitlement
    rejected  wider than the machine, or never stopped and wider than its account's entitlement
    """

    jobs: Jobs
    costs: StopCosts
    held: Ints
    leaf: Ints
    entitled: Ints
    fixed: Bools
    rejected: Bools


class Trail(NamedTuple):
    """What happened. ``start``, ``finish`` (seconds, nan: never) and ``stops`` by job; ``stop_at`` (seconds),
    ``victim`` and ``beneficiary``: one entry a stop that was decided, in that order. A victim that ends by itself
    before the signal arrives was not stopped."""

    start: Floats
    finish: Floats
    stops: Ints
    segments: Segments
    stop_at: Floats
    victim: Ints
    beneficiary: Ints


def case_of(setting: Setting) -> Case:
    """The setting in numbers."""
    workload, tree, machine = setting.workload, setting.rules.tree, setting.machine
    each = machine.cpus // machine.nodes if machine.nodes else 1
    size = each * machine.nodes if machine.nodes else machine.cpus
    held = -(-workload.cpus // each) * each
    costs = stop_costs(workload, setting.costs, setting.seed)
    leaves = [tree.leaf(name) for name in workload.accounts]
    entitled = tree.entitled(size)
    fixed = ~costs.stoppable & ~workload.urgent
    widest = np.array([min(entitled[index] for index in leaf.path) for leaf in leaves], dtype=np.int64)
    return Case(
        jobs=prepared(workload, setting.conventions),
        costs=costs,
        held=np.ascontiguousarray(held, dtype=np.int64),
        leaf=np.array([leaf.index for leaf in leaves], dtype=np.int64)[workload.account],
        entitled=np.array(entitled, dtype=np.int64),
        fixed=fixed,
        rejected=(held > size) | (fixed & (held > widest[workload.account])),
    )


def wakes_at(since: float, last_stops: Iterable[float], quantum: float, most_stops: int) -> tuple[float, float]:
    """When a running job will have run for its quantum, and when it will have a stop left in the hour again."""
    recent = sorted(last_stops)[-most_stops:] if most_stops > 0 else []
    is_full = len(recent) == most_stops > 0
    allowed = laws.matures_at(recent[0], laws.HOUR) if is_full else since
    return laws.matures_at(since, quantum), allowed


def outcome_of(setting: Setting, case: Case, trail: Trail) -> Outcome:
    return Outcome(
        workload=setting.workload,
        policy="omfs",
        machine=setting.machine,
        conventions=setting.conventions,
        start=trail.start,
        finish=trail.finish,
        run=case.jobs.run,
        stops=trail.stops,
        segments=trail.segments,
        rejected=case.rejected,
        promised=np.full(len(trail.start), np.nan),
    )
