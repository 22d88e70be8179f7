"""The OMFS kernel decides what the daemon's own planner decides, on thousands of random small workloads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from omfs_daemon.policy.validator import judge
from omfs_daemon.simulate.engine import planner_engine as engine
from omfs_daemon.simulate.engine.planner_engine import by_plan
from omfs_daemon.simulate.engine.planner_engine import trail_by_plan
from omfs_daemon.simulate.engine.preemption_costs import CostModel
from omfs_daemon.simulate.engine.preemption_costs import Link
from omfs_daemon.simulate.policies.omfs import omfs
from omfs_daemon.simulate.policies.omfs import trail_by_kernel
from omfs_daemon.simulate.engine.omfs_case import Trail
from omfs_daemon.simulate.engine.omfs_case import case_of
from omfs_daemon.simulate.engine.scenario import Machine
from omfs_daemon.simulate.engine.outcome import Use
from omfs_daemon.simulate.engine.scenario import Setting
from omfs_daemon.simulate.workload.workload import Way
from omfs_daemon.simulate.workload.workload import workload
from tests.simulate.omfs_scenarios import random_setting
from tests.simulate.omfs_scenarios import rules
from tests.simulate.omfs_scenarios import tree

BATCHES, IN_A_BATCH = 20, 100


def stretches(trail: Trail) -> list[tuple[int, float, float, int]]:
    columns = (trail.segments.job, trail.segments.begin, trail.segments.end, trail.segments.use)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def assert_same(one: Trail, other: Trail) -> None:
    for name in ("start", "finish", "stops", "stop_at", "victim", "beneficiary"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert stretches(one) == stretches(other)


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the safety gate refuses of the planner's suggestions."""
    refused: list[Any] = []

    def watched(*arguments: Any) -> Any:
        verdict = judge(*arguments)
        refused.extend(verdict.refused)
        return verdict

    monkeypatch.setattr(engine, "judge", watched)
    return refused


@pytest.mark.parametrize("batch", range(BATCHES))
def test_kernel_and_planner_agree(batch: int, refusals: list[Any]) -> None:
    """Start by start, finish by finish, stop by stop, stretch by stretch; and the gate lets all of it pass."""
    stops = 0
    for seed in range(batch * IN_A_BATCH, (batch + 1) * IN_A_BATCH):
        setting = random_setting(seed)
        case = case_of(setting)
        expected = trail_by_plan(setting, case)
        assert_same(trail_by_kernel(setting, case), expected)
        stops += len(expected.victim)
    assert not refusals
    assert stops > 30


@pytest.mark.parametrize("seed", range(3))
def test_they_agree_on_a_deep_queue(seed: int) -> None:
    setting = random_setting(seed + 10_000, jobs=250)
    case = case_of(setting)
    assert_same(trail_by_kernel(setting, case), trail_by_plan(setting, case))


def test_the_same_seed_gives_the_same() -> None:
    one, other = omfs(random_setting(3)), omfs(random_setting(3))
    np.testing.assert_array_equal(one.start, other.start)
    np.testing.assert_array_equal(one.segments.end, other.segments.end)


def test_a_machine_of_nodes_is_simulated_on_nodes() -> None:
    """Five CPUs are two nodes of four there, so two such jobs do not run beside a third one of one CPU."""
    work = workload("three", np.zeros(3), np.array([5, 5, 1]), np.full(3, 10.0))
    flat, on_nodes = omfs(Setting(work, Machine(16))), omfs(Setting(work, Machine(16, 4)))
    assert flat.start.tolist() == [0, 0, 0]
    assert on_nodes.start.tolist() == [0, 0, 10]


# -- single stops, counted by hand ---
def one_stop(way: Way, **costs: Any) -> Setting:
    """bio borrows the whole machine of 4 CPUs at 0; physics wants its half at 10."""
    work = workload(
        "one stop", np.array([0.0, 10.0]), np.array([4, 2]), np.array([100.0, 20.0]),
        accounts=("bio", "physics"), account=np.array([0, 1]), way=np.full(2, way), memory=np.full(2, 80.0),
    )  # fmt: skip
    return Setting(work, Machine(4), costs=CostModel(**costs), rules=rules(tree(bio=50, physics=50)))


def test_a_killed_job_computes_until_the_signal_and_starts_over() -> None:
    outcome = omfs(one_stop(Way.KILL, latency=2.0, kill=3.0))
    assert outcome.start.tolist() == [0, 15]
    assert outcome.finish.tolist() == [135, 35]  # it comes back at 35, when 4 CPUs are idle again
    uses = [(0, 0.0, 12.0, Use.LOST), (0, 12.0, 15.0, Use.STOP), (0, 35.0, 135.0, Use.WORK), (1, 15.0, 35.0, Use.WORK)]
    segments = outcome.segments
    assert sorted(zip(segments.job, segments.begin, segments.end, segments.use, strict=True)) == uses


@pytest.mark.parametrize("way", [Way.CHECKPOINT, Way.SWAP])
def test_a_kept_job_goes_on_after_it_was_brought_back(way: Way) -> None:
    link = Link(together=10.0)
    outcome = omfs(one_stop(way, latency=2.0, write=link, read=link, swap_out=link, swap_in=link))
    assert outcome.start.tolist() == [0, 20]  # 80 bytes at 10 bytes/s
    assert outcome.finish.tolist() == [40 + 8 + 88, 40]
    segments = outcome.segments
    assert sorted(zip(segments.job, segments.begin, segments.end, segments.use, strict=True)) == [
        (0, 0.0, 12.0, Use.WORK), (0, 12.0, 20.0, Use.STOP), (0, 40.0, 48.0, Use.RESUME), (0, 48.0, 136.0, Use.WORK),
        (1, 20.0, 40.0, Use.WORK),
    ]  # fmt: skip


def test_a_victim_that_ends_before_the_signal_was_not_stopped() -> None:
    outcome = omfs(one_stop(Way.KILL, latency=95.0))
    assert outcome.stops.tolist() == [0, 0]
    assert outcome.start.tolist() == [0, 100]


def test_nobody_is_swapped_out_beyond_the_area() -> None:
    assert omfs(one_stop(Way.SWAP, area=79.0)).stops.sum() == 0
    assert omfs(one_stop(Way.SWAP, area=80.0)).stops.sum() == 1


def test_nobody_is_stopped_inside_its_quantum() -> None:
    setting = one_stop(Way.CHECKPOINT)
    later = Setting(setting.workload, setting.machine, rules=rules(tree(bio=50, physics=50), quantum=30.0))
    assert omfs(later).start.tolist() == [0, 30]


@pytest.mark.parametrize("simulate", [omfs, by_plan])
def test_a_fixed_job_wider_than_its_share_is_rejected(simulate: Any) -> None:
    outcome = simulate(one_stop(Way.NEVER))
    assert outcome.rejected.tolist() == [True, False]
    assert outcome.start[1] == 10
    assert np.isnan(outcome.finish[0])
