"""Run times that are learned under policies that preempt: against slow replays, and by their laws."""

from __future__ import annotations

from dataclasses import replace
from math import nan
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from omfs_daemon.cli.main import app
from omfs_daemon.errors import ConfigError
from omfs_daemon.predict.prediction import HowEnded
from omfs_daemon.predict.predictor_table import new_predictor
from omfs_daemon.simulate.engine.conventions import Conventions, UserLimits
from omfs_daemon.simulate.engine.omfs_case import case_of
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.places import layout_named
from omfs_daemon.simulate.engine.planner_engine import trail_by_plan
from omfs_daemon.simulate.engine.preemption_costs import CostModel, Spread, simulated_costs
from omfs_daemon.simulate.engine.realtime_setting import RealtimeSetting
from omfs_daemon.simulate.engine.scenario import Machine, Scenario
from omfs_daemon.simulate.policies.omfs import trail_by_kernel
from omfs_daemon.simulate.policies.policy_table import policy_named
from omfs_daemon.simulate.policies.run_predictor import LEARNING
from omfs_daemon.simulate.workload.workload import workload
from tests.simulate.test_omfs import assert_same
from tests.simulate.test_ujfb import preempting_scenario
from tests.support.amounts import sample
from tests.support.omfs_scenarios import random_scenario
from tests.support.random_workloads import random_case
from tests.support.reference_learned_ujfb import LearnedReplay
from tests.support.reference_predictions import features, predicted_seconds

SEEDS = sample(range(400), 20)
FOR_VICTIMS_ONLY = (False, True)


def with_users(scenario: Scenario, seed: int, learning: str, only: bool = False) -> Scenario:
    """Three users with two names; and places, for the policies that need them."""
    draw, count = np.random.default_rng([seed, 2]), len(scenario.workload)
    jobs = replace(
        scenario.workload,
        users=("ann", "bob", "eve"),
        user=draw.integers(0, 3, count),
        job_names=("a", "b"),
        job_name=draw.integers(0, 2, count),
        realtime=draw.random(count) < 0.2,
    )
    conventions = Conventions(kill=scenario.conventions.kill, learning=learning, for_victims_only=only)
    setting = RealtimeSetting(layout=layout_named("aligned:1", scenario.machine.cpus))
    return replace(scenario, workload=jobs, conventions=conventions, realtime=setting)


def simulated(policy: str, scenario: Scenario) -> Outcome:
    return policy_named(policy).simulate(scenario)


@pytest.mark.parametrize("learning", LEARNING)
def test_the_omfs_kernel_chooses_the_victims_that_the_planner_does(learning: str) -> None:
    preemptions = 0
    for seed in SEEDS:
        scenario = with_users(random_scenario(seed), seed, learning)
        case = case_of(scenario)
        expected, found = trail_by_plan(scenario, case), trail_by_kernel(scenario, case)
        assert_same(found, expected)
        assert found.estimate is not None and expected.estimate is not None
        ran = ~np.isnan(found.start)
        np.testing.assert_allclose(found.estimate[ran], expected.estimate[ran], rtol=1e-12)
        preemptions += len(expected.victim)
    assert preemptions > len(SEEDS) // 4


@pytest.mark.parametrize("only", FOR_VICTIMS_ONLY)
@pytest.mark.parametrize("learning", LEARNING)
def test_ujfb_replays_as_the_slow_one_does(learning: str, only: bool) -> None:
    preemptions = 0
    for seed in SEEDS:
        scenario = with_users(preempting_scenario(random_case(seed), seed), seed, learning, only)
        costs = simulated_costs(scenario.workload, scenario.costs, scenario.seed)
        for name in ("ujfb", "ujfb-slowdown"):
            outcome = simulated(name, scenario)
            slow = LearnedReplay(scenario, costs, name == "ujfb-slowdown")
            slow.run()
            tasks = [slow.tasks.get(index) for index in range(len(scenario.workload))]
            for column in ("start", "finish"):
                expected = [getattr(task, column) if task else nan for task in tasks]
                np.testing.assert_allclose(getattr(outcome, column), expected, rtol=1e-9, err_msg=f"{name} {seed}")
            assert outcome.preemptions.tolist() == [task.preemptions if task else 0 for task in tasks], (name, seed)
            preemptions += int(outcome.preemptions.sum())
    assert preemptions > len(SEEDS) // 4


def overdue_at_the_signal() -> Scenario:
    """Ann's second job (limit 300 s, predicted 100 s as the first one ran) starts at 100. An urgent one comes at 255,
    5 s before the job is corrected, and signals at 285: 185 s are done, and it may need 115 more, from 290 on."""
    rows = (
        # submit, CPUs, run, limit, urgent, user
        (0.0, 4, 100.0, 300.0, False, 0),
        (100.0, 3, 290.0, 300.0, False, 0),
        (255.0, 4, 5.0, 5.0, True, 1),
        (291.0, 4, 10.0, 10.0, False, 2),
        (292.0, 1, 115.0, 115.0, False, 3),
        (293.0, 1, 110.0, 110.0, False, 4),
    )
    submit, cpus, run, limit, urgent, user = (np.array(column) for column in zip(*rows, strict=True))
    users = ("ann", "bob", "cem", "dee", "eve")
    jobs = workload("overdue", submit, cpus, run, limit=limit, urgent=urgent, users=users, user=user)
    costs = CostModel(latency=30.0, swap_out=Spread(0.0, 0.0), swap_in=Spread(0.0, 0.0))
    return Scenario(jobs, Machine(4), Conventions(learning="last2"), costs)


@pytest.mark.parametrize("policy", ["ujfb", "ujfb-slowdown"])
def test_a_victim_that_is_overdue_at_the_signal_needs_what_its_limit_leaves(policy: str) -> None:
    """It is expected to end at 405: a job of 110 s fits beside it before the wide one, and one of 115 s does not."""
    scenario = overdue_at_the_signal()
    outcome = simulated(policy, scenario)
    assert outcome.estimate is not None and outcome.estimate[1] == 100
    assert outcome.preemptions.tolist() == [0, 1, 0, 0, 0, 0]
    assert outcome.start.tolist() == [0.0, 100.0, 285.0, 403.0, 413.0, 293.0]
    assert outcome.finish[1] == 395
    slow = LearnedReplay(scenario, simulated_costs(scenario.workload, scenario.costs, 0), policy == "ujfb-slowdown")
    slow.run()
    assert [slow.tasks[index].start for index in range(6)] == outcome.start.tolist()


@pytest.mark.parametrize("policy", ["ujfb", "ujfb-easy", "omfs", "realtime-replan", "realtime-replan-only"])
def test_what_is_predicted_is_learned_from_the_jobs_that_have_ended(policy: str) -> None:
    for seed in SEEDS[:6]:
        scenario = with_users(random_scenario(seed), seed, "similar")
        outcome, jobs = simulated(policy, scenario), scenario.workload
        assert outcome.estimate is not None
        ended = np.lexsort((np.arange(len(jobs)), outcome.finish))
        for job in np.flatnonzero(~np.isnan(outcome.start)).tolist():
            predictor = new_predictor("similar")
            for other in ended[outcome.finish[ended] <= jobs.submit[job]].tolist():
                predictor.ended(features(jobs, other), float(outcome.run[other]), HowEnded.BY_ITSELF)
            assert outcome.estimate[job] == pytest.approx(predicted_seconds(predictor, features(jobs, job))), (
                seed,
                job,
            )


@pytest.mark.parametrize("policy", ["ujfb", "ujfb-easy", "realtime-replan"])
def test_predictions_for_victims_change_nothing_where_nobody_is_preempted(policy: str) -> None:
    for seed in SEEDS[:6]:
        scenario = with_users(random_scenario(seed), seed, "last2", only=True)
        scenario = replace(scenario, workload=replace(scenario.workload, urgent=np.zeros(len(scenario.workload), bool)))
        if policy == "realtime-replan":
            terms = replace(scenario.realtime.terms, victim_max=(-1.0,) * 4)
            scenario = replace(scenario, realtime=replace(scenario.realtime, terms=terms))
        limits = replace(scenario, conventions=Conventions(UserLimits(), scenario.conventions.kill))
        one, other = simulated(policy, scenario), simulated(policy, limits)
        assert np.array_equal(one.start, other.start, equal_nan=True), seed


def test_they_are_refused_where_they_would_mean_nothing(tmp_path: Path) -> None:
    scenario = with_users(random_scenario(1), 1, "last2", only=True)
    with pytest.raises(ConfigError, match="easy preempts nobody"):
        simulated("easy", scenario)
    for options, said in (
        (("--estimates", "user", "--estimates-for", "victims"), "needs --estimates that are learned: mean"),
        (("--estimates", "last2", "--estimates-for", "some"), "must be all or victims"),
    ):
        arguments = ["simulate", "--policy", "ujfb", "--generate", "10", "--procs", "4", *options]
        done = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path)])
        assert done.exit_code == 2
        assert said in " ".join(done.output.split())
