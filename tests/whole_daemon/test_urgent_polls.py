"""Polls for new jobs alone: an urgent one is seen by its id, its victims are confirmed, nothing else is concluded."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.cluster.marks import SUBMIT_MARK
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.daemon.api.cycle_report import CycleReport
from omfs_daemon.daemon.new_jobs import MOST_JOBS, MOST_NEW
from omfs_daemon.daemon.poll_schedule import PollKind
from omfs_daemon.errors import GatewayError
from omfs_daemon.slurm.gateway import SlurmSettings
from omfs_daemon.testing.fake_slurm.fake_gateway import FakeGateway
from omfs_daemon.testing.fake_slurm.faults import Fault
from omfs_daemon.testing.fake_slurm.people import Actor, People
from tests.support.fake_site import Site, site_rules


class CountingGateway(FakeGateway):
    """Notes what is asked."""

    asked: list[int | str]

    def find(self, job: int | str) -> Job | None:
        self.asked.append(job)
        return super().find(job)

    def jobs(self) -> list[Job]:
        self.asked.append("all")
        return super().jobs()

    def settings(self) -> SlurmSettings:
        self.asked.append("settings")
        return super().settings()

    def nodes(self, names: Collection[str] = ()) -> list[Node]:
        self.asked.extend(sorted(names))
        return super().nodes(names)


class PolledSite(Site):
    """Two nodes, each with a regular job, which the daemon has seen."""

    gateway: CountingGateway

    def urgent(self, **more: Any) -> int:
        return self.submit("alarm", urgent=True, method="", run_time=20, **more)

    def submit_nothing(self, number: int) -> None:
        """Ids are given, and no job has them."""
        for _ in range(number):
            job = self.submit("physics", run_time=500)
            self.slurm.cancel(job)
            del self.slurm.records[job]

    def poll_new(self) -> CycleReport:
        self.gateway.asked = []
        report = self.cycle.run(PollKind.URGENT)
        assert report.error is None
        assert "all" not in self.gateway.asked
        return report


def site_of(directory: Path, hosts: int, **rules: Any) -> PolledSite:
    found = PolledSite(directory, site_rules(**rules), hosts=hosts)
    found.gateway.__class__ = CountingGateway
    found.gateway.asked = []
    return found


def polled(directory: Path, **rules: Any) -> tuple[PolledSite, list[int]]:
    found = site_of(directory, 2, **rules)
    victims = [found.submit("bio", run_time=500, on=node) for node in ("n1", "n2")]
    found.run_until(lambda: found.runs(*victims), limit=20)
    found.run(5)
    return found, victims


def test_an_urgent_job_is_seen_by_its_id_and_only_its_victim_is_confirmed(tmp_path: Path) -> None:
    site, victims = polled(tmp_path)
    urgent = site.urgent()
    report = site.poll_new()
    (begun,) = site.journal.state.preemptions.values()
    (victim,) = (int(one.ref) for one in begun.victims)
    assert begun.preemptor.ref == str(urgent) and victim in victims
    assert site.gateway.asked == [urgent, victim]
    assert not report.needs_full
    site.run_until(lambda: site.runs(urgent), limit=30)


def test_others_are_new_too_and_the_urgent_one_is_found_behind_them(tmp_path: Path) -> None:
    site, _ = polled(tmp_path)
    regular = site.submit("physics", run_time=500)
    urgent = site.urgent()
    site.poll_new()
    assert site.gateway.asked[:2] == [regular, urgent]
    assert [one.preemptor.ref for one in site.journal.state.preemptions.values()] == [str(urgent)]


def test_urgent_jobs_that_waited_are_asked_for_only_if_another_is_new(tmp_path: Path) -> None:
    site = site_of(tmp_path, 1)
    runs = site.urgent()
    site.run_until(lambda: site.runs(runs), limit=20)
    waits = site.urgent()
    site.cycle.run()
    site.poll_new()
    assert site.gateway.asked == [waits + 1, "settings"]
    urgent = site.urgent()
    site.poll_new()
    assert site.gateway.asked[:2] == [urgent, waits]


@pytest.mark.parametrize("number", [MOST_JOBS, MOST_JOBS + 1])
def test_where_many_urgent_jobs_waited_a_full_poll_decides(tmp_path: Path, number: int) -> None:
    """Some may have started, on other nodes than they would be planned on."""
    site = site_of(tmp_path, 1)
    runs = site.urgent()
    site.run_until(lambda: site.runs(runs), limit=20)
    waiting = [site.urgent() for _ in range(number)]
    site.cycle.run()
    urgent = site.urgent()
    report = site.poll_new()
    assert report.needs_full
    assert set(site.gateway.asked) == {urgent, *(waiting if number <= MOST_JOBS else [])}
    assert (report.plan is None) == (number > MOST_JOBS)


@pytest.mark.parametrize("number", [1, 2, MOST_NEW])
def test_ids_without_a_job_are_passed_over(tmp_path: Path, number: int) -> None:
    """``sbatch --test-only`` takes an id and leaves no record."""
    site, _ = polled(tmp_path)
    site.submit_nothing(number)
    urgent = site.urgent()
    site.poll_new()
    assert [one.preemptor.ref for one in site.journal.state.preemptions.values()] == [str(urgent)]


def test_so_many_ids_without_a_job_are_for_a_full_poll(tmp_path: Path) -> None:
    site, _ = polled(tmp_path)
    site.submit_nothing(MOST_NEW + 2)
    site.urgent()
    assert site.poll_new().needs_full


def test_after_that_full_poll_they_are_passed_over(tmp_path: Path) -> None:
    """Also where no job has come after them."""
    site, _ = polled(tmp_path)
    site.submit_nothing(2 * MOST_NEW)
    assert site.poll_new().needs_full
    site.cycle.run()
    assert not site.poll_new().needs_full
    urgent = site.urgent()
    site.poll_new()
    assert [one.preemptor.ref for one in site.journal.state.preemptions.values()] == [str(urgent)]


def test_a_job_whose_id_was_given_during_a_full_poll_is_asked_for(tmp_path: Path) -> None:
    site, _ = polled(tmp_path)
    observed = site.cycle.observe()
    site.now += 1
    site.submit_nothing(2 * MOST_NEW)
    assert site.poll_new().needs_full
    site.cycle.run(PollKind.FULL, lambda: observed)
    assert site.poll_new().needs_full


def test_where_nothing_is_new_slurmctld_is_asked_for_the_next_id_once(tmp_path: Path) -> None:
    site, _ = polled(tmp_path)
    site.poll_new()
    assert site.gateway.asked == [3, "settings"]


def test_only_an_urgent_job_that_could_start_is_decided_upon(tmp_path: Path) -> None:
    site, _ = polled(tmp_path)
    assert site.poll_new().plan is None
    site.submit("physics", run_time=500)
    site.urgent(begin=site.now + 1000)
    assert site.poll_new().plan is None
    site.urgent()
    assert site.poll_new().plan is not None
    assert site.poll_new().plan is None


def test_an_urgent_job_behind_one_that_waits_for_its_begin_time_is_found_at_once(tmp_path: Path) -> None:
    site, _ = polled(tmp_path)
    later, urgent = site.urgent(begin=site.now + 1000), site.urgent()
    site.poll_new()
    assert site.gateway.asked[:2] == [later, urgent]
    assert [one.preemptor.ref for one in site.journal.state.preemptions.values()] == [str(urgent)]


def test_lower_ids_than_before_are_for_a_full_poll_and_then_asked_for(tmp_path: Path) -> None:
    """slurmctld was killed, and has forgotten the last jobs."""
    site, _ = polled(tmp_path)
    lost = [site.submit("physics", run_time=500, begin=site.now + 1000) for _ in range(5)]
    site.run(2)
    for job in lost:
        site.slurm.cancel(job)
        del site.slurm.records[job]
    site.slurm._jobs.next_id = lost[0]
    assert site.poll_new().needs_full
    site.cycle.run()
    urgent = site.urgent()
    assert urgent == lost[0]
    assert site.poll_new().plan is not None
    assert [one.preemptor.ref for one in site.journal.state.preemptions.values()] == [str(urgent)]


def test_many_new_jobs_do_not_keep_an_urgent_one_waiting(tmp_path: Path) -> None:
    """Where full polls take seconds, the next one may come half a minute later."""
    site, _ = polled(tmp_path)
    for _ in range(MOST_NEW - 1):
        site.submit("physics", run_time=500)
    urgent = site.urgent()
    site.poll_new()
    assert [one.preemptor.ref for one in site.journal.state.preemptions.values()] == [str(urgent)]


def test_too_many_new_jobs_are_for_a_full_poll(tmp_path: Path) -> None:
    site, _ = polled(tmp_path)
    for _ in range(MOST_NEW + 1):
        site.submit("physics", run_time=500)
    site.urgent()
    assert site.poll_new().needs_full
    assert not site.journal.state.preemptions
    assert len(site.gateway.asked) == MOST_NEW + 1


@pytest.mark.parametrize("change", ["cancel", "requeue", "suspend"])
def test_victims_that_have_changed_since_are_not_preempted(tmp_path: Path, change: str) -> None:
    site, victims = polled(tmp_path)
    changes: dict[str, Callable[[list[str]], object]] = {
        "cancel": lambda refs: [site.slurm.cancel(int(ref)) for ref in refs],
        "requeue": site.gateway.requeue,
        "suspend": site.gateway.suspend,
    }
    changes[change]([str(victim) for victim in victims])
    urgent = site.urgent()
    acts = site.fuse.acts
    site.poll_new()
    assert (site.fuse.acts, site.journal.state.preemptions) == (acts, {})
    site.run_until(lambda: site.runs(urgent), limit=60)


def suspendable(directory: Path) -> tuple[PolledSite, int]:
    """One node, with a job that has a quarter of its memory."""
    site = site_of(directory, 1)
    (node,) = site.gateway.nodes()
    victim = site.submit("bio", method="suspend", run_time=500, memory=node.memory // 4)
    site.run_until(lambda: site.runs(victim), limit=20)
    site.run(5)
    return site, node.memory // 4


def test_beside_a_job_that_keeps_its_memory_the_idle_memory_of_the_node_is_confirmed(tmp_path: Path) -> None:
    site, quarter = suspendable(tmp_path)
    urgent = site.urgent(memory=3 * quarter)
    assert not site.poll_new().needs_full
    assert site.gateway.asked == [urgent, urgent - 1, "n1"] or site.gateway.asked == [urgent, "n1", urgent - 1]
    assert [one.preemptor.ref for one in site.journal.state.preemptions.values()] == [str(urgent)]
    site.run_until(lambda: site.runs(urgent), limit=30)


@pytest.mark.parametrize("change", ["taken", "drained", "gone"])
def test_memory_that_is_idle_no_longer_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    site, quarter = suspendable(tmp_path)
    site.urgent(memory=3 * quarter)
    (node,) = site.gateway.nodes()

    def nodes(names: Collection[str]) -> list[Node]:
        assert list(names) == [node.name]
        if change == "gone":
            raise GatewayError("Node n1 not found")
        taken = 2 if change == "taken" else 1
        return [replace(node, memory_taken=taken * quarter, up=change != "drained")]

    with monkeypatch.context() as patched:
        patched.setattr(site.gateway, "nodes", nodes)
        assert site.poll_new().needs_full
    assert not site.journal.state.preemptions


def test_where_memory_was_promised_to_another_none_counts(tmp_path: Path) -> None:
    """Both would fit, but a third may have started since all jobs were polled, and the first may not run yet."""
    site = site_of(tmp_path, 1)
    (node,) = site.gateway.nodes()
    quarter = node.memory // 4
    victims = [site.submit("bio", cpus=2, method="suspend", run_time=500) for _ in range(2)]
    site.run_until(lambda: site.runs(*victims), limit=20)
    site.run(5)
    urgent = [site.urgent(cpus=2, memory=quarter), site.urgent(cpus=2, memory=quarter)]
    site.poll_new()
    assert site.poll_new().needs_full
    assert [one.preemptor.ref for one in site.journal.state.preemptions.values()] == [str(urgent[0])]


def test_what_may_be_idle_no_longer_does_not_count(tmp_path: Path) -> None:
    """Half a node was idle, so one victim of two CPUs would be enough; but that was long ago."""
    site = site_of(tmp_path, 1)
    small = site.submit("bio", cpus=2, run_time=500)
    site.run(5)
    assert site.runs(small)
    urgent = site.urgent(cpus=4)
    assert site.poll_new().needs_full
    assert not site.journal.state.preemptions
    site.run_until(lambda: site.runs(urgent), limit=30)


def half_idle(directory: Path) -> tuple[PolledSite, People, int]:
    """Two nodes of which the daemon has seen one idle, and a job that waits for it, held."""
    site, (stays, leaves) = polled(directory)
    people = People(site.slurm)
    held = site.submit("bio", run_time=500, on="n2")
    people.hold(held, Actor.ROOT)
    people.cancel(leaves)
    site.run(10)
    assert site.runs(stays) and site.state(held) is JobState.PENDING
    return site, people, held


def test_an_idle_node_is_confirmed_and_the_urgent_job_released_for_it(tmp_path: Path) -> None:
    site, _, _ = half_idle(tmp_path)
    urgent = site.urgent(hold=Hold.USER, admin_comment=SUBMIT_MARK)
    assert not site.poll_new().needs_full
    assert site.gateway.asked == [urgent, "n2"]
    assert not site.journal.state.preemptions
    site.now += 1
    assert site.job(urgent).on_nodes == ("n2",)


def test_no_other_new_job_is_released_with_it(tmp_path: Path) -> None:
    """What its account uses is known with all jobs only."""
    site, people, held = half_idle(tmp_path)
    people.cancel(held)
    site.run(5)
    at_gate: dict[str, Any] = {"hold": Hold.USER, "admin_comment": SUBMIT_MARK}
    regular = site.submit("physics", method="", run_time=500, cpus=2, **at_gate)
    urgent = site.urgent(cpus=2, **at_gate)
    site.poll_new()
    assert site.gateway.asked == [regular, urgent, "n2"]
    site.now += 1
    assert (site.state(regular), site.state(urgent)) == (JobState.PENDING, JobState.RUNNING)


def test_where_an_old_job_has_taken_an_idle_node_since_others_are_preempted_at_once(tmp_path: Path) -> None:
    site, people, held = half_idle(tmp_path)
    people.release(held, Actor.ROOT)
    site.now += 1
    assert site.runs(held)
    urgent = site.urgent()
    assert not site.poll_new().needs_full
    assert site.gateway.asked == [urgent, "n2", 1]
    (begun,) = site.journal.state.preemptions.values()
    assert [allocation.node for allocation in begun.preemptor.allocations] == ["n1"]
    site.run_until(lambda: site.runs(urgent), limit=30)


def test_nobody_is_preempted_for_an_idle_node_that_an_urgent_job_did_not_take(tmp_path: Path) -> None:
    """Slurm starts a job that was released on the node of its choice."""
    site, victims = site_of(tmp_path, 3), list[int]()
    victims.append(site.submit("bio", run_time=500, on="n1"))
    site.run_until(lambda: site.runs(*victims), limit=20)
    site.run(5)
    first = site.urgent(hold=Hold.USER, admin_comment=SUBMIT_MARK)
    (start,) = (site.poll_new().plan or pytest.fail("no plan")).starts
    (planned,) = (allocation.node for allocation in start.allocations)
    (other,) = {"n2", "n3"} - {planned}
    record = site.slurm.records[first]
    record.request = replace(record.request, required_nodes=frozenset({other}))
    site.now += 1
    assert site.job(first).on_nodes == (other,)
    second = site.urgent(hold=Hold.USER, admin_comment=SUBMIT_MARK)
    site.poll_new()
    assert not site.journal.state.preemptions
    site.now += 1
    assert site.job(second).on_nodes == (planned,)


@pytest.mark.parametrize("fault", ["no answer", "drained"])
def test_an_idle_node_that_cannot_be_confirmed_is_not_counted_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    site, _, _ = half_idle(tmp_path)
    urgent = site.urgent(hold=Hold.USER, admin_comment=SUBMIT_MARK)
    (node,) = site.gateway.nodes(["n2"])

    def nodes(_names: Collection[str]) -> list[Node]:
        if fault == "no answer":
            raise GatewayError("Node n2 not found")
        return [replace(node, up=False)]

    with monkeypatch.context() as patched:
        patched.setattr(site.gateway, "nodes", nodes)
        assert site.poll_new().needs_full == (fault == "no answer")
    preemptors = [one.preemptor.ref for one in site.journal.state.preemptions.values()]
    assert preemptors == ([] if fault == "no answer" else [str(urgent)])


def test_where_accounts_keep_what_they_are_entitled_to_a_full_poll_decides(tmp_path: Path) -> None:
    site, _ = polled(tmp_path, urgent_may_take_entitled=False)
    site.urgent()
    assert site.poll_new().needs_full
    assert not site.journal.state.preemptions


def test_after_a_failed_poll_nothing_is_known(tmp_path: Path) -> None:
    site, _ = polled(tmp_path)
    site.gateway.faults.inject(Fault.HANG, ["jobs"])
    site.urgent()
    assert site.cycle.run().error
    site.gateway.faults.clear()
    assert site.poll_new().needs_full
    assert not site.journal.state.preemptions


def test_an_urgent_poll_that_fails_is_followed_by_a_full_one_that_shows_its_job(tmp_path: Path) -> None:
    site, _ = polled(tmp_path)
    urgent = site.urgent()
    site.gateway.faults.inject(Fault.HANG, ["find"])
    report = site.cycle.run(PollKind.URGENT)
    assert report.error is not None and report.needs_full
    site.gateway.faults.clear()
    site.run_until(lambda: site.runs(urgent), limit=30)


def test_two_urgent_jobs_in_turn_get_different_victims(tmp_path: Path) -> None:
    site, victims = polled(tmp_path)
    urgent = [site.urgent(), site.urgent()]
    site.poll_new()
    site.poll_new()
    begun = site.journal.state.preemptions.values()
    assert {one.preemptor.ref for one in begun} == {str(job) for job in urgent}
    assert sorted(victim.ref for one in begun for victim in one.victims) == sorted(map(str, victims))
    site.run_until(lambda: site.runs(*urgent), limit=60)


def test_jobs_that_wait_unobserved_stay_as_they_are(tmp_path: Path) -> None:
    site, victims = polled(tmp_path)
    entitled = site.submit("physics", method="requeue", on="n1", run_time=500)
    site.run_until(lambda: site.runs(entitled), limit=60)
    held = site.submit("bio", method="", cpus=8, hosts=2, run_time=500)
    site.run_until(lambda: site.job(held).hold is Hold.ADMIN, limit=60)
    site.run_until(lambda: not site.journal.state.preemptions, limit=120)
    before = [site.job(job) for job in (held, entitled, *victims)]
    site.submit("physics", run_time=500)
    acts = site.fuse.acts
    for _ in range(5):
        site.poll_new()
    assert site.fuse.acts == acts
    assert [site.job(job) for job in (held, entitled, *victims)] == before
    assert site.state(held) is JobState.PENDING


def completing(directory: Path) -> tuple[PolledSite, People, int, int]:
    """Two nodes, on one of which the daemon has seen a job completing, and another that waits for it, held."""
    site, (_, leaves) = polled(directory)
    people = People(site.slurm)
    held = site.submit("bio", run_time=500, on="n2")
    people.hold(held, Actor.ROOT)
    people.cancel(leaves)
    assert site.state(leaves) is JobState.COMPLETING
    assert site.cycle.run().error is None
    return site, people, leaves, held


def left(site: PolledSite, job: int) -> None:
    site.now += 10
    assert site.state(job) is JobState.ENDED


def test_where_a_job_was_completing_the_urgent_one_is_released_once_it_has_left(tmp_path: Path) -> None:
    site, _, leaves, _ = completing(tmp_path)
    left(site, leaves)
    urgent = site.urgent(hold=Hold.USER, admin_comment=SUBMIT_MARK)
    assert not site.poll_new().needs_full
    assert sorted(map(str, site.gateway.asked)) == sorted(map(str, [urgent, leaves, "n2"]))
    assert not site.journal.state.preemptions
    site.now += 1
    assert site.job(urgent).on_nodes == ("n2",)


def test_where_another_runs_in_the_place_of_a_completing_job_others_are_preempted_at_once(tmp_path: Path) -> None:
    site, people, leaves, held = completing(tmp_path)
    left(site, leaves)
    people.release(held, Actor.ROOT)
    site.now += 1
    assert site.runs(held)
    urgent = site.urgent()
    assert not site.poll_new().needs_full
    (begun,) = site.journal.state.preemptions.values()
    assert [allocation.node for allocation in begun.preemptor.allocations] == ["n1"]
    site.run_until(lambda: site.runs(urgent), limit=30)


def test_a_job_that_completes_still_is_waited_for(tmp_path: Path) -> None:
    site, _, leaves, _ = completing(tmp_path)
    urgent = site.urgent()
    assert site.poll_new().needs_full
    assert leaves in site.gateway.asked
    assert not site.journal.state.preemptions
    site.run_until(lambda: site.runs(urgent), limit=30)
    assert not site.journal.state.preemptions


def test_of_many_jobs_that_complete_none_is_asked_for_singly(tmp_path: Path) -> None:
    site = site_of(tmp_path, 3)
    small = [site.submit("bio", cpus=1, run_time=500) for _ in range(MOST_JOBS + 1)]
    site.run_until(lambda: site.runs(*small), limit=20)
    people = People(site.slurm)
    for job in small:
        people.cancel(job)
    site.cycle.run()
    urgent = site.urgent()
    assert site.poll_new().needs_full
    assert site.gateway.asked == [urgent]
    assert not site.journal.state.preemptions


def test_an_urgent_job_that_waited_and_of_which_slurm_says_nothing_now_is_not_taken_as_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, _ = polled(tmp_path)
    waits = site.urgent(cpus=8, hosts=2)
    site.poll_new()
    site.cycle.run()
    find = site.gateway.find

    def answer(job: int | str) -> Job | None:
        if job == waits:
            raise GatewayError("nonsense")
        return find(job)

    monkeypatch.setattr(site.gateway, "find", answer)
    site.urgent()
    seen = site.cycle._observer.new_jobs.poll(lambda job: job.partition == "urgent")
    assert seen is not None and waits not in seen.snapshot.asked


@pytest.mark.parametrize("gone", [True, False])
def test_what_a_completing_job_leaves_counts_if_slurm_forgets_it_and_not_if_it_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    site, _, leaves, _ = completing(tmp_path)
    left(site, leaves)
    find = site.gateway.find

    def answer(job: int | str) -> Job | None:
        if job == leaves and not gone:
            raise GatewayError("nonsense")
        return None if job == leaves else find(job)

    urgent = site.urgent(hold=Hold.USER, admin_comment=SUBMIT_MARK)
    with monkeypatch.context() as patched:
        patched.setattr(site.gateway, "find", answer)
        assert site.poll_new().needs_full == (not gone)
    assert not site.journal.state.preemptions
    site.run_until(lambda: site.runs(urgent), limit=30)
