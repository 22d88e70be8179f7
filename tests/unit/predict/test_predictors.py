"""Predicted run times: by hand, against plain references, and the rules that hold for every predictor."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.errors import ConfigError
from omfs_daemon.predict.features import JobFeatures, folded_name, stored_name
from omfs_daemon.predict.ladder import FADING, LATEST
from omfs_daemon.predict.prediction import HowEnded, Prediction, RunTimePredictor, expected_run
from omfs_daemon.predict.predictor_table import PREDICTORS, new_predictor

ALONE, CUT, CANCELLED = HowEnded.BY_ITSELF, HowEnded.AT_LIMIT, HowEnded.CANCELLED

features = st.builds(
    JobFeatures,
    user=st.sampled_from("ab"),
    account=st.sampled_from("xy"),
    command=st.sampled_from(("run_1", "run_2", "")),
    name=st.sampled_from(("run_#", "")),
    cpus=st.integers(1, 2),
    limit=st.sampled_from((0.0, 1.0, 60.0, 3600.0, inf)),
)
ended_jobs = st.lists(st.tuples(features, st.floats(0, 1e6), st.sampled_from(HowEnded)), max_size=60)


def taught(name: str, ended: list[tuple[JobFeatures, float, HowEnded]]) -> RunTimePredictor:
    predictor = new_predictor(name)
    for job, run, how in ended:
        assert predictor.ended(job, run, how) == (name != "limit" and how.teaches)
    return predictor


@pytest.mark.parametrize("name", PREDICTORS)
@given(ended=ended_jobs, job=features)
def test_quantiles_are_in_order_between_a_second_and_the_limit(
    name: str, ended: list[tuple[JobFeatures, float, HowEnded]], job: JobFeatures
) -> None:
    found = taught(name, ended).predict(job)
    most = max(job.limit, 1.0)
    assert 1 <= found.p10 <= found.p50 <= found.p90 <= most
    assert 1 <= found.mean <= most


@pytest.mark.parametrize("name", PREDICTORS)
@given(ended=ended_jobs, job=features)
def test_only_jobs_that_ended_by_themselves_or_at_their_limit_teach(
    name: str, ended: list[tuple[JobFeatures, float, HowEnded]], job: JobFeatures
) -> None:
    counted = [one for one in ended if one[2] in (ALONE, CUT)]
    assert taught(name, ended).predict(job) == taught(name, counted).predict(job)


@pytest.mark.parametrize("name", PREDICTORS)
@given(ended=ended_jobs, job=features)
def test_a_prediction_in_between_changes_none_that_comes_later(
    name: str, ended: list[tuple[JobFeatures, float, HowEnded]], job: JobFeatures
) -> None:
    predictor = new_predictor(name)
    for at, one in enumerate(ended):
        predictor.predict(job)
        predictor.ended(*one)
        if at % 7 == 0:
            assert predictor.predict(job) == taught(name, ended[: at + 1]).predict(job)


@given(ended=ended_jobs, job=features)
def test_the_last_two_of_a_user_by_a_plain_reference(
    ended: list[tuple[JobFeatures, float, HowEnded]], job: JobFeatures
) -> None:
    counted = [(one, run) for one, run, how in ended if how in (ALONE, CUT) and one.user == job.user]
    last = [run for _, run in counted][-2:]
    alike = [run for one, run in counted if (one.cpus, one.limit) == (job.cpus, job.limit)][-2:]
    named = [run for one, run in counted if one.name == job.name][-2:]
    for name, runs in (("last2", last), ("alike2", alike or last), ("named2", named or last)):
        expected = sum(runs) / len(runs) if runs else job.limit
        assert taught(name, ended).predict(job).p50 == pytest.approx(min(max(expected, 1), max(job.limit, 1)))


def test_murata_takes_the_mean_of_the_command_else_of_all_else_nothing() -> None:
    predictor = new_predictor("murata")
    job = JobFeatures(user="a", command="run_1", limit=1000)
    assert predictor.predict(job) == Prediction(1, 1, 1000, 1, "nothing has ended", 0)
    predictor.ended(JobFeatures(user="b", command="run_2"), 100, ALONE)
    predictor.ended(JobFeatures(user="b", command="run_2"), 300, ALONE)
    assert predictor.predict(job)[3:] == (200, "all", 2)
    predictor.ended(JobFeatures(user="b", command="run_1"), 50, ALONE)
    assert predictor.predict(job)[3:] == (50, "command", 1)


def test_the_ladder_takes_the_most_special_kind_with_two_samples_and_weighs_the_newest_most() -> None:
    predictor = new_predictor("ladder")
    job = JobFeatures(user="a", name="run_#", cpus=4, limit=10_000)
    for run in (10.0, 20.0):
        predictor.ended(JobFeatures(user="a", name="other", cpus=8), run, ALONE)
    predictor.ended(job, 500, ALONE)
    assert predictor.predict(job).key == "user"
    for run in (*range(1000, 1000 + LATEST), 2000.0, 2001.0, 2002.0):
        predictor.ended(job, run, ALONE)
    found = predictor.predict(job)
    assert (found.key, found.samples) == ("user+name+cpus", LATEST)
    # The newest two weigh 1.7, which is more than half of all.
    assert 1 + FADING > sum(FADING**age for age in range(LATEST)) / 2 > 1
    assert found.p50 == 2001
    assert found.p10 < 1020
    assert found.p90 == 2002


def test_a_job_that_ended_at_its_limit_says_only_that_such_jobs_run_longer() -> None:
    job = JobFeatures(user="a", limit=600)
    for name in ("last2", "ladder", "mean"):
        predictor = new_predictor(name)
        predictor.ended(job, 10, ALONE)
        predictor.ended(job, 60, CUT)
        assert predictor.predict(job).p90 == 600


@pytest.mark.parametrize("run", [nan, inf, -1.0])
def test_impossible_run_times_teach_nothing(run: float) -> None:
    assert not new_predictor("last2").ended(JobFeatures(), run, ALONE)


@given(predicted=st.floats(1, 1e6), elapsed=st.floats(0, 1e7), limit=st.floats(1, 1e8))
def test_a_correction_is_still_to_come_and_never_past_the_limit(predicted: float, elapsed: float, limit: float) -> None:
    found = expected_run(predicted, elapsed, limit)
    assert found <= limit
    assert found == limit or found > elapsed


def test_corrections_by_hand() -> None:
    assert [expected_run(100, elapsed, 1e9) for elapsed in (99, 100, 160, 400, 360_100)] == [
        *(100, 160, 400, 1000),
        720_100,
    ]
    assert expected_run(100, 160, 200) == 200


def test_names_are_folded_and_hidden() -> None:
    assert folded_name("run_017b2") == "run_#b#"
    hostile = "'; DROP TABLE jobs;\n" * 500
    assert len(stored_name(hostile)) == 16
    assert stored_name(hostile) != stored_name(hostile + " ")
    assert stored_name("\udcff") != stored_name("")
    kept = stored_name(hostile, keep_names=True)
    assert "\n" not in kept
    assert len(kept) == 200


def test_unknown_names_are_refused_with_all_that_are_known() -> None:
    with pytest.raises(
        ConfigError, match="'gbm2' is not known: one of limit, mean, murata, last2, alike2, named2, ladder"
    ):
        new_predictor("gbm2")
    with pytest.raises(ConfigError, match=r"'color' is not known: one or more of account, "):
        new_predictor("ladder", (("user", "color"),))


def test_similar_takes_the_run_time_that_would_have_been_the_most_accurate() -> None:
    predictor = new_predictor("similar")
    job = JobFeatures(user="a", name="x", cpus=2, limit=1000.0)
    assert predictor.predict(job).p50 == 1000.0
    for run in (10.0, 11.0, 500.0, 12.0):
        assert predictor.ended(job, run, ALONE)
    found = predictor.predict(job)
    # 12 is the newest; beside it 11 is right for three of four. A mean would be right for none.
    assert found.p50 == 12.0
    assert (found.key, found.samples) == ("user and alike", 4)
    # Alike jobs outweigh newer ones that are not, and nothing of another user counts.
    for _ in range(10):
        predictor.ended(JobFeatures(user="a", name="y", cpus=8, limit=50.0), 40.0, ALONE)
        predictor.ended(JobFeatures(user="b", name="x", cpus=2, limit=1000.0), 900.0, ALONE)
    assert predictor.predict(job).p50 == 12.0
    assert predictor.predict(job).samples == 4, "alike"
    assert predictor.predict(JobFeatures(user="a", name="z", cpus=9, limit=9.0)).samples == 10, "of the user alone"
    assert predictor.predict(JobFeatures(user="a", name="y", cpus=8, limit=20.0)).p50 == 20.0
    assert predictor.predict(JobFeatures(user="b", name="z", cpus=1, limit=inf)).p50 == 900.0
