"""Jobs keep off nodes that are reserved for others before they end."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from omfs_daemon.cluster.jobs import Job, JobRequest, JobState
from omfs_daemon.cluster.limits import SiteReservation
from omfs_daemon.cluster.reserved_nodes import ReservedNodes

NOW = 1000.0
SOON = SiteReservation("soon", NOW + 100, NOW + 200, frozenset({"n1"}))
LATER = SiteReservation("later", NOW + 1000, NOW + 2000, frozenset({"n2"}))
OVER = SiteReservation("over", NOW - 100, NOW - 10, frozenset({"n3"}))


def job(time_limit: float, **more: object) -> Job:
    usual = Job(1, "1", "ann", 1, "bio", JobState.PENDING, JobRequest(1), 0.0, time_limit=time_limit)
    return replace(usual, **more)  # type: ignore[arg-type]


def kept_off(one: Job) -> set[str]:
    (found,) = ReservedNodes().kept_free([one], [LATER, SOON, OVER], NOW)
    return set(found.request.excluded_nodes)


def test_only_nodes_reserved_before_the_end_of_the_job() -> None:
    assert kept_off(job(60)) == set()
    assert kept_off(job(100)) == set()
    assert kept_off(job(101)) == {"n1"}
    assert kept_off(job(inf)) == {"n1", "n2"}


def test_jobs_in_a_reservation_or_running_stay_as_they_are() -> None:
    assert kept_off(job(inf, reservation="soon")) == set()
    assert kept_off(job(inf, state=JobState.RUNNING)) == set()


def test_nodes_that_the_owner_excludes_stay_excluded() -> None:
    assert kept_off(job(101, request=JobRequest(1, excluded_nodes=frozenset({"n4"})))) == {"n1", "n4"}


def test_a_job_stays_the_same_object_until_something_changes() -> None:
    reserved, one = ReservedNodes(), job(101)
    first = reserved.kept_free([one], [SOON], NOW)[0]
    assert reserved.kept_free([one], [SOON], NOW + 1)[0] is first
    assert reserved.kept_free([one], [], NOW + 2)[0] is one
