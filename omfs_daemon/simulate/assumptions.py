"""The assumptions of a simulation, in sentences: every result prints them, because they decide the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

from omfs_daemon import __version__
from omfs_daemon.simulate.engine.conventions import fitting_jobs
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.preemption_costs import CostModel, Link, Spread
from omfs_daemon.simulate.engine.scenario import Machine, Scenario
from omfs_daemon.simulate.policies.policy_table import POLICIES, Policy
from omfs_daemon.simulate.results.measure import Measures
from omfs_daemon.simulate.workload.workload import PreemptMode, Workload

_NAMED = 6
_BELOW = (
    "below its entitlement: the account holds less than both that and its demand, which is what runs and what waits",
    "waiting jobs wider than the whole entitlement are no demand on it",
)


def assumption_sentences(scenario: Scenario, policy: Policy) -> tuple[str, ...]:
    """Machine, conventions and entitlements; for a policy with preemption also its costs."""
    sentences = [_machine(scenario.machine), *scenario.conventions.sentences(), _entitlements(scenario), *_BELOW]
    if policy.on_places:
        sentences += scenario.realtime.sentences()
    if policy.has_quantum:
        sentences.append(f"a job runs {scenario.rules.quantum:g} s before it may be preempted for an entitled one")
        sentences += _costs(scenario)
    return tuple(sentences)


def refused_sentences(outcome: Outcome) -> tuple[str, ...]:
    """How many jobs were refused, why, and which options help; one sentence per reason."""
    too_wide = outcome.rejected & ~fitting_jobs(outcome.workload, outcome.machine.cpus)
    counts = int(too_wide.sum()), int((outcome.rejected & ~too_wide).sum())
    others = "what their account owns (--entitlement and --accounts-from say who owns what)"
    whys = "the machine", "the largest place (--layout)" if POLICIES[outcome.policy].on_places else others
    return tuple(f"refused as wider than {why}: {count:,}" for count, why in zip(counts, whys, strict=True) if count)


def summary_json(scenario: Scenario, policy: Policy, sentences: Sequence[str], measures: Measures) -> dict[str, Any]:
    """The content of summary.json; ``sentences``: all assumptions of the figures."""
    return {
        "version": __version__,
        "workload": scenario.workload.name,
        "policy": policy.name,
        "machine": {"cpus": scenario.machine.cpus, "nodes": scenario.machine.nodes},
        "seed": scenario.seed,
        "conventions": list(sentences),
        **measures.as_json(),
    }


def _machine(machine: Machine) -> str:
    if machine.nodes:
        counted = "jobs get whole nodes, and what they hold or lose counts so"
        return f"machine: {machine.cpus:,} CPUs in {machine.nodes:,} nodes; {counted}"
    return f"machine: {machine.cpus:,} CPUs, a flat counter"


def _entitlements(scenario: Scenario) -> str:
    entitlements = scenario.rules.tree.entitlements
    if not entitlements:
        return "entitlements: none; all accounts together own the machine"
    named = [
        f"{entitlement.name} "
        + (f"{float(entitlement.percent):.4g} %" if entitlement.cpus is None else f"{entitlement.cpus} CPUs")
        + (f" of {entitlement.parent}" if entitlement.parent else "")
        for entitlement in entitlements[:_NAMED]
    ]
    more = f" and {len(entitlements) - _NAMED} more" if len(entitlements) > _NAMED else ""
    return f"entitlements: {', '.join(named)}{more}"


def _costs(scenario: Scenario) -> Iterator[str]:
    costs, workload = scenario.costs, scenario.workload
    yield f"between a decision and the first signal to a job: {costs.latency:g} s"
    regular = workload.mode[~workload.urgent]
    for mode, sentence in (
        (PreemptMode.NEVER, "jobs are never preempted"),
        (PreemptMode.KILL, f"jobs are killed in {costs.kill:g} s and start over"),
        (PreemptMode.CHECKPOINT, f"checkpoints are written {_speed(costs.write)}, read {_speed(costs.read)}"),
        (PreemptMode.SWAP, f"swaps take {_speed(costs.swap_out)} out, {_speed(costs.swap_in)} in{_area(costs)}"),
    ):
        if count := int((regular == mode).sum()):
            yield f"{sentence} ({count:,} regular jobs{_unknown_sizes(workload, mode, costs)})"


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


def _unknown_sizes(workload: Workload, mode: PreemptMode, costs: CostModel) -> str:
    """How many jobs of this mode have no known size, where the size counts."""
    links = {
        PreemptMode.CHECKPOINT: (costs.write, costs.read),
        PreemptMode.SWAP: (costs.swap_out, costs.swap_in),
    }.get(mode, ())
    if not any(isinstance(link, Link) for link in links):
        return ""
    moved = workload.memory + (workload.swap if mode is PreemptMode.SWAP else 0.0)
    unknown = int(((workload.mode == mode) & ~workload.urgent & (moved == 0)).sum())
    besides = any(isinstance(link, Link) and link.fixed for link in links)
    what = "which count as empty" if besides else "which take no time"
    return f"; {unknown:,} of unknown size, {what}" if unknown else ""
