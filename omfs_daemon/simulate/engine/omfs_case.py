"""Input and trail of an OMFS simulation, the same for both engines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Bools, Floats, Ints
from omfs_daemon.policy.rules import laws
from omfs_daemon.simulate.engine.conventions import Jobs, prepared
from omfs_daemon.simulate.engine.outcome import Outcome, Segments
from omfs_daemon.simulate.engine.preemption_costs import SimulatedCosts, simulated_costs
from omfs_daemon.simulate.engine.scenario import Scenario


class OmfsCase(NamedTuple):
    """Arrays have one entry per job, except ``entitled``: CPUs by entity of the tree of accounts.

    held      CPUs that the job holds while it runs: whole nodes on a machine of nodes
    leaf      index of the entity at which the job counts
    non_preemptible  whether it is never preempted and not urgent; it must fit into the entitlement
    rejected  wider than the machine, or non-preemptible and wider than its account's entitlement
    """

    jobs: Jobs
    costs: SimulatedCosts
    held: Ints
    leaf: Ints
    entitled: Ints
    non_preemptible: Bools
    rejected: Bools


class Trail(NamedTuple):
    """What happened. ``start``, ``finish`` (seconds, nan: never) and ``preemptions`` by job; ``preempted_at``
    (seconds), ``victim`` and ``preemptor``: one entry per decided preemption, in that order. A victim that ends by
    itself before the signal arrives was not preempted. ``estimate``: as in ``Outcome``."""

    start: Floats
    finish: Floats
    preemptions: Ints
    segments: Segments
    preempted_at: Floats
    victim: Ints
    preemptor: Ints
    estimate: Floats | None = None


def case_of(scenario: Scenario) -> OmfsCase:
    """The scenario in numbers."""
    workload, tree, machine = scenario.workload, scenario.rules.tree, scenario.machine
    each = machine.cpus // machine.nodes if machine.nodes else 1
    size = each * machine.nodes if machine.nodes else machine.cpus
    held = -(-workload.cpus // each) * each
    costs = simulated_costs(workload, scenario.costs, scenario.seed)
    leaves = [tree.leaf(name) for name in workload.accounts]
    entitled = tree.entitled(size)
    non_preemptible = ~costs.preemptible & ~workload.urgent
    widest = np.array([min(entitled[index] for index in leaf.path) for leaf in leaves], dtype=np.int64)
    return OmfsCase(
        jobs=prepared(workload, scenario.conventions),
        costs=costs,
        held=np.ascontiguousarray(held, dtype=np.int64),
        leaf=np.array([leaf.index for leaf in leaves], dtype=np.int64)[workload.account],
        entitled=np.array(entitled, dtype=np.int64),
        non_preemptible=non_preemptible,
        rejected=(held > size) | (non_preemptible & (held > widest[workload.account])),
    )


def preemptible_times(
    since: float, preempted_at: Iterable[float], quantum: float, most_preemptions: int
) -> tuple[float, float]:
    """When a running job will have run for its quantum, and when the hourly limit will allow its preemption again."""
    recent = sorted(preempted_at)[-most_preemptions:] if most_preemptions > 0 else []
    is_full = len(recent) == most_preemptions > 0
    allowed = laws.matures_at(recent[0], laws.HOUR) if is_full else since
    return laws.matures_at(since, quantum), allowed


def outcome_of(scenario: Scenario, case: OmfsCase, trail: Trail) -> Outcome:
    return Outcome(
        workload=scenario.workload,
        policy="omfs",
        machine=scenario.machine,
        conventions=scenario.conventions,
        start=trail.start,
        finish=trail.finish,
        run=case.jobs.run,
        preemptions=trail.preemptions,
        segments=trail.segments,
        rejected=case.rejected,
        promised=np.full(len(trail.start), np.nan),
        estimate=trail.estimate,
    )
