"""The cycle end to end on the fake: what a site is promised, seen from outside."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from omfs_daemon.cluster.holds import admin_comment_of, is_held_by_us
from omfs_daemon.cluster.jobs import Hold, JobRequest, JobState
from omfs_daemon.cluster.marks import SUBMIT_MARK, MarkWord
from omfs_daemon.preemption.state import Pause
from omfs_daemon.testing.fake_slurm.fake_gateway import Fault
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission
from tests.support.fake_site import Site, site_rules
from tests.support.preemption_cases import word_of


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def all_completed(site: Site) -> bool:
    return set(site.outcomes().values()) == {"COMPLETED"}


def test_an_entitled_account_takes_back_just_what_it_owns(site: Site) -> None:
    bio = [site.submit("bio") for _ in range(4)]
    site.run(2)
    physics = [site.submit("physics") for _ in range(2)]
    site.run_until(lambda: site.runs(*physics), limit=5)
    assert sum(site.runs(job) for job in bio) == 2, "a borrower keeps what nobody claims"
    site.rest()
    assert all_completed(site)


def test_the_history_names_victim_and_preemptor(site: Site) -> None:
    bio = [site.submit("bio") for _ in range(4)]
    site.run(2)
    physics = site.submit("physics")
    site.run_until(lambda: site.runs(physics) and not site.journal.state.preemptions, limit=10)
    (preemption,) = site.history_database.preemptions(10, 0.0)
    assert (preemption.preemptor, preemption.account, preemption.outcome) == (str(physics), "physics", "started")
    (victim,) = preemption.victims
    assert int(str(victim["job"])) in bio
    events = [event.event for event in site.history_database.of_job(str(victim["job"]))]
    assert events[0] == "preempted"
    site.rest()
    assert "runs_again" in [event.event for event in site.history_database.of_job(str(victim["job"]))]
    assert "[omfs] was preempted (requeue)" in site.job(int(str(victim["job"]))).admin_comment


def test_a_suspended_victim_goes_on_where_it_was(site: Site) -> None:
    bio = [site.submit("bio", method="suspend", run_time=100) for _ in range(4)]
    site.run(2)
    physics = site.submit("physics", run_time=30)
    site.run_until(lambda: site.runs(physics), limit=5)
    (preempted,) = [job for job in bio if site.state(job) is JobState.SUSPENDED]
    site.rest()
    assert site.slurm.history[preempted].lost == 0
    assert site.slurm.history[preempted].suspensions == 1
    assert all_completed(site)


def test_a_non_preemptible_job_waits_beyond_its_entitlement(site: Site) -> None:
    first = [site.submit("bio", method="") for _ in range(2)]
    site.step()
    third = site.submit("bio", method="", hold=Hold.USER, admin_comment=SUBMIT_MARK)
    site.run(3)
    assert site.runs(*first)
    assert site.job(third).hold is Hold.ADMIN, "the submit gate's hold became one that its owner cannot release"
    assert not site.slurm.user_release(third)
    site.run_until(lambda: site.runs(third), limit=120)
    assert not any(site.runs(job) for job in first)
    site.rest()
    assert all_completed(site)


@pytest.mark.parametrize(
    ("request_", "open_tasks"),
    [
        (JobRequest(2, nodes=2, max_nodes=3), True),  # -N2-3
        (JobRequest(1, max_nodes=1, min_cpus_per_node=2), False),  # --mincpus=2
    ],
)
def test_a_job_whose_size_slurm_does_not_show_while_it_is_held_starts(
    site: Site, request_: JobRequest, open_tasks: bool
) -> None:
    held = {"hold": Hold.USER, "admin_comment": SUBMIT_MARK, "run_time": 20.0}
    job = site.slurm.submit(Submission(request_, open_tasks, account="bio", **held))  # type: ignore[arg-type]
    site.run_until(lambda: site.runs(job), limit=30)


def test_without_the_plug_in_waiting_jobs_are_held_all_the_same(site: Site) -> None:
    for _ in range(4):
        site.submit("physics", method="", run_time=20)
    late = site.submit("bio", method="requeue")
    site.step()
    third = site.submit("physics", method="", run_time=20)
    site.run(2)
    assert site.job(third).hold is Hold.ADMIN
    assert word_of(site, third) is MarkWord.HELD
    assert site.job(late).hold is Hold.NONE
    site.rest()
    assert all_completed(site)


def test_all_jobs_that_wait_for_another_run_in_the_end(site: Site) -> None:
    first = [site.submit("physics", method="", cpus=1, run_time=3) for _ in range(40)]
    for job in first:
        site.submit("physics", method="", cpus=1, run_time=1, after=(job,))
    site.step()
    assert len(site.held()) >= 40
    site.run_until(lambda: all_completed(site), limit=120, step=0.3)


def full_of_physics(site: Site) -> list[int]:
    """Jobs that may not be preempted, on all nodes: half of them borrow."""
    return [site.submit("physics", method="", run_time=20) for _ in range(4)]


@pytest.mark.parametrize("plugin", [True, False])
def test_what_an_administrator_has_released_is_not_held_again(tmp_path: Path, plugin: bool) -> None:
    site = Site(tmp_path, plugin=plugin)
    physics = full_of_physics(site)
    waiting = [site.submit("physics", method="", run_time=50) for _ in range(2)]
    site.run(2)
    assert site.held() == [str(job) for job in waiting]
    site.slurm.admin_release(waiting[0])
    site.run(5)
    assert site.held() == [str(waiting[1])]
    assert word_of(site, waiting[0]) is MarkWord.ADMIN_RELEASED
    site.slurm.cancel(physics.pop())
    site.run(3)
    assert site.runs(waiting[0], *physics), "beyond what its account is entitled to"
    assert word_of(site, waiting[0]) is MarkWord.RELEASED, "what was done while it waited is over"
    site.submitted.remove(physics[-1] + 1)
    site.rest()
    assert all_completed(site)


@pytest.mark.parametrize("plugin", [True, False])
@pytest.mark.parametrize("by_user", [True, False])
def test_what_somebody_else_holds_stays_held(tmp_path: Path, plugin: bool, by_user: bool) -> None:
    if not plugin and not by_user:
        return  # nothing tells the hold of an administrator from ours
    site = Site(tmp_path, plugin=plugin)
    full_of_physics(site)
    third = site.submit("physics", method="", run_time=5)
    site.run(2)
    assert is_held_by_us(site.job(third))
    site.slurm.admin_hold(third, by_user)
    site.run(60)
    assert site.job(third).hold is (Hold.USER if by_user else Hold.ADMIN)
    assert not is_held_by_us(site.job(third))
    site.slurm.admin_release(third)
    site.rest()
    assert all_completed(site)


def test_foreign_text_in_the_admin_comment_is_kept(site: Site) -> None:
    statistics = 'JS1:{"cpus": [1, 2]} | more'
    for _ in range(2):
        site.submit("physics", method="", run_time=20)
    bio = [site.submit("bio", run_time=300, admin_comment=statistics) for _ in range(2)]
    third = site.submit("physics", method="", run_time=20, admin_comment=statistics)
    site.run(2)
    assert site.held() == [str(third)]
    assert admin_comment_of(site.job(third)).foreign == statistics
    urgent = site.submit("physics", urgent=True, method="", cpus=8, hosts=2, run_time=5)
    site.run_until(lambda: site.runs(urgent), limit=10)
    assert {admin_comment_of(site.job(job)).foreign for job in bio} == {statistics}
    site.rest()
    assert all_completed(site)
    assert {admin_comment_of(site.job(job)).foreign for job in (third, *bio)} == {statistics}


@pytest.mark.parametrize("plugin", [True, False])
def test_urgent_jobs_keep_the_cpus_that_were_freed_for_them(tmp_path: Path, plugin: bool) -> None:
    """Also where preempted jobs wait already: their ranks and those of the urgent jobs must last."""
    site = Site(tmp_path, plugin=plugin)
    scavengers = [site.submit("bio", run_time=400) for _ in range(8)]
    site.run(3)
    physics = [site.submit("physics", run_time=300) for _ in range(2)]
    site.run_until(lambda: site.runs(*physics), limit=10)
    site.run_until(lambda: not site.journal.state.preemptions, limit=30)
    assert len(site.journal.state.preempted) == 2
    for _ in range(3):
        urgent = site.submit("alarm", urgent=True, method="", run_time=40)
        asked = site.now
        site.run_until(lambda urgent=urgent: site.runs(urgent), limit=30)  # type: ignore[misc]
        assert site.slurm.history[urgent].starts[0] - asked < 3
        site.run(7)
    assert all(len(site.slurm.history[job].starts) <= 4 for job in scavengers)
    site.rest()
    assert all_completed(site)


def test_a_large_number_of_equal_holds_is_one_order(site: Site) -> None:
    full_of_physics(site)
    site.step()
    late = [site.submit("physics", method="", run_time=1) for _ in range(300)]
    before = site.fuse.kinds.count("before hold")
    site.step()
    assert site.fuse.kinds.count("before hold") == before + 1
    assert len(site.held()) == len(late)


def test_the_held_part_of_an_array_is_marked(site: Site) -> None:
    for _ in range(4):
        site.submit("bio")
    site.run(1)
    site.submit("physics", method="", run_time=5, array=tuple(range(1, 13)))
    site.step()
    (held,) = [job for job in site.gateway.jobs() if job.ref == "5_[3-12]"]
    assert held.hold is Hold.ADMIN
    assert admin_comment_of(held).word is MarkWord.HELD
    site.run_until(lambda: not site.gateway.jobs(), limit=600)


def test_a_job_that_cannot_be_marked_is_not_held(site: Site) -> None:
    for _ in range(4):
        site.submit("physics", method="", run_time=20)
    site.step()
    site.gateway.faults.inject(Fault.REFUSE, ["hold"])
    site.submit("physics", method="", run_time=20)
    site.run(3)
    assert not site.held()
    site.rest()
    assert all_completed(site)


@pytest.mark.parametrize("fault", [Fault.REFUSE, Fault.HANG])
def test_an_order_that_is_refused_or_not_answered_is_sent_again_after_ever_longer(site: Site, fault: Fault) -> None:
    for _ in range(4):
        site.submit("bio", run_time=500)
    site.run(2)
    site.gateway.faults.inject(fault, ["hold"])
    site.submit("physics", method="", cpus=12, hosts=3, run_time=20)
    sent: list[float] = []
    for _ in range(400):
        before = site.fuse.kinds.count("before hold")
        site.step()
        sent += [site.now] * (site.fuse.kinds.count("before hold") - before)
    waits = [later - former for former, later in pairwise(sent)]
    assert waits == [4, 8, 16, 32, 60, 60]


def test_an_urgent_job_preempts_and_is_never_preempted(site: Site) -> None:
    bio = [site.submit("bio", time_limit=100 + index) for index in range(4)]
    site.run(2)
    urgent = site.submit("physics", urgent=True, method="")
    site.run_until(lambda: site.runs(urgent), limit=3)
    assert not site.runs(bio[-1]), "the longest remaining is preempted"
    more = [site.submit("physics", urgent=True, method="") for _ in range(5)]
    site.run(5)
    assert sum(site.runs(job) for job in more) == 3
    assert site.runs(urgent)
    site.rest()
    assert all_completed(site)


def test_a_job_inside_its_quantum_is_left_alone(tmp_path: Path) -> None:
    site = Site(tmp_path, site_rules(quantum=30))
    bio = [site.submit("bio", run_time=200) for _ in range(4)]
    site.step()
    physics = site.submit("physics")
    site.run(25)
    assert site.runs(*bio)
    site.run_until(lambda: site.runs(physics), limit=10)


def test_paused_nothing_is_preempted_and_afterwards_it_is(site: Site) -> None:
    bio = [site.submit("bio", run_time=300) for _ in range(4)]
    site.step()
    site.journal.write(Pause("root", site.now))
    physics = site.submit("physics")
    site.run(5)
    assert site.runs(*bio)
    assert "paused by root" in site.reports[-1].summary
    from omfs_daemon.preemption.state import PauseEnded

    site.journal.write(PauseEnded("root", site.now))
    site.run_until(lambda: site.runs(physics), limit=5)


def test_a_gates_hold_stays_as_it_is_during_a_pause(site: Site) -> None:
    """Nothing is held, nor held more firmly, and what no rule needs held is released."""
    first = [site.submit("bio", method="") for _ in range(2)]
    site.step()
    site.journal.write(Pause("root", site.now))
    held_at_submit = {"method": "", "hold": Hold.USER, "admin_comment": SUBMIT_MARK}
    third, later = site.submit("bio", **held_at_submit), site.submit("bio", method="")  # type: ignore[arg-type]
    site.run(5)
    assert site.runs(*first, later)
    assert site.job(third).hold is Hold.USER
    assert "before hold" not in site.fuse.kinds
    site.rest()
    assert all_completed(site)


def test_dry_run_orders_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path, dry_run=True)
    bio = [site.submit("bio", run_time=300) for _ in range(4)]
    site.step()
    site.submit("physics")
    report = site.step()
    assert report.summary.startswith("dry run: would preempt")
    assert site.runs(*bio)
    assert site.fuse.acts == 0


def test_an_outage_in_mid_preemption_means_wait(site: Site) -> None:
    [site.submit("bio", run_time=2000) for _ in range(4)]
    site.run(2)
    physics = site.submit("physics", run_time=900)
    site.gateway.faults.inject(Fault.DEAD, ("requeue",), times=1)
    site.step()
    site.gateway.faults.inject(Fault.DEAD)
    site.run(500, step=5)
    assert "Slurm does not answer" in site.reports[-1].summary
    assert len(site.journal.state.preemptions) == 1
    site.gateway.faults.clear()
    site.run_until(lambda: site.runs(physics), limit=10)
    site.rest()
    assert all_completed(site)


@pytest.mark.parametrize("fault", [Fault.LATE, Fault.HANG, Fault.IGNORE])
@pytest.mark.parametrize("order", ["pin", "set_nice", "requeue", "suspend", "release", "end_hold", "hold", "resume"])
def test_a_lost_or_late_order_is_given_again(site: Site, fault: Fault, order: str) -> None:
    for index in range(4):
        site.submit("bio", method="requeue" if index % 2 else "suspend", run_time=100)
    site.run(2)
    site.gateway.faults.inject(fault, (order,), times=1)
    physics = [site.submit("physics") for _ in range(2)]
    site.run_until(lambda: all(site.state(job) is not JobState.PENDING for job in physics), limit=120)
    site.rest()
    assert all_completed(site), site.outcomes()


def test_a_job_that_refuses_to_be_requeued_is_found_out_before_any_job_is_preempted(site: Site) -> None:
    stubborn = [site.submit("bio", requeue=False, run_time=200) for _ in range(4)]
    site.run(2)
    physics = site.submit("physics", run_time=5)
    site.run(20)
    assert site.runs(*stubborn)
    assert site.state(physics) is JobState.PENDING
    site.rest()
    assert all_completed(site)


def test_nobody_waits_for_a_preemptor_that_its_owner_holds(tmp_path: Path) -> None:
    site = Site(tmp_path, start_timeout=10, retry_after=200)
    bio = [site.submit("bio", run_time=100, ignores_term=True) for _ in range(4)]
    site.run(2)
    physics = site.submit("physics")
    site.step()
    assert site.journal.state.preemptions
    site.slurm.user_hold(physics)  # its owner changes their mind during the preemption
    site.run_until(lambda: not site.journal.state.preemptions, limit=60)
    (preemption,) = site.history_database.preemptions(10, 0.0)
    assert preemption.outcome == "preemptor_held"
    assert site.job(physics).request.required_nodes == frozenset()
    site.run_until(lambda: site.runs(*bio), limit=60)
    site.slurm.user_release(physics)
    site.rest()
    assert all_completed(site)


def test_a_canceled_preemptor_lets_its_victims_come_back(site: Site) -> None:
    [site.submit("bio", run_time=100) for _ in range(4)]
    site.run(2)
    physics = site.submit("physics", ignores_term=True)
    site.gateway.faults.inject(Fault.IGNORE, ("requeue",), times=1)
    site.step()
    site.slurm.cancel(physics)
    site.submitted.remove(physics)
    site.rest()
    assert all_completed(site)


def test_a_node_that_dies_under_a_pinned_preemptor_does_not_bind_it(site: Site) -> None:
    [site.submit("bio", run_time=50) for _ in range(4)]
    site.run(2)
    physics = site.submit("physics", run_time=100)
    site.run_until(lambda: site.runs(physics) and not site.journal.state.preemptions, limit=10)
    (node,) = site.job(physics).on_nodes
    site.slurm.node_down(node)
    site.run_until(lambda: site.runs(physics) and site.job(physics).on_nodes != (node,), limit=200)


def test_a_job_resumed_over_busy_cpus_stands_back(site: Site) -> None:
    victim = site.submit("bio", method="suspend", run_time=100)
    others = [site.submit("bio", method="suspend", run_time=100) for _ in range(3)]
    site.run(2)
    physics = site.submit("physics", run_time=20)
    site.run_until(lambda: site.runs(physics), limit=5)
    (preempted,) = [job for job in (victim, *others) if site.state(job) is JobState.SUSPENDED]
    site.run_until(lambda: not site.journal.state.preemptions, limit=5)
    site.gateway.resume([str(preempted)])  # somebody resumes it by hand, over busy CPUs
    site.run(3)
    assert site.state(preempted) is JobState.SUSPENDED
    site.rest()
    assert all_completed(site)


def test_tasks_of_an_array_take_back_what_their_account_owns(site: Site) -> None:
    [site.submit("bio", run_time=100) for _ in range(4)]
    site.run(2)
    array = site.submit("physics", array=tuple(range(1, 6)), run_time=20)
    site.run_until(lambda: sum(j.account == "physics" and j.runs for j in site.gateway.jobs()) == 2, limit=10)
    assert sum(j.account == "bio" and j.runs for j in site.gateway.jobs()) == 2
    site.rest()
    assert site.slurm.history[array].outcome == "COMPLETED"


def test_a_full_disk_preempts_nothing_and_is_reported(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from omfs_daemon.errors import JournalError

    bio = [site.submit("bio", run_time=100) for _ in range(4)]
    site.run(2)

    def full(*_: object) -> None:
        raise JournalError("journal: cannot be written (No space left on device): no job is preempted until it can")

    write = site.journal.write
    site.journal.write = full  # type: ignore[method-assign]
    physics = site.submit("physics")
    site.run(5)
    assert site.runs(*bio)
    assert "No space left" in site.reports[-1].summary
    site.journal.write = write  # type: ignore[method-assign]
    site.run_until(lambda: site.runs(physics), limit=5)


def test_a_gated_job_for_later_makes_nobody_give(site: Site) -> None:
    bio = [site.submit("bio", run_time=300) for _ in range(4)]
    site.run(2)
    held_at_submit = {"method": "", "hold": Hold.USER, "admin_comment": SUBMIT_MARK}
    later = site.submit("physics", begin=site.now + 1000, **held_at_submit)  # type: ignore[arg-type]
    site.run(30)
    assert site.runs(*bio)
    assert site.job(later).hold is Hold.NONE, "it fits, so Slurm may show why it waits"
    site.rest()
    assert all_completed(site)


def test_a_job_for_later_takes_nobodys_place(site: Site) -> None:
    for _ in range(2):
        site.submit("physics", method="", begin=site.now + 5000)
    site.run(2)
    now = site.submit("physics", method="", hold=Hold.USER, admin_comment=SUBMIT_MARK)
    site.run_until(lambda: site.runs(now), limit=10)
    site.run_until(lambda: set(site.outcomes().values()) == {"COMPLETED"}, limit=8000, step=5)


@pytest.mark.parametrize("nice", [130_000_000, 2_147_483_645])
def test_a_large_nice_of_its_owner_raises_no_rank(site: Site, nice: int) -> None:
    for _ in range(4):
        site.submit("bio", run_time=60)
    site.run(1)
    humble = site.submit("physics", cpus=4, nice=nice)
    site.run_until(lambda: site.runs(humble), limit=10)
    rows = [site.submit("physics", cpus=4, nice=each, run_time=30) for each in (nice, 0, 0)]
    site.run(5)
    waiting = [site.job(job) for job in rows if site.state(job) is JobState.PENDING]
    assert all(job.priority <= max(other.priority for other in waiting if other.id != rows[0]) for job in waiting)
    site.rest()
    assert all_completed(site)


def test_a_large_array_is_held_by_a_few_orders(site: Site) -> None:
    site.submit("physics", method="", array=tuple(range(1, 501)), run_time=1)
    acts = site.fuse.acts
    site.run(2)
    assert site.fuse.acts - acts < 60
    assert len(site.gateway.jobs()) < 12


def test_a_job_that_may_not_be_preempted_never_is(site: Site) -> None:
    stubborn = [site.submit("bio", method="requeue", requeue=False) for _ in range(2)]
    other = [site.submit("physics") for _ in range(2)]
    site.run(1)
    third = site.submit("bio", method="requeue", requeue=False)
    site.run(2)
    assert site.runs(*stubborn, *other)
    assert site.job(third).hold is Hold.ADMIN
    site.rest()
    assert all_completed(site)
