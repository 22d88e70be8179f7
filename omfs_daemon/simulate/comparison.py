"""Compare one workload under two scenarios or policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.cluster.accounts import AccountTree
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.policy.rules.laws import HOUR
from omfs_daemon.simulate.assumptions import assumption_sentences
from omfs_daemon.simulate.engine.conventions import Conventions, UserLimits
from omfs_daemon.simulate.engine.outcome import Outcome, Use
from omfs_daemon.simulate.engine.preemption_costs import Link
from omfs_daemon.simulate.engine.scenario import Machine, Scenario
from omfs_daemon.simulate.options import SimulationOptions, costs_for
from omfs_daemon.simulate.policies.policy_table import Policy
from omfs_daemon.simulate.results.fairness import fairness
from omfs_daemon.simulate.results.measure import cpu_seconds, figures_of, measure, per_job, strict
from omfs_daemon.simulate.results.timeline import held_units, unit_cpus
from omfs_daemon.simulate.workload.workload import Workload


class Side(NamedTuple):
    """A scenario and the policy that it is simulated under."""

    scenario: Scenario
    policy: Policy


class Totals(NamedTuple):
    """Of the whole workload; the words are those of ``Measures``. Times in seconds; nan: there is no such job."""

    jobs: float
    rejected: float
    wait: float
    wait_p95: float
    response: float
    bounded_slowdown: float
    regular_wait: float
    urgent_wait: float
    u_l: float
    utilisation: float
    productive_utilisation: float
    preemptions: float
    lost_cpu_hours: float
    makespan: float


class Account(NamedTuple):
    """The results of the jobs of one account.

    jobs      that were done; ``rejected``: that are wider than what they may ever use
    owned     CPUs that are the account's own; 0 where its jobs count under others'
    share     of the machine, 0 to 1, on average up to the last submission (later there is no demand to share it among);
              nan if all was submitted at once
    wait, wait_p95  seconds up to the first start, response up to the end, preemptions included; nan: no job was done
    preemptions  of its jobs; ``lost_cpu_hours``: work discarded by them
    below_hours  how long it had demand and held less than it owns
    """

    jobs: float
    rejected: float
    owned: float
    share: float
    wait: float
    wait_p95: float
    response: float
    preemptions: float
    lost_cpu_hours: float
    below_hours: float


_Figures = TypeVar("_Figures", Totals, Account)


class ComparedRow(NamedTuple):
    """The same jobs before and after."""

    account: str
    before: Account
    after: Account


class Difference(NamedTuple):
    """``accounts``: those that own something or have jobs, in the order of the trees."""

    before: Totals
    after: Totals
    accounts: tuple[ComparedRow, ...]

    def as_json(self) -> dict[str, Any]:
        """For a strict JSON file: what there is no figure for is null."""
        figures: dict[str, Any] = strict(
            {
                "total": _three(self.before, self.after),
                "accounts": [{"account": row.account, **_three(row.before, row.after)} for row in self.accounts],
            }
        )
        return figures


def replayed(workload: Workload, cpus: int, rules: Rules) -> Scenario:
    """The workload as the daemon would find it: CPUs are counted, policies believe the jobs' limits and jobs end there.
    The daemon suspends with SIGSTOP and kills with a signal, which take next to no time; checkpoints take as long as
    in ``omfs simulate``."""
    costs = replace(costs_for(SimulationOptions()), swap_out=Link(), swap_in=Link())
    return Scenario(workload, Machine(cpus), Conventions(UserLimits()), costs, rules)


def comparison_conventions(before: Side, after: Side, found: Difference) -> tuple[str, ...]:
    """The assumptions of the figures, in sentences; those of one side only are marked."""
    old, new = assumption_sentences(*before), assumption_sentences(*after)
    sentences = [sentence if sentence in new else f"before: {sentence}" for sentence in old]
    sentences += [f"after: {sentence}" for sentence in new if sentence not in old]
    sentences += [
        "a requeue counts as a kill, a suspension as a swap that takes no time",
        "waits are up to the first start; what preemptions cost shows in the response, which is up to the end",
        "share of the machine: what is held on average up to the last submission, preemptions and lost work included",
        "each row has the same jobs on both sides: those of the account that either side's entitlements name",
    ]
    if found.before.rejected != found.after.rejected:
        sentences.append("not the same jobs are refused on both sides, so waits are not over the same jobs")
    return tuple(sentences)


def compare(before: Side, after: Side) -> Difference:
    """Simulate both; ValueError unless they have the workload and the machine in common.

    Jobs are put together by the account that either tree names, so that a row has the same jobs on both sides.
    """
    one, other = before.scenario, after.scenario
    if one.workload is not other.workload or one.machine != other.machine:
        raise ValueError("both sides need the same workload and the same machine")
    trees = (one.rules.tree, other.rules.tree)
    names = group_names(*trees)
    owner = _groups(one.workload.accounts, names, trees)[one.workload.account]
    totals, rows = [], []
    for side in (before, after):
        outcome = side.policy.simulate(side.scenario)
        totals.append(_totals(outcome, side.scenario.rules.tree))
        rows.append(_accounts(outcome, side.scenario.rules.tree, names, owner))
    paired = (ComparedRow(*row) for row in zip(names, *rows, strict=True))
    kept = (row for row in paired if row.before.jobs or row.before.rejected or row.before.owned or row.after.owned)
    return Difference(totals[0], totals[1], tuple(kept))


def difference(before: _Figures, after: _Figures) -> _Figures:
    """``after - before``, figure by figure; nan where one has none."""
    return type(before)(*(new - old for old, new in zip(before, after, strict=True)))


def group_names(before: AccountTree, after: AccountTree) -> list[str]:
    """The leaves of both trees, those of the second first."""
    return list(dict.fromkeys(entity.name for tree in (after, before) for entity in tree.entities if entity.is_leaf))


def _groups(accounts: Sequence[str], names: Sequence[str], trees: tuple[AccountTree, AccountTree]) -> Ints:
    """For each account of the workload the index of the name that its jobs are shown under: its leaf in the second
    tree, unless only the first one names it."""
    before, after = trees
    only_before = {entitlement.name for entitlement in before.entitlements} - {
        entitlement.name for entitlement in after.entitlements
    }
    leaves = [(before if name in only_before else after).leaf(name).name for name in accounts]
    return np.array([names.index(leaf) for leaf in leaves], dtype=np.int64)


def _totals(outcome: Outcome, tree: AccountTree) -> Totals:
    found = measure(outcome, tree)
    return Totals(
        jobs=found.all.jobs,
        rejected=found.rejected,
        wait=found.all.wait.mean,
        wait_p95=found.all.wait.p95,
        response=found.all.response.mean,
        bounded_slowdown=found.all.bounded_slowdown.mean,
        regular_wait=found.regular.wait.mean,
        urgent_wait=found.urgent.wait.mean,
        u_l=found.u_l,
        utilisation=found.utilisation,
        productive_utilisation=found.productive_utilisation,
        preemptions=found.preemptions,
        lost_cpu_hours=found.lost_cpu_hours,
        makespan=found.makespan,
    )


def _accounts(outcome: Outcome, tree: AccountTree, names: Sequence[str], owner: Ints) -> list[Account]:
    machine, count = outcome.machine, len(names)
    leaves = {entity.name: entity.index for entity in tree.entities if entity.is_leaf}
    units = tree.entitled(machine.nodes or machine.cpus)
    entitled = np.array([units[leaves[name]] if name in leaves else 0 for name in names], dtype=np.int64)
    shares = _shares(outcome, owner, count)
    rejected = np.bincount(owner, weights=outcome.rejected, minlength=count)
    preemptions = np.bincount(owner, weights=outcome.preemptions, minlength=count)
    lost = np.bincount(owner, weights=cpu_seconds(outcome)[:, Use.LOST], minlength=count) / HOUR
    waits, done = per_job(outcome), ~np.isnan(outcome.finish)
    below = [spans.below_hours for spans in fairness(outcome, owner, entitled)]
    figures = [figures_of(waits[:, done & (owner == index)]) for index in range(count)]
    return [
        Account(
            jobs=found.jobs,
            rejected=float(rejected[index]),
            owned=float(entitled[index]) * unit_cpus(machine),
            share=float(shares[index]),
            wait=found.wait.mean,
            wait_p95=found.wait.p95,
            response=found.response.mean,
            preemptions=float(preemptions[index]),
            lost_cpu_hours=float(lost[index]),
            below_hours=below[index],
        )
        for index, found in enumerate(figures)
    ]


def _shares(outcome: Outcome, owner: Ints, count: int) -> Floats:
    """Of the machine, that each account held on average up to the last submission; nan if that is the first one."""
    held, jobs, machine = outcome.segments, outcome.workload, outcome.machine
    until = float(jobs.submit.max(initial=0.0))
    if not until:
        return np.full(count, np.nan)
    seconds = np.minimum(held.end, until) - np.minimum(held.begin, until)
    amount = np.bincount(owner[held.job], weights=seconds * held_units(outcome)[held.job], minlength=count)
    shares: Floats = amount / ((machine.nodes or machine.cpus) * until)
    return shares


def _three(before: _Figures, after: _Figures) -> dict[str, Any]:
    both = {"before": before._asdict(), "after": after._asdict(), "difference": difference(before, after)._asdict()}
    return {side: {"U_L" if name == "u_l" else name: value for name, value in of.items()} for side, of in both.items()}
