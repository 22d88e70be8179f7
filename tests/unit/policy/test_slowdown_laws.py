"""The laws of real-time jobs, by the figures that the paper and its authors' runs give."""

from __future__ import annotations

from math import e, inf, log2

import pytest

from omfs_daemon.policy.rules.checkpoint_laws import (
    ACT_AT,
    BYTES_PER_CPU,
    application_checkpoints,
    checkpoint_factor,
    checkpoint_seconds,
    victim_cost,
    wfp_score,
)
from omfs_daemon.policy.rules.slowdown_laws import (
    NARROW_PERCENT,
    NARROW_SHORT,
    SHORT_SECONDS,
    WIDE_LONG,
    category_of,
    running_slowdown,
    slowdown_factor,
    threshold_crossing,
    waiting_slowdown,
)


@pytest.mark.parametrize(
    ("cpus", "seconds"), [(1, 512), (512, 512), (6912, 512), (8192, 607), (12288, 911), (16384, 1214), (49152, 3641)]
)
def test_checkpoints_take_what_the_paper_computes(cpus: int, seconds: int) -> None:
    assert checkpoint_seconds(cpus, BYTES_PER_CPU) == seconds


def test_an_application_checkpoints_as_often_as_its_share_of_the_limit_allows() -> None:
    assert application_checkpoints(10, 120 * 60, 5 * 60) == 2
    assert 120 / (2 + 1) == 40  # minutes apart
    assert application_checkpoints(5, 60 * 60, 5 * 60) == 0
    assert application_checkpoints(5, 60 * 60, 0) == 0


def test_slowdown_grows_while_a_job_waits_and_stands_still_while_it_runs() -> None:
    assert waiting_slowdown(100, 1000, 100) == 1.0
    assert waiting_slowdown(100, 1000, 200) == pytest.approx(1.1)
    assert threshold_crossing(100, 1000, 1.1) == pytest.approx(200)
    assert [running_slowdown(100, 1000, now, now - 300) for now in (300, 700, 1200)] == [1.2, 1.2, 1.2]
    assert waiting_slowdown(0, inf, 9) == running_slowdown(0, inf, 9, 1) == 1.0
    assert threshold_crossing(0, inf, 1.1) == inf


def test_categories_have_inclusive_edges() -> None:
    def category(cpus: int, limit: float) -> int:
        return category_of(cpus, limit, 49152, NARROW_PERCENT, SHORT_SECONDS)

    assert [category(4096, 7200), category(4096, 7201), category(4097, 7200), category(4097, 7201)] == [0, 1, 2, 3]
    assert ACT_AT[NARROW_SHORT] == 1.1 and ACT_AT[WIDE_LONG] == 1.59


def test_a_victim_costs_by_slowdown_unsaved_work_and_what_remains() -> None:
    assert slowdown_factor(2.0) == 2.0
    assert checkpoint_factor(900) == checkpoint_factor(10) == 1.0
    assert checkpoint_factor(900 * e) == pytest.approx(2.0)
    assert victim_cost(512, 1.0, 0, 5000, 7200, 1, 1, 1) == 512 * log2(3)
    assert victim_cost(512, 2.0, 900 * e, 900, 7200, 1, 1, 1) == pytest.approx(512 * 2 * 2 * 5)
    assert victim_cost(512, 2.0, 900 * e, 300, 1000, 1, 1, 1) == pytest.approx(512 * 2 * 2 * 1)
    assert victim_cost(512, 2.0, 900 * e, 250, 1000, 0, 0, 0) == 512
    assert victim_cost(512, 2.0, 900 * e, 250, 1000, 2, 0, 0) == 512 * 4


def test_the_score_of_a_batch_job() -> None:
    assert wfp_score(100, 10, 5, 10, 120) == 400 / 1000 * 0.5
    assert wfp_score(100, 10, 5, 10, 100) == 0
