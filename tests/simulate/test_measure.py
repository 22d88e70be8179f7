"""Figures of small outcomes, worked out by hand."""

from fractions import Fraction
from itertools import pairwise
from math import isnan

import numpy as np
import pytest

from omfs_daemon.cluster.accounts import AccountTree, Entitlement
from omfs_daemon.simulate.engine.conventions import Conventions
from omfs_daemon.simulate.engine.outcome import Outcome, Segments, Use, undisturbed
from omfs_daemon.simulate.engine.scenario import Machine
from omfs_daemon.simulate.results.fairness import Fairness
from omfs_daemon.simulate.results.measure import Distribution, Measures, measure
from omfs_daemon.simulate.results.timeline import means, steps
from omfs_daemon.simulate.workload.workload import Workload, workload

NOBODY = AccountTree(())
HALVES = AccountTree((Entitlement("a", Fraction(50)), Entitlement("b", Fraction(50))))
HOUR = 3600.0
FLAT = Machine(4)


def plain(submit, cpus, run, start, *, machine=FLAT, bound=10.0, kill=True, **columns) -> Outcome:
    made = workload("w", *(np.array(column, dtype=float) for column in (submit, cpus, run)), **columns)
    ran = np.minimum(made.run, made.limit) if kill else made.run
    return undisturbed(made, "fcfs", machine, Conventions(kill=kill, bound=bound), np.array(start, dtype=float), ran)


def preempted() -> Outcome:
    """Job 0 of b (4 CPUs, 10 h) is preempted after 2 h for the urgent job 1 of a (2 CPUs, 3 h): 0.5 h to preempt, 1 h
    to resume. Job 2 of b (2 CPUs) is killed after 1 h of work and starts over."""
    jobs: Workload = workload(
        "w",
        np.array([0.0, 2.0, 2.5]) * HOUR,
        np.array([4, 2, 2]),
        np.array([10.0, 3.0, 2.0]) * HOUR,
        accounts=("a", "b"),
        account=np.array([1, 0, 1]),
        urgent=np.array([False, True, False]),
    )
    rows = (
        (0, 0.0, 2.0, Use.WORK),
        (0, 2.0, 2.5, Use.PREEMPTION),
        (1, 2.5, 5.5, Use.WORK),
        (2, 2.5, 3.5, Use.LOST),
        (2, 3.5, 5.5, Use.WORK),
        (0, 5.5, 6.5, Use.RESUME),
        (0, 6.5, 14.5, Use.WORK),
    )
    job, begin, end, use = (np.array(column) for column in zip(*rows, strict=True))
    return Outcome(
        workload=jobs,
        policy="hand",
        machine=Machine(4),
        conventions=Conventions(),
        start=np.array([0.0, 2.5, 2.5]) * HOUR,
        finish=np.array([14.5, 5.5, 5.5]) * HOUR,
        run=jobs.run,
        preemptions=np.array([1, 0, 1]),
        segments=Segments(job, begin * HOUR, end * HOUR, use),
        rejected=np.zeros(3, dtype=bool),
        promised=np.full(3, np.nan),
    )


def account(measures: Measures, name: str):
    return next(figures for figures in measures.accounts if figures.name == name)


def test_waits_of_three_jobs():
    outcome = plain([0, 0, 10], [4, 4, 4], [100, 4, 0.5], [0, 100, 104])
    figures = measure(outcome, NOBODY).all
    assert figures.jobs == 3
    assert figures.wait == Distribution(pytest.approx((0 + 100 + 94) / 3), 94.0, pytest.approx(99.4), 100.0)
    assert figures.response.max == 104.0
    # 1, 104 / 4, and 94.5 s of response over a run time that counts as 1 s
    assert figures.slowdown == Distribution(pytest.approx((1 + 26 + 94.5) / 3), 26.0, pytest.approx(87.65), 94.5)
    # run times below 10 s count as 10 s
    assert figures.bounded_slowdown.mean == pytest.approx((1 + 10.4 + 9.45) / 3)


def test_bounded_slowdown_is_never_below_one_and_takes_the_bound():
    outcome = plain([0, 0], [1, 1], [1, 30], [0, 30], bound=60.0)
    assert measure(outcome, NOBODY).all.bounded_slowdown == Distribution(1.0, 1.0, 1.0, 1.0)


def test_urgent_and_regular_jobs_are_told_apart():
    outcome = plain([0, 0, 0], [1, 1, 1], [10, 10, 10], [0, 5, 20], urgent=np.array([False, True, True]))
    measures = measure(outcome, NOBODY)
    assert (measures.regular.jobs, measures.urgent.jobs) == (1, 2)
    assert measures.u_l == 3.0
    assert measures.urgent.slowdown.mean == 2.25
    assert measures.regular.slowdown.max == 1.0


def test_jobs_cut_at_their_limit_are_counted_only_where_they_are_cut():
    columns = {"limit": np.array([5.0, 20.0])}
    assert measure(plain([0, 0], [1, 1], [10, 10], [0, 0], **columns), NOBODY).cut == 1
    assert measure(plain([0, 0], [1, 1], [10, 10], [0, 0], kill=False, **columns), NOBODY).cut == 0


def test_utilisation_is_of_the_time_from_the_first_submission_to_the_last_finish():
    measures = measure(plain([10, 10], [4, 2], [10, 20], [20, 30]), NOBODY)
    assert measures.makespan == 40.0
    assert measures.utilisation == pytest.approx((4 * 10 + 2 * 20) / (4 * 40))
    assert measures.productive_utilisation == measures.utilisation


def test_whole_nodes_are_held_whole():
    """Three CPUs are two nodes of two, and so the whole machine."""
    outcome = plain([0], [3], [10], [0], machine=Machine(4, 2))
    assert measure(outcome, NOBODY).utilisation == 1.0


def test_rejected_jobs_are_in_no_mean():
    measures = measure(plain([0, 5], [9, 1], [10, 10], [np.nan, 6]), NOBODY)
    assert (measures.jobs, measures.rejected, measures.all.jobs) == (2, 1, 1)
    assert measures.all.wait.mean == 1.0
    assert measures.makespan == 16.0  # from the first submission, whoever refuses it


def test_preemptions_resumes_and_lost_work_are_not_productive():
    measures = measure(preempted(), HALVES)
    held = 4 * 2 + 4 * 0.5 + 2 * 3 + 2 * 1 + 2 * 2 + 4 * 1 + 4 * 8
    assert measures.utilisation == pytest.approx(held / (4 * 14.5))
    assert measures.productive_utilisation == pytest.approx((held - 4 * 0.5 - 4 * 1 - 2 * 1) / (4 * 14.5))
    assert measures.lost_cpu_hours == pytest.approx(2.0)
    assert (measures.preemptions, measures.preempted_jobs) == (2, 2)
    assert account(measures, "b").preemptions == 2
    assert measures.regular.response.max == 14.5 * HOUR
    assert measures.u_l == pytest.approx(3.5 / 3)


def test_fairness_of_a_preempted_workload():
    """a owns 2 CPUs: it asks for 2 from 2 h to 5.5 h and holds them from 2.5 h. b owns 2 CPUs: it holds them always;
    its job of 4 CPUs, wider than that, is no demand while it is preempted."""
    measures = measure(preempted(), HALVES)
    assert account(measures, "a").fairness == pytest.approx(Fairness(3.5, 0.5, 1, 0.5, 1.0))
    assert account(measures, "b").fairness == pytest.approx(Fairness(14.5, 0.0, 0, 0.0, 0.0))
    assert account(measures, "a").cpu_hours == pytest.approx(6.0)
    assert account(measures, "b").entitled == 2


def test_a_preempted_job_is_demand():
    """b owns 4 of 8 CPUs, holds 4, is preempted from 1 h to 3 h, and resumes on all of them."""
    jobs = workload(
        "w", np.array([0.0]), np.array([4]), np.array([2 * HOUR]), accounts=("a", "b"), account=np.array([1])
    )
    begin, end = np.array([0.0, 3.0]) * HOUR, np.array([1.0, 4.0]) * HOUR
    outcome = Outcome(
        jobs, "hand", Machine(8), Conventions(), np.array([0.0]), np.array([4 * HOUR]), jobs.run, np.array([1]),
        Segments(np.array([0, 0]), begin, end, np.array([Use.WORK, Use.WORK])), np.array([False]), np.array([np.nan]),
    )  # fmt: skip
    assert account(measure(outcome, HALVES), "b").fairness == pytest.approx(Fairness(4.0, 2.0, 1, 2.0, 8.0))


def test_demand_below_the_entitlement_is_all_that_is_owed():
    """a owns 2 CPUs but asks for 1: it is below while that one waits, by one CPU; in two spells of 1 h and 3 h."""
    outcome = plain([0, 10 * HOUR], [1, 1], [HOUR, HOUR], [HOUR, 13 * HOUR], accounts=("a",), account=np.array([0, 0]))
    assert account(measure(outcome, HALVES), "a").fairness == pytest.approx(Fairness(6.0, 4.0, 2, 3.0, 4.0))


def test_accounts_without_an_entitlement_count_together():
    outcome = plain([0, 0, 0], [1, 1, 1], [9, 9, 9], [0, 0, 0], accounts=("a", "x", "y"), account=np.array([0, 1, 2]))
    measures = measure(outcome, AccountTree((Entitlement("a", Fraction(60)),)))
    assert [(of.name, of.entitled, of.figures.jobs) for of in measures.accounts] == [("a", 2, 1), ("(others)", 1, 2)]


@pytest.mark.parametrize("start", [[], [np.nan, np.nan]])
def test_nothing_that_ran_gives_no_figures(start):
    many = len(start)
    measures = measure(plain([0] * many, [9] * many, [10] * many, start), NOBODY)
    assert measures.all.jobs == 0
    assert isnan(measures.utilisation)
    assert isnan(measures.u_l)
    found = measures.as_json()
    assert found["U_L"] is None
    assert found["all"]["wait"]["mean"] is None


def test_steps_against_counting_by_hand():
    generator = np.random.default_rng(7)
    begin = generator.integers(0, 50, 40).astype(float)
    end = begin + generator.integers(0, 20, 40)
    amount = generator.integers(1, 9, 40).astype(float)
    held = steps(begin, end, amount)
    for time in np.arange(0.5, 70):
        at = np.searchsorted(held.times, time) - 1
        level = held.levels[at] if at >= 0 else 0.0
        assert level == amount[(begin < time) & (time < end)].sum()


def test_means_keep_the_area():
    held = steps(np.array([0.0, 3.0]), np.array([4.0, 9.0]), np.array([2.0, 5.0]))
    edges = np.array([0.0, 3.5, 4.0, 20.0])
    width = np.array([late - early for early, late in pairwise(edges)])
    assert means(held, edges) * width == pytest.approx([2 * 3.5 + 5 * 0.5, 7 * 0.5, 5 * 5.0])
