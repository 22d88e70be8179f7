"""What OMFS promises (Zvi & Oren, section II), over whole simulated traces, and under which assumptions.

The trails are looked at from outside: from the stretches in which jobs held CPUs and the log of the stops.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest

from omfs_daemon.simulate.engine.preemption_costs import CostModel
from omfs_daemon.simulate.engine.preemption_costs import Link
from omfs_daemon.simulate.policies.omfs import omfs
from omfs_daemon.simulate.policies.omfs import trail_by_kernel
from omfs_daemon.simulate.engine.omfs_case import Case
from omfs_daemon.simulate.engine.omfs_case import Trail
from omfs_daemon.simulate.engine.omfs_case import case_of
from omfs_daemon.simulate.engine.scenario import Machine
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.outcome import Use
from omfs_daemon.simulate.policies.partitioned import hard_partition
from omfs_daemon.simulate.engine.scenario import Setting
from omfs_daemon.simulate.workload.workload import Floats
from omfs_daemon.simulate.workload.workload import Ints
from omfs_daemon.simulate.workload.workload import Way
from omfs_daemon.simulate.workload.workload import workload
from tests.simulate.omfs_scenarios import TREES
from tests.simulate.omfs_scenarios import random_setting
from tests.simulate.omfs_scenarios import rules

SEEDS = range(300)


def unit_jobs(seed: int, quantum: float = 0.0, stop: float = 0.0, way: Way = Way.SWAP, span: int = 200) -> Setting:
    """Jobs of one CPU that may all be stopped, on 2 to 12 CPUs, with two to three accounts at the top."""
    draw = np.random.default_rng(seed)
    count, owners = int(draw.integers(5, 60)), TREES[draw.integers(3)]
    names = (*(share.name for share in owners.shares), "stranger")
    work = workload(
        "one CPU each", np.sort(draw.integers(0, span, count)).astype(float), np.ones(count, dtype=np.int64),
        draw.integers(1, 300, count).astype(float), accounts=names, account=draw.integers(0, len(names), count),
        way=np.full(count, way), memory=np.full(count, stop),
    )  # fmt: skip
    link = Link(together=1.0)
    costs = CostModel(kill=stop, write=link, swap_out=link, latency=float(draw.integers(0, 3)) if stop else 0.0)
    return Setting(work, Machine(int(draw.integers(2, 13))), costs=costs, rules=rules(owners, quantum))


def instants(outcome: Outcome) -> Floats:
    """All times at which anything changes but the last one."""
    segments = outcome.segments
    return np.unique(np.concatenate((outcome.workload.submit, segments.begin, segments.end)))[:-1]


def held(outcome: Outcome, now: float, jobs: Ints | None = None) -> int:
    """CPUs that are held just after ``now``, by these jobs."""
    segments = outcome.segments
    chosen = (segments.begin <= now) & (now < segments.end)
    if jobs is not None:
        chosen &= np.isin(segments.job, jobs)
    return int(outcome.workload.cpus[segments.job[chosen]].sum())


# -- always ---
@pytest.mark.parametrize("nodes", [False, True])
def test_no_cpu_is_used_twice_and_no_job_is_lost(nodes: bool) -> None:
    for seed in SEEDS if not nodes else SEEDS[:60]:
        outcome = omfs(random_setting(seed, nodes=nodes))
        assert all(held(outcome, now) <= outcome.machine.cpus for now in instants(outcome))
        assert not np.isnan(outcome.finish[~outcome.rejected]).any()
        assert np.isnan(outcome.start[outcome.rejected]).all()
        assert (outcome.start[~outcome.rejected] >= outcome.workload.submit[~outcome.rejected]).all()


def test_every_second_that_a_job_needs_is_worked_exactly_once() -> None:
    """WORK adds up to the run time, whatever was lost besides; a job's stretches never overlap."""
    for seed in SEEDS:
        outcome = omfs(random_setting(seed))
        segments = outcome.segments
        work = segments.use == Use.WORK
        worked = np.bincount(
            segments.job[work], weights=(segments.end - segments.begin)[work], minlength=len(outcome.run)
        )
        np.testing.assert_allclose(worked[~outcome.rejected], outcome.run[~outcome.rejected])
        order = np.lexsort((segments.begin, segments.job))
        follows = segments.job[order][1:] == segments.job[order][:-1]
        assert (segments.begin[order][1:] >= segments.end[order][:-1])[follows].all()


# -- the stops ---
def decisions(trail: Trail) -> list[tuple[float, int, list[int]]]:
    """When, for whom, and who was stopped, in order."""
    log = zip(trail.stop_at.tolist(), trail.beneficiary.tolist(), trail.victim.tolist(), strict=True)
    return [(at, job, [v for _, _, v in group]) for (at, job), group in groupby(log, key=lambda entry: entry[:2])]


def used_at_most(setting: Setting, case: Case, trail: Trail, number: int) -> Ints:
    """CPUs that each entity may have used when a decision was made: of all jobs that ran at that instant, apart from
    those for which a stop was under way, and of those for whom it was."""
    now = decisions(trail)[number][0]
    segments, tree_ = trail.segments, setting.rules.tree
    there = set(segments.job[(segments.begin <= now) & (segments.end >= now)].tolist())
    for at, beneficiary, victims in decisions(trail)[:number]:
        begins = segments.begin[(segments.job == beneficiary) & (segments.begin >= at)]
        if len(begins) and begins.min() > now:
            there = (there - set(victims)) | {beneficiary}
    used = np.zeros(len(tree_.entities), dtype=np.int64)
    for job in there:
        used[list(tree_.entities[case.leaf[job]].path)] += setting.workload.cpus[job]
    return used


def test_no_stop_takes_from_an_account_at_or_below_its_entitlement() -> None:
    """Also the last one of a set that is taken of an account, the largest one, is taken while it is above."""
    seen = 0
    for seed in SEEDS:
        setting = random_setting(seed)
        case = case_of(setting)
        trail = trail_by_kernel(setting, case)
        for number, (_, beneficiary, victims) in enumerate(decisions(trail)):
            if setting.workload.urgent[beneficiary] and setting.rules.urgent_may_take_entitled:
                continue
            used = used_at_most(setting, case, trail, number)
            for leaf in {int(case.leaf[victim]) for victim in victims}:
                cpus = [int(setting.workload.cpus[victim]) for victim in victims if case.leaf[victim] == leaf]
                assert used[leaf] - sum(cpus) + max(cpus) > case.entitled[leaf]
                seen += 1
    assert seen > 50


def test_every_stop_lets_its_beneficiary_start() -> None:
    """It starts when its victims are gone, or, where it counts on what a stop before frees as well, when those are."""
    seen = 0
    for seed in SEEDS:
        setting = random_setting(seed)
        trail = trail_by_kernel(setting, case_of(setting))
        segments, gone_by = trail.segments, 0.0
        for at, beneficiary, victims in decisions(trail):
            for victim in victims:
                ends = segments.end[(segments.job == victim) & (segments.end >= at) & (segments.begin <= at)]
                stops = segments.end[
                    (segments.job == victim) & (segments.use == Use.STOP) & (segments.begin >= at)
                    & (segments.begin <= at + setting.costs.latency)
                ]  # fmt: skip
                gone_by = max(gone_by, *ends.tolist(), *stops.tolist(), at)
            begins = segments.begin[(segments.job == beneficiary) & (segments.begin >= at)]
            assert len(begins) or setting.workload.run[beneficiary] == 0
            assert not len(begins) or begins.min() <= gone_by
            seen += 1
    assert seen > 50


@pytest.mark.parametrize("quantum", [0.0, 20.0])
def test_with_a_fixed_set_of_jobs_stops_cease(quantum: float) -> None:
    """Nothing comes after second 30 and nothing ends before second 1,000,000; nobody is stopped after 30 + (quantum +
    stop) times the number of jobs. Most would do with far less."""
    stops = 0
    for seed in SEEDS:
        setting = random_setting(seed, jobs=20)
        work = replace(
            setting.workload, submit=np.minimum(setting.workload.submit, 30.0), run=np.full(len(setting.workload), 1e6),
            limit=np.full(len(setting.workload), np.inf),
        )  # fmt: skip
        endless = replace(setting, workload=work, rules=rules(setting.rules.tree, quantum))
        case = case_of(endless)
        trail = trail_by_kernel(endless, case)
        early = trail.stop_at[trail.stop_at < 1e6]
        longest = endless.costs.latency + case.costs.stop.sum() + case.costs.queueing.sum()
        assert not (early > 30 + (quantum + longest) * len(work)).any()
        assert len(early) <= len(work) ** 2
        stops += len(early)
    assert stops > 100


# -- what an account gets ---
@pytest.mark.parametrize("way", [Way.KILL, Way.CHECKPOINT, Way.SWAP])
def test_an_account_with_demand_has_its_entitlement_within_a_quantum_and_a_stop(way: Way) -> None:
    """Where jobs are of one CPU each and all may be stopped, none are urgent, and neither stops nor swap area are
    limited: an account that all the while has at least as many jobs as it owns CPUs has them all after that time. A job
    that is just being stopped cannot run elsewhere, so it does not count as one that it has."""
    quantum, stop, seen = 20.0, 5.0, 0
    for seed in SEEDS[:150]:
        setting = unit_jobs(seed, quantum, stop, way)
        outcome, case = omfs(setting), case_of(setting)
        trail = trail_by_kernel(setting, case)
        takes = setting.costs.latency + stop
        times = instants(outcome)
        for leaf in sorted(set(case.leaf.tolist())):
            jobs, owns = np.flatnonzero(case.leaf == leaf), int(case.entitled[leaf])
            since = np.inf
            for now in times:
                there = (setting.workload.submit <= now) & (outcome.finish > now)
                there[trail.victim[(trail.stop_at <= now) & (now < trail.stop_at + takes)]] = False
                demand = there[jobs].sum()
                since = min(since, now) if demand >= owns > 0 else np.inf
                if now >= since + quantum + takes:
                    assert held(outcome, now, jobs) >= owns
                    seen += 1
    assert seen > 1000


# -- what the machine gives ---
def test_nothing_is_idle_while_anybody_waits() -> None:
    """Jobs of one CPU, stops that take no time: as many CPUs work as there are jobs, up to the machine. A hard
    partition of the same jobs that are there at that instant uses no more: each account at most what it owns."""
    for seed in SEEDS:
        setting = unit_jobs(seed)
        outcome, case = omfs(setting), case_of(setting)
        for now in instants(outcome):
            there = (setting.workload.submit <= now) & (outcome.finish > now)
            assert held(outcome, now) == min(setting.machine.cpus, int(there.sum()))
            demand = np.bincount(case.leaf[there], minlength=len(case.entitled))
            assert held(outcome, now) >= np.minimum(demand, case.entitled).sum()


def test_no_job_waits_that_would_fit_on_what_is_idle() -> None:
    """Jobs of any width that may be stopped, stops that take no time."""
    for seed in SEEDS:
        setting = replace(random_setting(seed), costs=CostModel())
        work = setting.workload
        setting = replace(setting, workload=replace(work, way=np.where(work.way == Way.NEVER, Way.KILL, work.way)))
        outcome = omfs(setting)
        for now in instants(outcome):
            idle = setting.machine.cpus - held(outcome, now)
            running = outcome.segments.job[(outcome.segments.begin <= now) & (now < outcome.segments.end)]
            waits = (work.submit <= now) & ~(outcome.finish <= now) & ~outcome.rejected
            waits[running] = False
            assert (work.cpus[waits] > idle).all()


def delivered(outcome: Outcome, until: float) -> float:
    """CPU-seconds of work done by then."""
    segments = outcome.segments
    work = segments.use == Use.WORK
    seconds = np.clip(np.minimum(segments.end, until) - segments.begin, 0.0, None)
    return float((seconds * outcome.workload.cpus[segments.job])[work].sum())


@pytest.mark.parametrize("way", [Way.KILL, Way.CHECKPOINT, Way.SWAP])
def test_it_never_lags_behind_a_hard_partition(way: Way) -> None:
    """Jobs of one CPU, stops that take no time, no quantum: by no instant has a hard partition of the machine delivered
    more CPU-seconds to the same jobs. With a quantum an owner waits while a borrower is protected, and a wide job may
    come at a bad moment, so then a partition can be ahead for a while (once in some hundred random workloads)."""
    seen = 0
    for seed in SEEDS:
        setting = unit_jobs(seed, way=way)
        setting = replace(setting, workload=setting.workload.take(~hard_partition(setting).rejected))
        shared, parted = omfs(setting), hard_partition(setting)
        seen += len(setting.workload) > setting.machine.cpus
        for now in np.union1d(instants(shared), instants(parted)):
            assert delivered(shared, now) >= delivered(parted, now) - 1e-6
    assert seen > 100
