"""The list schedule, and the run times drawn for it."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.predict.prediction import CORRECTION_SECONDS, Prediction
from omfs_daemon.predict.run_draws import remaining_quantiles, run_times
from omfs_daemon.predict.start_times import (
    STEPS,
    QueuedJob,
    RunningUse,
    StartProbe,
    _Pool,
    _steps_at,
    quantiles,
    start_times,
)

DRAWS = 100


def always(seconds: float) -> np.ndarray:
    return np.full(DRAWS, float(seconds))


def job(units: int, run: float, ready: float = 0.0, pool: int = 0) -> QueuedJob:
    return QueuedJob(((pool, units),), always(run), ready)


def starts(total: int, queue: list[QueuedJob], running: list[RunningUse] = []) -> list[float]:  # noqa: B006
    return [float(np.median(row)) for row in start_times([total], running, queue, DRAWS)]


@given(st.lists(st.floats(1, 10_000), min_size=1, max_size=8))
def test_with_one_processor_it_is_the_sum(runs: list[float]) -> None:
    sums = np.cumsum([0.0, *runs[:-1]])
    found = starts(1, [job(1, run) for run in runs])
    # A step is at most 2 % of the time ahead and 250 s together; each end is at most half of one off, but one at least.
    assert found == pytest.approx(list(sums), rel=0.02 * len(runs), abs=5.1 * len(runs))


def test_jobs_share_the_machine_and_start_in_order() -> None:
    assert starts(8, [job(4, 1000), job(4, 1000), job(8, 10)]) == pytest.approx([0, 0, 1000], rel=0.02, abs=5)


def test_a_job_that_fits_into_a_hole_does_not_wait_for_the_large_one_before_it() -> None:
    running = [RunningUse(((0, 4),), always(1000))]
    large, small, long = job(8, 500), job(2, 300), job(2, 3000)
    found = starts(8, [large, small, long], running)
    assert found == pytest.approx([1000, 0, 1500], rel=0.03, abs=5)
    assert starts(8, [large, job(2, 300), job(2, 300), job(2, 300)], running)[1:] == pytest.approx([0, 0, 300], abs=12)


def test_what_is_never_free_gives_no_start() -> None:
    found = start_times([4], [], [job(5, 10), job(4, 10)], DRAWS)
    assert np.isinf(found[0]).all()
    assert (found[1] == 0).all()
    assert quantiles(found[0]) == (inf, inf, inf)


def test_a_job_waits_for_its_begin_time_and_for_each_of_its_pools() -> None:
    assert starts(4, [job(4, 10, ready=700)]) == [700]
    gpu = QueuedJob(((0, 1), (1, 1)), always(600))
    found = start_times([8, 1], [], [gpu, gpu, job(1, 5)], DRAWS)
    assert [float(np.median(row)) for row in found] == pytest.approx([0, 600, 0], rel=0.02, abs=5)


@given(st.lists(st.tuples(st.integers(1, 8), st.floats(1, 5000)), min_size=1, max_size=12), st.integers(0, 9))
def test_never_more_runs_than_there_is(queue: list[tuple[int, float]], seed: int) -> None:
    random = np.random.default_rng(seed)
    jobs = [QueuedJob(((0, units),), run * random.random(DRAWS) + 1) for units, run in queue]
    found = start_times([8], [], jobs, DRAWS)
    for draw in range(0, DRAWS, 25):
        spans = [(found[at, draw], found[at, draw] + one.run[draw], one.needs[0][1]) for at, one in enumerate(jobs)]
        areas = sum((end - begin) * units for begin, end, units in spans)
        # Ends are rounded to steps and holes have mean lengths: in all, not at each instant, no capacity is invented.
        last = max(end for _, end, _ in spans)
        assert areas <= 8 * (last * 1.03 + 10)


@given(
    st.lists(st.tuples(st.integers(1, 8), st.floats(1, 5000)), max_size=10),
    st.tuples(st.integers(1, 8), st.floats(1, 5000)),
    st.integers(0, 10),
)
def test_a_probe_starts_as_if_it_were_in_the_queue_and_changes_nothing(
    queue: list[tuple[int, float]], probe: tuple[int, float], place: int
) -> None:
    jobs, asked = [job(units, run) for units, run in queue], job(*probe)
    place = min(place, len(jobs))
    found = start_times([8], [], jobs, DRAWS, [StartProbe(asked, place), StartProbe(job(9, 1), 99)])
    assert (found[: len(jobs)] == start_times([8], [], jobs, DRAWS)).all()
    there = start_times([8], [], [*jobs[:place], asked, *jobs[place:]], DRAWS)
    assert (found[len(jobs)] == there[place]).all()
    assert np.isinf(found[-1]).all()


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 474)), min_size=1, max_size=12), st.integers(0, 9))
def test_what_runs_ends_the_same_given_at_once_or_one_by_one(given_units: list[tuple[int, int]], seed: int) -> None:
    random = np.random.default_rng(seed)
    steps = np.array([random.integers(step, 476, DRAWS) for _, step in given_units])
    at_once, one_by_one = _Pool(DRAWS), _Pool(DRAWS)
    at_once.give_all(steps, np.array([units for units, _ in given_units], dtype=np.float64))
    for row, (units, _) in zip(steps, given_units, strict=True):
        one_by_one.give(np.arange(DRAWS), row, units)
    assert (at_once._free == one_by_one._free).all()
    assert (at_once._first == one_by_one._first).all()


def test_steps_are_the_nearest_and_that_of_now_is_only_for_now() -> None:
    assert _steps_at(STEPS[:-1]).tolist() == list(range(474))
    assert _steps_at(np.array([0.0, 1e-300, 1e9, inf])).tolist() == [0, 1, 475, 475]
    seconds = np.random.default_rng(1).uniform(3.0, STEPS[-2], 1000)
    nearest = np.abs(np.log1p(STEPS[:, None] / 250) - np.log1p(seconds / 250)).argmin(axis=0)
    assert (_steps_at(seconds) == nearest).all()


def test_quantiles_are_in_order() -> None:
    low, middle, high = quantiles(np.arange(1.0, 101.0))
    assert (low, middle, high) == (10, 50, 90)


KNOWN = Prediction(100, 200, 400, 220, "user", 20)


def test_drawn_times_have_the_quantiles_of_the_prediction() -> None:
    (drawn,) = run_times([KNOWN], [1000.0], [0.0], 1000, 1)
    assert np.quantile(drawn, [0.1, 0.5, 0.9]) == pytest.approx([100, 200, 400], rel=0.02)
    assert drawn.min() >= 1
    assert drawn.max() <= 1000


@pytest.mark.parametrize("elapsed", [0.0, 150.0, 399.0, 2000.0])
def test_a_running_job_runs_on_for_some_time_but_never_beyond_its_limit(elapsed: float) -> None:
    (drawn,) = run_times([KNOWN], [3000.0], [elapsed], DRAWS, 1)
    assert (drawn >= elapsed).all()
    assert (drawn <= 3000).all()
    if elapsed > 800:
        assert set(drawn) == {min(3000, next(200 + more for more in CORRECTION_SECONDS if 200 + more > elapsed))}


@given(
    st.lists(st.tuples(st.floats(1, 1e6), st.floats(1, 1e6), st.floats(1, 1e6)), min_size=1, max_size=5),
    st.floats(0, 1e6),
    st.sampled_from([1.0, 60.0, 86400.0, inf]),
)
def test_whatever_is_predicted_times_are_finite(
    points: list[tuple[float, float, float]], elapsed: float, limit: float
) -> None:
    known = [Prediction(*sorted(point), point[1], "user", 3) for point in points]
    drawn = run_times(known, [limit] * len(known), [elapsed] * len(known), 10, 3)
    assert np.isfinite(drawn).all()
    assert (drawn >= 1).all()
    assert (drawn <= max(limit, 1)).all()


def left(prediction: Prediction, elapsed: float, limit: float = 3000.0) -> list[float]:
    (found,) = remaining_quantiles([prediction], [limit], [elapsed], (0.5, 0.9))
    return [float(seconds) for seconds in found]


@pytest.mark.parametrize("elapsed", [0.0, 150.0, 399.0, 790.0])
def test_what_remains_is_the_quantile_of_the_drawn_times_beyond_the_elapsed_time(elapsed: float) -> None:
    (drawn,) = run_times([KNOWN], [3000.0], [elapsed], 2000, 1)
    wanted = np.quantile(drawn, [0.5, 0.9]) - elapsed
    assert left(KNOWN, elapsed) == pytest.approx(wanted, rel=0.02, abs=2)


def test_what_remains_beyond_a_prediction_is_its_correction_and_never_beyond_the_limit() -> None:
    certain = Prediction(200.0, 200.0, 200.0, 200.0, "user", 3)
    assert left(certain, 50.0) == [150, 150]
    assert left(certain, 200.0) == [60, 60], "a minute beyond the prediction"
    assert left(certain, 201.0) == [59, 59]
    assert left(KNOWN, 2000.0) == [1000, 1000], "its limit"
    assert left(KNOWN, 2900.0) == [100, 100]
    assert left(KNOWN, 3100.0) == [0, 0], "OverTimeLimit"
    assert left(Prediction(inf, inf, inf, inf, "limit", 0), 5.0, inf) == [inf, inf]


@given(
    st.tuples(st.floats(1, 1e6), st.floats(1, 1e6), st.floats(1, 1e6)),
    st.floats(0, 1e6),
    st.sampled_from([1.0, 60.0, 86400.0, inf]),
)
def test_what_remains_is_in_order_and_within_the_limit(
    point: tuple[float, float, float], elapsed: float, limit: float
) -> None:
    likely, at_most = left(Prediction(*sorted(point), point[1], "user", 3), elapsed, limit)
    assert 0 <= likely <= at_most <= max(0.0, limit - elapsed)


def test_the_same_seed_draws_the_same() -> None:
    one, other = (run_times([KNOWN] * 3, [900.0] * 3, [0.0] * 3, 20, 5) for _ in range(2))
    assert (one == other).all()
    assert not (one[0] == one[1]).all()


def test_no_limit_and_no_history_is_a_year() -> None:
    (drawn,) = run_times([Prediction(inf, inf, inf, inf, "limit", 0)], [inf], [0.0], 5, 1)
    assert drawn == pytest.approx([365 * 86400.0] * 5)
