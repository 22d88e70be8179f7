"""Failures inside jobs and on nodes: the preemption is undone, the job runs on, and the cause is recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import Hold, JobState
from omfs_daemon.cluster.marks import MarkWord
from omfs_daemon.policy.rules.classes import classify
from omfs_daemon.policy.victims.method_availability import MethodAvailability, WhyUnavailable
from omfs_daemon.preemption.methods.node_work import NodeAction
from omfs_daemon.testing.fake_slurm.fake_gateway import Fault
from omfs_daemon.testing.fake_slurm.omfs_run_behavior import OmfsRunBehavior, OnRestart, OnUsr1, with_run_comment
from tests.support.fake_omfs_node import GB
from tests.support.fake_site import Site
from tests.support.preemption_cases import (
    CAREFUL,
    LAUNCHED,
    ON_NODES,
    check_peace,
    check_running_as_before,
    lost,
    methods_site,
    preemptor,
    used,
    victim,
    victims,
    word_of,
)

KINDS = {
    "checkpoint fails": ("dmtcp", "there is not enough space for the checkpoint"),
    "omfs-run hangs": ("dmtcp", "longer than 30 s"),
    "no_swap_space": ("pageout", "no swap space"),
    "slow": ("pageout", "longer than 30 s"),
    "partial_swap": ("ve_swap", "partial swap"),
    "refused": ("ve_swap", "refused"),
}


def break_it(site: Site, kind: str, jobs: list[int]) -> None:
    for job in jobs:
        if kind == "checkpoint fails":
            site.slurm.behave(job, OmfsRunBehavior(on_usr1=OnUsr1.FAIL))
        elif kind == "omfs-run hangs":
            site.slurm.behave(job, OmfsRunBehavior(on_usr1=OnUsr1.IGNORE))
    if kind not in ("checkpoint fails", "omfs-run hangs"):
        site.nodes.fail(NodeAction.OUT, kind)


def recorded(site: Site, job: int) -> str:
    return " / ".join(event.text for event in site.history_database.of_job(str(job)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_preemption_that_fails_is_undone_and_the_job_is_spared(kind: str, tmp_path: Path) -> None:
    method, why = KINDS[kind]
    site = methods_site(tmp_path, preempt_timeout=30.0)
    jobs = victims(site, method, run_time=300)
    break_it(site, kind, jobs)
    urgent = preemptor(site, method)
    site.run_until(lambda: bool(site.history_database.preemptions(10, 0.0)), limit=120)
    (preemption,) = site.history_database.preemptions(10, 0.0)
    assert preemption.outcome == "victim_not_preempted"
    assert why in recorded(site, urgent)
    chosen = str(preemption.victims[0]["job"])
    assert site.journal.state.spared[chosen] > site.now + 200
    site.run_until(lambda: len(site.history_database.preemptions(10, 0.0)) == 4, limit=400)
    assert len({str(preemption.victims[0]["job"]) for preemption in site.history_database.preemptions(10, 0.0)}) == 4, (
        "another one each time"
    )
    site.run_until(lambda: not site.journal.state.preempted, limit=60)
    if kind != "checkpoint fails":
        check_running_as_before(site, *jobs)
    assert site.runs(*jobs)
    assert site.state(urgent) is JobState.PENDING
    assert lost(site, jobs) == 0
    site.nodes.fix()
    for job in jobs if method == "dmtcp" else ():
        site.slurm.behave(job, OmfsRunBehavior())
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
    assert lost(site, jobs) == 0
    check_peace(site)


@pytest.mark.parametrize("kind", KINDS)
def test_where_its_class_says_so_a_job_is_requeued_in_the_end(kind: str, tmp_path: Path) -> None:
    method, _ = KINDS[kind]
    site = methods_site(tmp_path, last_resort="requeue", preempt_timeout=30.0)
    jobs = victims(site, method, run_time=300)
    break_it(site, kind, jobs)
    urgent = preemptor(site, method)
    site.run_until(lambda: site.runs(urgent), limit=120)
    site.run(1)
    (requeued,) = [job for job in jobs if not site.runs(job)]
    assert "preempted (requeue)" in recorded(site, requeued)
    site.run_until(lambda: site.runs(*jobs), limit=120)
    site.run(70)
    assert site.job(requeued).licenses == site.slurm.records[requeued].what.licenses
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
    assert lost(site, [job for job in jobs if job != requeued]) == 0
    assert len(site.slurm.history[requeued].starts) == 2
    check_peace(site)


def why_not(site: Site, job_id: int, method: str) -> WhyUnavailable | None:
    snapshot = site.reports[-1].snapshot
    assert snapshot is not None
    rules, job = site.settings.rules, snapshot.jobs[job_id]
    methods = MethodAvailability(rules, snapshot.facts, snapshot.sizes).all(job, classify(rules, job))
    return {option.method: option.why_not for option in methods}[method]


@pytest.mark.parametrize("method", LAUNCHED)
def test_a_job_that_is_not_ready_is_not_signaled(method: str, tmp_path: Path) -> None:
    site = methods_site(tmp_path, hosts=1)
    job = victim(site, method, run_time=100, launched=OmfsRunBehavior(method, ready_after=30))
    site.run(2)
    urgent = preemptor(site, method)
    site.run(20)
    assert site.slurm.history[job].signals == []
    assert why_not(site, job, method) is WhyUnavailable.NOT_READY
    site.run_until(lambda: site.runs(urgent), limit=30)
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
    assert lost(site, [job]) == 0


def test_ready_in_an_earlier_run_is_not_ready_now(tmp_path: Path) -> None:
    site = methods_site(tmp_path, hosts=1)
    job = victim(site, "dmtcp", run_time=100)
    site.run(2)
    site.slurm.behave(job, OmfsRunBehavior(ready_after=1e6))
    site.gateway.requeue([str(job)])
    site.now += 10
    site.run_until(lambda: site.runs(job), limit=20)
    assert "omfs:run=0:ready" in site.job(job).comment
    signals = len(site.slurm.history[job].signals)
    preemptor(site, "dmtcp")
    site.run(20)
    assert len(site.slurm.history[job].signals) == signals
    assert why_not(site, job, "dmtcp") is WhyUnavailable.NOT_READY


def test_a_suspended_job_that_its_owner_requeues_comes_back(tmp_path: Path) -> None:
    """Slurm holds it: the hold is that of our suspension."""
    site = methods_site(tmp_path, hosts=1)
    job = victim(site, "suspend", run_time=100)
    site.run(2)
    urgent = preemptor(site, "suspend", run_time=5)
    site.run_until(lambda: site.runs(urgent), limit=10)
    site.gateway.requeue([str(job)])
    site.now += 1
    assert site.gateway.jobs()
    assert site.job(job).hold is Hold.ADMIN
    site.run_until(lambda: site.runs(job), limit=60)
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}


def test_a_job_whose_hold_is_refused_is_not_requeued(tmp_path: Path) -> None:
    """It would start again at once, on the very CPUs."""
    site = methods_site(tmp_path, hosts=1)
    job = victim(site, "requeue", run_time=100)
    site.run(2)
    site.gateway.faults.inject(Fault.REFUSE, ("hold",), times=1)
    urgent = preemptor(site, "requeue", run_time=5)
    site.run_until(lambda: bool(site.history_database.preemptions(10, 0.0)), limit=20)
    (preemption,) = site.history_database.preemptions(10, 0.0)
    assert preemption.outcome == "refused_by_slurm"
    assert site.runs(job) and lost(site, [job]) == 0
    site.run(2)
    assert site.job(urgent).request.required_nodes == frozenset(), "the pin has ended with the preemption"


def test_a_hold_ends_with_the_preemption_whose_requeue_was_refused(tmp_path: Path) -> None:
    site = methods_site(tmp_path, hosts=1)
    job = victim(site, "requeue", run_time=100)
    site.run(2)
    site.gateway.faults.inject(Fault.REFUSE, ("requeue",), times=1)
    urgent = preemptor(site, "requeue", run_time=5)
    site.step()
    assert site.runs(job) and site.job(job).priority == 0
    site.run_until(lambda: not site.journal.state.preemptions, limit=20)
    assert site.runs(job) and site.job(job).priority > 0
    assert word_of(site, job) is MarkWord.RELEASED
    (preemption,) = site.history_database.preemptions(10, 0.0)
    assert preemption.outcome == "refused_by_slurm"
    site.slurm.cancel(urgent)


@pytest.mark.parametrize("plugin", [True, False])
def test_a_running_job_that_an_administrator_holds_is_requeued_into_that_hold(tmp_path: Path, plugin: bool) -> None:
    site = methods_site(tmp_path, hosts=1, plugin=plugin)
    job = victim(site, "requeue", run_time=100)
    site.run(2)
    site.slurm.admin_hold(job)
    urgent = preemptor(site, "requeue", run_time=5)
    site.run_until(lambda: site.runs(urgent), limit=20)
    site.run(60)
    assert site.job(job).hold is Hold.ADMIN, "not ours to end"
    assert word_of(site, job) is None
    site.slurm.admin_release(job)
    site.run_until(lambda: site.runs(job), limit=20)


def test_a_failure_of_an_earlier_attempt_is_none_of_this_one(tmp_path: Path) -> None:
    site = methods_site(tmp_path, hosts=1, retry_after=20.0)
    job = victim(site, "dmtcp", run_time=200, launched=OmfsRunBehavior(on_usr1=OnUsr1.FAIL))
    site.run(2)
    urgent = preemptor(site, "dmtcp")
    site.run_until(lambda: "failed" in site.job(job).comment, limit=20)
    site.run_until(lambda: not site.journal.state.preemptions, limit=20)
    assert site.runs(job)
    site.slurm.behave(job, OmfsRunBehavior(seconds=3))
    site.run_until(lambda: site.runs(urgent), limit=60)
    site.run(2)
    assert [preemption.outcome for preemption in site.history_database.preemptions(10, 0.0)] == [
        "started",
        "victim_not_preempted",
    ]
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
    assert lost(site, [job]) == 0


def test_a_second_failure_is_reported_as_soon_as_the_first(tmp_path: Path) -> None:
    site = methods_site(tmp_path, hosts=1, retry_after=20.0)
    victim(site, "dmtcp", run_time=200, launched=OmfsRunBehavior(on_usr1=OnUsr1.FAIL))
    site.run(2)
    preemptor(site, "dmtcp")
    site.run_until(lambda: len(site.history_database.preemptions(10, 0.0)) == 3, limit=90)
    assert {preemption.outcome for preemption in site.history_database.preemptions(10, 0.0)} == {"victim_not_preempted"}


def test_a_lie_in_the_comment_gains_and_loses_nothing(tmp_path: Path) -> None:
    """The owner writes that their job is stopped, or has failed: the exit code alone counts."""
    site = methods_site(tmp_path, hosts=1)
    job = victim(site, "dmtcp", run_time=60, launched=OmfsRunBehavior(seconds=3))
    site.run(2)
    urgent = preemptor(site, "dmtcp")
    site.run_until(lambda: "stopping" in site.job(job).comment, limit=10)
    site.slurm.set_comment(job, with_run_comment(site.job(job).comment, 0, "stopped", method="dmtcp", bytes=10**16))
    site.step()
    assert site.runs(job)
    assert not site.runs(urgent)
    site.run_until(lambda: site.runs(urgent), limit=20)
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
    assert lost(site, [job]) == 0


def test_a_launcher_that_ends_long_after_the_preemption_was_undone_is_released(tmp_path: Path) -> None:
    """Its checkpoint took longer than the timeout: it waits, held, and no preemption is remembered."""
    site = methods_site(tmp_path, hosts=1, preempt_timeout=10.0, retry_after=1000.0)
    job = victim(site, "dmtcp", run_time=100, launched=OmfsRunBehavior(seconds=40))
    site.run(2)
    urgent = preemptor(site, "dmtcp", run_time=5)
    site.run_until(lambda: bool(site.history_database.preemptions(10, 0.0)), limit=120)
    assert site.runs(job)
    site.run_until(lambda: site.state(job) is JobState.PENDING, limit=60)
    site.run(3)
    assert site.job(job).hold is Hold.NONE, site.observation()
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
    assert lost(site, [job]) == 0
    assert len(site.slurm.history[urgent].starts) == 1
    check_peace(site)


def test_the_owners_own_hold_afterwards_is_his(tmp_path: Path) -> None:
    site = methods_site(tmp_path, hosts=1, preempt_timeout=10.0, retry_after=1000.0)
    job = victim(site, "dmtcp", run_time=100, launched=OmfsRunBehavior(seconds=40))
    site.run(2)
    preemptor(site, "dmtcp", run_time=200)
    site.run_until(lambda: site.state(job) is JobState.PENDING, limit=120)
    site.run(3)
    assert site.slurm.user_hold(job)
    site.run(400, step=2)
    assert site.job(job).hold is Hold.USER
    assert site.slurm.user_release(job)
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}


def test_a_job_that_cannot_be_restarted_stays_held_for_its_owner(tmp_path: Path) -> None:
    site = methods_site(tmp_path, hosts=1)
    job = victim(site, "dmtcp", run_time=60, launched=OmfsRunBehavior(on_restart=OnRestart.HELD, why="not_verified"))
    site.run(2)
    urgent = preemptor(site, "dmtcp", run_time=5)
    site.run_until(lambda: bool(site.slurm.history[urgent].outcome), limit=60)
    site.run_until(lambda: ":held:" in site.job(job).comment, limit=120)
    site.run(200, step=2)
    assert site.state(job) is JobState.PENDING
    assert site.job(job).hold is Hold.USER, "its owner may release it"
    assert len(site.slurm.history[job].starts) == 2, "it is not tried again and again"
    assert site.slurm.user_release(job)
    site.slurm.behave(job, OmfsRunBehavior())
    site.rest()
    assert site.outcomes()[job] == "COMPLETED"


# -- Slurm is away -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", CAREFUL)
@pytest.mark.parametrize("after", [0.0, 0.5, 2.0, 5.0, 6.0, 7.0, 9.0])
def test_slurm_is_away_for_a_while_in_the_middle(method: str, after: float, tmp_path: Path) -> None:
    site = methods_site(tmp_path, hosts=2)
    jobs = victims(site, method, count=2, run_time=60)
    urgent = preemptor(site, method, run_time=5)
    site.run(after)
    site.gateway.faults.inject(Fault.DEAD)
    site.run(120, step=5)
    site.gateway.faults.clear()
    site.run_until(lambda: bool(site.slurm.history[urgent].starts), limit=90)
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
    assert lost(site, jobs) == 0
    check_peace(site)


@pytest.mark.parametrize("method", CAREFUL)
@pytest.mark.parametrize("order", ["signal", "set_licenses", "suspend", "resume", "release", "pin"])
@pytest.mark.parametrize("fault", [Fault.DEAD, Fault.LATE, Fault.IGNORE])
def test_an_order_that_gets_lost_is_given_again(method: str, order: str, fault: Fault, tmp_path: Path) -> None:
    site = methods_site(tmp_path, hosts=2)
    jobs = victims(site, method, count=2, run_time=60)
    site.gateway.faults.inject(fault, (order,), times=1)
    urgent = preemptor(site, method, run_time=5)
    site.run_until(lambda: bool(site.slurm.history[urgent].starts), limit=90)
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
    assert lost(site, jobs) == 0
    check_peace(site, may_be_crowded=True)


# -- nodes are away ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", ON_NODES)
@pytest.mark.parametrize("after", [0.0, 2.0])
def test_a_node_is_away_for_a_while_when_it_is_asked_to_move_memory_out(
    method: str, after: float, tmp_path: Path
) -> None:
    """Also when it has done so and cannot report it: the job stays stopped until the node is back, not longer."""
    site = methods_site(tmp_path, hosts=1, preempt_timeout=200.0)
    (job,) = victims(site, method, count=1, run_time=900, size=24 * GB)
    urgent = preemptor(site, method, run_time=5)
    site.run(after)
    site.nodes.cut("n1")
    site.run(200, step=1)
    assert not site.slurm.history[urgent].starts
    assert bool(site.history_database.preemptions(10, 0.0)) == (after > 0), (
        "a node that cannot be reached is not chosen"
    )
    assert ("n1: " in recorded(site, urgent)) == (after > 0)
    site.nodes.join("n1")
    site.run_until(lambda: bool(site.slurm.history[urgent].starts), limit=600)
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
    assert lost(site, [job]) == 0
    check_peace(site)


@pytest.mark.parametrize("method", ON_NODES)
def test_a_node_that_is_away_for_ever_keeps_no_preemptor(method: str, tmp_path: Path) -> None:
    """Its job stands still as long as nobody reaches it, but the urgent one gets another node."""
    site = methods_site(tmp_path, hosts=2, preempt_timeout=40.0)
    jobs = victims(site, method, count=2, run_time=60, size=24 * GB)
    urgent = preemptor(site, method, run_time=5)
    site.run_until(lambda: bool(site.nodes.stopped()), limit=10)
    (first,) = site.nodes.stopped()
    node = site.job(first).on_nodes[0]
    site.nodes.cut(node)
    site.run_until(lambda: bool(site.slurm.history[urgent].starts), limit=200)
    other = next(job for job in jobs if job != first)
    site.run_until(lambda: site.slurm.history[other].outcome == "COMPLETED", limit=200)
    assert site.slurm.history[other].lost == 0
    site.run(200, step=2)
    assert site.nodes.stopped() == [first]
    site.nodes.join(node)
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
    check_peace(site)


@pytest.mark.parametrize("method", ON_NODES)
@pytest.mark.parametrize("how", ["cut", "fail"])
def test_a_job_that_cannot_be_brought_in_for_a_while_comes_back_later(method: str, how: str, tmp_path: Path) -> None:
    site = methods_site(tmp_path, hosts=1)
    (job,) = victims(site, method, count=1, run_time=60, size=24 * GB)
    urgent = preemptor(site, method, run_time=5)
    site.run_until(lambda: site.runs(urgent), limit=45)
    (site.nodes.cut("n1") if how == "cut" else site.nodes.fail(NodeAction.IN, "no_ve_memory"))
    site.run(100, step=1)
    assert site.state(job) is JobState.SUSPENDED
    site.nodes.join("n1")
    site.nodes.fix()
    site.run_until(lambda: site.runs(job), limit=60)
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
    assert lost(site, [job]) == 0
    check_peace(site)


@pytest.mark.parametrize("method", ON_NODES)
def test_a_job_whose_undo_fails_for_a_while_runs_on_later(method: str, tmp_path: Path) -> None:
    """Moving out fails for one of two nodes, and the other one cannot bring in at once."""
    site = methods_site(tmp_path, hosts=2)
    more = {"licenses": (("ve_n1", 1), ("ve_n2", 1)), "on": ""} if method == "ve_swap" else {}
    job = victim(site, method, "n1", hosts=2, cpus=8, run_time=100, **more)
    site.run(3)
    assert site.runs(job)
    site.nodes.fail(NodeAction.OUT, "refused", times=1, node="n2")
    site.nodes.fail(NodeAction.IN, "no_ve_memory", times=20, node="n1")
    urgent = preemptor(site, "", run_time=5)
    site.run_until(lambda: bool(site.history_database.preemptions(10, 0.0)), limit=60)
    assert site.nodes.stopped() == [job]
    site.run_until(lambda: not site.nodes.stopped(), limit=200)
    site.run(3)
    check_running_as_before(site, job)
    assert used(site) == {name: 1 for name, _ in site.job(job).licenses}
    site.run_until(lambda: bool(site.slurm.history[urgent].starts), limit=400)
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
    assert lost(site, [job]) == 0
    check_peace(site)


def test_an_urgent_job_whose_owner_cancels_it_in_the_middle_costs_nobody_anything(tmp_path: Path) -> None:
    for method in CAREFUL:
        directory = tmp_path / method
        directory.mkdir()
        site = methods_site(directory, hosts=1)
        slow = {"launched": replace(OmfsRunBehavior(method), seconds=5)} if method in LAUNCHED else {"size": 30 * GB}
        (job,) = victims(site, method, count=1, run_time=60, **slow)
        urgent = preemptor(site, method)
        site.run(3)
        assert site.journal.state.preemptions
        site.slurm.cancel(urgent)
        site.submitted.remove(urgent)
        site.run_until(lambda site=site: not site.journal.state.preemptions, limit=90)
        site.run(10)  # a checkpoint under way is not called off
        site.run_until(lambda site=site, job=job: site.runs(job), limit=60)
        site.run(3)
        check_running_as_before(site, job)
        site.rest()
        assert lost(site, [job]) == 0
        check_peace(site)


def test_what_cannot_be_written_to_an_owner_is_not_told_in_every_cycle(tmp_path: Path) -> None:
    site = methods_site(tmp_path, hosts=1)
    unready = site.submit("bio", method="dmtcp", run_time=500)
    site.gateway.faults.inject(Fault.REFUSE, ["set_admin_comment"])
    site.run(80)
    assert not site.history_database.of_job(str(unready))
    site.gateway.faults.clear()
    site.run(80)
    assert [event.event for event in site.history_database.of_job(str(unready))] == ["not_ready"]
