"""One job of the parts of a heterogeneous one."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from omfs_daemon.cluster.het_jobs import (
    MOST_PARTS,
    HetJobs,
    as_parts,
    merge_parts,
    part_ref,
    stored_marks,
    with_gres_everywhere,
)
from omfs_daemon.cluster.holds import (
    is_held,
    is_held_by_us,
    is_kept_by_administrator,
    is_let_go,
    is_released_by_administrator,
    may_hold,
)
from omfs_daemon.cluster.jobs import Allocation, Hold, Job, JobRequest, JobState

PENDING, RUNNING, SUSPENDED = JobState.PENDING, JobState.RUNNING, JobState.SUSPENDED
IDS = (169, 170)
FIRST = Job(169, "169+0", "ann", 7, "bio", PENDING, JobRequest(2, partitions=("main",)), 5.0, partition="main")
SECOND = replace(FIRST, id=170, ref="169+1", request=JobRequest(8, nodes=2, gres=(("gpu", 1),), partitions=("main",)))


def merged(first: Job = FIRST, second: Job = SECOND) -> Job:
    (job,) = merge_parts([first, second], IDS)
    return job


def test_its_request_is_that_of_all_parts() -> None:
    job = merged()
    assert (job.id, job.ref, job.set_aside) == (169, "169", "")
    assert (job.request.cpus, job.request.nodes, job.request.gres) == (10, 3, ())
    assert job.request.parts == (FIRST.request, SECOND.request)
    assert [part_ref(job, at) for at in (0, 1)] == ["169+0", "169+1"]
    assert [(part.request, part.parts) for part in as_parts(job)] == [(FIRST.request, ()), (SECOND.request, ())]
    assert as_parts(FIRST) == [FIRST]


def test_it_has_what_all_parts_have() -> None:
    first = replace(FIRST, state=RUNNING, allocations=(Allocation("n1", 2, 0),), licenses=(("a", 1), ("b", 2)))
    second = replace(SECOND, state=RUNNING, allocations=(Allocation("n2", 4, 0), Allocation("n3", 4, 0)))
    job = merged(first, replace(second, licenses=(("a", 2),)))
    assert job.on_nodes == ("n1", "n2", "n3")
    assert job.licenses == (("a", 3), ("b", 2))
    assert with_gres_everywhere(job).request.gres == (("gpu", 1),)


@pytest.mark.parametrize(
    ("one", "other", "whole"),
    [
        (RUNNING, JobState.COMPLETING, RUNNING),
        (RUNNING, SUSPENDED, RUNNING),
        (JobState.COMPLETING, PENDING, JobState.COMPLETING),
        (SUSPENDED, SUSPENDED, SUSPENDED),
        (JobState.CONFIGURING, PENDING, JobState.CONFIGURING),
    ],
)
def test_it_runs_while_any_part_does_and_waits_once_all_wait(one: JobState, other: JobState, whole: JobState) -> None:
    assert merged(replace(FIRST, state=one), replace(SECOND, state=other)).state is whole
    assert merged(replace(FIRST, state=other), replace(SECOND, state=one)).state is whole


def held(part: Job, mark: str, reason: str = "JobHeldAdmin") -> Job:
    return replace(part, hold=Hold.ADMIN, priority=0, reason=reason, admin_comment=mark)


def test_a_part_that_somebody_else_holds_holds_all() -> None:
    job = merged(held(FIRST, "omfs:held:1"), held(SECOND, "adm:held"))
    assert is_held(job) and not is_held_by_us(job)


def test_a_part_that_we_hold_holds_all() -> None:
    job = merged(replace(FIRST, priority=7), held(SECOND, "omfs:held:1"))
    assert is_held_by_us(job), "so that the release is sent again"


def test_a_part_that_an_administrator_has_released_leaves_the_others_ours() -> None:
    job = merged(held(FIRST, "omfs:held:5 why"), replace(SECOND, priority=7, admin_comment="adm:rel"))
    assert is_held_by_us(job) and job.admin_comment == "omfs:held:5 why"
    assert stored_marks(job) == "omfs:held:5,adm:rel"


@pytest.mark.parametrize("marks", [("omfs:rel:6", "adm:rel"), ("adm:rel", "omfs:rel:6")])
@pytest.mark.parametrize("state", [PENDING, RUNNING])
def test_once_nobody_holds_any_part_an_administrators_release_of_one_counts_for_all(
    state: JobState, marks: tuple[str, str]
) -> None:
    parts = [
        replace(part, state=state, priority=7, admin_comment=mark)
        for part, mark in zip((FIRST, SECOND), marks, strict=True)
    ]
    job = merged(*parts)
    assert (job.admin_comment, stored_marks(job)) == ("adm:rel", ",".join(marks))
    assert is_released_by_administrator(job) == (state is PENDING) and not may_hold(job)


def test_the_mark_of_parts_that_have_the_same_is_that_of_the_job() -> None:
    assert stored_marks(merged(held(FIRST, "omfs:held:5 one"), held(SECOND, "omfs:held:5 | other"))) == "omfs:held:5"
    assert stored_marks(held(FIRST, "omfs:held:5 why")) == "omfs:held:5"


def test_a_part_that_has_ended_has_no_mark() -> None:
    ended, third = replace(SECOND, state=JobState.ENDED), replace(SECOND, id=171, state=RUNNING)
    parts = [replace(FIRST, state=RUNNING, admin_comment="omfs:rel:6"), ended, replace(third, admin_comment="adm:rel")]
    (job,) = merge_parts(parts, (169, 170, 171))
    assert stored_marks(job) == "omfs:rel:6,,adm:rel"


@pytest.mark.parametrize("eligible", [(None, None), (100.0, 100.0), (101.0, 100.0), (100.0, 101.0)])
@pytest.mark.parametrize("changed", [0, 1])
def test_a_part_that_the_gate_holds_after_a_change_is_held_by_us(
    changed: int, eligible: tuple[float | None, float | None]
) -> None:
    """Its owner has changed it after the release: the gate holds that part alone, and says so in its comment alone."""
    parts = [
        replace(part, comment="omfs:method=requeue", admin_comment="omfs:rel:6", eligible=at)
        for part, at in zip((FIRST, SECOND), eligible, strict=True)
    ]
    assert not is_held_by_us(merged(*parts))
    gate = {"hold": Hold.USER, "priority": 0, "reason": "JobHeldUser", "comment": "omfs:method=requeue omfs:wait"}
    parts[changed] = replace(parts[changed], **gate)
    assert is_held_by_us(merged(*parts))
    parts[changed] = replace(parts[changed], comment="")
    assert not is_held_by_us(merged(*parts))


def test_it_waits_for_what_any_part_waits_for() -> None:
    job = merged(replace(FIRST, reason="Resources"), replace(SECOND, reason="Dependency", eligible=inf))
    assert (job.reason, job.eligible) == ("Dependency", inf)


def test_it_can_be_requeued_only_if_all_parts_can() -> None:
    assert not merged(second=replace(SECOND, requeue=False)).requeue


def test_parts_in_several_partitions() -> None:
    job = merged(second=replace(SECOND, partition="gpu", request=replace(SECOND.request, partitions=("gpu",))))
    assert (job.partition, job.request.partitions) == ("", ("gpu", "main"))


@pytest.mark.parametrize("differs", [{"account": "physics"}, {"qos": "high"}, {"uid": 8}, {"reservation": "r"}])
def test_parts_of_different_owners_stay_apart(differs: dict[str, str]) -> None:
    jobs = merge_parts([FIRST, replace(SECOND, **differs)], IDS)  # type: ignore[arg-type]
    assert [job.ref for job in jobs] == ["169+0", "169+1"]
    assert all("differ" in job.set_aside for job in jobs)


@pytest.mark.parametrize("state", [RUNNING, SUSPENDED, JobState.COMPLETING])
def test_what_has_started_stays_one_job_in_whatever_reservations_its_parts_are(state: JobState) -> None:
    """Owners can change that of a part that runs."""
    first, second = replace(FIRST, state=state), replace(SECOND, state=state, reservation="r")
    for parts in ((first, second), (first, replace(second, state=PENDING))):
        job = merged(*parts)
        assert (job.ref, job.set_aside) == ("169", "")
    assert [job.ref for job in merge_parts([first, replace(second, account="physics")], IDS)] == ["169+0", "169+1"]


def test_a_part_that_cannot_be_read_sets_all_aside() -> None:
    unread = replace(SECOND, set_aside="cannot be read", request=JobRequest(0), allocations=(Allocation("n2", 0, 0),))
    job = merged(second=unread)
    assert (job.ref, job.set_aside, job.request.cpus, job.parts) == ("169", "cannot be read", 0, ())
    assert job.on_nodes == ("n2",)


def test_one_of_which_a_part_has_ended() -> None:
    (job,) = merge_parts([replace(FIRST, state=RUNNING), replace(SECOND, state=JobState.ENDED)], IDS)
    assert (job.ended_part, job.set_aside, [part.id for part in job.parts]) == ("169+1", "", [169])
    (waits,) = merge_parts([SECOND], IDS)
    assert (waits.id, waits.ref, waits.ended_part) == (169, "169", "169+0") and "169+0" in waits.set_aside
    (ended,) = merge_parts([replace(part, state=JobState.ENDED) for part in (FIRST, SECOND)], IDS)
    assert (ended.set_aside, ended.ended_part, len(ended.parts)) == ("", "", 2)


def test_too_many_parts_and_unknown_ones() -> None:
    many = [replace(FIRST, id=number) for number in range(MOST_PARTS + 1)]
    (job,) = merge_parts(many, tuple(range(MOST_PARTS + 1)))
    assert "parts" in job.set_aside
    (job,) = merge_parts([FIRST, SECOND], ())
    assert job.set_aside


def test_a_job_that_has_not_changed_stays_the_same_object() -> None:
    het_jobs, first_of, ids = HetJobs(), {169: 169, 170: 169}, {169: IDS}
    other = replace(FIRST, id=5, ref="5")
    parts = [replace(part, state=RUNNING) for part in (FIRST, SECOND)]
    single, whole = het_jobs.merge([other, *parts], first_of, ids)
    assert single is other
    assert het_jobs.merge([other, *parts], first_of, ids)[1] is whole
    ran_on = [replace(part, run_time=9.0) for part in parts]
    again = het_jobs.merge([other, *ran_on], first_of, ids)[1]
    assert again.run_time == 9.0 and again.request is whole.request and again.allocations is whole.allocations
    assert het_jobs.merge([other, *ran_on], first_of, {})[1].set_aside, "which parts it had is not known"
    assert het_jobs.merge([other], {}, {}) == [other]


def test_what_one_part_bears_counts_for_the_failsafe() -> None:
    """An order may have been refused for a part, or given by an administrator for one alone."""
    one = replace(FIRST, state=SUSPENDED, admin_comment="omfs:stopping:5")
    for mark, kept, let_go in (("adm:held", True, False), ("omfs:rel:9", False, True), ("omfs:rel:5", False, False)):
        job = merged(one, replace(SECOND, state=SUSPENDED, admin_comment=mark))
        assert (is_kept_by_administrator(job), is_let_go(job, 5)) == (kept, let_go)
