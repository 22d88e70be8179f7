"""What one simulation of the experiment comes to: a row of results.csv, rows of accounts.csv, and waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import nan
from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.cluster.accounts import AccountTree
from omfs_daemon.policy.rules.laws import HOUR
from omfs_daemon.simulate.engine.outcome import Outcome, Use
from omfs_daemon.simulate.engine.scenario import owners
from omfs_daemon.simulate.experiments.zvi2021.own_share import OwnShare, own_share
from omfs_daemon.simulate.results.measure import Measures, cpu_seconds, measure
from omfs_daemon.simulate.results.result_rows import ResultRow, figures
from omfs_daemon.simulate.results.timeline import unit_cpus


@dataclass(frozen=True, slots=True)
class SharingRow(ResultRow):
    """The columns of results.csv; after those of every experiment:

    mean_wait, p95_wait     seconds up to the first start
    productive_utilisation  without preemptions, resumes and lost work
    delivered    the same up to the last submission only, when what is left over does not count yet
    lost_cpu_hours          work that kills threw away
    stopping_cpu_hours      CPUs held for preempting and resuming
    longest_stop            seconds; of all preemptions
    own_share_waits         jobs that waited for their account's own share
    own_share_mean, own_share_p95, own_share_longest  seconds, of these
    below_hours, longest_below_hours  hours that accounts with demand held less than they own: sum, longest spell
    """

    mean_wait: float
    p95_wait: float
    productive_utilisation: float
    delivered: float
    lost_cpu_hours: float
    preemption_cpu_hours: float
    longest_preemption: float
    own_share_waits: int
    own_share_mean: float
    own_share_p95: float
    own_share_longest: float
    below_hours: float
    longest_below_hours: float


@dataclass(frozen=True, slots=True)
class AccountResultRow:
    """One row of accounts.csv. ``owned``: CPUs; waits in seconds; ``own_share_*``: how long at least one of its jobs
    waited for its own share, and its longest spell of that; ``below_hours``: as ``fairness.py`` counts."""

    workload: str
    policy: str
    account: str
    owned: int
    jobs: int
    mean_wait: float
    p95_wait: float
    mean_bounded_slowdown: float
    cpu_hours: float
    preemptions: int
    own_share_hours: float
    own_share_spells: int
    own_share_longest: float
    below_hours: float
    longest_below_hours: float


class Latest(NamedTuple):
    """The job that waited longest for its account's own share, which its account owns ``owned`` CPUs of.

    seconds           how long
    others, their_cpus  how many jobs of other accounts began to run meanwhile, and their CPUs
    """

    cpus: int
    owned: int
    seconds: float
    others: int
    their_cpus: int


@dataclass(frozen=True, slots=True, eq=False)
class Sharing:
    """``own_share``: seconds, ascending, of the jobs that waited for their account's own share; ``latest``: of these;
    ``wide``, ``wide_wait``: jobs that were done although wider than what their account owns, their mean wait."""

    row: SharingRow
    accounts: tuple[AccountResultRow, ...]
    own_share: Floats
    latest: Latest | None
    wide: int
    wide_wait: float


def sharing(outcome: Outcome, trees: Mapping[str, AccountTree]) -> Sharing:
    """All figures of one simulation; ``trees``: who owns what, by the name of the workload."""
    workload, tree = outcome.workload, trees[outcome.workload.name]
    owner = owners(workload, tree)
    entitled = np.array(tree.entitled(outcome.machine.cpus), dtype=np.int64)
    own, measures = own_share(outcome, owner, entitled), measure(outcome, tree)
    waited = np.sort(own.seconds[own.seconds > 0])
    wide = (workload.cpus > entitled[owner]) & ~np.isnan(outcome.start)
    return Sharing(
        row=_row(outcome, measures, waited),
        accounts=_accounts(outcome, measures, tree, own),
        own_share=waited,
        latest=_latest(outcome, owner, entitled, own) if len(waited) else None,
        wide=int(wide.sum()),
        wide_wait=float((outcome.start - workload.submit)[wide].mean()) if wide.any() else nan,
    )


def _row(outcome: Outcome, found: Measures, waited: Floats) -> SharingRow:
    held, segments = cpu_seconds(outcome).sum(axis=0) / HOUR, outcome.segments
    preemptions = segments.use == Use.PREEMPTION
    return SharingRow(
        **asdict(figures(outcome).row),
        mean_wait=found.all.wait.mean,
        p95_wait=found.all.wait.p95,
        productive_utilisation=found.productive_utilisation,
        delivered=_delivered(outcome),
        lost_cpu_hours=found.lost_cpu_hours,
        preemption_cpu_hours=float(held[Use.PREEMPTION] + held[Use.RESUME]),
        longest_preemption=float((segments.end - segments.begin)[preemptions].max(initial=0.0)),
        own_share_waits=len(waited),
        own_share_mean=float(waited.mean()) if len(waited) else 0.0,
        own_share_p95=float(np.quantile(waited, 0.95)) if len(waited) else 0.0,
        own_share_longest=float(waited.max(initial=0.0)),
        below_hours=sum(account.fairness.below_hours for account in found.accounts),
        longest_below_hours=max(account.fairness.longest_hours for account in found.accounts),
    )


def _delivered(outcome: Outcome) -> float:
    """Share of the machine that did work which counted, up to the last submission; nan if all came at once."""
    segments, last = outcome.segments, float(outcome.workload.submit.max())
    work = segments.use == Use.WORK
    seconds = np.maximum(np.minimum(segments.end, last) - segments.begin, 0.0)[work]
    done = float(seconds @ outcome.workload.cpus[segments.job[work]])
    return done / (outcome.machine.cpus * last) if last else nan


def _accounts(outcome: Outcome, found: Measures, tree: AccountTree, own: OwnShare) -> tuple[AccountResultRow, ...]:
    index_of = {entity.name: entity.index for entity in tree.entities}
    return tuple(
        AccountResultRow(
            workload=outcome.workload.name,
            policy=outcome.policy,
            account=account.name,
            owned=round(account.entitled * unit_cpus(outcome.machine)),
            jobs=account.figures.jobs,
            mean_wait=account.figures.wait.mean,
            p95_wait=account.figures.wait.p95,
            mean_bounded_slowdown=account.figures.bounded_slowdown.mean,
            cpu_hours=account.cpu_hours,
            preemptions=account.preemptions,
            own_share_hours=float(own.total[index_of[account.name]] / HOUR),
            own_share_spells=int(own.spells[index_of[account.name]]),
            own_share_longest=float(own.longest[index_of[account.name]]),
            below_hours=account.fairness.below_hours,
            longest_below_hours=account.fairness.longest_hours,
        )
        for account in found.accounts
        if account.entitled
    )


def _latest(outcome: Outcome, owner: Ints, entitled: Ints, own: OwnShare) -> Latest:
    job = int(np.argmax(own.seconds))
    begun = outcome.segments.job[
        (outcome.segments.use == Use.WORK)
        & (outcome.segments.begin > own.until[job] - own.seconds[job])
        & (outcome.segments.begin < own.until[job])
    ]
    others = begun[owner[begun] != owner[job]]
    return Latest(
        cpus=int(outcome.workload.cpus[job]),
        owned=int(entitled[owner[job]]),
        seconds=float(own.seconds[job]),
        others=len(others),
        their_cpus=int(outcome.workload.cpus[others].sum()),
    )
