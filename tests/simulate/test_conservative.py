"""Conservative backfilling: against a slow replay, against agreed figures, and by its laws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from omfs_daemon.accounting.arrays import Bools
from omfs_daemon.simulate.engine.conventions import Conventions, UserLimits
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.scenario import Machine, Scenario
from omfs_daemon.simulate.policies.conservative import conservative, uncompressed
from omfs_daemon.simulate.workload.workload import workload
from tests.simulate.test_queue_policies import HPC2N, KTH, MACHINES, held_at_most, same, scenario_of
from tests.support import reference, reference_reservations
from tests.support.amounts import sample
from tests.support.random_workloads import Case, cases, random_case
from tests.support.traces import needs_traces, recorded

BOTH = ((conservative, True), (uncompressed, False))
SEEDS = sample(range(1000), 60)


def replays_as_the_slow_one(case: Case, what: object) -> None:
    jobs = reference.jobs_of(case.workload, case.conventions)
    for simulate, compressing in BOTH:
        outcome = simulate(scenario_of(case))
        start, promised = reference_reservations.conservative(jobs, case.cpus, compressing)
        same(outcome, start, (what, compressing))
        assert np.array_equal(outcome.promised, promised, equal_nan=True), (what, compressing)


def everybody(outcome: Outcome) -> Bools:
    return np.ones(len(outcome.start), dtype=bool)


def test_random_workloads_replay_as_the_slow_one_does() -> None:
    for seed in SEEDS:
        replays_as_the_slow_one(random_case(seed), seed)


@given(cases())
def test_drawn_workloads_replay_as_the_slow_one_does(case: Case) -> None:
    replays_as_the_slow_one(case, "drawn")


@pytest.mark.parametrize("simulate", [conservative, uncompressed])
def test_promises_are_kept_on_random_workloads(simulate: Callable[[Scenario], Outcome]) -> None:
    """With exact estimates to the second; with the users' and kill no later. No CPU is used twice."""
    for seed in SEEDS[:500]:
        scenario = scenario_of(random_case(seed))
        exact = simulate(replace(scenario, conventions=Conventions()))
        assert np.array_equal(exact.start, exact.promised, equal_nan=True), seed
        killed = simulate(replace(scenario, conventions=Conventions(estimates=UserLimits())))
        assert (killed.start <= killed.promised)[~killed.rejected].all(), seed
        outcome = simulate(scenario)
        assert held_at_most(outcome, scenario.workload.cpus, everybody(outcome)) <= scenario.machine.cpus, seed
        assert np.array_equal(outcome.start, simulate(scenario).start, equal_nan=True), seed


@needs_traces
def test_hpc2n_gives_the_agreed_wait() -> None:
    jobs = recorded(HPC2N)
    outcome = conservative(Scenario(jobs, Machine(240)))
    assert (outcome.start - jobs.submit).mean() == pytest.approx(3525.7, abs=1)


@needs_traces
@pytest.mark.parametrize(("trace", "cpus", "squeeze"), MACHINES)
def test_promises_are_kept_on_recorded_workloads(trace: str, cpus: int, squeeze: float) -> None:
    """KTH with its arrivals squeezed has a deep queue."""
    jobs = recorded(trace, squeeze, first=5000)
    exact = conservative(Scenario(jobs, Machine(cpus)))
    assert np.array_equal(exact.start, exact.promised, equal_nan=True)
    users = Scenario(jobs, Machine(cpus), Conventions(estimates=UserLimits()))
    killed = conservative(users)
    assert (killed.start <= killed.promised)[~killed.rejected].all()
    for outcome in (exact, killed):
        assert held_at_most(outcome, jobs.cpus, everybody(outcome)) <= cpus
    if trace in (HPC2N, KTH):
        assert np.array_equal(killed.start, conservative(users).start, equal_nan=True)


def test_compression_moves_a_job_up_and_without_it_stays() -> None:
    """The first job ends at 5 instead of 10."""
    times, wide = np.array([0.0, 1.0]), np.array([4, 4])
    jobs = workload("early", times, wide, np.array([5.0, 5.0]), limit=np.array([10.0, 5.0]))
    scenario = Scenario(jobs, Machine(4), Conventions(estimates=UserLimits()))
    assert conservative(scenario).start.tolist() == [0.0, 5.0]
    assert uncompressed(scenario).start.tolist() == [0.0, 10.0]
