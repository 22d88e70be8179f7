"""Licenses, with which a site counts what Slurm would keep for a suspended job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omfs_daemon.cluster.jobs import Hold, JobRequest, JobState
from omfs_daemon.slurm.gateway import LicenseRow
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission
from tests.support.clusters import LICENSES, World
from tests.support.comments import HELD, RELEASED

N1 = frozenset({"n1"})
BOTH = (("ve_n1", 2),)
ONE = Submission(JobRequest(1), licenses=(("ve_n1", 1),))
TWO = Submission(JobRequest(1), licenses=BOTH)


def used(world: World, name: str = "ve_n1") -> int:
    return next(row.used for row in world.gateway.licenses() if row.name == name)


def test_what_there_is_and_what_is_held_is_shown(world: World) -> None:
    assert sorted(world.gateway.licenses()) == [LicenseRow(name, LICENSES[name], 0) for name in sorted(LICENSES)]
    world.running(Submission(JobRequest(1), licenses=(("mem_n1", 3), ("ve_n1", 1))))
    assert (used(world), used(world, "mem_n1"), used(world, "ve")) == (1, 3, 0)


def test_a_job_shows_what_it_asks_for_and_what_it_holds(world: World) -> None:
    asked = (("mem_n1", 3), ("ve_n1", 1))
    job = world.submit(Submission(JobRequest(1), licenses=asked, hold=Hold.USER))
    plain = world.submit(Submission(JobRequest(1), hold=Hold.USER))
    assert (world.job(job).licenses, world.job(plain).licenses) == (asked, ())
    world.gateway.release([str(job)], RELEASED)
    world.until(lambda: world.runs(job))
    shown = world.listed(job)
    assert shown is not None and shown.licenses == asked


def test_a_job_waits_for_its_licenses_and_blocks_no_other(world: World) -> None:
    holder = world.running(TWO)
    waiting = world.submit(ONE)
    other = world.submit(Submission(JobRequest(1), nice=50))
    world.until(lambda: world.job(waiting).reason == "Licenses")
    world.until(lambda: world.runs(other))
    assert world.waits(waiting)
    world.cancel(holder)
    world.until(lambda: world.runs(waiting))


def test_what_a_running_job_no_longer_holds_others_get(world: World) -> None:
    holder, waiting = world.running(TWO), world.submit(TWO)
    assert world.gateway.set_licenses([str(holder)], ()) == []
    world.soon(lambda: world.runs(waiting), 5)
    assert (world.job(holder).licenses, world.runs(holder), used(world)) == ((), True, 2)


def test_a_suspended_job_keeps_its_licenses_and_none_can_be_taken_from_it(world: World) -> None:
    holder, waiting = world.running(TWO), world.submit(ONE)
    world.gateway.suspend([str(holder)])
    assert world.stays(lambda: world.waits(waiting))
    assert [refusal.ref for refusal in world.gateway.set_licenses([str(holder)], ())] == [str(holder)]
    assert (world.job(holder).licenses, used(world)) == (BOTH, 2)
    world.cancel(holder)
    world.until(lambda: world.runs(waiting))


def test_what_is_taken_back_is_not_checked_and_overbooks(world: World) -> None:
    """Stripped, suspended, resumed, given back while another holds it: whoever gives it back must look first."""
    first = world.running(TWO)
    world.gateway.set_licenses([str(first)], ())
    world.gateway.suspend([str(first)])
    second, third = world.running(TWO), world.submit(ONE)
    world.gateway.resume([str(first)])
    assert world.gateway.set_licenses([str(first)], BOTH) == []
    assert (world.job(first).licenses, used(world)) == (BOTH, 4)
    world.cancel(second)
    world.until(lambda: used(world) == 2)
    assert world.stays(lambda: world.waits(third))


def test_giving_licenses_twice_is_harmless(world: World) -> None:
    job = world.running(ONE)
    for _ in range(2):
        assert world.gateway.set_licenses([str(job)], BOTH) == []
    assert used(world) == 2
    for _ in range(2):
        assert world.gateway.set_licenses([str(job)], ()) == []
    assert used(world) == 0


@pytest.mark.parametrize("wanted", [(("nope", 1),), (("ve_n1", 3),)])
def test_unknown_licenses_and_more_than_there_are_in_all_are_refused(
    world: World, wanted: tuple[tuple[str, int], ...]
) -> None:
    waiting, running = world.submit(replace(ONE, hold=Hold.USER)), world.running(ONE)
    refs = [str(waiting), str(running), "999999"]
    assert {refusal.ref for refusal in world.gateway.set_licenses(refs, wanted)} == set(refs)
    assert world.job(waiting).licenses == world.job(running).licenses == ONE.licenses


def test_a_requeued_job_waits_for_what_it_held_last(world: World) -> None:
    job = world.running(TWO)
    world.gateway.set_licenses([str(job)], ONE.licenses)
    world.gateway.hold([str(job)], HELD)
    world.gateway.requeue([str(job)])
    world.until(lambda: world.waits(job))
    assert (world.job(job).licenses, used(world)) == (ONE.licenses, 0)
    assert world.gateway.set_licenses([str(job)], BOTH) == []
    assert (world.job(job).licenses, used(world)) == (BOTH, 0)


def test_a_job_that_is_completing_still_holds_them(world: World) -> None:
    job = world.running(replace(TWO, ignores_term=True, run_time=3600))
    world.cancel(job)
    world.soon(lambda: world.is_in(job, JobState.COMPLETING), 2)
    assert used(world) == 2
    assert len(world.gateway.set_licenses([str(job)], ())) == 1
    world.until(lambda: used(world) == 0)


def test_nodes_and_licenses_are_set_together(world: World) -> None:
    job = world.submit(Submission(JobRequest(1), licenses=(("ve", 1),), hold=Hold.USER))
    assert world.gateway.pin(str(job), ["n1"], ONE.licenses) == []
    assert (world.job(job).request.required_nodes, world.job(job).licenses) == (N1, ONE.licenses)
    world.gateway.release([str(job)], RELEASED)
    world.until(lambda: world.runs(job))
    assert (world.job(job).on_nodes, used(world), used(world, "ve")) == (("n1",), 1, 0)


def test_a_pin_alone_leaves_the_licenses_and_an_empty_one_takes_them(world: World) -> None:
    job = world.submit(replace(ONE, hold=Hold.USER))
    world.gateway.pin(str(job), ["n1"])
    assert world.job(job).licenses == ONE.licenses
    assert world.gateway.pin(str(job), [], ()) == []
    assert (world.job(job).request.required_nodes, world.job(job).licenses) == (frozenset(), ())


@pytest.mark.parametrize(
    ("nodes", "licenses"), [(["nowhere"], (("mem_n1", 1),)), (["n2"], (("nope", 1),)), (["n2"], (("ve_n1", 3),))]
)
def test_of_nodes_and_licenses_both_or_none_are_set(
    world: World, nodes: list[str], licenses: tuple[tuple[str, int], ...]
) -> None:
    job = world.submit(replace(ONE, hold=Hold.USER))
    assert [refusal.ref for refusal in world.gateway.pin(str(job), nodes, licenses)] == [str(job)]
    assert (world.job(job).request.required_nodes, world.job(job).licenses) == (frozenset(), ONE.licenses)


def test_each_task_of_an_array_holds_its_own(world: World) -> None:
    array = world.submit(replace(ONE, array=(1, 2, 3)))
    world.until(lambda: sum(job.state is JobState.RUNNING for job in world.tasks(array).values()) == 2)
    assert world.stays(lambda: world.tasks(array)[3].state is JobState.PENDING)
    assert (used(world), world.tasks(array)[3].licenses) == (2, ONE.licenses)


@pytest.mark.parametrize("licenses", [(("ve_n1", 0),), (("a,b", 1),), (("a nice=-5", 1),), (("", 1),)])
def test_what_cannot_be_a_license_is_never_sent(world: World, licenses: tuple[tuple[str, int], ...]) -> None:
    """Refused on our side: a site may have licenses in slurm.conf with names that no command bears."""
    (refusal,) = world.gateway.set_licenses(["1"], licenses)
    assert refusal.ref == "1" and refusal.message.startswith("not licenses")
    (refusal,) = world.gateway.pin("1", ["n1"], licenses)
    assert refusal.ref == "1" and refusal.message.startswith("not licenses")


def test_a_job_can_be_allowed_to_be_requeued(world: World) -> None:
    job = world.running(Submission(JobRequest(1), requeue=False))
    assert len(world.gateway.requeue([str(job)])) == 1
    assert not world.job(job).requeue
    assert world.gateway.allow_requeue([str(job)]) == []
    assert world.job(job).requeue
    assert world.gateway.requeue([str(job)]) == []
    world.until(lambda: world.waits(job))
    assert [refusal.ref for refusal in world.gateway.allow_requeue(["999999"])] == ["999999"]
