"""What the paper claims, section by section, and what was measured. It publishes no numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from omfs_daemon.policy.rules.laws import HOUR
from omfs_daemon.simulate.experiments.zvi2021.figures import Sharing, SharingRow
from omfs_daemon.simulate.experiments.zvi2021.workloads import ZviStudy
from omfs_daemon.simulate.experiments.zvi2021.zvi2021_cases import (
    CAPPING,
    CHECKPOINT,
    EASY,
    METHODS,
    OMFS,
    PARTITION,
    QUANTA,
    Variant,
    ZviResults,
)

# Sums of seconds as floats.
_ROUNDING = 1e-3

_HOLDS, _FAILS = "holds", "**does not hold**"


class Claim(NamedTuple):
    """``where``: the section of the paper; ``verdict``: whether it holds as stated, on these workloads."""

    where: str
    statement: str
    measured: str
    verdict: str


def claims(found: ZviResults) -> list[Claim]:
    """All of them, in the order of the page."""
    listed = [
        _utilisation(found),
        _utilisation_with_kills(found),
        _own_share(found, found.generated, "on generated workloads"),
        _up_to_the_entitlement(found),
        _everybody_gains(found),
        _fewer_preemptions(found),
        _later_reclaims(found),
        _cheaper_preemptions(found),
        _against_backfilling(found),
    ]
    if found.recorded:
        listed.insert(3, _own_share(found, found.recorded, "on the recorded one"))
    if found.wide:
        listed.insert(-4, _wide_jobs(found))
    return listed


def bound(variant: Variant, row: SharingRow, preemptions: int = 1) -> float:
    """Seconds after which OMFS should have given an account its own: quantum, latency and longest preemption."""
    return variant.quantum + preemptions * (variant.latency + row.longest_preemption)


def late(variant: Variant, result: Sharing, preemptions: int = 1) -> int:
    """How many jobs waited for their account's own share for longer than that."""
    return int((result.own_share > bound(variant, result.row, preemptions) + _ROUNDING).sum())


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _utilisation(found: ZviResults) -> Claim:
    studies = _all(found)
    rows = [[found.results[study.name, variant].row for variant in (OMFS, PARTITION, CAPPING)] for study in studies]
    better = [
        omfs.productive_utilisation >= max(partition.utilisation, capping.utilisation)
        for omfs, partition, capping in rows
    ]
    values = [mean([row[place].utilisation for row in rows[: len(found.generated)]]) for place in range(3)]
    return Claim(
        "abstract; II, after Algorithm 1",
        '"underutilized entitlements [are] temporarily used by other entities, and thus [it] improves the utilization '
        'over a capping-based system"; so at least that of hard division',
        f"generated workloads: {values[0]:.1%} with OMFS, {values[1]:.1%} with partition, {values[2]:.1%} with "
        f"capping; productive utilisation at or above both in {sum(better)} of {len(better)} workloads",
        _verdict(all(better)),
    )


def _utilisation_with_kills(found: ZviResults) -> Claim:
    kills = [Variant("omfs", "kill", quantum) for quantum in QUANTA]
    partition = [result.row.delivered for result in found.of(found.generated, PARTITION)]
    values = [[result.row.delivered for result in found.of(found.generated, variant)] for variant in kills]
    behind = [sum(ours < theirs for ours, theirs in zip(value, partition, strict=True)) for value in values]
    listed = ", ".join(
        f"{variant.quantum / 60:g} min {mean(value):.1%} (below in {count})"
        for variant, value, count in zip(kills, values, behind, strict=True)
    )
    return Claim(
        "II",
        'the same where jobs are "preemptable (may be killed)"',
        "work that counted, up to the last submission, by quantum and in how many of the "
        f"{len(partition)} generated workloads that is below partition's {mean(partition):.1%}: {listed}; a "
        "longer quantum means that a killed job has more to lose",
        _verdict(not any(behind)),
    )


def _own_share(found: ZviResults, studies: Sequence[ZviStudy], where: str) -> Claim:
    names = {study.name for study in studies}
    results = [
        (variant, result)
        for (name, variant), result in found.results.items()
        if variant.policy == OMFS.policy and name in names
    ]
    waits = sum(len(result.own_share) for _, result in results)
    behind, far_behind = (sum(late(*one, preemptions) for one in results) for preemptions in (1, 2))
    measured = (
        f"{where}, over all quanta, methods and latencies: {behind:,} of {waits:,} jobs that waited for their "
        "account's own share waited longer than quantum, latency and longest preemption together"
    )
    verdict = _HOLDS
    if behind:
        verdict = _FAILS if far_behind else "holds to within one preemption more"
        measured += (
            f"; {behind - far_behind:,} of these by less than one preemption more: what preemptions free is one pool, "
            "a narrower job may start on it first, and the wider one then waits for the next preemption"
        )
    if far_behind:
        measured += "; " + _worst(results)
    return Claim(
        "I, end; II",
        '"Each entity gets at least its entitlement of CPUs when it has the suitable workload for it", by eviction; '
        "as we read it, after a quantum and the time of a preemption at the latest",
        measured,
        verdict,
    )


def _worst(results: Sequence[tuple[Variant, Sharing]]) -> str:
    """Who waited longest beyond the bound, and what happened meanwhile."""
    variant, result = max(results, key=lambda one: one[1].row.own_share_longest - bound(one[0], one[1].row))
    if (latest := result.latest) is None:
        return "nobody waited"
    return (
        f"the worst ({result.row.workload}, {variant.name}) is a job of {latest.cpus} CPUs whose account owns "
        f"{latest.owned}: it waited {latest.seconds / 60:.0f} min, and meanwhile {latest.others} times a job "
        f"of another account began to run, on {latest.their_cpus:,} CPUs in all: what a borrower's job leaves "
        "that ends within its quantum is lent again, and a quantum begins anew, so for a wide job there may "
        "long be too little at one time that may be preempted"
    )


def _up_to_the_entitlement(found: ZviResults) -> Claim:
    results = found.of(found.generated, OMFS)
    below = mean([result.row.below_hours for result in results])
    owed = mean([sum(account.own_share_hours for account in result.accounts) for result in results])
    longest = max(result.row.longest_below_hours for result in results)
    return Claim(
        "II",
        '"it can always increase its utilization up to its entitlement"',
        f"on generated workloads accounts with demand held less than they own for {below:,.0f} h (all accounts "
        f"added up, mean of the workloads), {longest:.1f} h at a stretch at most. In all but {owed:.1f} h of "
        "these nothing that waited fitted into what was missing: it is up to the entitlement only as far as "
        "widths of jobs allow",
        _verdict(all(result.row.longest_below_hours * HOUR <= bound(OMFS, result.row) for result in results)),
    )


def _everybody_gains(found: ZviResults) -> Claim:
    pairs = [
        (ours.mean_wait, theirs.mean_wait)
        for study in _all(found)
        for ours, theirs in zip(
            found.results[study.name, OMFS].accounts, found.results[study.name, PARTITION].accounts, strict=True
        )
        if ours.jobs
    ]
    gained = sum(ours <= theirs for ours, theirs in pairs)
    worst = max(pairs, key=lambda pair: pair[0] - pair[1])
    against = "" if gained == len(pairs) else f"; worst: {worst[0] / HOUR:.1f} h instead of {worst[1] / HOUR:.1f} h"
    return Claim(
        "abstract; IV",
        '"permanently keep the status quo regarding the fairness [...] while maximizing the ability of all users to '
        'achieve more CPUs": nobody is worse off than with their own partition',
        f"mean wait at or below that in its own partition for {gained} of {len(pairs)} accounts (all "
        f"workloads){against}",
        _verdict(gained == len(pairs)),
    )


def _wide_jobs(found: ZviResults) -> Claim:
    ours, easy = found.of(found.wide, OMFS), found.of(found.wide, EASY)
    done, there = sum(result.wide for result in ours), sum(result.wide for result in easy)
    waits = [mean([result.wide_wait for result in results if result.wide]) / HOUR for results in (ours, easy)]
    return Claim(
        "II, after Algorithm 1",
        '"an entity can use it to run a single job that is larger than its whole entitlement"',
        f"{done} of {there} such jobs were done; partition and capping refuse them all. They may only use what "
        f"is idle, and nothing is kept for them: mean wait {waits[0]:.1f} h, with EASY {waits[1]:.1f} h",
        _verdict(done == there),
    )


def _fewer_preemptions(found: ZviResults) -> Claim:
    listed, fewer = [], []
    for method, meaning in METHODS.items():
        preemptions = [
            _mean(found, Variant("omfs", method, quantum), lambda row: row.preemptions) for quantum in QUANTA
        ]
        listed.append(f"{meaning.title} {preemptions[0]:,.0f} to {preemptions[-1]:,.0f}")
        fewer.append(all(later <= sooner for sooner, later in pairwise(preemptions)))
    return Claim(
        "II",
        '"Enlarging the quantum lowers the frequency of C/R operations"',
        f"mean preemptions with a quantum of {QUANTA[0] / 60:g} and of {QUANTA[-1] / 60:g} min: {', '.join(listed)}; "
        f"fewer at every step for {sum(fewer)} of {len(fewer)} methods. A preemption answers a demand that is there "
        "sooner or later: the quantum puts it off, and saves it only where the borrower ends first",
        _verdict(all(fewer)),
    )


def _later_reclaims(found: ZviResults) -> Claim:
    longest = [
        max(result.row.own_share_longest for result in found.of(found.generated, Variant("omfs", CHECKPOINT, quantum)))
        for quantum in QUANTA
    ]
    means = [_mean(found, Variant("omfs", CHECKPOINT, quantum), lambda row: row.own_share_mean) for quantum in QUANTA]
    listed = ", ".join(
        f"{quantum / 60:g} min: {average:.0f} s, {most / 60:.0f} min"
        for quantum, average, most in zip(QUANTA, means, longest, strict=True)
    )
    return Claim(
        "II",
        '"at the price of non-instantaneous execution of accredited jobs"',
        f"mean and longest wait for an account's own share by quantum (checkpoint): {listed}",
        _verdict(longest[-1] > longest[0] and means[-1] > means[0]),
    )


def _cheaper_preemptions(found: ZviResults) -> Claim:
    methods = ("slow", CHECKPOINT, "swap")
    hours = [_mean(found, Variant("omfs", method, 0.0), lambda row: row.preemption_cpu_hours) for method in methods]
    listed = (f"{METHODS[method].title} {taken:,.0f} CPU-hours" for method, taken in zip(methods, hours, strict=True))
    work = mean([float(study.workload.cpus @ study.workload.run) / HOUR for study in found.generated])
    return Claim(
        "II",
        "recurrent checkpoint and restart may lead to thrashing; faster storage reduces its cost",
        f"with no quantum at all, preempting and resuming took: {', '.join(listed)}, for {work:,.0f} CPU-hours of work",
        _verdict(hours == sorted(hours, reverse=True)),
    )


def _against_backfilling(found: ZviResults) -> Claim:
    ours, easy = (found.of(found.generated, variant) for variant in (OMFS, EASY))
    used = [mean([result.row.productive_utilisation for result in results]) for results in (ours, easy)]
    waits = [mean([result.row.mean_wait for result in results]) / HOUR for results in (ours, easy)]
    slow = [mean([result.row.mean_bounded_slowdown for result in results]) for results in (ours, easy)]
    recorded = "".join(
        f". On {study.name} EASY uses {found.results[study.name, EASY].row.utilisation:.1%}, OMFS "
        f"{found.results[study.name, OMFS].row.productive_utilisation:.1%}"
        for study in found.recorded
    )
    return Claim(
        "III-B",
        "backfilling by users' estimates leads to very poor efficiency",
        f"not of the machine: EASY's utilisation is {used[1]:.1%}, OMFS's (productive) {used[0]:.1%}. OMFS's "
        f"mean wait is {waits[0]:.1f} h, EASY's {waits[1]:.1f} h; mean bounded slowdown {slow[0]:.0f} and "
        f"{slow[1]:.0f}{recorded}",
        _verdict(used[0] > used[1]),
    )


def _all(found: ZviResults) -> list[ZviStudy]:
    """Generated ones first; those with wide jobs, which partition refuses, are not among them."""
    return [*found.generated, *found.recorded]


def _verdict(holds: bool) -> str:
    return _HOLDS if holds else _FAILS


def _mean(found: ZviResults, variant: Variant, figure: Callable[[SharingRow], float]) -> float:
    return mean([figure(result.row) for result in found.of(found.generated, variant)])
