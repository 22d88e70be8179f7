"""Each careful method from outside: what is promised to victims and preemptors when nothing goes wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.preemption.methods.node_work import NodeAction
from omfs_daemon.testing.fake_slurm.omfs_run_behavior import OmfsRunBehavior, OnUsr1
from tests.support.fake_omfs_node import GB
from tests.support.fake_site import Site
from tests.support.preemption_cases import (
    CAREFUL,
    LAUNCHED,
    ON_NODES,
    VE_SIZE,
    check_peace,
    check_running_as_before,
    lost,
    methods_site,
    preemptor,
    used,
    victim,
    victims,
)


@pytest.mark.parametrize("method", CAREFUL)
def test_a_job_gives_way_and_goes_on_without_losing_anything(method: str, tmp_path: Path) -> None:
    site = methods_site(tmp_path)
    jobs = victims(site, method)
    urgent = preemptor(site, method)
    site.run_until(lambda: site.runs(urgent), limit=45)
    (preempted,) = [job for job in jobs if not site.runs(job)]
    state = site.state(preempted)
    assert state is (JobState.PENDING if method in LAUNCHED else JobState.SUSPENDED)
    site.run_until(lambda: site.runs(*jobs), limit=60)
    site.run(5)
    check_running_as_before(site, *jobs)
    assert site.slurm.history[urgent].outcome == "COMPLETED"
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
    assert lost(site, jobs) == 0
    check_peace(site)
    (preemption,) = site.history_database.preemptions(10, 0.0)
    assert (preemption.preemptor, preemption.outcome) == (str(urgent), "started")
    assert [(paid.method, paid.direction) for paid in site.history_database.costs(0.0)] == [
        (method, "out"),
        (method, "in"),
    ]
    events = [event.event for event in site.history_database.of_job(str(preempted))]
    assert events == ["preempted", "runs_again"]


@pytest.mark.parametrize("method", sorted(LAUNCHED))
def test_a_job_that_slurm_would_not_requeue_keeps_its_work_all_the_same(method: str, tmp_path: Path) -> None:
    site = methods_site(tmp_path)
    jobs = victims(site, method, requeue=False)
    urgent = preemptor(site, method)
    site.run_until(lambda: site.runs(urgent), limit=45)
    site.run_until(lambda: site.runs(*jobs), limit=60)
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
    assert lost(site, jobs) == 0
    check_peace(site)


@pytest.mark.parametrize("method", CAREFUL)
def test_twice_in_a_row(method: str, tmp_path: Path) -> None:
    site = methods_site(tmp_path)
    jobs = victims(site, method, run_time=200)
    for _ in range(2):
        urgent = preemptor(site, method)
        site.run_until(lambda job=urgent: site.runs(job), limit=45)
        site.run_until(lambda: site.runs(*jobs), limit=90)
        site.run(5)
        check_running_as_before(site, *jobs)
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
    assert lost(site, jobs) == 0
    assert len(site.history_database.preemptions(10, 0.0)) == 2
    check_peace(site)


@pytest.mark.parametrize("method", CAREFUL)
def test_sixteen_at_once_for_one_wide_job(method: str, tmp_path: Path) -> None:
    site = methods_site(tmp_path, hosts=16)
    jobs = victims(site, method, count=16, run_time=100)
    licenses = {"licenses": (("ve", 16),)} if method == "ve_swap" else {}
    urgent = preemptor(site, method, cpus=64, hosts=16, **licenses)
    begun = site.now
    site.run_until(lambda: site.runs(urgent), limit=60)
    assert site.now - begun < 30, "they are preempted side by side"
    assert not any(site.runs(job) for job in jobs)
    site.run_until(lambda: site.runs(*jobs), limit=120)
    site.run(5)
    check_running_as_before(site, *jobs)
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
    assert lost(site, jobs) == 0
    assert all(len(site.slurm.history[job].starts) <= 2 for job in jobs)
    check_peace(site)


def mixed(site: Site) -> list[int]:
    """Jobs under requeue, suspend, dmtcp and ve_swap, one on each node."""
    jobs = [
        site.submit("bio", method="requeue", on="n1", run_time=200),
        site.submit("bio", method="suspend", on="n2", run_time=200),
        victim(site, "dmtcp", on="n3", run_time=200, launched=OmfsRunBehavior(seconds=20)),
        victim(site, "ve_swap", "n4", run_time=200),
    ]
    site.run(3)
    assert site.runs(*jobs)
    return jobs


def test_the_quick_ones_are_preempted_only_when_the_careful_ones_are_safe(tmp_path: Path) -> None:
    site = methods_site(tmp_path)
    requeued, suspended, launched, swapped = mixed(site)
    urgent = preemptor(site, "", cpus=16, hosts=4)
    site.run_until(lambda: swapped in site.nodes.out(), limit=25)
    site.run(2)
    assert site.runs(requeued, suspended, launched, swapped), "dmtcp is still at it"
    site.run_until(lambda: site.runs(urgent), limit=60)
    assert site.state(suspended) is site.state(swapped) is JobState.SUSPENDED
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
    assert lost(site, [suspended, launched, swapped]) == 0
    assert len(site.slurm.history[requeued].starts) == 2
    check_peace(site)


def test_a_job_that_shrinks_meanwhile_is_not_preempted_for_too_little(tmp_path: Path) -> None:
    """Its owner gives up a node, which another job takes, while the work of a careful victim is being saved."""
    site = methods_site(tmp_path)
    wide = site.submit("bio", cpus=8, hosts=2, run_time=200)
    launched = victim(site, "dmtcp", run_time=200, launched=OmfsRunBehavior(seconds=20))
    other = site.submit("physics", method="", run_time=200)
    site.run(3)
    urgent = preemptor(site, "", cpus=12, hosts=3)
    site.run_until(lambda: bool(site.journal.state.preemptions), limit=10)
    site.slurm.shrink(wide, [site.job(wide).on_nodes[0]])
    late = site.submit("physics", method="", run_time=200, user="eve")
    site.run_until(lambda: site.runs(late), limit=5)
    site.run(60)
    assert site.runs(wide, launched, other, late)
    assert site.state(urgent) is JobState.PENDING
    assert lost(site, [wide, launched]) == 0
    assert {each.outcome for each in site.history_database.preemptions(10, 0.0)} == {"decision_too_old"}


@pytest.mark.parametrize("bad", ["dmtcp", "ve_swap"])
def test_if_a_careful_one_fails_nobody_has_lost_anything(bad: str, tmp_path: Path) -> None:
    site = methods_site(tmp_path)
    jobs = mixed(site)
    if bad == "dmtcp":
        site.slurm.behave(jobs[2], OmfsRunBehavior(seconds=20, on_usr1=OnUsr1.FAIL))
    else:
        site.nodes.fail(NodeAction.OUT, "partial_swap")
    urgent = preemptor(site, "", cpus=16, hosts=4)
    site.run_until(lambda: bool(site.history_database.preemptions(10, 0.0)), limit=90)
    site.run_until(lambda: site.runs(*jobs) and not site.journal.state.preempted, limit=60)
    site.run(3)
    (preemption,) = site.history_database.preemptions(10, 0.0)
    assert preemption.outcome == "victim_not_preempted"
    check_running_as_before(site, *(job for job in jobs if job != jobs[2]))
    assert lost(site, jobs) == 0
    assert site.state(urgent) is JobState.PENDING
    assert site.job(urgent).request.required_nodes == frozenset()
    assert str(jobs[2 if bad == "dmtcp" else 3]) in site.journal.state.spared
    site.nodes.fix()
    site.slurm.behave(jobs[2], OmfsRunBehavior())
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
    check_peace(site)


def test_no_two_are_chosen_that_do_not_fit_into_the_swap_area_together(tmp_path: Path) -> None:
    site = methods_site(tmp_path, room={"pageout": 10 * GB, "ve_swap": 0})
    jobs = [victim(site, "pageout", cpus=2, on="n1", run_time=300) for _ in range(2)]
    others = [site.submit("bio", method="", run_time=300) for _ in range(3)]
    site.run(2)
    assert site.runs(*jobs, *others)
    wide = preemptor(site, "pageout", cpus=4)
    site.run(20)
    assert site.runs(*jobs), "there is room for one only, and one is not enough"
    assert not site.history_database.preemptions(10, 0.0)
    site.slurm.cancel(wide)
    site.submitted.remove(wide)
    narrow = preemptor(site, "pageout", cpus=2, run_time=100)
    second = preemptor(site, "pageout", cpus=2, run_time=100)
    site.run_until(lambda: site.runs(narrow), limit=20)
    site.run(20)
    assert sum(site.runs(job) for job in jobs) == 1
    assert site.state(second) is JobState.PENDING
    assert not any("no_swap_space" in event.text for event in site.history_database.of_job(str(second)))
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
    check_peace(site)


def test_a_ve_license_moves_to_the_urgent_job_and_back(tmp_path: Path) -> None:
    site = methods_site(tmp_path)
    jobs = victims(site, "ve_swap", run_time=100)
    assert used(site) == {f"ve_n{number}": 1 for number in range(1, 5)}
    urgent = preemptor(site, "ve_swap")
    site.run_until(lambda: site.runs(urgent), limit=45)
    (node,) = site.job(urgent).on_nodes
    assert site.job(urgent).licenses == ((f"ve_{node}", 1),)
    (preempted,) = [job for job in jobs if not site.runs(job)]
    assert site.job(preempted).licenses == ()
    assert used(site) == {f"ve_n{number}": 1 for number in range(1, 5)}
    back: list[str] = []
    give = site.gateway.set_licenses

    def watched(refs: list[str], licenses: tuple[tuple[str, int], ...]) -> object:
        back.append(f"{refs[0]}: {site.state(preempted)}, remembered: {refs[0] in site.journal.state.preempted}")
        return give(refs, licenses)

    site.gateway.set_licenses = watched  # type: ignore[method-assign, assignment]
    site.run_until(lambda: site.runs(*jobs), limit=60)
    site.run(3)
    assert back == [f"{preempted}: RUNNING, remembered: True"], "once it runs, before it is forgotten"
    check_running_as_before(site, *jobs)


def test_a_stripped_job_that_is_requeued_waits_for_its_licenses(tmp_path: Path) -> None:
    """Its node dies while it is suspended: Slurm puts it back in the queue, asking for nothing."""
    site = methods_site(tmp_path)
    jobs = victims(site, "ve_swap", run_time=100)
    urgent = preemptor(site, "ve_swap", run_time=60)
    site.run_until(lambda: site.runs(urgent), limit=45)
    (node,) = site.job(urgent).on_nodes
    (preempted,) = [job for job in jobs if not site.runs(job)]
    site.slurm.cancel(urgent)
    site.submitted.remove(urgent)
    site.slurm.node_down(node)
    site.run(3)
    assert site.state(preempted) is JobState.PENDING
    assert site.job(preempted).licenses == ((f"ve_{node}", 1),)
    site.slurm.node_up(node)
    site.run_until(lambda: site.runs(*jobs), limit=60)
    site.run(5)
    check_running_as_before(site, *jobs)
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
    check_peace(site)


@pytest.mark.parametrize("method", ON_NODES)
def test_memory_that_came_in_for_a_turn_that_is_over_goes_out_again(method: str, tmp_path: Path) -> None:
    """Another urgent job comes just when the victim is being brought in."""
    site = methods_site(tmp_path, hosts=1)
    (job,) = victims(site, method, count=1, run_time=300, size=20 * GB)
    first = preemptor(site, method)
    site.run_until(lambda: site.runs(first), limit=45)
    site.run_until(lambda: site.nodes.asked[-1][1] == "in", limit=60)
    second = preemptor(site, method)
    site.run_until(lambda: site.runs(second), limit=60)
    site.run_until(lambda: [do for _, do, _, _ in site.nodes.asked] == ["out", "in", "out"], limit=20)
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}
    assert lost(site, [job]) == 0
    check_peace(site)


def test_size_of_two_on_a_ve_is_never_there_at_once(tmp_path: Path) -> None:
    """The model itself: a second job on a VE whose memory is in is noticed."""
    site = methods_site(tmp_path)
    for _ in range(2):
        site.submit("bio", cpus=2, on="n1", size=VE_SIZE)
    site.run(2)
    assert "is in at once" in site.nodes.crowded[0]
