"""What OMFS promises (Zvi & Oren, section II), over whole simulated traces, and under which assumptions.

The trails are checked from outside: from the segments in which jobs held CPUs and the log of the preemptions.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.simulate.engine.omfs_case import OmfsCase, Trail, case_of
from omfs_daemon.simulate.engine.outcome import Outcome, Use
from omfs_daemon.simulate.engine.preemption_costs import CostModel, Link
from omfs_daemon.simulate.engine.scenario import Machine, Scenario
from omfs_daemon.simulate.policies.omfs import omfs, trail_by_kernel
from omfs_daemon.simulate.policies.partitioned import hard_partition
from omfs_daemon.simulate.workload.workload import PreemptMode, workload
from tests.support.amounts import sample
from tests.support.omfs_scenarios import TREES, random_scenario, rules

SEEDS = sample(range(300), 50)


def unit_jobs(
    seed: int, quantum: float = 0.0, preemption: float = 0.0, mode: PreemptMode = PreemptMode.SWAP, span: int = 200
) -> Scenario:
    """Jobs of one CPU that may all be preempted, on 2 to 12 CPUs, with two to three accounts at the top."""
    draw = np.random.default_rng(seed)
    count, owners = int(draw.integers(5, 60)), TREES[draw.integers(3)]
    names = (*(entitlement.name for entitlement in owners.entitlements), "stranger")
    work = workload(
        "one CPU each", np.sort(draw.integers(0, span, count)).astype(float), np.ones(count, dtype=np.int64),
        draw.integers(1, 300, count).astype(float), accounts=names, account=draw.integers(0, len(names), count),
        mode=np.full(count, mode), memory=np.full(count, preemption),
    )  # fmt: skip
    link = Link(together=1.0)
    costs = CostModel(
        kill=preemption, write=link, swap_out=link, latency=float(draw.integers(0, 3)) if preemption else 0.0
    )
    return Scenario(work, Machine(int(draw.integers(2, 13))), costs=costs, rules=rules(owners, quantum))


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
    for seed in SEEDS if not nodes else sample(range(60), 20):
        outcome = omfs(random_scenario(seed, nodes=nodes))
        assert all(held(outcome, now) <= outcome.machine.cpus for now in instants(outcome))
        assert not np.isnan(outcome.finish[~outcome.rejected]).any()
        assert np.isnan(outcome.start[outcome.rejected]).all()
        assert (outcome.start[~outcome.rejected] >= outcome.workload.submit[~outcome.rejected]).all()


def test_every_second_that_a_job_needs_is_worked_exactly_once() -> None:
    """WORK adds up to the run time, whatever was lost besides; a job's segments never overlap."""
    for seed in SEEDS:
        outcome = omfs(random_scenario(seed))
        segments = outcome.segments
        work = segments.use == Use.WORK
        worked = np.bincount(
            segments.job[work], weights=(segments.end - segments.begin)[work], minlength=len(outcome.run)
        )
        np.testing.assert_allclose(worked[~outcome.rejected], outcome.run[~outcome.rejected])
        order = np.lexsort((segments.begin, segments.job))
        follows = segments.job[order][1:] == segments.job[order][:-1]
        assert (segments.begin[order][1:] >= segments.end[order][:-1])[follows].all()


# -- the preemptions ---
def decisions(trail: Trail) -> list[tuple[float, int, list[int]]]:
    """When, for whom, and who was preempted, in order."""
    log = zip(trail.preempted_at.tolist(), trail.preemptor.tolist(), trail.victim.tolist(), strict=True)
    return [(at, job, [v for _, _, v in group]) for (at, job), group in groupby(log, key=lambda entry: entry[:2])]


def used_at_most(scenario: Scenario, case: OmfsCase, trail: Trail, number: int) -> Ints:
    """CPUs that each entity may have used when a decision was made: of all jobs that ran at that instant, apart from
    those for which a preemption was under way, and of those for whom it was."""
    now = decisions(trail)[number][0]
    segments, tree_ = trail.segments, scenario.rules.tree
    there = set(segments.job[(segments.begin <= now) & (segments.end >= now)].tolist())
    for at, preemptor, victims in decisions(trail)[:number]:
        begins = segments.begin[(segments.job == preemptor) & (segments.begin >= at)]
        if len(begins) and begins.min() > now:
            there = (there - set(victims)) | {preemptor}
    used = np.zeros(len(tree_.entities), dtype=np.int64)
    for job in there:
        used[list(tree_.entities[case.leaf[job]].path)] += scenario.workload.cpus[job]
    return used


def test_no_preemption_takes_from_an_account_at_or_below_its_entitlement() -> None:
    """Also the last one of a set that is taken of an account, the largest one, is taken while it is above."""
    seen = 0
    for seed in SEEDS:
        scenario = random_scenario(seed)
        case = case_of(scenario)
        trail = trail_by_kernel(scenario, case)
        for number, (_, preemptor, victims) in enumerate(decisions(trail)):
            if scenario.workload.urgent[preemptor] and scenario.rules.urgent_may_take_entitled:
                continue
            used = used_at_most(scenario, case, trail, number)
            for leaf in {int(case.leaf[victim]) for victim in victims}:
                cpus = [int(scenario.workload.cpus[victim]) for victim in victims if case.leaf[victim] == leaf]
                assert used[leaf] - sum(cpus) + max(cpus) > case.entitled[leaf]
                seen += 1
    assert seen > len(SEEDS) // 6


def test_every_preemption_lets_its_preemptor_start() -> None:
    """It starts when its victims are gone, and those of an earlier preemption where it counts on what that frees."""
    seen = 0
    for seed in SEEDS:
        scenario = random_scenario(seed)
        trail = trail_by_kernel(scenario, case_of(scenario))
        segments, gone_by = trail.segments, 0.0
        for at, preemptor, victims in decisions(trail):
            for victim in victims:
                ends = segments.end[(segments.job == victim) & (segments.end >= at) & (segments.begin <= at)]
                preemptions = segments.end[
                    (segments.job == victim) & (segments.use == Use.PREEMPTION) & (segments.begin >= at)
                    & (segments.begin <= at + scenario.costs.latency)
                ]  # fmt: skip
                gone_by = max(gone_by, *ends.tolist(), *preemptions.tolist(), at)
            begins = segments.begin[(segments.job == preemptor) & (segments.begin >= at)]
            assert len(begins) or scenario.workload.run[preemptor] == 0
            assert not len(begins) or begins.min() <= gone_by
            seen += 1
    assert seen > len(SEEDS) // 6


@pytest.mark.parametrize("quantum", [0.0, 20.0])
def test_with_a_fixed_set_of_jobs_preemptions_cease(quantum: float) -> None:
    """Nothing comes after second 30 and nothing ends before second 1,000,000; no job is preempted after 30 + (quantum +
    preemption) times the number of jobs. Most would do with far less."""
    preemptions = 0
    for seed in SEEDS:
        scenario = random_scenario(seed, jobs=20)
        work = replace(
            scenario.workload, submit=np.minimum(scenario.workload.submit, 30.0),
            run=np.full(len(scenario.workload), 1e6), limit=np.full(len(scenario.workload), np.inf),
        )  # fmt: skip
        endless = replace(scenario, workload=work, rules=rules(scenario.rules.tree, quantum))
        case = case_of(endless)
        trail = trail_by_kernel(endless, case)
        early = trail.preempted_at[trail.preempted_at < 1e6]
        longest = endless.costs.latency + case.costs.preemption.sum() + case.costs.queueing.sum()
        assert not (early > 30 + (quantum + longest) * len(work)).any()
        assert len(early) <= len(work) ** 2
        preemptions += len(early)
    assert preemptions > len(SEEDS) // 3


# -- what an account gets ---
@pytest.mark.parametrize("mode", [PreemptMode.KILL, PreemptMode.CHECKPOINT, PreemptMode.SWAP])
def test_an_account_with_demand_has_its_entitlement_within_a_quantum_and_a_preemption(mode: PreemptMode) -> None:
    """Where jobs are of one CPU each and all may be preempted, none are urgent, neither preemptions nor swap area are
    limited: an account that all the while has at least as many jobs as it owns CPUs has them all after that time. A job
    that is just being preempted cannot run elsewhere, so it does not count as one that it has."""
    quantum, preemption, seen = 20.0, 5.0, 0
    for seed in SEEDS[: len(SEEDS) // 2]:
        scenario = unit_jobs(seed, quantum, preemption, mode)
        outcome, case = omfs(scenario), case_of(scenario)
        trail = trail_by_kernel(scenario, case)
        takes = scenario.costs.latency + preemption
        times = instants(outcome)
        for leaf in sorted(set(case.leaf.tolist())):
            jobs, owns = np.flatnonzero(case.leaf == leaf), int(case.entitled[leaf])
            since = np.inf
            for now in times:
                there = (scenario.workload.submit <= now) & (outcome.finish > now)
                there[trail.victim[(trail.preempted_at <= now) & (now < trail.preempted_at + takes)]] = False
                demand = there[jobs].sum()
                since = min(since, now) if demand >= owns > 0 else np.inf
                if now >= since + quantum + takes:
                    assert held(outcome, now, jobs) >= owns
                    seen += 1
    assert seen > 10 * len(SEEDS) // 3


# -- what the machine gives ---
def test_nothing_is_idle_while_anybody_waits() -> None:
    """Jobs of one CPU, preemptions that take no time: as many CPUs work as there are jobs, up to the machine. A hard
    partition of the same jobs that are there at that instant uses no more: each account at most what it owns."""
    for seed in SEEDS:
        scenario = unit_jobs(seed)
        outcome, case = omfs(scenario), case_of(scenario)
        for now in instants(outcome):
            there = (scenario.workload.submit <= now) & (outcome.finish > now)
            assert held(outcome, now) == min(scenario.machine.cpus, int(there.sum()))
            demand = np.bincount(case.leaf[there], minlength=len(case.entitled))
            assert held(outcome, now) >= np.minimum(demand, case.entitled).sum()


def test_no_job_waits_that_would_fit_on_what_is_idle() -> None:
    """Jobs of any width that may be preempted, preemptions that take no time."""
    for seed in SEEDS:
        scenario = replace(random_scenario(seed), costs=CostModel())
        work = scenario.workload
        scenario = replace(
            scenario, workload=replace(work, mode=np.where(work.mode == PreemptMode.NEVER, PreemptMode.KILL, work.mode))
        )
        outcome = omfs(scenario)
        for now in instants(outcome):
            idle = scenario.machine.cpus - held(outcome, now)
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


@pytest.mark.parametrize("mode", [PreemptMode.KILL, PreemptMode.CHECKPOINT, PreemptMode.SWAP])
def test_it_never_lags_behind_a_hard_partition(mode: PreemptMode) -> None:
    """Jobs of one CPU, preemptions that take no time, no quantum: by no instant has a hard partition of the machine
    delivered more CPU-seconds to the same jobs. With a quantum an owner waits while a borrower is protected, and a wide
    job may come at a bad moment; then a partition can be ahead for a while (once in some hundred random workloads)."""
    seen = 0
    for seed in SEEDS:
        scenario = unit_jobs(seed, mode=mode)
        scenario = replace(scenario, workload=scenario.workload.take(~hard_partition(scenario).rejected))
        shared, parted = omfs(scenario), hard_partition(scenario)
        seen += len(scenario.workload) > scenario.machine.cpus
        for now in np.union1d(instants(shared), instants(parted)):
            assert delivered(shared, now) >= delivered(parted, now) - 1e-6
    assert seen > len(SEEDS) // 3
