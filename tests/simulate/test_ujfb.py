"""UJFB: against a slow replay of its rules, and by its laws, on random and on recorded workloads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.accounting.arrays import Floats
from omfs_daemon.simulate.engine.conventions import Conventions, UserLimits
from omfs_daemon.simulate.engine.outcome import Outcome, Use
from omfs_daemon.simulate.engine.preemption_costs import CostModel, Link, Spread, simulated_costs
from omfs_daemon.simulate.engine.scenario import Machine, Scenario
from omfs_daemon.simulate.policies.conservative import conservative
from omfs_daemon.simulate.policies.ujfb import by_slowdown, ujfb
from omfs_daemon.simulate.workload.urgent_jobs import published, with_urgent
from omfs_daemon.simulate.workload.workload import PreemptMode, workload
from tests.simulate.test_queue_policies import LANL, SDSC, held_at_most, scenario_of
from tests.support import reference
from tests.support.amounts import is_soak, sample
from tests.support.random_workloads import Case, cases, random_case
from tests.support.reference_ujfb import Replay
from tests.support.traces import needs_traces, recorded

BOTH = (ujfb, by_slowdown)
SEEDS = sample(range(800), 60)
RECORDED = [(SDSC, "sdsc-ds", 1664), (LANL, "lanl-cm5", 1024), ("sx-ace-2019.swf.gz", "sx-ace", 1024)]

Simulate = Callable[[Scenario], Outcome]


def preempting_scenario(case: Case, seed: int) -> Scenario:
    """The case with preempt modes, sizes and costs. All times are multiples of a quarter of a second, so that sums
    are exact in whatever order they are made."""
    draw = np.random.default_rng([seed, 1])
    count = len(case.workload)
    modes = draw.integers(0, 4, count) if draw.random() < 0.6 else np.full(count, draw.integers(0, 4))
    jobs = replace(
        case.workload,
        submit=quarters(case.workload.submit),
        run=quarters(case.workload.run),
        limit=quarters(case.workload.limit),
        urgent=draw.random(count) < draw.choice([0.0, 0.1, 0.3, 0.6]),
        mode=modes.astype(np.int64),
        memory=draw.choice([0.0, 4, 16, 64], count),
        swap=draw.choice([0.0, 4, 16, 64], count),
    )
    links: list[Link | Spread] = [
        Link(),
        Link(together=1.0),
        Link(together=4.0),
        *(Spread(time, time) for time in (0.0, 2.0, 16.0)),
    ]
    costs = CostModel(
        latency=float(draw.choice([0, 0, 1, 5, 30])),
        kill=float(draw.choice([0, 2])),
        write=Link(together=float(draw.choice([1, 4, inf]))),
        read=Link(together=float(draw.choice([1, 4, inf]))),
        swap_out=links[draw.integers(len(links))],
        swap_in=links[draw.integers(len(links))],
        area=float(draw.choice([inf, inf, 64, 16])),
    )
    return Scenario(jobs, Machine(case.cpus), case.conventions, costs, seed=seed)


def quarters(seconds: Floats) -> Floats:
    rounded: Floats = np.round(seconds * 4) / 4
    return rounded


def replays_as_the_slow_one(scenario: Scenario, what: object) -> int:
    """How often jobs were preempted."""
    jobs = reference.jobs_of(scenario.workload, scenario.conventions)
    costs = simulated_costs(scenario.workload, scenario.costs, scenario.seed)
    for simulate in BOTH:
        outcome = simulate(scenario)
        slow = Replay(jobs, costs, scenario.machine.cpus, simulate is by_slowdown)
        slow.run()
        tasks = [slow.tasks.get(job.index) for job in jobs]
        start, finish = ([getattr(task, name) if task else nan for task in tasks] for name in ("start", "finish"))
        assert np.array_equal(outcome.start, start, equal_nan=True), what
        assert np.array_equal(outcome.finish, finish, equal_nan=True), what
        assert outcome.preemptions.tolist() == [task.preemptions if task else 0 for task in tasks], what
        part = outcome.segments
        columns = (column.tolist() for column in (part.job, part.begin, part.end, part.use))
        assert sorted(zip(*columns, strict=True)) == sorted(slow.segments), what
    return int(outcome.preemptions.sum())


def test_random_workloads_replay_as_the_slow_one_does() -> None:
    preemptions = sum(replays_as_the_slow_one(preempting_scenario(random_case(seed), seed), seed) for seed in SEEDS)
    assert preemptions > (500 if is_soak() else len(SEEDS) // 2)


@given(cases(), st.integers(0, 10_000))
def test_drawn_workloads_replay_as_the_slow_one_does(case: Case, seed: int) -> None:
    replays_as_the_slow_one(preempting_scenario(case, seed), "drawn")


# Laws


def keeps_the_laws(outcome: Outcome, what: object) -> None:
    """No CPU is used twice, swapped-out jobs resume on their own CPUs, urgent jobs are not preempted, segments
    of a job do not overlap, and its work adds up to its run time."""
    jobs, part = outcome.workload, outcome.segments
    ran = ~outcome.rejected
    assert np.array_equal(outcome.rejected, jobs.cpus > outcome.machine.cpus), what
    assert held_at_most(outcome, jobs.cpus, np.ones(len(jobs), dtype=bool)) <= outcome.machine.cpus, what
    assert not outcome.preemptions[jobs.urgent].any(), what
    assert (outcome.start >= jobs.submit)[ran].all() and (outcome.finish >= outcome.start)[ran].all(), what
    order = np.lexsort((part.begin, part.job))
    job, begin, end = part.job[order], part.begin[order], part.end[order]
    assert (end > begin).all(), what
    follows = job[1:] == job[:-1]
    assert (begin[1:] >= end[:-1])[follows].all(), what
    worked = np.bincount(part.job, (part.end - part.begin) * (part.use == Use.WORK), len(jobs))
    assert worked[ran] == pytest.approx(outcome.run[ran], rel=1e-9, abs=1e-6), what


@pytest.mark.parametrize("simulate", BOTH)
def test_laws_hold_on_random_workloads(simulate: Simulate) -> None:
    """With costs drawn from a range, too, and the same seed gives the same."""
    for seed in SEEDS:
        scenario = preempting_scenario(random_case(seed), seed)
        scenario = replace(scenario, costs=replace(scenario.costs, swap_out=Spread(0.2, 2.0), swap_in=Spread(0.1, 2.0)))
        outcome, again = simulate(scenario), simulate(scenario)
        keeps_the_laws(outcome, seed)
        assert np.array_equal(outcome.finish, again.finish, equal_nan=True), seed


@pytest.mark.parametrize("simulate", BOTH)
def test_without_urgent_jobs_it_is_conservative_backfilling(simulate: Simulate) -> None:
    for seed in SEEDS:
        scenario = scenario_of(random_case(seed))
        calm = replace(
            scenario, workload=replace(scenario.workload, urgent=np.zeros(len(scenario.workload), dtype=bool))
        )
        assert np.array_equal(simulate(calm).start, conservative(calm).start, equal_nan=True), seed


def delayed_by_preemption_only(outcome: Outcome, most: float) -> int:
    """Urgent jobs that come while no other is there, and that the machine can hold, wait at most so long, where
    everything may be preempted; how many came so."""
    jobs, alone = outcome.workload, 0
    urgent = np.flatnonzero(jobs.urgent & ~outcome.rejected)
    for job in urgent:
        others = urgent[urgent != job]
        if ((jobs.submit[others] <= jobs.submit[job]) & (outcome.finish[others] >= jobs.submit[job])).any():
            continue
        alone += 1
        assert outcome.start[job] - jobs.submit[job] <= most + 1e-6, job
    return alone


def test_urgent_jobs_are_delayed_only_by_urgent_ones_or_by_preemption() -> None:
    """All regular jobs can be killed, which takes 2 s after a latency of 5 s, or swapped in 2 s each at once."""
    alone = 0
    for seed in SEEDS:
        for mode, costs in (
            (PreemptMode.KILL, CostModel(5.0, kill=2.0)),
            (PreemptMode.SWAP, CostModel(5.0, swap_out=Spread(2.0, 2.0))),
        ):
            scenario = preempting_scenario(random_case(seed), seed)
            jobs = replace(scenario.workload, mode=np.full(len(scenario.workload), mode))
            for simulate in BOTH:
                alone += delayed_by_preemption_only(simulate(replace(scenario, workload=jobs, costs=costs)), 7.0 + 7.0)
    assert alone > 5 * len(SEEDS) // 4


@needs_traces
@pytest.mark.parametrize(("trace", "name", "cpus"), RECORDED)
@pytest.mark.parametrize("estimates", [None, UserLimits()])
def test_laws_hold_on_recorded_workloads(trace: str, name: str, cpus: int, estimates: UserLimits | None) -> None:
    """With the published urgent jobs, and swaps as in the published experiment: 0.2 to 2 s out, 0.1 to 2 s in."""
    jobs = with_urgent(recorded(trace), published(name))
    costs = CostModel(swap_out=Spread(0.2, 2.0), swap_in=Spread(0.1, 2.0))
    outcome = ujfb(Scenario(jobs, Machine(cpus), Conventions(estimates=estimates), costs))
    keeps_the_laws(outcome, name)
    assert outcome.preemptions.sum() > 0
    assert delayed_by_preemption_only(outcome, 2.0) > 5


# Smallest workloads


def small(
    *rows: tuple[float, int, float, float, bool], mode: PreemptMode = PreemptMode.SWAP, latency: float = 0.0
) -> Scenario:
    """Jobs as (submit, CPUs, run, limit, urgent) on 4 CPUs, with the users' estimates, which do not end them."""
    submit, cpus, run, limit, urgent = (np.array(column) for column in zip(*rows, strict=True))
    jobs = workload("small", submit, cpus, run, limit=limit, urgent=urgent, mode=np.full(len(rows), mode))
    return Scenario(jobs, Machine(4), Conventions(UserLimits(), kill=False), CostModel(latency=latency))


def test_a_job_of_no_length_takes_no_cpu_from_those_that_start_with_it() -> None:
    rows = small(
        (0.0, 4, 0.0, 0.0, False), (0.0, 4, 10.0, 10.0, False), (1.0, 4, 10.0, 10.0, True), mode=PreemptMode.NEVER
    )
    assert ujfb(rows).start.tolist() == [0.0, 0.0, 10.0]


def test_overdue_jobs_are_corrected_by_growing_steps() -> None:
    """At 72 the first job is expected to end at 310, so that the last one delays nobody."""
    rows = small((0.0, 3, 1000.0, 10.0, False), (71.0, 4, 5.0, 5.0, False), (72.0, 1, 100.0, 100.0, False))
    assert ujfb(rows).start.tolist() == [0.0, 1000.0, 72.0]


def test_a_victim_whose_expected_end_passes_before_the_signal_still_needs_time() -> None:
    rows = small((0.0, 4, 1000.0, 10.0, False), (5.0, 4, 5.0, 5.0, True), (6.0, 4, 9.0, 9.0, False), latency=30.0)
    assert ujfb(rows).start.tolist() == [0.0, 35.0, 1005.0]


def test_swapped_jobs_keep_their_cpus_and_a_later_urgent_job_uses_those_that_nobody_does() -> None:
    """One CPU of the victim's four is lent at 1, two more at 2; it goes on when both are back."""
    rows = small((0.0, 4, 10.0, 10.0, False), (1.0, 1, 4.0, 4.0, True), (2.0, 2, 6.0, 6.0, True))
    outcome = ujfb(rows)
    assert outcome.start.tolist() == [0.0, 1.0, 2.0]
    assert outcome.finish.tolist() == [17.0, 5.0, 8.0]
    assert outcome.preemptions.tolist() == [1, 0, 0]


@pytest.mark.parametrize("kill", [True, False])
def test_jobs_that_are_preempted_thousands_of_times_reach_their_end(kill: bool) -> None:
    """Each preemption leaves void entries behind in the kernel's lists of what comes next."""
    regular, urgent = 5, 3000
    submit = np.concatenate((np.zeros(regular), 10.0 * np.arange(1, urgent + 1)))
    run = np.concatenate((np.full(regular, 1_000_000.0), np.ones(urgent)))
    limit = np.concatenate((np.full(regular, 1_000_000.0 if kill else 500.0), np.ones(urgent)))
    cpus = np.concatenate((np.ones(regular, np.int64), np.full(urgent, regular)))
    jobs = workload("often", submit, cpus, run, limit=limit, urgent=np.arange(regular + urgent) >= regular)
    found = ujfb(Scenario(jobs, Machine(regular), Conventions(UserLimits(), kill=kill)))
    assert found.preemptions.tolist() == [urgent] * regular + [0] * urgent
    assert np.array_equal(found.start[regular:], submit[regular:])
    assert found.finish[:regular].tolist() == [1_000_000.0 + urgent] * regular
