"""Fitting: the truth is found again, whatever else lies about, and nothing is ever negative."""

from __future__ import annotations

from math import inf, isfinite

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omfs_daemon.preemption.cost_fit import FEWEST, MOST, Fit, MethodDirection, Point, fit, points
from omfs_daemon.preemption.records import PaidCost

GB = 10**9


def measured(fixed: float, rate: float, count: int, seed: int, noise: float = 0.03, wild: float = 0.0) -> list[Point]:
    """Rows of a method of which the truth is known; the fraction ``wild`` of them waited for something else."""
    draw = np.random.default_rng(seed)
    sizes = draw.uniform(0.1, 8, count) * GB
    seconds = (fixed + sizes / rate) * draw.normal(1, noise, count)
    late = draw.random(count) < wild
    seconds[late] += draw.uniform(20, 200, int(late.sum()))
    return [Point(float(one), int(size)) for one, size in zip(np.maximum(seconds, 1e-3), sizes, strict=True)]


def line(rows: list[Point]) -> Fit:
    found = fit(rows)
    assert found is not None
    assert found.is_line, found.why_not
    return found


@given(
    fixed=st.floats(0, 20),
    rate=st.floats(0.05 * GB, 10 * GB),
    count=st.integers(40, 200),
    seed=st.integers(0, 2**32 - 1),
    wild=st.sampled_from([0.0, 0.1, 0.2]),
)
@example(fixed=0.0, rate=0.05 * GB, count=61, seed=61, wild=0.2)  # 18 of 61 are late: they shift a line fitted once
def test_the_truth_is_found_among_noise_and_outliers(
    fixed: float, rate: float, count: int, seed: int, wild: float
) -> None:
    found = line(measured(fixed, rate, count, seed, wild=wild))
    for size in (0.5 * GB, 2 * GB, 6 * GB):
        truth = fixed + size / rate
        assert found.fixed + size / found.rate == pytest.approx(truth, rel=0.25)


def test_without_noise_it_is_exact() -> None:
    found = line(measured(1.5, 0.4 * GB, 20, seed=1, noise=0))
    assert (found.fixed, found.rate) == (pytest.approx(1.5), pytest.approx(0.4 * GB, rel=1e-6))
    assert found.spread == pytest.approx(0, abs=1e-6)
    assert found.rows == 20


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 2**50)), max_size=40))
def test_it_is_never_negative_and_always_a_number(rows: list[tuple[float, int]]) -> None:
    found = fit([Point(*row) for row in rows])
    assert (found is None) == (not rows)
    if found is not None:
        assert found.fixed >= 0 and found.spread >= 0 and found.median >= 0 and found.rate > 0
        assert isfinite(found.fixed) and isfinite(found.spread) and not np.isnan(found.rate)
        assert found.is_line or (found.fixed, found.rate) == (0.0, inf)


def test_a_line_that_would_begin_below_nothing_goes_through_nothing() -> None:
    found = line([Point(max(0.01, size * 2.0 - 3.0), size * GB) for size in range(1, 12)])
    assert found.fixed == 0
    assert 0.4 * GB < found.rate < 1.2 * GB


def test_where_the_size_does_not_matter_there_is_no_rate() -> None:
    found = line([Point(3.0, size * GB) for size in range(1, 12)])
    assert (found.fixed, found.rate) == (3.0, inf)
    falling = line([Point(30.0 - size, size * GB) for size in range(1, 12)])
    assert falling.rate == inf and falling.fixed == pytest.approx(24.0)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([Point(2.0, GB)] * (FEWEST - 1), f"5 rows with a size: at least {FEWEST} are needed"),
        ([Point(2.0, GB)] * 50, "the sizes do not vary: they are all about 1 GB"),
        ([Point(2.0, 0)] * 50, "no row has a size"),
        ([Point(2.0, GB + part * 1000) for part in range(50)], "the sizes do not vary: they are all about 1 GB"),
    ],
)
def test_too_little_to_go_by_gives_the_median_alone(rows: list[Point], why: str) -> None:
    found = fit(rows)
    assert found == Fit(len(rows), 2.0, 0.0, why_not=why)


def test_of_very_many_rows_the_newest_count() -> None:
    old = measured(60, 0.1 * GB, 3 * MOST, seed=2)
    assert line([*old, *measured(1, 2 * GB, MOST, seed=3)]).rate == pytest.approx(2 * GB, rel=0.1)


def paid(job: str, direction: str, seconds: float, size: int, method: str = "dmtcp", nodes: int = 1) -> PaidCost:
    return PaidCost(1.0, job, "ann", "bio", method, direction, seconds, seconds, size, 0.0, nodes)


def test_nodes_move_their_parts_at_the_same_time() -> None:
    rows = [paid("1", "out", 2.0, 8 * GB, "pageout", nodes=4), paid("1", "in", 3.0, 0, "pageout", nodes=4)]
    found = points(rows)
    assert found[MethodDirection("pageout", "out")] == [Point(2.0, 2 * GB)]
    assert found[MethodDirection("pageout", "in")] == [Point(3.0, 2 * GB)]


def test_a_resume_has_the_size_of_the_preemption_before_it() -> None:
    found = points(
        [
            paid("1", "out", 2.0, GB),
            paid("2", "out", 3.0, 2 * GB),
            paid("1", "in", 4.0, 0),
            paid("1", "out", 2.5, 5 * GB),
            paid("1", "in", 9.0, 0),
            paid("2", "in", 5.0, 7),
            paid("3", "in", 6.0, 0),
        ]
    )
    assert found[MethodDirection("dmtcp", "in")] == [Point(4.0, GB), Point(9.0, 5 * GB), Point(5.0, 7), Point(6.0, 0)]
    assert found[MethodDirection("dmtcp", "out")] == [Point(2.0, GB), Point(3.0, 2 * GB), Point(2.5, 5 * GB)]


def test_rows_without_seconds_tell_nothing() -> None:
    assert points([paid("1", "in", 0.0, 0, "requeue"), paid("1", "odd", 1.0, 0)]) == {}
