"""The failsafe runs each minute while the daemon is dead: it does nothing twice, and respects what was done between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from omfs_daemon.cluster.holds import admin_comment_of
from omfs_daemon.cluster.jobs import JobRequest, JobState
from omfs_daemon.cluster.marks import MarkWord
from omfs_daemon.slurm.gateway import OrderRefusal
from omfs_daemon.testing.fake_slurm.fake_gateway import Fault
from tests.support.fake_site import Site
from tests.support.preemption_cases import ON_NODES, methods_site, preemptor, victims, word_of
from tests.whole_daemon.test_preemption_failsafe import die, failsafe


def preempted(directory: Path, method: str = "suspend", run_time: float = 5) -> tuple[Site, int]:
    """A job of one node that was preempted by a daemon that has died; its preemptor has ended."""
    site = methods_site(directory, hosts=1)
    (job,) = victims(site, method, count=1, run_time=5000)
    urgent = preemptor(site, method, run_time=run_time)
    site.run_until(lambda: site.runs(urgent), limit=30)
    die(site)
    site.now += 30
    return site, job


def line_of(site: Site) -> tuple[int, dict[str, Any]]:
    with capture_logs() as logs:
        code = failsafe(site)
    return code, dict(logs[-1])


def orders(site: Site, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The suspend and resume orders from now on."""
    found: list[str] = []

    def noted(name: str) -> None:
        send = getattr(site.gateway, name)

        def noting(refs: list[str], *more: Any) -> list[OrderRefusal]:
            found.extend(f"{name} {ref}" for ref in refs)
            refused: list[OrderRefusal] = send(refs, *more)
            return refused

        monkeypatch.setattr(site.gateway, name, noting)

    noted("suspend")
    noted("resume")
    return found


def suspended(site: Site) -> list[str]:
    return sorted(job.ref for job in site.gateway.jobs() if job.state is JobState.SUSPENDED)


# -- what slurmctld has forgotten ---------------------------------------------------------------------------------
def forgotten(directory: Path) -> tuple[Site, int]:
    """A job whose suspension slurmctld has forgotten; it was preempted for one that is gone."""
    site = methods_site(directory, hosts=1)
    (job,) = victims(site, "suspend", count=1, run_time=5000)
    saved = site.slurm.save()
    urgent = preemptor(site, "suspend", run_time=5)
    site.run_until(lambda: site.state(job) is JobState.SUSPENDED, limit=30, step=0.1)
    die(site)
    site.slurm.restart(saved)
    site.slurm.cancel(urgent)
    return site, job


def test_a_forgotten_order_is_repeated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site, job = forgotten(tmp_path)
    site.now += 30
    assert site.runs(job), "it seems so"
    sent = orders(site, monkeypatch)
    for _ in range(3):
        assert failsafe(site) == 0
        site.now += 60
    assert sent == [f"suspend {job}", f"resume {job}"]
    site.start_daemon()
    site.run(5)
    assert sent == [f"suspend {job}", f"resume {job}"], "the daemon knows it, too"
    site.now += 6000
    assert site.outcomes()[job] == "COMPLETED"


def test_a_forgotten_order_waits_for_the_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would get it later, maybe after the resume."""
    site, job = forgotten(tmp_path)
    site.now += 30
    site.slurm.catch_up()
    site.slurm.fake_nodes["n1"].silent = True
    sent = orders(site, monkeypatch)
    code, line = line_of(site)
    assert (code, line["still_stopped_on_nodes"], sent) == (1, [str(job)], [])
    site.slurm.fake_nodes["n1"].silent = False
    assert failsafe(site) == 0
    assert sent == [f"suspend {job}", f"resume {job}"]


def test_a_job_that_cannot_be_marked_is_not_suspended_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site, job = forgotten(tmp_path)
    site.now += 30
    sent = orders(site, monkeypatch)
    site.gateway.faults.inject(Fault.REFUSE, ["set_admin_comment"])
    code, line = line_of(site)
    assert (code, line["still_stopped_on_nodes"], sent) == (1, [str(job)], [])
    assert line["refused"]
    site.gateway.faults.clear()
    assert failsafe(site) == 0
    assert sent == [f"suspend {job}", f"resume {job}"]


def test_a_repeated_order_is_resumed_later_if_the_cpus_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, job = forgotten(tmp_path)
    site.now += 30
    sent = orders(site, monkeypatch)
    suspend = site.gateway.suspend

    def suspend_and_lose(refs: list[str]) -> list[OrderRefusal]:
        refused = suspend(refs)
        site.submit("physics", run_time=90)
        site.slurm.catch_up()
        return refused

    monkeypatch.setattr(site.gateway, "suspend", suspend_and_lose)
    code, line = line_of(site)
    assert (code, line["still_suspended"]) == (1, [str(job)])
    site.now += 60
    assert failsafe(site) == 1
    site.now += 60
    assert failsafe(site) == 0
    assert sent == [f"suspend {job}", f"resume {job}"]


# -- what an administrator does between two runs ------------------------------------------------------------------
@pytest.mark.parametrize("method", ["suspend", *ON_NODES])
def test_what_an_administrator_suspends_stays_suspended(tmp_path: Path, method: str) -> None:
    """Under the failsafe, and under the daemon that comes back."""
    site, job = preempted(tmp_path, method)
    assert failsafe(site) == 0
    assert site.runs(job)
    site.now += 60
    site.gateway.suspend([str(job)])
    for _ in range(2):
        code, line = line_of(site)
        assert (code, line["resumed"], site.state(job)) == (0, 0, JobState.SUSPENDED)
        site.now += 60
    site.start_daemon()
    site.run(30)
    assert site.state(job) is JobState.SUSPENDED
    assert str(job) not in site.journal.state.preempted
    assert word_of(site, job) is MarkWord.RELEASED
    site.gateway.resume([str(job)])
    site.run(5)
    assert site.runs(job)


def test_the_daemon_that_comes_back_in_mid_preemption_leaves_it_too(tmp_path: Path) -> None:
    site, job = preempted(tmp_path)
    assert site.journal.state.preemptions, "it had not seen the preemptor start"
    assert failsafe(site) == 0
    site.gateway.suspend([str(job)])
    site.start_daemon()
    site.run(60)
    assert site.state(job) is JobState.SUSPENDED
    assert not site.journal.state.preemptions


def test_a_mark_from_before_the_daemon_died_is_renewed(tmp_path: Path) -> None:
    """It says the same as that of the failsafe, and would not show that the job was let go since."""
    site, job = preempted(tmp_path)
    record, number = site.slurm.records[job], admin_comment_of(site.job(job)).number
    record.admin_comment, record.shown = f"{MarkWord.RELEASED}:{number}", None
    assert failsafe(site) == 0
    assert admin_comment_of(site.job(job)).number > number
    site.gateway.suspend([str(job)])
    assert failsafe(site) == 0
    assert site.state(job) is JobState.SUSPENDED


def test_a_suspended_job_that_an_administrator_has_held_is_left_and_named(tmp_path: Path) -> None:
    site, job = preempted(tmp_path)
    assert failsafe(site) == 0
    site.gateway.suspend([str(job)])
    site.slurm.admin_hold(job)
    assert word_of(site, job) is MarkWord.ADMIN_HELD
    code, line = line_of(site)
    assert (code, line["left_to_administrators"], line["still_suspended"]) == (0, [str(job)], [])
    assert site.state(job) is JobState.SUSPENDED


@pytest.mark.parametrize("is_forgotten", [True, False])
@pytest.mark.parametrize("more", [{"array": (3, 5)}, {"parts": (JobRequest(4, partitions=("main",)),)}])
def test_tasks_and_heterogeneous_jobs_are_let_go_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_forgotten: bool, more: dict[str, Any]
) -> None:
    site = methods_site(tmp_path, hosts=2)
    site.submit("bio", method="suspend", run_time=5000, **more)
    site.run(3)
    saved = site.slurm.save()
    urgent = site.submit("alarm", urgent=True, method="", cpus=8, hosts=2, run_time=5)
    site.run_until(lambda: site.runs(urgent), limit=30, step=0.1)
    refs = suspended(site)
    assert refs
    die(site)
    if is_forgotten:
        site.slurm.restart(saved)
        site.slurm.cancel(urgent)
    site.now += 30
    sent = orders(site, monkeypatch)
    for _ in range(2):
        assert failsafe(site) == 0
        site.now += 60
    assert sorted(sent) == sorted(
        [*(f"suspend {ref}" for ref in refs if is_forgotten), *(f"resume {ref}" for ref in refs)]
    )
    site.gateway.suspend(refs)
    assert failsafe(site) == 0
    site.start_daemon()
    site.run(10)
    assert suspended(site) == refs


# -- nodes --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", ON_NODES)
def test_nodes_are_not_asked_again_about_a_job_that_runs(tmp_path: Path, method: str) -> None:
    site, job = preempted(tmp_path, method)
    assert failsafe(site) == 0
    asked = len(site.nodes.asked)
    site.nodes.cut("n1")
    assert failsafe(site) == 0, "its node need not answer any more"
    assert len(site.nodes.asked) == asked
    assert site.runs(job)


@pytest.mark.parametrize("method", ON_NODES)
def test_nodes_are_asked_until_they_have_continued_a_job(tmp_path: Path, method: str) -> None:
    """It is stopped there, and was never suspended."""
    site = methods_site(tmp_path, hosts=1)
    (job,) = victims(site, method, count=1, run_time=100)
    preemptor(site, method, run_time=5)
    site.run_until(lambda: bool(site.nodes.stopped()), limit=30, step=0.1)
    die(site)
    site.now += 30
    site.nodes.cut("n1")
    for _ in range(2):
        code, line = line_of(site)
        assert (code, line["still_stopped_on_nodes"]) == (1, [str(job)])
        assert word_of(site, job) is MarkWord.STOPPING, "it is not let go"
        site.now += 60
    site.nodes.join("n1")
    assert failsafe(site) == 0
    assert word_of(site, job) is MarkWord.RELEASED
    assert not site.nodes.stopped()
    asked = len(site.nodes.asked)
    assert failsafe(site) == 0
    assert len(site.nodes.asked) == asked
