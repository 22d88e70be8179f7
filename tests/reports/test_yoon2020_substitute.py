"""The substitute for Tachyon2's log: its queue against a reference, its load, and what is compared."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.reports.yoon2020.substitute import (
    DAY,
    HOUR,
    USED,
    USED_WITHIN,
    Substitute,
    SubstituteModel,
    at_load,
    conservatively,
    substitute,
    undone,
    used_share,
)
from omfs_daemon.reports.yoon2020.substitute_rows import substitute_case
from omfs_daemon.reports.yoon2020.usage_page import usage_parts
from omfs_daemon.simulate.kernels.size_first_kernel import size_first_kernel

CAPACITY = 8
SMALL = SubstituteModel(nodes=128, months=4, month=10 * DAY)
JOBS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, CAPACITY), st.integers(1, 12), st.integers(0, 20)),
    min_size=1, max_size=12,
)  # fmt: skip


@given(JOBS)
def test_the_queue_second_by_second(jobs: list[tuple[int, int, int, int]]) -> None:
    """Each second, as long as it fits: the job that counts as having waited longest, the first of equals."""
    jobs.sort(key=lambda job: job[0])
    submit, cpus, run, ahead = (np.array(column) for column in zip(*jobs, strict=True))
    waiting, starts, now = list(range(len(jobs))), [0.0] * len(jobs), 0
    while waiting:
        free = CAPACITY - sum(
            jobs[job][1] for job in range(len(jobs)) if job not in waiting and starts[job] + jobs[job][2] > now
        )
        here = sorted((jobs[job][0] - jobs[job][3], job) for job in waiting if jobs[job][0] <= now)
        for _, job in here:
            if jobs[job][1] > free:
                break
            free -= jobs[job][1]
            starts[job] = now
            waiting.remove(job)
        now += 1
    found = size_first_kernel(
        submit.astype(float), cpus.astype(np.int64), run.astype(float), ahead.astype(float), CAPACITY
    )
    assert found.tolist() == starts


@pytest.fixture(scope="module")
def found_case() -> Substitute:
    return substitute(SMALL, 0)


def test_the_load_is_found(found_case: Substitute) -> None:
    jobs = found_case.jobs
    assert abs(used_share(SMALL, jobs, found_case.start) - USED) < USED_WITHIN
    assert (np.diff(jobs.submit) >= 0).all()
    assert jobs.submit[-1] <= SMALL.span
    assert (jobs.limit >= jobs.run).all()
    assert abs(jobs.run.mean() - 6 * HOUR) < HOUR
    assert used_share(SMALL, jobs, conservatively(found_case)) <= 1


def test_idle_cores_follow_the_demand_and_the_growth_of_the_queue(found_case: Substitute) -> None:
    """Why waits and the correlation cannot both be as published: docs/reports.md."""
    jobs, start = found_case.jobs, found_case.start
    grown = np.diff(undone(found_case)) / SMALL.month
    for month in range(SMALL.months):
        begin, end = month * SMALL.month, (month + 1) * SMALL.month
        here = (jobs.submit >= begin) & (jobs.submit < end)
        asked = (jobs.nodes * jobs.run)[here].sum() / (SMALL.nodes * SMALL.month)
        ran = np.maximum(np.minimum(start + jobs.run, end) - np.maximum(start, begin), 0)
        idle = 1 - (ran * jobs.nodes).sum() / (SMALL.nodes * SMALL.month)
        assert idle == pytest.approx(1 - asked + grown[month], abs=1e-9)


def test_another_load_keeps_the_jobs() -> None:
    few, many = (at_load(SMALL, load, 3).jobs for load in (0.4, 0.5))
    first = SMALL.month
    first_few, first_many = (
        set(zip(jobs.nodes[jobs.submit < first].tolist(), jobs.run[jobs.submit < first].tolist(), strict=True))
        for jobs in (few, many)
    )
    assert len(few.submit) < len(many.submit)
    assert first_few <= first_many


def test_the_page_says_what_was_reached(found_case: Substitute) -> None:
    case = substitute_case(found_case, 0)
    assert case.queue.utilisation is not None
    assert abs(case.queue.utilisation - used_share(SMALL, found_case.jobs, found_case.start)) < 1e-6
    wait = float((found_case.start - found_case.jobs.submit).mean())
    assert case.queue.mean_wait == pytest.approx(wait)
    text = "\n".join(usage_parts([case, case], [], ()))
    assert f"{wait / HOUR:.2f} h" in text
    assert "None was given" in text
