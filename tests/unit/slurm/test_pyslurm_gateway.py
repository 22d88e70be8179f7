"""The PySlurm adapter where the contract cannot look: how often it asks, faults, and orders that are half done."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import psutil
import pytest

from omfs_daemon.cluster.jobs import Hold, JobRequest, JobState
from omfs_daemon.errors import GatewayError
from omfs_daemon.slurm.commands.command_gateway import CommandGateway
from omfs_daemon.slurm.gateway import OrderRefusal
from omfs_daemon.slurm.pyslurm import rows as pyslurm_rows
from omfs_daemon.slurm.pyslurm.pyslurm_child import PySlurmJob
from omfs_daemon.slurm.pyslurm.pyslurm_gateway import PySlurmGateway
from omfs_daemon.slurm.pyslurm.pyslurm_process import PySlurmProcess
from omfs_daemon.testing.fake_slurm.controller import FakeSlurm
from omfs_daemon.testing.fake_slurm.fake_gateway import FakeGateway, Fault
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission
from tests.support.clusters import FakeWorld
from tests.support.comments import HELD, RELEASED
from tests.support.pyslurm_stand_in.commands import FakeCommands, printed
from tests.support.pyslurm_stand_in.server import UNREADABLE, StandInServer, as_pyslurm_shows
from tests.support.waiting import LIMIT, wait_until

ONE = Submission(JobRequest(1))
USER_HELD = Submission(JobRequest(1), hold=Hold.USER)
LICENSES = {"ve": 4, "mem": 4}


class Site:
    """A fake Slurm of four nodes, its clock, and the adapter."""

    def __init__(self, server: StandInServer) -> None:
        self.now = 1_000_000.0
        self.server = server
        nodes = list(FakeSlurm.uniform(lambda: 0.0).fake_nodes.values())
        self.slurm = FakeSlurm(lambda: self.now, [node_license.node for node_license in nodes], licenses=LICENSES)
        server.gateway = self.fake = FakeGateway(self.slurm)
        self.commands = FakeCommands(self.fake)
        self.process = PySlurmProcess(None, LIMIT, variables=server.variables)
        self.gateway = PySlurmGateway(self.process, cast(CommandGateway, self.commands), clock=lambda: self.now)

    def asked(self) -> list[tuple[int, ...]]:
        """What squeue was asked for since the last time."""
        before, self.commands.asked = self.commands.asked, []
        return before

    def called(self) -> list[str]:
        """What PySlurm was told since the last time."""
        before, self.server.calls = self.server.calls, []
        return before


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    server = StandInServer(tmp_path)
    made = Site(server)
    yield made
    made.gateway.close()
    server.close()


# -- looking ---------------------------------------------------------------------------------------
def test_squeue_is_asked_once_for_a_job_and_again_when_that_is_old(site: Site) -> None:
    first = site.slurm.submit(USER_HELD)
    assert [job.id for job in site.gateway.jobs()] == [first]
    assert site.asked() == [()]
    second = site.slurm.submit(USER_HELD)
    assert [job.id for job in site.gateway.jobs()] == [first, second]
    assert site.asked() == [(second,)]
    site.now += 59
    before = site.gateway.jobs()
    assert site.asked() == []
    site.now += 2
    assert site.gateway.jobs() == before
    assert site.asked() == [()]


def test_what_pyslurm_shows_is_new_without_squeue(site: Site) -> None:
    job = site.slurm.submit(USER_HELD)
    site.gateway.jobs()
    site.asked()
    site.fake.set_nice([str(job)], -40)
    site.fake.hold([str(job)], HELD)
    site.fake.set_admin_comment([str(job)], "why")
    site.fake.set_licenses([str(job)], (("ve", 2),))
    (shown,) = site.gateway.jobs()
    assert (shown.nice, shown.hold, shown.admin_comment, shown.licenses) == (-40, Hold.ADMIN, "why", (("ve", 2),))
    assert site.asked() == []


def test_a_job_that_starts_is_asked_for_again(site: Site) -> None:
    job = site.slurm.submit(USER_HELD)
    site.gateway.jobs()
    site.asked()
    site.fake.release([str(job)], RELEASED)
    site.now += 5
    (shown,) = site.gateway.jobs()
    assert (shown.state, [allocation.cpus for allocation in shown.allocations]) == (JobState.RUNNING, [1])
    assert site.asked() == [(job,)]
    site.now += 5
    (later,) = site.gateway.jobs()
    assert later.run_time > shown.run_time and site.asked() == []


@pytest.mark.parametrize(("name", "asks"), [("comment", True), ("gres_per_node", False)])
def test_what_pyslurm_cannot_read_squeue_shows(site: Site, name: str, asks: bool) -> None:
    """In each look if it changes all the time; else it is as everything that PySlurm does not show."""
    job = site.slurm.submit(Submission(JobRequest(1, gres=()), hold=Hold.USER, comment="mine"))
    site.server.shows = {name: UNREADABLE}
    for _ in range(3):
        (shown,) = site.gateway.jobs()
        assert (shown.comment, shown.request.gres) == ("mine", ())
    assert site.asked() == [(), *([(job,), (job,)] if asks else [])]


def test_what_pyslurm_can_no_longer_read_squeue_shows_at_once(site: Site) -> None:
    job = site.slurm.submit(Submission(JobRequest(1), hold=Hold.USER, comment="mine"))
    site.gateway.jobs()
    site.server.shows = {"comment": UNREADABLE}
    assert [shown.comment for shown in site.gateway.jobs()] == ["mine"]
    assert site.asked() == [(), (job,)]


def test_a_job_that_ends_between_pyslurm_and_squeue_is_not_listed(site: Site) -> None:
    site.gateway.jobs()
    job = site.slurm.submit(USER_HELD)
    rows = site.commands.rows

    def ends_first(ids: tuple[int, ...]) -> object:
        site.slurm.cancel(job)
        return rows(ids)

    site.commands.rows = ends_first  # type: ignore[method-assign, assignment]
    assert site.gateway.jobs() == []


def test_many_new_jobs_are_asked_for_all_at_once(site: Site) -> None:
    site.gateway.jobs()
    site.asked()
    for _ in range(201):
        site.slurm.submit(USER_HELD)
    assert len(site.gateway.jobs()) == 201
    assert site.asked() == [()]


# -- faults ----------------------------------------------------------------------------------------
def test_after_a_fault_the_next_poll_is_full(site: Site) -> None:
    kept, ends = site.slurm.submit(USER_HELD), site.slurm.submit(USER_HELD)
    assert len(site.gateway.jobs()) == 2
    site.fake.faults.inject(Fault.DEAD, ["jobs"], times=1)
    with pytest.raises(GatewayError, match=r"PySlurm: jobs: Unable to contact slurm controller"):
        site.gateway.jobs()
    site.slurm.cancel(ends)
    assert [job.id for job in site.gateway.jobs()] == [kept]


@pytest.mark.parametrize("when", ["in a look", "between two"])
def test_a_process_that_died_leaves_no_job_behind(site: Site, when: str) -> None:
    kept, ends = site.slurm.submit(USER_HELD), site.slurm.submit(USER_HELD)
    site.gateway.jobs()
    site.slurm.cancel(ends)
    site.now += 1000  # Slurm has forgotten it
    if when == "in a look":
        site.server.faults.append("dies")
        with pytest.raises(GatewayError, match="ended"):
            site.gateway.jobs()
    else:
        pid = site.process.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, "its end")
    assert [job.id for job in site.gateway.jobs()] == [kept]


def test_a_squeue_that_fails_spoils_nothing(site: Site) -> None:
    site.gateway.jobs()
    job = site.slurm.submit(USER_HELD)
    rows = site.commands.rows

    def fails(_ids: object) -> object:
        raise GatewayError("squeue: no answer")

    site.commands.rows = fails  # type: ignore[method-assign, assignment]
    with pytest.raises(GatewayError, match="squeue"):
        site.gateway.jobs()
    site.commands.rows = rows  # type: ignore[method-assign]
    assert [job.id for job in site.gateway.jobs()] == [job]


def test_without_slurm_an_order_is_not_refused_but_fails(site: Site) -> None:
    job = site.slurm.submit(ONE)
    site.fake.faults.inject(Fault.DEAD, ["suspend", "find"])
    with pytest.raises(GatewayError, match=rf"Slurm did not take the order for {job}, 8: find: Unable to contact"):
        site.gateway.suspend([str(job), "8"])
    assert site.called() == ["suspend"], "each further question would take its time"


def test_a_connection_that_drops_in_an_order_concerns_that_job_while_slurm_answers(site: Site) -> None:
    job, other = (str(site.slurm.submit(ONE)) for _ in range(2))
    site.server.faults.append("drops")
    ((ref, message),) = site.gateway.suspend([job, other])
    assert ref == job
    assert "Zero Bytes were transmitted" in message
    assert site.gateway.find(int(other)).state is JobState.SUSPENDED  # type: ignore[union-attr]


# -- orders ----------------------------------------------------------------------------------------
def test_orders_go_through_pyslurm_where_it_can_carry_them_out(site: Site) -> None:
    held, running = str(site.slurm.submit(USER_HELD)), str(site.slurm.submit(ONE))
    site.called()
    for refusals in (
        site.gateway.set_nice([held], 0),
        site.gateway.set_admin_comment([held], "x"),
        site.gateway.set_licenses([held], (("ve", 1),)),
        site.gateway.pin(held, ["n1"]),
        site.gateway.allow_requeue([held]),
        site.gateway.hold([held], HELD),
        site.gateway.release([held], RELEASED),
        site.gateway.suspend([running]),
        site.gateway.resume([running]),
    ):
        assert refusals == []
    assert site.called() == [*["modify"] * 7, "suspend", "resume"], "holds and releases carry their marks"


def test_what_pyslurm_cannot_express_goes_by_commands(site: Site) -> None:
    held, running = site.slurm.submit(USER_HELD), site.slurm.submit(ONE)
    site.called()
    assert site.gateway.pin(str(held), []) == []
    assert site.gateway.pin(str(held), ["n1"], ()) == []
    assert site.gateway.set_licenses([str(held)], ()) == []
    assert site.gateway.set_admin_comment([str(held)], "") == []
    assert site.gateway.requeue([str(running)]) == []
    assert site.called() == []


def test_a_task_of_its_own_goes_through_pyslurm_and_the_waiting_rest_by_commands(site: Site) -> None:
    array = site.slurm.submit(Submission(JobRequest(16, nodes=4), array=(0, 1, 2)))
    tasks = {job.ref: job for job in site.gateway.jobs()}
    assert set(tasks) == {f"{array}_0", f"{array}_[1-2]"}
    site.called()
    assert site.gateway.set_nice([f"{array}_0", f"{array}_[1-2]", f"{array}_1"], 7) == []
    assert site.called() == ["modify"]
    assert {job.nice for job in site.gateway.jobs()} == {7}
    site.called()
    assert site.gateway.set_nice([str(array)], 8) == []
    assert site.called() == [] and {job.nice for job in site.gateway.jobs()} == {8}


def test_parts_of_a_heterogeneous_job_go_by_commands(site: Site) -> None:
    job = site.slurm.submit(USER_HELD)
    site.server.shows = {"heterogeneous_id": job}
    site.gateway.jobs()
    site.called()
    assert site.gateway.release([str(job)], RELEASED) == []
    assert site.called() == [] and site.slurm.records[job].hold is Hold.NONE


@pytest.mark.parametrize("wrong", ["7;id", "", "-1", "\u0661", "7 8"])
def test_what_is_no_reference_is_never_sent(site: Site, wrong: str) -> None:
    sent: list[str] = []
    site.commands.hold = lambda refs, comment: [sent.extend(refs), []][1]  # type: ignore[method-assign, assignment]
    site.gateway.hold([wrong], HELD)
    assert sent == [wrong] and site.called() == []


def test_more_orders_than_go_into_one_request(site: Site) -> None:
    ids = [site.slurm.submit(USER_HELD) for _ in range(230)]
    refused = site.gateway.set_nice([*map(str, ids), "9999"], 3)
    assert refused == [OrderRefusal("9999", "Invalid job id specified")]
    assert {site.slurm.records[job].nice for job in ids} == {3}


def pinned(site: Site, job: int) -> tuple[frozenset[str], tuple[tuple[str, int], ...]]:
    record = site.slurm.records[job]
    return record.request.required_nodes, record.licenses


def test_an_order_that_was_half_carried_out_is_undone_and_refused(site: Site) -> None:
    job = site.slurm.submit(Submission(JobRequest(1), hold=Hold.USER, licenses=(("mem", 1),)))
    site.server.faults.extend(["", "half"])  # first it is read
    (refusal,) = site.gateway.pin(str(job), ["n2"], (("ve", 1),))
    assert refusal == OrderRefusal(str(job), "Invalid license specification")
    assert pinned(site, job) == (frozenset(), (("mem", 1),))


def test_an_order_that_cannot_be_undone_is_an_error(site: Site) -> None:
    job = site.slurm.submit(USER_HELD)
    site.server.faults.extend(["", "half"])
    site.commands.pin = lambda ref, *_: [OrderRefusal(ref, "no")]  # type: ignore[method-assign]
    with pytest.raises(GatewayError, match=rf"an order for job {job} was carried out in part and is not undone: no"):
        site.gateway.pin(str(job), ["n2"], (("ve", 1),))


def test_an_order_that_was_carried_out_with_an_error_is_not_refused(site: Site) -> None:
    job = site.slurm.submit(USER_HELD)
    site.server.faults.extend(["", "done"])
    assert site.gateway.pin(str(job), ["n2"], (("ve", 1),)) == []
    assert pinned(site, job) == ({"n2"}, (("ve", 1),))


# -- rows ------------------------------------------------------------------------------------------
def test_the_row_of_now_is_the_one_that_squeue_would_print() -> None:
    world = FakeWorld()
    job_id = world.submit(Submission(JobRequest(2), array=(0, 1), nice=-5, comment="a b", licenses=(("ve", 3),)))
    world.submit(Submission(JobRequest(1), hold=Hold.USER))
    before = {job.id: printed(job) for job in world.gateway.jobs()}
    world.gateway.set_nice([f"{job_id}_0", f"{job_id}_1"], -77)
    world.gateway.set_admin_comment([f"{job_id}_0"], "x")
    world.gateway.suspend([f"{job_id}_1"])
    for job in world.gateway.jobs():
        shown = as_pyslurm_shows(job)
        seen = PySlurmJob(*(shown[name] for name in PySlurmJob._fields))
        now = pyslurm_rows.row_now(before[job.id], seen, shown["run_time"])
        differing = {name for name, value in printed(job)._asdict().items() if getattr(now, name) != value}
        assert all(
            {getattr(now, name), getattr(printed(job), name)} <= {"", "(null)", "None", "N/A"} for name in differing
        )
