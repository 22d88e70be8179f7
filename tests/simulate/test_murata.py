"""Murata et al.: Tables II and III, and the estimates behind them, beside a plain replay of one-processor sites."""

from __future__ import annotations

import csv
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from omfs_daemon.simulate.experiments.murata.murata import simulate_murata, write_murata
from omfs_daemon.simulate.experiments.murata.murata_cases import (
    HISTORY,
    HISTORY_TEXT,
    ORACLE,
    ROUND_ROBIN,
    murata_jobs,
    one_run,
)
from omfs_daemon.simulate.experiments.murata.murata_page import mean_summary
from omfs_daemon.simulate.experiments.murata.published import PUBLISHED, RUNS
from omfs_daemon.simulate.kernels.running import corrected
from omfs_daemon.simulate.kernels.sites_kernel import SiteJobs
from omfs_daemon.simulate.sites.choose_site import Booking, Site, SiteChoice, placed
from tests.support.amounts import sample

SEEDS = sample(range(200), 10)
PAIR = (Site("a", 1), Site("b", 1))


def some_jobs(seed: int, width: int = 1) -> SiteJobs:
    draw = np.random.default_rng(seed)
    number = int(draw.integers(1, 60))
    run = draw.choice([0.0, 1.0, 7.0, 30.0, 400.0], number) * draw.uniform(0.5, 2.0, number).round(1)
    submit = np.cumsum(draw.choice([0.0, 0.0, 1.0, 20.0, 300.0], number))
    return SiteJobs(submit, draw.integers(1, width + 1, number), run, run, draw.integers(0, 4, number))


def plain_estimates(jobs: SiteJobs, choice: SiteChoice, site: list[int]) -> list[list[float]]:
    """Seconds to each start at two queue sites of one processor, as sums, where each job went to this site."""
    ends: list[list[float]] = [[], []]
    starts: list[list[float]] = [[], []]
    at: list[list[int]] = [[], []]
    found = []
    for job, now in enumerate(jobs.submit.tolist()):
        over = [other for s in (0, 1) for other, end in zip(at[s], ends[s], strict=True) if end <= now]

        def length(other: int, over: list[int] = over) -> float:
            if choice.choose == "oracle":
                return float(jobs.run[other])
            alike = [float(jobs.run[one]) for one in over if jobs.kind[one] == jobs.kind[other]]
            known = alike or [float(jobs.run[one]) for one in over]
            return sum(known) / len(known) if known else 0.0

        waits = []
        for s in (0, 1):
            wait = 0.0
            for other, start, end in zip(at[s], starts[s], ends[s], strict=True):
                if end > now >= start:
                    wait += corrected(start, length(other), now) - now if choice.counts_running else 0.0
                elif start > now:
                    wait += length(other)
            waits.append(wait)
        found.append(waits)
        s = site[job]
        begin = max([now, *ends[s][-1:]])
        at[s].append(job)
        starts[s].append(begin)
        ends[s].append(begin + float(jobs.run[job]))
    return found


@pytest.mark.parametrize("choice", [HISTORY, HISTORY_TEXT, ORACLE])
def test_with_one_processor_the_list_schedule_is_the_sum(choice: SiteChoice) -> None:
    for seed in SEEDS:
        jobs = some_jobs(seed)
        # A job that is done in no time lets the plain sums and the order of events disagree about one instant.
        jobs = jobs._replace(run=np.maximum(jobs.run, 0.5))
        found = placed(PAIR, jobs, choice)
        expected = plain_estimates(jobs, choice, found.site.tolist())
        np.testing.assert_allclose(found.estimates, expected, atol=1e-6, err_msg=str(seed))
        assert np.array_equal(found.site, found.estimates.argmin(axis=1))


def test_the_future_is_not_known() -> None:
    for seed in SEEDS:
        jobs = some_jobs(seed, 4)
        sites = [Site("a", 4), Site("b", 3)]
        half = len(jobs.run) // 2
        other = np.random.default_rng(seed).permutation(jobs.run[half:])
        changed = jobs._replace(run=np.concatenate((jobs.run[:half], other)))
        before, after = placed(sites, jobs, HISTORY), placed(sites, changed, HISTORY)
        assert np.array_equal(before.estimates[: half + 1], after.estimates[: half + 1])
        assert np.array_equal(before.start[:half], after.start[:half], equal_nan=True)


def test_a_true_estimate_is_the_start_where_all_is_known() -> None:
    for seed in SEEDS:
        jobs = some_jobs(seed, 4)
        jobs = jobs._replace(run=np.maximum(jobs.run, 0.5))
        found = placed([Site("a", 4), Site("b", 3)], jobs, ORACLE)
        chosen = np.take_along_axis(found.estimates, found.site[:, None], axis=1)[:, 0]
        np.testing.assert_allclose(found.start - found.submit, chosen, atol=1e-6)


def test_a_reservation_is_made_in_the_first_gap_and_jobs_that_fit_nowhere_go_nowhere() -> None:
    run = np.array([50.0, 50.0, 10.0, 10.0])
    jobs = SiteJobs(np.zeros(4), np.array([1, 2, 1, 3]), run, run, np.zeros(4, dtype=np.int64))
    site = Site("r", 2, takes_reservations=True, bookings=(Booking(0.0, 30.0, 1), Booking(80.0, 90.0, 2)))
    found = placed([site], jobs, HISTORY)
    # One processor at once; both after the second booking; one beside the first job; none for three processors.
    np.testing.assert_array_equal(found.start, [0.0, 90.0, 30.0, np.nan])
    assert found.site.tolist() == [0, 0, 0, -1]


def test_round_robin_takes_turns_among_those_that_fit() -> None:
    run = np.ones(5)
    jobs = SiteJobs(np.arange(5.0), np.array([1, 3, 1, 1, 1]), run, run, np.zeros(5, dtype=np.int64))
    found = placed([Site("a", 1), Site("b", 3), Site("c", 1)], jobs, ROUND_ROBIN)
    assert found.site.tolist() == [0, 1, 2, 0, 1]


def test_thirty_jobs_are_always_there() -> None:
    jobs = murata_jobs(0, 2)
    found = placed(PAIR, jobs, HISTORY, population=30, until=50_000.0)
    came = ~np.isnan(found.submit)
    ended = np.sort((found.start + jobs.run)[came & (found.start + jobs.run <= 50_000.0)])
    assert came.sum() == 30 + len(ended)
    np.testing.assert_array_equal(found.submit[30 : came.sum()], ended)


def test_published_figures() -> None:
    """Within the tolerances that hold for twenty runs."""
    runs = {
        choice: [one_run(seed, 2, choice) for seed in range(RUNS)] for choice in (HISTORY, HISTORY_TEXT, ROUND_ROBIN)
    }
    history, text, turns = (mean_summary(runs[choice]) for choice in runs)
    assert 1.13 <= history.jobs / turns.jobs <= 1.25
    for ours, published in ((history, PUBLISHED["history"]), (turns, PUBLISHED["round-robin"])):
        assert ours.jobs == pytest.approx(published.jobs, rel=0.05)
        assert ours.mean_wait == pytest.approx(published.mean_wait, rel=0.05)
        assert ours.deviation == pytest.approx(published.deviation, rel=0.10)
        assert ours.max_wait == pytest.approx(published.max_wait, rel=0.25)
    assert history.deviation < PUBLISHED["history"].deviation < text.deviation
    assert history.max_wait < turns.max_wait
    for one in (one for same in runs.values() for one in same):
        # Little's law; what is there at the end has waited but not run.
        assert 30e6 / one.row.jobs == pytest.approx(one.row.mean_wait + one.mean_run, rel=0.05)


def test_files_say_what_was_found(tmp_path: Path) -> None:
    ticks = count()
    found = simulate_murata(range(2), lambda: float(next(ticks)))
    assert [row.site for row in found.table3] == ["queue", "reservation", "queue", *["reservation"] * 5]
    assert mean_summary(found.cases[2, ORACLE]).deviation < mean_summary(found.cases[2, HISTORY]).deviation
    page = write_murata(tmp_path, found).read_text()
    assert "| history, published | 3,914 | 7,131 | 6,477 | 81,464 |" in page
    rows = list(csv.DictReader((tmp_path / "results.csv").open()))
    assert len(rows) == 2 * len(found.cases)
    own = [float(row["mean_wait"]) for row in rows if row["choose"] == "round-robin" and row["sites"] == "2"]
    assert np.mean(own) == pytest.approx(mean_summary(found.cases[2, ROUND_ROBIN]).mean_wait)
    bins = list(csv.DictReader((tmp_path / "histogram.csv").open()))
    waited = sum(float(row["jobs"]) for row in bins if row["choose"] == "history")
    assert waited == pytest.approx(mean_summary(found.cases[2, HISTORY]).jobs, rel=0.01)
    assert len((tmp_path / "table3.csv").read_text().splitlines()) == 9
