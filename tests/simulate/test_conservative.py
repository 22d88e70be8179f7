"""Conservative backfilling: against a slow replay, against agreed figures, and by its laws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from omfs_daemon.simulate.policies.conservative import conservative
from omfs_daemon.simulate.policies.conservative import uncompressed
from omfs_daemon.simulate.engine.conventions import Conventions
from omfs_daemon.simulate.engine.conventions import UserLimits
from omfs_daemon.simulate.engine.scenario import Machine
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.scenario import Setting
from omfs_daemon.simulate.workload.workload import Bools
from omfs_daemon.simulate.workload.workload import workload
from tests.simulate import reference
from tests.simulate import reference_reservations
from tests.simulate.random_workloads import Case
from tests.simulate.random_workloads import cases
from tests.simulate.random_workloads import random_case
from tests.simulate.test_queue_policies import HPC2N
from tests.simulate.test_queue_policies import KTH
from tests.simulate.test_queue_policies import MACHINES
from tests.simulate.test_queue_policies import held_at_most
from tests.simulate.test_queue_policies import same
from tests.simulate.test_queue_policies import setting_of
from tests.simulate.traces import needs_traces
from tests.simulate.traces import recorded

BOTH = ((conservative, True), (uncompressed, False))
SEEDS = range(1000)


def replays_as_the_slow_one(case: Case, what: object) -> None:
    jobs = reference.jobs_of(case.workload, case.conventions)
    for simulate, compressing in BOTH:
        outcome = simulate(setting_of(case))
        start, promised = reference_reservations.conservative(jobs, case.cpus, compressing)
        same(outcome, start, (what, compressing))
        assert np.array_equal(outcome.promised, promised, equal_nan=True), (what, compressing)


def everybody(outcome: Outcome) -> Bools:
    return np.ones(len(outcome.start), dtype=bool)


def test_random_workloads_replay_as_the_slow_one_does() -> None:
    for seed in SEEDS:
        replays_as_the_slow_one(random_case(seed), seed)


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(cases())
def test_drawn_workloads_replay_as_the_slow_one_does(case: Case) -> None:
    replays_as_the_slow_one(case, "drawn")


@pytest.mark.parametrize("simulate", [conservative, uncompressed])
def test_promises_are_kept_on_random_workloads(simulate: Callable[[Setting], Outcome]) -> None:
    """With exact estimates to the second; with the users' and kill no later. No CPU is used twice."""
    for seed in SEEDS[:500]:
        setting = setting_of(random_case(seed))
        exact = simulate(replace(setting, conventions=Conventions()))
        assert np.array_equal(exact.start, exact.promised, equal_nan=True), seed
        killed = simulate(replace(setting, conventions=Conventions(estimates=UserLimits())))
        assert (killed.start <= killed.promised)[~killed.rejected].all(), seed
        outcome = simulate(setting)
        assert held_at_most(outcome, setting.workload.cpus, everybody(outcome)) <= setting.machine.cpus, seed
        assert np.array_equal(outcome.start, simulate(setting).start, equal_nan=True), seed


@needs_traces
def test_hpc2n_gives_the_agreed_wait() -> None:
    jobs = recorded(HPC2N)
    outcome = conservative(Setting(jobs, Machine(240)))
    assert (outcome.start - jobs.submit).mean() == pytest.approx(3525.7, abs=1)


@needs_traces
@pytest.mark.parametrize(("trace", "cpus", "squeeze"), MACHINES)
def test_promises_are_kept_on_recorded_workloads(trace: str, cpus: int, squeeze: float) -> None:
    """KTH with its arrivals squeezed has a deep queue."""
    jobs = recorded(trace, squeeze)
    exact = conservative(Setting(jobs, Machine(cpus)))
    assert np.array_equal(exact.start, exact.promised, equal_nan=True)
    users = Setting(jobs, Machine(cpus), Conventions(estimates=UserLimits()))
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
    setting = Setting(jobs, Machine(4), Conventions(estimates=UserLimits()))
    assert conservative(setting).start.tolist() == [0.0, 5.0]
    assert uncompressed(setting).start.tolist() == [0.0, 10.0]
