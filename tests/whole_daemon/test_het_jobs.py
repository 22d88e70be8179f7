"""A heterogeneous job is one job in policy and admission, and a victim as a whole or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import Hold, JobRequest, JobState
from omfs_daemon.cluster.marks import SUBMIT_MARK
from omfs_daemon.errors import ControlError
from omfs_daemon.policy.rules.queue_order import Band, band_of
from omfs_daemon.preemption.preemption import Step
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission
from tests.support.fake_site import Site
from tests.whole_daemon.test_limits import limits
from tests.whole_daemon.test_process import ALICE, BOB, ROOT, Stand

NODE = JobRequest(4, max_nodes=1)
TWO_NODES = JobRequest(8, nodes=2, max_nodes=2)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


def submitted(site: Site | Stand, account: str, *parts: JobRequest, method: str = "requeue", **more: object) -> int:
    comment = f"omfs:method={method}" if method else ""
    first, *others = parts
    submission = Submission(first, parts=tuple(others), account=account, user=account, comment=comment)
    return site.slurm.submit(replace(submission, **more))  # type: ignore[arg-type]


def running(site: Site, account: str, *parts: JobRequest, method: str = "requeue") -> int:
    job = submitted(site, account, *parts, method=method)
    site.run_until(lambda: site.runs(job), 120)
    return job


def used(site: Site) -> dict[str, int]:
    plan = site.reports[-1].plan
    assert plan is not None
    return {row.account: row.used for row in plan.accounts}


# -- admission ---------------------------------------------------------------------------------------
def test_one_that_fits_into_the_entitlement_is_released_as_a_whole_and_counts(site: Site) -> None:
    job = submitted(site, "physics", NODE, NODE, method="", hold=Hold.USER, admin_comment=SUBMIT_MARK)
    site.run_until(lambda: site.runs(job), 60)
    site.run(2)
    assert used(site)["physics"] == 8
    beyond = submitted(site, "physics", NODE, method="", hold=Hold.USER, admin_comment=SUBMIT_MARK)
    site.run(60)
    assert site.job(beyond).hold is not Hold.NONE, "all of physics' share is used"


def test_one_beyond_the_entitlement_is_held_as_a_whole_until_it_fits(site: Site) -> None:
    first = site.submit("physics", method="", run_time=100)
    job = submitted(site, "physics", NODE, NODE, method="")
    site.run(30)
    assert (site.job(job).hold, site.state(job)) == (Hold.ADMIN, JobState.PENDING)
    site.run_until(lambda: site.state(first) is JobState.ENDED, 120)
    site.run_until(lambda: site.runs(job), 120)


def test_k32_one_that_never_fits_is_not_ranked_before_jobs_that_do(site: Site) -> None:
    """Parts take nodes of their own: one with five on four nodes never starts, and Slurm would wait for it."""
    site.slurm.set_limits(limits())
    never = submitted(site, "physics", *[JobRequest(1, max_nodes=1)] * 5)
    site.run(2)
    (wait,) = site.reports[-1].plan.waits  # type: ignore[union-attr]
    assert wait.ref == str(never) and "do not fit on all nodes" in wait.text
    others = [submitted(site, "physics", NODE, NODE), site.submit("bio")]
    site.run_until(lambda: site.runs(*others), 60)
    assert band_of(site.job(never)) is Band.NONE


def test_one_that_names_a_usable_method_borrows(site: Site) -> None:
    assert running(site, "physics", NODE, TWO_NODES)
    site.run(2)
    assert used(site)["physics"] == 12


@pytest.mark.parametrize("method", ["pageout", "dmtcp", "application"])
def test_a_method_that_cannot_be_used_for_it_gains_nothing(site: Site, method: str) -> None:
    job = submitted(site, "physics", NODE, TWO_NODES, method=method)
    site.run(60)
    assert (site.job(job).hold, site.state(job)) == (Hold.ADMIN, JobState.PENDING)


# -- victim ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", ["requeue", "suspend"])
def test_it_is_preempted_as_a_whole_and_runs_again(site: Site, method: str) -> None:
    victim = running(site, "bio", NODE, NODE, TWO_NODES, method=method)
    owner = submitted(site, "physics", NODE, method="", run_time=40.0)
    site.run_until(lambda: site.runs(owner), 60)
    assert site.state(victim) is (JobState.SUSPENDED if method == "suspend" else JobState.PENDING)
    assert used(site)["bio"] in (0, 16)
    site.run(5)
    assert used(site)["bio"] == 0
    (event,) = [one for one in site.history_database.of_job(str(victim)) if one.event == "preempted"]
    assert event.job == str(victim)
    site.run_until(lambda: site.runs(victim), 300)
    assert site.runs(victim) and len(site.job(victim).on_nodes) == 4
    assert site.job(victim).hold is Hold.NONE


def test_the_nodes_of_all_parts_count_when_victims_are_chosen(site: Site) -> None:
    """What one job of two parts frees is enough for a job of two nodes."""
    first = running(site, "bio", NODE, NODE)
    other = running(site, "bio", NODE, NODE)
    owner = site.submit("physics", cpus=8, hosts=2, method="", run_time=1000)
    site.run_until(lambda: site.runs(owner), 60)
    assert sorted([site.runs(first), site.runs(other)]) == [False, True]


@pytest.mark.parametrize("method", ["requeue", "suspend"])
def test_what_is_left_of_one_of_which_a_part_has_ended_is_suspended(site: Site, method: str) -> None:
    """Requeued, it would never run again; and no owner keeps what others own by canceling a part."""
    whole = running(site, "bio", *[NODE] * 4, method=method)
    site.slurm.end_part(site.slurm.records[whole], 3)
    owner = site.submit("physics", cpus=8, hosts=2, method="", run_time=100)
    site.run_until(lambda: site.runs(owner), 60)
    assert site.state(whole) is JobState.SUSPENDED
    site.run_until(lambda: site.runs(whole), 300)
    assert site.job(whole).restarts == 0 and len(site.job(whole).on_nodes) == 3


def test_one_of_which_a_part_has_ended_and_that_names_no_method_is_left_to_run(site: Site) -> None:
    whole = running(site, "bio", NODE, NODE, method="")
    site.slurm.end_part(site.slurm.records[whole], 1)
    others = [site.submit("bio", run_time=1000) for _ in range(3)]
    site.run_until(lambda: site.runs(*others), 60)
    owner = site.submit("physics", cpus=8, hosts=2, method="", run_time=1000)
    site.run_until(lambda: site.runs(owner), 60)
    assert site.runs(whole)


def test_a_part_that_ends_while_it_is_preempted_stops_nothing(site: Site) -> None:
    victim = running(site, "bio", *[NODE] * 4)
    record = site.slurm.records[victim]
    record.what = replace(record.what, ignores_term=True)
    owner = site.submit("physics", method="", run_time=1000)
    site.run_until(lambda: site.state(victim) is JobState.COMPLETING, 60)
    assert any(preemption.step is not Step.DONE for preemption in site.journal.state.preemptions.values())
    site.run_until(lambda: site.runs(owner), 120)


# -- preemptor ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("urgent", [True, False])
def test_others_are_preempted_for_one_as_a_whole(site: Site, urgent: bool) -> None:
    others = [site.submit("bio", run_time=2000) for _ in range(4)]
    site.run_until(lambda: site.runs(*others), 30)
    partitions = ("urgent",) if urgent else ("main",)
    job = submitted(site, "physics", *[replace(NODE, partitions=partitions)] * 2, method="", run_time=100.0)
    site.run_until(lambda: site.runs(job), 60)
    assert sum(site.runs(other) for other in others) == 2
    assert len(site.job(job).on_nodes) == 2
    site.run_until(lambda: site.runs(*others), 300)
    assert all(site.job(other).hold is Hold.NONE for other in others)


def test_nobody_is_preempted_for_one_whose_parts_would_not_fit_all(site: Site) -> None:
    """The other node of the four is used by a job that cannot be preempted."""
    stays = site.submit("bio", method="", run_time=2000)
    others = [site.submit("bio", run_time=2000) for _ in range(3)]
    site.run_until(lambda: site.runs(stays, *others), 30)
    job = submitted(site, "physics", *[replace(NODE, partitions=("urgent",))] * 4, method="")
    site.run(60)
    assert site.runs(stays, *others) and site.state(job) is JobState.PENDING


def test_no_part_of_a_preemptor_is_pinned(site: Site) -> None:
    """Slurm takes no pin for the first part."""
    others = [site.submit("bio", run_time=2000) for _ in range(4)]
    site.run_until(lambda: site.runs(*others), 30)
    job = submitted(site, "physics", NODE, NODE, method="", run_time=100.0)
    pins: list[frozenset[str]] = []
    site.run_until(lambda: pins.append(site.job(job).request.required_nodes) or site.runs(job), 60)  # type: ignore[func-returns-value]
    assert set(pins) == {frozenset()}


# -- what is said ------------------------------------------------------------------------------------
def test_a_part_that_is_exempted_stands_for_the_whole_job(stand: Stand) -> None:
    single = stand.submit("bob", "physics")
    stand.run(1)
    acts, job = stand.service.answers, submitted(stand, "bio", NODE, NODE)
    for _ in range(2):  # before it is polled, and after
        assert acts.exempt(ROOT, f"{job}+0", None)["done"] == f"job {job} is never preempted"
        assert [one["name"] for one in acts.exemptions(ROOT)["exemptions"]] == [str(job)]
        acts.end_exemption(ROOT, f"{job}+1")
        assert acts.exemptions(ROOT)["exemptions"] == []
        stand.run(2)
    with pytest.raises(ControlError, match=rf"^job {single}\+1: Slurm does not list it$"):
        acts.exempt(ROOT, f"{single}+1", None)
    stand.service.close()


def test_why_answers_for_the_job_and_for_each_part(stand: Stand) -> None:
    first = [stand.submit("bob", "physics", "", run_time=1000) for _ in range(3)]
    stand.run(2)
    node = JobRequest(2, max_nodes=1)
    job = submitted(stand, "bio", node, replace(node, nodes=2, max_nodes=2), method="requeue")
    stand.slurm.records[job].what = replace(stand.slurm.records[job].what, user="alice")
    stand.run(2)
    answers = stand.service.answers
    for asked in (str(job), f"{job}+0", f"{job}+1", str(job + 1)):
        why = answers.why(ROOT, asked)
        assert (why["job"], why["state"]) == (str(job), "PENDING")
        assert "would not free enough" in why["now"]
        assert why["parts"] == [f"{job}+0: 2 CPUs on 1 or more nodes", f"{job}+1: 2 CPUs on 2 or more nodes"]
    assert answers.why(ALICE, f"{job}+1")["job"] == str(job)
    with pytest.raises(ControlError, match="not yours"):
        answers.why(BOB, f"{job}+1")
    with pytest.raises(ControlError, match="does not list it"):
        answers.why(ROOT, f"{first[0]}+1")
    assert answers.status(ROOT)["set_aside"] == 0
    stand.service.close()
