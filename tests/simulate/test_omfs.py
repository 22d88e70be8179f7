"""The OMFS kernel decides what the daemon's own planner decides, on thousands of random small workloads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from omfs_daemon.policy.validator import validate
from omfs_daemon.simulate.engine import planner_engine as engine
from omfs_daemon.simulate.engine.omfs_case import Trail, case_of
from omfs_daemon.simulate.engine.outcome import Use
from omfs_daemon.simulate.engine.planner_engine import planner_engine, trail_by_plan
from omfs_daemon.simulate.engine.preemption_costs import CostModel, Link
from omfs_daemon.simulate.engine.scenario import Machine, Scenario
from omfs_daemon.simulate.policies.omfs import omfs, trail_by_kernel
from omfs_daemon.simulate.workload.workload import PreemptMode, workload
from tests.support.amounts import sample
from tests.support.omfs_scenarios import random_scenario, rules, tree

BATCHES, IN_A_BATCH = 20, 100


def segment_rows(trail: Trail) -> list[tuple[int, float, float, int]]:
    columns = (trail.segments.job, trail.segments.begin, trail.segments.end, trail.segments.use)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def assert_same(one: Trail, other: Trail) -> None:
    for name in ("start", "finish", "preemptions", "preempted_at", "victim", "preemptor"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert segment_rows(one) == segment_rows(other)


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the validator refuses of the planner's suggestions."""
    refused: list[Any] = []

    def watched(*arguments: Any) -> Any:
        verdict = validate(*arguments)
        refused.extend(verdict.refused)
        return verdict

    monkeypatch.setattr(engine, "validate", watched)
    return refused


@pytest.mark.parametrize("batch", sample(range(BATCHES), 4))
def test_kernel_and_planner_agree(batch: int, refusals: list[Any]) -> None:
    """Start by start, finish by finish, preemption by preemption, segment by segment; the validator accepts all."""
    preemptions = 0
    for seed in range(batch * IN_A_BATCH, (batch + 1) * IN_A_BATCH):
        scenario = random_scenario(seed)
        case = case_of(scenario)
        expected = trail_by_plan(scenario, case)
        assert_same(trail_by_kernel(scenario, case), expected)
        preemptions += len(expected.victim)
    assert not refusals
    assert preemptions > 30


@pytest.mark.parametrize("seed", range(3))
def test_they_agree_on_a_deep_queue(seed: int) -> None:
    scenario = random_scenario(seed + 10_000, jobs=250)
    case = case_of(scenario)
    assert_same(trail_by_kernel(scenario, case), trail_by_plan(scenario, case))


def test_the_same_seed_gives_the_same() -> None:
    one, other = omfs(random_scenario(3)), omfs(random_scenario(3))
    np.testing.assert_array_equal(one.start, other.start)
    np.testing.assert_array_equal(one.segments.end, other.segments.end)


def test_a_machine_of_nodes_is_simulated_on_nodes() -> None:
    """Five CPUs are two nodes of four there, so two such jobs do not run beside a third one of one CPU."""
    work = workload("three", np.zeros(3), np.array([5, 5, 1]), np.full(3, 10.0))
    flat, on_nodes = omfs(Scenario(work, Machine(16))), omfs(Scenario(work, Machine(16, 4)))
    assert flat.start.tolist() == [0, 0, 0]
    assert on_nodes.start.tolist() == [0, 0, 10]


# -- single preemptions, counted by hand ---
def one_preemption(mode: PreemptMode, **costs: Any) -> Scenario:
    """bio borrows the whole machine of 4 CPUs at 0; physics wants its half at 10."""
    work = workload(
        "one preemption", np.array([0.0, 10.0]), np.array([4, 2]), np.array([100.0, 20.0]),
        accounts=("bio", "physics"), account=np.array([0, 1]), mode=np.full(2, mode), memory=np.full(2, 80.0),
    )  # fmt: skip
    return Scenario(work, Machine(4), costs=CostModel(**costs), rules=rules(tree(bio=50, physics=50)))


def test_a_killed_job_computes_until_the_signal_and_starts_over() -> None:
    outcome = omfs(one_preemption(PreemptMode.KILL, latency=2.0, kill=3.0))
    assert outcome.start.tolist() == [0, 15]
    assert outcome.finish.tolist() == [135, 35]  # it restarts at 35, when 4 CPUs are idle again
    uses = [
        (0, 0.0, 12.0, Use.LOST),
        (0, 12.0, 15.0, Use.PREEMPTION),
        (0, 35.0, 135.0, Use.WORK),
        (1, 15.0, 35.0, Use.WORK),
    ]
    segments = outcome.segments
    assert sorted(zip(segments.job, segments.begin, segments.end, segments.use, strict=True)) == uses


@pytest.mark.parametrize("mode", [PreemptMode.CHECKPOINT, PreemptMode.SWAP])
def test_a_kept_job_continues_after_its_resume(mode: PreemptMode) -> None:
    link = Link(together=10.0)
    outcome = omfs(one_preemption(mode, latency=2.0, write=link, read=link, swap_out=link, swap_in=link))
    assert outcome.start.tolist() == [0, 20]  # 80 bytes at 10 bytes/s
    assert outcome.finish.tolist() == [40 + 8 + 88, 40]
    segments = outcome.segments
    assert sorted(zip(segments.job, segments.begin, segments.end, segments.use, strict=True)) == [
        (0, 0.0, 12.0, Use.WORK), (0, 12.0, 20.0, Use.PREEMPTION), (0, 40.0, 48.0, Use.RESUME),
        (0, 48.0, 136.0, Use.WORK), (1, 20.0, 40.0, Use.WORK),
    ]  # fmt: skip


def test_a_victim_that_ends_before_the_signal_was_not_preempted() -> None:
    outcome = omfs(one_preemption(PreemptMode.KILL, latency=95.0))
    assert outcome.preemptions.tolist() == [0, 0]
    assert outcome.start.tolist() == [0, 100]


def test_nobody_is_swapped_out_beyond_the_area() -> None:
    assert omfs(one_preemption(PreemptMode.SWAP, area=79.0)).preemptions.sum() == 0
    assert omfs(one_preemption(PreemptMode.SWAP, area=80.0)).preemptions.sum() == 1


def test_no_job_is_preempted_inside_its_quantum() -> None:
    scenario = one_preemption(PreemptMode.CHECKPOINT)
    later = Scenario(scenario.workload, scenario.machine, rules=rules(tree(bio=50, physics=50), quantum=30.0))
    assert omfs(later).start.tolist() == [0, 30]


@pytest.mark.parametrize("simulate", [omfs, planner_engine])
def test_a_non_preemptible_job_wider_than_its_entitlement_is_rejected(simulate: Any) -> None:
    outcome = simulate(one_preemption(PreemptMode.NEVER))
    assert outcome.rejected.tolist() == [True, False]
    assert outcome.start[1] == 10
    assert np.isnan(outcome.finish[0])
