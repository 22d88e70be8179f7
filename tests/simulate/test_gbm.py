"""The trained predictor: in simulations against a plain one, its training by LightGBM itself, and its laws."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from omfs_daemon.cli.main import app
from omfs_daemon.errors import ConfigError, FormatError
from omfs_daemon.predict import gbm_training
from omfs_daemon.predict.boosted_trees import BoostedTrees, trees_from_json, trees_of_dumps
from omfs_daemon.predict.features import JobFeatures
from omfs_daemon.predict.gbm import GbmPredictor
from omfs_daemon.predict.gbm_training import SHARES, trained
from omfs_daemon.predict.prediction import HowEnded
from omfs_daemon.predict.run_inputs import INPUTS, target_of
from omfs_daemon.predict.tree_sums import MOST_LEAVES, TreeSums
from omfs_daemon.simulate.engine.conventions import Conventions
from omfs_daemon.simulate.engine.learned_runs import features_in
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.places import layout_named
from omfs_daemon.simulate.engine.realtime_setting import RealtimeSetting
from omfs_daemon.simulate.engine.scenario import Machine, Scenario
from omfs_daemon.simulate.policies.policy_table import POLICIES, policy_named
from omfs_daemon.simulate.policies.run_predictor import LEARNING
from omfs_daemon.simulate.workload.workload import Workload, workload
from tests.support.reference_predictions import PlainTraining, learned_replay, predicted_seconds

CPUS, DAY = 16, 86400.0
CONVENTIONS = Conventions(learning="gbm")


def some_days(seed: int, count: int = 500, days: float = 4.0) -> Workload:
    """Three users, each with a habit; enough jobs that models are trained after the first day or the second."""
    draw = np.random.default_rng(seed)
    user, name = draw.integers(0, 3, count), draw.integers(0, 3, count)
    run = np.array([60.0, 300.0, 800.0])[user] * (1 + name) * draw.lognormal(0, 0.4, count)
    return workload(
        f"days {seed}",
        np.sort(draw.random(count) * days * DAY).round(),
        draw.choice([1, 2, 4, 8, CPUS], count),
        run.round(),
        limit=(run * draw.choice([0.9, 1.5, 4.0], count)).round() + 60,
        users=("ann", "bob", "eve"),
        user=user,
        job_names=("a", "b", "c"),
        job_name=name,
    )


def simulated(policy: str, jobs: Workload) -> Outcome:
    setting = RealtimeSetting(layout=layout_named("aligned:1", CPUS))
    return policy_named(policy).simulate(Scenario(jobs, Machine(CPUS), CONVENTIONS, realtime=setting))


@pytest.mark.parametrize("policy", ["easy", "easy-sjbf"])
@pytest.mark.parametrize("seed", range(3))
def test_each_start_and_estimate_is_that_of_a_plain_replay(policy: str, seed: int) -> None:
    jobs = some_days(seed)
    found = simulated(policy, jobs)
    starts, estimates = learned_replay(jobs, CONVENTIONS, CPUS, policy == "easy-sjbf")
    assert found.estimate is not None
    np.testing.assert_allclose(found.estimate, estimates, rtol=1e-9)
    np.testing.assert_allclose(found.start, starts, rtol=1e-12)
    by_ladder = policy_named(policy).simulate(Scenario(jobs, Machine(CPUS), Conventions(learning="ladder")))
    assert by_ladder.estimate is not None
    is_first_day = jobs.submit < DAY
    assert (found.estimate[is_first_day] == by_ladder.estimate[is_first_day]).all()
    assert (found.estimate[jobs.submit > 3 * DAY] != by_ladder.estimate[jobs.submit > 3 * DAY]).mean() > 0.5


def learned_along(found: Outcome) -> tuple[list[float], int]:
    """What the plain predictor says when each job comes, of what has ended in the schedule by then; how many models."""
    jobs, plain = found.workload, GbmPredictor()
    training, estimates, done = PlainTraining(plain), list[float](), 0
    ended = np.argsort(found.finish, kind="stable").tolist()
    for job in range(len(jobs)):
        while done < len(ended) and found.finish[ended[done]] <= jobs.submit[job]:
            last = ended[done]
            plain.ended(features_in(jobs, last), float(found.run[last]), HowEnded.BY_ITSELF)
            training.ended.append((float(found.finish[last]), last, float(found.run[last])))
            done += 1
        training.arrive(job, features_in(jobs, job), float(jobs.submit[job]))
        estimates.append(predicted_seconds(plain, features_in(jobs, job)))
    return estimates, training.models


@pytest.mark.parametrize(
    "policy", [name for name, policy in POLICIES.items() if policy.learns and not name.startswith("easy")]
)
def test_estimates_are_learned_from_what_has_ended_in_the_schedule(policy: str) -> None:
    jobs = some_days(7, 360, 3.0)
    jobs = replace(jobs, urgent=np.arange(len(jobs)) % 10 == 0, run=jobs.run + 0.5)
    found = simulated(policy, jobs)
    estimates, models = learned_along(found)
    assert models > 0
    assert found.estimate is not None
    np.testing.assert_allclose(found.estimate, estimates, rtol=1e-9)


def test_nothing_that_comes_later_changes_an_estimate() -> None:
    jobs = some_days(11)
    until = 2.5 * DAY
    later, draw = jobs.submit > until, np.random.default_rng(1)
    changed = replace(
        jobs,
        run=np.where(later, draw.permutation(jobs.run) + 1, jobs.run),
        user=np.where(later, draw.integers(0, 3, len(later)), jobs.user),
    )
    before, after = simulated("easy-sjbf", jobs), simulated("easy-sjbf", changed)
    assert before.estimate is not None and after.estimate is not None
    assert (before.estimate[~later] == after.estimate[~later]).all()
    assert (before.start[before.start <= until] == after.start[before.start <= until]).all()
    assert (before.estimate >= 1).all() and (before.estimate <= jobs.limit).all()
    again = simulated("easy-sjbf", jobs)
    assert again.estimate is not None and (again.estimate == before.estimate).all()


def some_rows(count: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(3)
    values = draw.normal(size=(count, INPUTS))
    values[:, 3] = draw.integers(0, 11, count)  # counts, with many ties
    return values, values[:, 0] + (values[:, 3] > 4) * draw.normal(size=count)


def test_the_trees_predict_what_lightgbm_does() -> None:
    import lightgbm

    values, targets = some_rows()
    trees = trained(values, targets)
    settings = gbm_training._SETTINGS
    for at, share in enumerate(SHARES):
        rows = lightgbm.Dataset(values, targets, params=settings)
        booster = lightgbm.train({**settings, "alpha": share}, rows, num_boost_round=gbm_training._ROUNDS)
        own = TreeSums(trees).of(values)[:, at]
        np.testing.assert_allclose(own, booster.predict(values, num_threads=1), rtol=1e-9, atol=1e-12)
        assert np.mean(targets <= own) == pytest.approx(share, abs=0.05)


def test_the_same_rows_give_the_same_trees_and_alike_targets_give_some() -> None:
    values, targets = some_rows()
    assert trained(values, targets).as_json() == trained(values, targets).as_json()
    constant = trained(values, np.full(len(values), 0.25))
    assert TreeSums(constant).of(np.zeros((1, INPUTS)))[0].tolist() == pytest.approx([0.25] * 3)


def walked(trees: BoostedTrees, root: int, values: np.ndarray) -> float:
    at = root
    while trees.left[at] != at:
        at = int(trees.left[at] if values[trees.feature[at]] <= trees.threshold[at] else trees.right[at])
    return float(trees.value[at])


@given(st.integers(0, 10**6), st.integers(1, MOST_LEAVES))
def test_all_jobs_at_once_reach_the_leaves_that_a_walk_down_each_tree_reaches(seed: int, leaves: int) -> None:
    draw = np.random.default_rng(seed)

    def grown(count: int) -> dict[str, object]:
        if count == 1:
            return {"leaf_value": float(draw.normal())}
        left = int(draw.integers(1, count))
        split = {"split_feature": int(draw.integers(3)), "threshold": float(draw.integers(4))}
        return {**split, "left_child": grown(left), "right_child": grown(count - left)}

    trees = trees_of_dumps([[grown(int(draw.integers(1, leaves + 1))) for _ in range(4)] for _ in range(2)], 9)
    values = draw.integers(0, 5, (20, 3)).astype(np.float64)
    plain = [[sum(walked(trees, root, row) for root in roots) for roots in trees.roots.tolist()] for row in values]
    np.testing.assert_allclose(TreeSums(trees).of(values), plain, rtol=1e-12)
    with pytest.raises(FormatError, match="more than 16 leaves"):
        TreeSums(trees_of_dumps([[grown(MOST_LEAVES + 1)]], 9))


def test_a_trained_predictor_keeps_the_rules_of_all() -> None:
    predictor, draw = GbmPredictor(), np.random.default_rng(5)
    jobs = [JobFeatures(user=str(draw.integers(3)), limit=float(draw.choice([60, 600, np.inf]))) for _ in range(600)]
    values, targets = [], []
    for job in jobs:
        assert predictor.predict(job).key.startswith("ladder, as gbm has no model yet: ")
        run = float(min(draw.lognormal(5, 1), job.limit))
        guess, inputs = predictor.inputs(job)
        values.append(inputs)
        targets.append(target_of(guess, run))
        predictor.ended(job, run, HowEnded.AT_LIMIT if run == job.limit else HowEnded.BY_ITSELF)
    predictor.use(trained(np.array(values), np.array(targets)))
    for job in [*jobs, JobFeatures(user="new", limit=5.0), JobFeatures(user="new", limit=0.0), JobFeatures()]:
        found = predictor.predict(job)
        assert 1 <= found.p10 <= found.p50 <= found.p90 <= max(job.limit, 1.0)
        assert 1 <= found.mean <= max(job.limit, 1.0)
        assert found[4:] == ("a model of all", 600)


def test_without_lightgbm_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "gbm" in LEARNING
    monkeypatch.setattr(gbm_training, "find_spec", lambda name: None if name == "lightgbm" else find_spec(name))
    given = "simulate --generate 10 --procs 8 --policy easy --estimates gbm --out"
    done = CliRunner().invoke(app, [*given.split(), str(tmp_path)])
    assert done.exit_code == 2
    assert "predictor gbm: needs LightGBM" in " ".join(done.output.split())
    assert "pip install 'omfs-daemon[predict]'" in " ".join(done.output.split())
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "lightgbm", None)  # as if its library were missing
    monkeypatch.setattr(gbm_training, "find_spec", lambda name: name)
    with pytest.raises(ConfigError, match="predictor gbm: LightGBM cannot be loaded"):
        trained(*some_rows(300))


def test_a_model_is_read_as_it_was_written() -> None:
    trees = trained(*some_rows(300))
    again = trees_from_json(trees.as_json(), INPUTS)
    assert isinstance(again, BoostedTrees)
    assert again.as_json() == trees.as_json()
