"""Slurm is asked for CPUs and devices only where a suspended job may be resumed, and once for each run of a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from omfs_daemon.cluster.jobs import Allocation, Job, JobRequest, JobState
from omfs_daemon.cluster.units import CPU, Unit, Units
from omfs_daemon.daemon.unit_reader import UNREAD_AGAIN, UnitReader


class AskedGateway:
    """Knows each job's one CPU, except those of ``hidden`` jobs; ``asked``: for whom, call by call."""

    def __init__(self) -> None:
        self.asked: list[set[int]] = []
        self.hidden: set[int] = set()

    def units(self, jobs: Sequence[Job]) -> dict[int, Units]:
        self.asked.append({job.id for job in jobs})
        return {job.id: units_of(job) for job in jobs if job.id not in self.hidden}


def units_of(job: Job) -> Units:
    return frozenset([Unit(job.on_nodes[0], CPU, job.id)])


def job(number: int, state: JobState, node: str = "n1", start: float = 0.0) -> Job:
    allocations = () if state is JobState.PENDING else (Allocation(node, 1, 0),)
    return Job(number, str(number), "u", 1, "a", state, JobRequest(1), 0.0, start=start, allocations=allocations)


BESIDE = [job(2, JobState.RUNNING), job(3, JobState.COMPLETING)]
ELSEWHERE = [job(4, JobState.RUNNING, "n2"), job(5, JobState.PENDING)]
SUSPENDED = job(1, JobState.SUSPENDED)


@pytest.fixture
def gateway() -> AskedGateway:
    return AskedGateway()


def reader(gateway: Any, now: float = 0.0) -> UnitReader:
    return UnitReader(gateway, lambda: now)


def test_nobody_is_asked_about_without_a_suspended_job(gateway: AskedGateway) -> None:
    assert reader(gateway).near([*BESIDE, *ELSEWHERE], ()) == {}
    assert gateway.asked == []


def test_a_suspended_job_and_those_on_its_nodes_are_asked_about_once(gateway: AskedGateway) -> None:
    one, jobs = reader(gateway), [SUSPENDED, *BESIDE, *ELSEWHERE]
    expected = {each.id: units_of(each) for each in (SUSPENDED, *BESIDE)}
    assert one.near(jobs, ()) == one.near([replace(each, run_time=7.0) for each in jobs], ()) == expected
    assert gateway.asked == [{1, 2, 3}]
    new = job(6, JobState.CONFIGURING)
    assert one.near([*jobs, new], ()) == expected | {6: units_of(new)}
    assert gateway.asked[1:] == [{6}]


def test_a_job_that_starts_again_or_is_resized_is_asked_about_again(gateway: AskedGateway) -> None:
    one = reader(gateway)
    one.near([SUSPENDED, *BESIDE], ())
    one.near([SUSPENDED, replace(BESIDE[0], start=9.0), replace(BESIDE[1], allocations=(Allocation("n1", 2, 0),))], ())
    assert gateway.asked[1:] == [{2, 3}]


def test_resumed_jobs_are_watched_too(gateway: AskedGateway) -> None:
    assert set(reader(gateway).near([*BESIDE, *ELSEWHERE], {"2"})) == {2, 3}


def test_what_cannot_be_read_is_asked_for_again_after_a_while(gateway: AskedGateway) -> None:
    gateway.hidden = {2}
    now = [0.0]
    one = UnitReader(gateway, lambda: now[0])  # type: ignore[arg-type]
    for now[0] in (0.0, 1.0, UNREAD_AGAIN):
        assert set(one.near([SUSPENDED, *BESIDE], ())) == {1, 3}
    gateway.hidden = set()
    now[0] = 2 * UNREAD_AGAIN
    assert set(one.near([SUSPENDED, *BESIDE], ())) == {1, 2, 3}
    assert gateway.asked == [{1, 2, 3}, {2}, {2}]
