"""Run times predicted inside a simulation: against the plain predictors, job by job, and by their laws."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from omfs_daemon.cli.main import app
from omfs_daemon.errors import ConfigError
from omfs_daemon.predict.prediction import HowEnded
from omfs_daemon.predict.predictor_table import new_predictor
from omfs_daemon.simulate.engine.conventions import Conventions, GivenEstimates, UserLimits
from omfs_daemon.simulate.engine.learned_runs import features_in
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.scenario import Machine, Scenario
from omfs_daemon.simulate.experiments.predictors.effects import simulate_effects
from omfs_daemon.simulate.experiments.predictors.predictor_cases import PREDICTORS_COMPARED, PredictorResults
from omfs_daemon.simulate.experiments.predictors.predictors import simulate_predictors, write_predictors
from omfs_daemon.simulate.experiments.predictors.starts import BASES, STARTS_UNDER, Past, drawn_moments, start_rows
from omfs_daemon.simulate.options import SimulationOptions
from omfs_daemon.simulate.parameter_sweep import Axes, combinations
from omfs_daemon.simulate.policies.policy_table import policy_named
from omfs_daemon.simulate.policies.run_predictor import LEARNING
from omfs_daemon.simulate.workload.load_trace import load_trace
from omfs_daemon.simulate.workload.source import Source
from omfs_daemon.simulate.workload.table import write_table
from omfs_daemon.simulate.workload.workload import Workload, merged, workload
from tests.support import reference
from tests.support.amounts import sample
from tests.support.random_workloads import random_case
from tests.support.reference_predictions import learned_replay
from tests.support.traces import DIRECTORY, needs_traces, recorded

SEEDS = sample(range(1000), 25)
POLICIES = ("easy", "easy-sjbf")
KTH = "KTH-SP2-1996-2.1-cln.swf.gz"


def some_jobs(seed: int) -> tuple[Workload, int, bool]:
    """A workload of three users with four names, the CPUs of its machine, and whether limits end jobs."""
    case, draw = random_case(seed), np.random.default_rng(seed + 10_000)
    count = len(case.workload)
    jobs = replace(
        case.workload,
        users=("ann", "bob", "eve"),
        user=draw.integers(0, 3, count),
        job_names=("a", "b", "c", "d"),
        job_name=draw.integers(0, 4, count),
    )
    return jobs, case.cpus, case.conventions.kill


def simulated(policy: str, jobs: Workload, cpus: int, conventions: Conventions) -> Outcome:
    return policy_named(policy).simulate(Scenario(jobs, Machine(cpus), conventions))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("predictor", LEARNING)
def test_each_start_and_estimate_is_that_of_the_plain_predictor(policy: str, predictor: str) -> None:
    for seed in SEEDS:
        jobs, cpus, kill = some_jobs(seed)
        conventions = Conventions(kill=kill, learning=predictor)
        found = simulated(policy, jobs, cpus, conventions)
        starts, estimates = learned_replay(jobs, conventions, cpus, policy == "easy-sjbf")
        assert found.estimate is not None
        np.testing.assert_allclose(found.estimate, estimates, rtol=1e-12, err_msg=f"seed {seed}")
        np.testing.assert_allclose(found.start, starts, rtol=1e-12, err_msg=f"seed {seed}")


def test_shortest_first_replays_as_the_slow_one_does() -> None:
    def decide(view: reference.SchedulerView) -> list[reference.Job]:
        front = reference.fcfs(view)
        rest = [job for job in view.waiting if job not in front]
        ordered = [*front, *rest[:1], *sorted(rest[1:], key=lambda job: job.estimate)]
        return list(reference.easy(replace(view, waiting=ordered)))

    for seed in SEEDS:
        case = random_case(seed)
        found = simulated("easy-sjbf", case.workload, case.cpus, case.conventions)
        jobs = reference.jobs_of(case.workload, case.conventions)
        expected = reference.replay(jobs, case.cpus, decide)
        assert np.array_equal(found.start, np.array(expected), equal_nan=True), seed


@pytest.mark.parametrize("predictor", LEARNING)
def test_estimates_keep_to_limits_and_know_no_future(predictor: str) -> None:
    for seed in SEEDS:
        jobs, cpus, _ = some_jobs(seed)
        conventions = Conventions(learning=predictor)
        before = simulated("easy-sjbf", jobs, cpus, conventions)
        fits = jobs.cpus <= cpus
        assert before.estimate is not None
        assert (before.estimate[fits] >= 1).all()
        assert (before.estimate[fits] <= np.maximum(jobs.limit[fits], 1)).all()
        # Whatever comes after an instant may be another job altogether: what was known by then is the same.
        until = float(np.median(jobs.submit))
        later = jobs.submit > until
        draw = np.random.default_rng(seed)
        changed = replace(
            jobs,
            run=np.where(later, draw.permutation(jobs.run) + 1, jobs.run),
            user=np.where(later, draw.integers(0, 3, len(later)), jobs.user),
        )
        after = simulated("easy-sjbf", changed, cpus, conventions)
        assert after.estimate is not None
        assert np.array_equal(before.estimate[~later], after.estimate[~later], equal_nan=True)
        early = before.start <= until
        assert np.array_equal(before.start[early], after.start[early])


def learned_along(jobs: Workload, found: Outcome, predictor: str) -> list[float]:
    """What the plain predictor says when each job comes, of what has ended in the schedule by then. A job of no length
    ends after those that come at the instant at which it begins."""
    plain, ended = new_predictor(predictor), np.lexsort((found.run == 0, found.finish)).tolist()
    estimates, done = [], 0
    for job in range(len(jobs)):
        now = jobs.submit[job]
        while done < len(ended) and (found.finish[(last := ended[done])], found.run[last] == 0) < (now, True):
            plain.ended(features_in(jobs, ended[done]), float(found.run[ended[done]]), HowEnded.BY_ITSELF)
            done += 1
        expected = plain.predict(features_in(jobs, job)).p50 if jobs.cpus[job] <= found.machine.cpus else np.nan
        estimates.append(86400.0 if expected == np.inf else expected)
    return estimates


@pytest.mark.parametrize("policy", ["fcfs", "ujf", "conservative", "conservative-fixed"])
@pytest.mark.parametrize("predictor", LEARNING)
def test_estimates_are_those_of_the_schedule_and_make_it(policy: str, predictor: str) -> None:
    for seed in SEEDS:
        jobs, cpus, _ = some_jobs(seed)
        roomy = replace(jobs, limit=jobs.run * 1e6 + 1e9)  # no correction reaches a limit
        found = simulated(policy, roomy, cpus, Conventions(learning=predictor))
        assert found.estimate is not None
        np.testing.assert_allclose(found.estimate, learned_along(roomy, found, predictor), rtol=1e-12)
        given = np.where(np.isnan(found.estimate), 1.0, found.estimate)
        again = simulated(policy, roomy, cpus, Conventions(estimates=GivenEstimates("given", given)))
        assert np.array_equal(found.start, again.start, equal_nan=True), f"seed {seed}"


def test_a_correction_goes_no_further_than_the_limit() -> None:
    """The second job's prediction of 10 s passes; it is put off to 30 s, its limit, and not by the minute that the
    next correction is: so the third, which comes meanwhile, is promised that instant."""
    submit, run = np.array([0.0, 20.0, 40.0]), np.array([10.0, 28.0, 5.0])
    jobs = workload("three", submit, np.full(3, 4), run, limit=np.full(3, 30.0))
    for policy in ("conservative", "conservative-fixed"):
        found = simulated(policy, jobs, 4, Conventions(learning="last2"))
        assert found.estimate is not None
        assert found.estimate.tolist() == [30.0, 10.0, 10.0]
        assert found.promised.tolist()[2] == 50.0
        assert found.start.tolist() == [0.0, 20.0, 48.0] if policy == "conservative" else [0.0, 20.0, 50.0]


def test_policies_that_do_not_learn_say_so() -> None:
    jobs, cpus, _ = some_jobs(1)
    said = "--estimates last2: not under capping, only under fcfs, ujf, easy, easy-sjbf, conservative"
    with pytest.raises(ConfigError, match=said):
        simulated("capping", jobs, cpus, Conventions(learning="last2"))
    axes = Axes(policy=("easy", "capping"), estimates=("user", "last2"))
    with pytest.raises(ConfigError, match=said):
        combinations(axes, SimulationOptions(), Source(generate=10))


def test_users_and_names_survive_tables_and_merging(tmp_path: Path) -> None:
    jobs, _, _ = some_jobs(2)
    for name in ("jobs.csv", "jobs.csv.gz", "jobs.parquet"):
        write_table(jobs, tmp_path / name)
        again = load_trace(tmp_path / name).workload
        for numbers, names in (("user", "users"), ("job_name", "job_names")):
            before, after = (np.array(getattr(one, names))[getattr(one, numbers)].tolist() for one in (jobs, again))
            assert before == after
    other = workload("more", np.zeros(1), np.ones(1, dtype=np.int64), np.ones(1), users=("new",), job_id=np.array([99]))
    both = merged(other, jobs)
    assert sorted(both.users) == ["ann", "bob", "eve", "new"]
    assert {both.users[user] for user in both.user[both.job_id == 99].tolist()} == {"new"}


def run_omfs(trace: Path, estimates: str | Path, out: Path, *more: str) -> tuple[int, str]:
    arguments = [
        "--policy",
        "easy-sjbf",
        "--procs",
        "9",
        "--trace",
        trace,
        "--estimates",
        estimates,
        "--out",
        out,
        *more,
    ]
    done = CliRunner().invoke(app, ["simulate", *map(str, arguments)])
    return done.exit_code, done.output


def starts_in(directory: Path) -> list[str]:
    with (directory / "jobs.csv").open() as file:
        return [row["starting_time"] for row in csv.DictReader(file)]


def test_a_file_of_true_run_times_is_exact(tmp_path: Path) -> None:
    jobs, _, _ = some_jobs(3)
    run = np.maximum(jobs.run, 1.0)
    trace, given = tmp_path / "trace.csv", tmp_path / "given.csv"
    write_table(replace(jobs, run=run, limit=run * 2), trace)
    rows = [f"{job},{float(seconds)!r}\n" for job, seconds in zip(jobs.job_id, run, strict=True)]
    given.write_text("job_id,seconds\n" + "".join(rows))
    for estimates in ("exact", given, "similar"):
        code, text = run_omfs(trace, estimates, tmp_path / Path(estimates).stem)
        assert code == 0, text
    assert starts_in(tmp_path / "exact") == starts_in(tmp_path / "given")
    summary = json.loads((tmp_path / "similar" / "summary.json").read_text())
    assert set(summary["estimates"]) == {"name", "accuracy", "median_relative_error", "under_predicted"}
    assert 0 < summary["estimates"]["accuracy"] <= 1


@pytest.mark.parametrize(
    ("rows", "more", "said"),
    [
        ("1,5\n2,-1\n", (), "line 3 (column seconds: '-1' is not allowed"),
        ("1,5\n2,nan\n", (), "column seconds"),
        ("1,5\n2,inf\n", (), "column seconds"),
        ("1,5\n1,6\n", (), "stood in a row before"),
        ("1,5\n77,6\n", ("--strict",), "1 jobs are not in the workload: 77"),
    ],
)
def test_bad_files_of_estimates(tmp_path: Path, rows: str, more: tuple[str, ...], said: str) -> None:
    trace, given = tmp_path / "trace.csv", tmp_path / "given.csv"
    trace.write_text("job_id,submit,cpus,run,limit\n1,0,1,5,9\n2,0,1,5,9\n")
    given.write_text(f"job_id,seconds\n{rows}")
    code, text = run_omfs(trace, given, tmp_path / "out", *more)
    assert code == 2
    assert said in " ".join(text.split())


def test_unknown_and_missing_jobs_are_counted(tmp_path: Path) -> None:
    trace, given = tmp_path / "trace.csv", tmp_path / "given.csv"
    trace.write_text("job_id,submit,cpus,run,limit\n1,0,1,5,9\n2,0,1,5,9\n")
    given.write_text("job_id,seconds\n1,5\n77,6\n")
    code, text = run_omfs(trace, given, tmp_path / "out", "--json")
    assert code == 0
    said = json.loads(text)["conventions"]
    assert any("1 jobs are not in the workload: 77" in one for one in said)
    assert any("1 jobs of the workload are missing and count with their limits: 2" in one for one in said)
    with (tmp_path / "out" / "jobs.csv").open() as file:
        assert [float(row["estimate"]) for row in csv.DictReader(file)] == [5.0, 9.0]


def test_an_unknown_predictor_is_answered_with_all(tmp_path: Path) -> None:
    code, text = run_omfs(tmp_path / "none.csv", "last3", tmp_path)
    assert code == 2
    assert all(name in text for name in (*LEARNING, "user", "exact"))


def two_jobs_in_turn(limit: float) -> Workload:
    """Of one user, each on the whole machine; the last one comes while the first but two runs."""
    submit, run = np.array([0.0, 0.0, 0.0, 0.0, 3300.0]), np.array([1000.0, 1000.0, 1000.0, 1000.0, 1000.0])
    return workload("in turn", submit, np.full(5, 4), run, limit=np.full(5, limit))


def test_starts_are_asked_for_when_a_job_comes_and_each_hour_and_scored_by_what_came() -> None:
    jobs = two_jobs_in_turn(8000.0)
    outcome = simulated("easy", jobs, 4, Conventions(UserLimits()))
    assert [(one.job, one.at) for one in drawn_moments(outcome, 100)] == [(1, 0.0), (2, 0.0), (3, 0.0), (4, 3300.0)]
    by = {row.basis: row for row in start_rows(outcome)}
    assert set(by) == set(BASES)
    assert {row.jobs for row in by.values()} == {4}
    assert by["exact"].mean_error < 0.03 * 3000, "its last job starts after three"
    # At time 0 nothing is known but limits; at 3300 s one job of 1000 s runs, and has run for 300 s.
    assert by["limits"].mean_error == pytest.approx((7000 + 14000 + 21000 + 7000) / 4, rel=0.03)
    assert by["ladder"].mean_error == pytest.approx((7000 + 14000 + 21000) / 4, rel=0.03)
    assert by["limits"].p90_held == by["ladder"].p90_held == 1.0


@pytest.mark.parametrize("policy", STARTS_UNDER)
def test_estimates_of_starts_know_no_future(policy: str) -> None:
    jobs, cpus, _ = some_jobs(4)
    outcome = simulated(policy, jobs, cpus, Conventions(UserLimits()))
    moment = drawn_moments(outcome, 1000)[len(jobs) // 3]
    before = dict(Past(outcome).asked(moment))
    later = np.isnan(outcome.finish) | (outcome.finish > moment.at)
    changed = replace(outcome, finish=np.where(later, outcome.finish + 1e5, outcome.finish))
    assert dict(Past(changed).asked(moment)) == before


@needs_traces
def test_goals_on_a_part_of_a_recorded_trace(tmp_path: Path) -> None:
    jobs = replace(recorded(KTH, first=6000), name="KTH-SP2")
    names = [name for name in PREDICTORS_COMPARED if name != "gbm"]  # whose trainings take their time
    rows = simulate_predictors([(jobs, Machine(100))], predictors=names)
    by = {(row.policy, row.predictor): row for row in rows}
    assert by["easy", "exact"].accuracy == 1
    assert by["easy", "user"].under_predicted == 0
    for policy in POLICIES:
        accuracy = [by[policy, name].accuracy for name in ("user", "last2", "alike2", "similar")]
        assert accuracy == sorted(accuracy)
    assert {row.jobs for row in rows} == {len(jobs)}
    effects = simulate_effects([(jobs.take(np.arange(len(jobs)) < 300), Machine(100))], draws=1)
    starts = start_rows(simulated("easy", jobs.take(np.arange(len(jobs)) < 500), 100, Conventions(UserLimits())), 20)
    page = write_predictors(tmp_path, PredictorResults(rows, ("a note",), effects, starts)).read_text()
    assert "- a note" in page
    assert "| realtime-replan | similar | victims |" in page
    assert "| KTH-SP2 | easy | similar | 20 |" in page
    assert len((tmp_path / "starts.csv").read_text().splitlines()) == 1 + len(BASES)
    assert len((tmp_path / "effects.csv").read_text().splitlines()) == 1 + len(effects) == 23
    assert len((tmp_path / "results.csv").read_text().splitlines()) == 1 + len(rows) == 19


@needs_traces
def test_recorded_traces_name_users_and_programs() -> None:
    loaded = load_trace(DIRECTORY / "SDSC-DS-2004-2.1-cln.swf.gz").workload
    assert len(loaded.users) > 400
    assert len(loaded.job_names) > 3000
    assert loaded.users[0].startswith("user")
