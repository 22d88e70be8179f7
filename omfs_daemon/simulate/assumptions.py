"""What a simulation went by, in sentences: every result prints them, for they decide the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

from omfs_daemon import __version__
from omfs_daemon.simulate.engine.conventions import fits
from omfs_daemon.simulate.engine.preemption_costs import CostModel
from omfs_daemon.simulate.engine.preemption_costs import Link
from omfs_daemon.simulate.engine.preemption_costs import Spread
from omfs_daemon.simulate.results.measure import Measures
from omfs_daemon.simulate.engine.scenario import Machine
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.policies.policy_table import Policy
from omfs_daemon.simulate.engine.scenario import Setting
from omfs_daemon.simulate.workload.workload import Way
from omfs_daemon.simulate.workload.workload import Workload

_NAMED = 6
_BELOW = (
    "below its entitlement: the account holds less than both that and its demand, which is what runs and what waits",
    "waiting jobs wider than the whole entitlement are no demand on it",
)


def sentences(setting: Setting, policy: Policy) -> tuple[str, ...]:
    """Machine, conventions and entitlements; for a policy that stops jobs also what that costs."""
    told = [_machine(setting.machine), *setting.conventions.sentences(), _entitlements(setting), *_BELOW]
    if policy.stops:
        told.append(f"a job runs {setting.rules.quantum:g} s before it may be stopped for an entitled one")
        told += _costs(setting)
    return tuple(told)


def refusals(outcome: Outcome) -> tuple[str, ...]:
    """How many jobs were refused, why, and what may be done about it; a sentence a reason."""
    too_wide = outcome.rejected & ~fits(outcome.workload, outcome.machine.cpus)
    counts = int(too_wide.sum()), int((outcome.rejected & ~too_wide).sum())
    whys = "the machine", "what their account owns (--entitlement and --accounts-from say who owns what)"
    return tuple(f"refused as wider than {why}: {count:,}" for count, why in zip(counts, whys, strict=True) if count)


def summary(setting: Setting, policy: Policy, told: Sequence[str], measures: Measures) -> dict[str, Any]:
    """The content of summary.json; ``told``: all sentences that the figures rest on."""
    return {
        "version": __version__,
        "workload": setting.workload.name,
        "policy": policy.name,
        "machine": {"cpus": setting.machine.cpus, "nodes": setting.machine.nodes},
        "seed": setting.seed,
        "conventions": list(told),
        **measures.as_json(),
    }


def _machine(machine: Machine) -> str:
    if machine.nodes:
        counted = "jobs get whole nodes, and what they hold or lose counts so"
        return f"machine: {machine.cpus:,} CPUs in {machine.nodes:,} nodes; {counted}"
    return f"machine: {machine.cpus:,} CPUs, a flat counter"


def _entitlements(setting: Setting) -> str:
    shares = setting.rules.tree.shares
    if not shares:
        return "entitlements: none; all accounts together own the machine"
    named = [
        f"{share.name} {float(share.percent):.4g} %" + (f" of {share.parent}" if share.parent else "")
        for share in shares[:_NAMED]
    ]
    more = f" and {len(shares) - _NAMED} more" if len(shares) > _NAMED else ""
    return f"entitlements: {', '.join(named)}{more}"


def _costs(setting: Setting) -> Iterator[str]:
    costs, workload = setting.costs, setting.workload
    yield f"between a decision and the first signal to a job: {costs.latency:g} s"
    regular = workload.way[~workload.urgent]
    for way, sentence in (
        (Way.NEVER, "jobs are never stopped"),
        (Way.KILL, f"jobs are killed in {costs.kill:g} s and start over"),
        (Way.CHECKPOINT, f"checkpoints are written {_speed(costs.write)}, read {_speed(costs.read)}"),
        (Way.SWAP, f"swaps take {_speed(costs.swap_out)} out, {_speed(costs.swap_in)} in{_area(costs)}"),
    ):
        if count := int((regular == way).sum()):
            yield f"{sentence} ({count:,} regular jobs{_unknown_sizes(workload, way, costs)})"


def _speed(link: Link | Spread) -> str:
    if isinstance(link, Spread):
        return f"{link.low:g} to {link.high:g} s (drawn for each job)"
    limits = [
        f"{speed / 1e9:.4g} GB/s {whose}"
        for speed, whose in ((link.each, "for each CPU"), (link.job, "for each job"), (link.together, "in all"))
        if isfinite(speed)
    ]
    besides = f"{link.fixed:g} s" if link.fixed else ""
    if not limits:
        return besides or "no time"
    return f"{besides}{' and ' if besides else ''}at {' and '.join(limits)}"


def _area(costs: CostModel) -> str:
    return f", {costs.area / 1e9:.4g} GB at one time" if isfinite(costs.area) else ""


def _unknown_sizes(workload: Workload, way: Way, costs: CostModel) -> str:
    """How many jobs of this way have no known size, where the size counts."""
    links = {
        Way.CHECKPOINT: (costs.write, costs.read),
        Way.SWAP: (costs.swap_out, costs.swap_in),
    }.get(way, ())
    if not any(isinstance(link, Link) for link in links):
        return ""
    moved = workload.memory + (workload.swap if way is Way.SWAP else 0.0)
    unknown = int(((workload.way == way) & ~workload.urgent & (moved == 0)).sum())
    besides = any(isinstance(link, Link) and link.fixed for link in links)
    what = "which count as empty" if besides else "which take no time"
    return f"; {unknown:,} of unknown size, {what}" if unknown else ""
