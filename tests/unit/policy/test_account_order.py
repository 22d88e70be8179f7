"""Admission in the order of an account's queue, with backfill."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.policy.rules.account_order import AccountJob, AccountUse, admit_in_order, use_until

A, B = (0,), (1,)


def admitted(entitled: list[int], *waiting: AccountJob, in_use: tuple[AccountUse, ...] = ()) -> list[int]:
    return list(admit_in_order(waiting, in_use, entitled, now=100.0))


def test_what_fits_in_order_is_admitted() -> None:
    assert admitted([4], AccountJob(A, 2), AccountJob(A, 2), AccountJob(A, 1)) == [1, 1, 0]


def test_a_later_job_passes_only_if_it_ends_in_time() -> None:
    running = AccountUse(A, 1, until=160.0)
    whole, short, long = AccountJob(A, 4), AccountJob(A, 1, 60.0), AccountJob(A, 1, 61.0)
    assert admitted([4], whole, short, long, in_use=(running,)) == [0, 1, 0]


def test_a_later_job_passes_if_enough_is_left() -> None:
    running = AccountUse(A, 3, until=160.0)
    two, one = AccountJob(A, 2), AccountJob(A, 1)
    assert admitted([4], two, one, in_use=(running,)) == [0, 1]  # at 160 s 3 + 1 - 2 are left, so that 1 may stay
    assert admitted([4], AccountJob(A, 4), one, in_use=(running,)) == [0, 0]
    assert admitted([5], AccountJob(A, 4), one, one, in_use=(running,)) == [0, 1, 0]


def test_without_time_limits_nothing_passes_the_first_unless_it_leaves_enough() -> None:
    for run_time in (0.0, 1.0):
        running = AccountUse(A, 1, use_until(100.0, inf, run_time))
        assert admitted([4], AccountJob(A, 4), AccountJob(A, 1, inf), in_use=(running,)) == [0, 0]


def test_a_job_that_never_fits_and_one_that_could_not_start_hold_up_nobody() -> None:
    running = AccountUse(A, 1, until=160.0)
    assert admitted([4], AccountJob(A, 5), AccountJob(A, 1), in_use=(running,)) == [0, 1]
    assert admitted([4], AccountJob(A, 4, reserves=False), AccountJob(A, 1), in_use=(running,)) == [0, 1]


def test_accounts_do_not_hold_up_each_other_unless_they_share_a_parent() -> None:
    running = AccountUse(A, 1, until=160.0)
    assert admitted([4, 4], AccountJob(A, 4), AccountJob(B, 1), in_use=(running,)) == [0, 1]
    under = AccountJob((0, 2), 4), AccountJob((1, 2), 1)
    assert admitted([4, 4, 4], *under, in_use=(AccountUse((0, 2), 1, until=160.0),)) == [0, 0]


def test_tasks_are_admitted_one_by_one() -> None:
    assert admitted([4], AccountJob(A, 1, tasks=7), AccountJob(A, 1)) == [4, 0]


# -- what is let pass delays nobody ---
@dataclass(frozen=True)
class Case:
    entitled: int
    running: list[tuple[int, int]]
    queue: list[tuple[int, int]]


seconds = st.integers(1, 9)
small = st.tuples(st.integers(1, 3), seconds)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Running jobs, and a queue with one job that does not fit beside them."""
    entitled = draw(st.integers(3, 8))
    running: list[tuple[int, int]] = []
    for cpus, until in draw(st.lists(small, min_size=1, max_size=4)):
        if sum(each for each, _ in running) + cpus <= entitled:
            running.append((cpus, until))
    queue = draw(st.lists(small, min_size=1, max_size=5))
    large = draw(st.integers(entitled - sum(cpus for cpus, _ in running) + 1, entitled)), draw(seconds)
    queue.insert(draw(st.integers(0, 1)), large)
    return Case(entitled, running, queue)


def starts(case: Case, queue: list[tuple[int, int]]) -> list[float]:
    """When each job of the queue starts if every job uses its time limit and what is admitted starts at once."""
    running = [(cpus, float(until)) for cpus, until in case.running]
    left = dict(enumerate(queue))
    found = [inf] * len(queue)
    now = 0.0
    while left:
        waiting = [AccountJob(A, cpus, float(seconds)) for cpus, seconds in left.values()]
        in_use = [AccountUse(A, cpus, until) for cpus, until in running]
        for number, tasks in zip(list(left), list(admit_in_order(waiting, in_use, [case.entitled], now)), strict=True):
            if tasks:
                cpus, seconds = left.pop(number)
                found[number] = now
                running.append((cpus, now + seconds))
        assert sum(cpus for cpus, _ in running) <= case.entitled
        if left:
            now = min(until for _, until in running)
            running = [(cpus, until) for cpus, until in running if until > now]
    return found


@given(cases())
def test_the_first_that_waits_never_starts_later_than_without_the_jobs_let_pass(case: Case) -> None:
    found = starts(case, case.queue)
    first = next((number for number, at in enumerate(found) if at > 0), None)
    if first is not None:
        assert found[first] == starts(case, case.queue[: first + 1])[first]


@given(cases())
def test_everybody_is_served(case: Case) -> None:
    assert all(at < inf for at in starts(case, case.queue))
