"""Which suspended jobs cannot be resumed because others have their CPUs or devices, or may have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omfs_daemon.cluster.jobs import Allocation, Job, JobRequest, JobState
from omfs_daemon.cluster.units import CPU, Unit, Units, resume_blocks

NOW = 1000.0


def job(number: int, on: str = "n1", state: JobState = JobState.RUNNING, start: float = 0.0, ran: float = NOW) -> Job:
    """It has run ``ran`` seconds, without a break if it still runs and ``start + ran`` is now."""
    return Job(
        number, str(number), "u", 1, "bio", state, JobRequest(2), 0.0, start=start, run_time=ran,
        allocations=tuple(Allocation(node, 2, 0) for node in on.split(",")),
    )  # fmt: skip


def cpus(*numbers: int, node: str = "n1") -> Units:
    return frozenset(Unit(node, CPU, number) for number in numbers)


SUSPENDED = job(1, state=JobState.SUSPENDED, ran=300)


@pytest.mark.parametrize(
    ("theirs", "is_blocked"),
    [
        (cpus(2, 3), False),
        (cpus(1, 2), True),
        (cpus(0, 1, node="n2"), False),
        (cpus(2, 3) | {Unit("n1", "gpu", 0)}, True),
        (cpus(2, 3) | {Unit("n1", "gpu", 1)}, False),
    ],
)
@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.CONFIGURING, JobState.COMPLETING, JobState.SUSPENDED])
def test_only_who_has_the_same_cpu_or_device_is_in_the_way(theirs: Units, is_blocked: bool, state: JobState) -> None:
    units = {1: cpus(0, 1) | {Unit("n1", "gpu", 0)}, 2: theirs}
    found = resume_blocks([SUSPENDED], [SUSPENDED, job(2, "n1,n2", state)], units, NOW)
    assert found.by_job == ({2: frozenset({"1"})} if is_blocked else {})


@pytest.mark.parametrize("known", [{}, {1: cpus(0, 1)}, {2: cpus(2, 3)}])
@pytest.mark.parametrize(
    ("other", "is_blocked"),
    [
        (job(2, start=0, ran=NOW), False),
        (job(2, start=299, ran=NOW - 299), False),
        (job(2, start=300, ran=NOW - 300), True),
        (job(2, start=500, ran=NOW - 500), True),
        (job(2, start=0, ran=NOW - 10), True),
        (replace(job(2), start=None), True),
        (job(2, "n2", start=500, ran=NOW - 500), False),
    ],
    ids=["ran before", "ran just before", "just after", "after", "was suspended", "unknown", "elsewhere"],
)
def test_where_units_cannot_be_read_who_ran_before_without_a_break_has_others(
    known: dict[int, Units], other: Job, is_blocked: bool
) -> None:
    found = resume_blocks([SUSPENDED], [other], known, NOW)
    assert bool(found.by_job) == is_blocked


def test_whoever_is_to_start_on_its_node_might_get_its_cpus() -> None:
    more = job(3, "n2", JobState.SUSPENDED)
    found = resume_blocks([SUSPENDED, more], [], {}, NOW)
    assert found.by_node == {"n1": frozenset({"1"}), "n2": frozenset({"3"})}
