"""Real-time jobs with the whole daemon: they wait until their threshold, and start within their bound."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from math import inf
from pathlib import Path
from typing import Any

from rich.console import Console
from structlog.testing import capture_logs

from omfs_daemon.cli.why import why_table
from omfs_daemon.daemon.api.callers import Caller, Role
from omfs_daemon.daemon.api.status_view import WEEK, bounds_view
from omfs_daemon.daemon.api.why_view import WhyView, why_view
from omfs_daemon.daemon.poll_schedule import PollKind
from omfs_daemon.policy.rules.classes import JobClassRule
from omfs_daemon.policy.rules.realtime_terms import RealtimeTerms
from omfs_daemon.preemption.realtime_memory import RealtimeMemory
from omfs_daemon.testing.fake_slurm.people import Actor, People
from tests.support.fake_site import Killed, Site, site_rules
from tests.support.metric_samples import samples

LIMIT, ACT_AT, BOUND = 100.0, 1.2, 1.5
DUE = (ACT_AT - 1) * LIMIT
POLL = 0.5


def realtime_site(directory: Path) -> Site:
    """QOS rt is real-time. The quantum is so long that an account's entitlement brings no job to its nodes."""
    rule = JobClassRule("beamline", qos=frozenset({"rt"}), realtime=RealtimeTerms(BOUND, (ACT_AT,) * 4, (3.0,) * 4))
    rules = site_rules(quantum=1e6)
    return Site(directory, replace(rules, classes=(rule, *rules.classes)))


def fill(site: Site, method: str = "requeue") -> list[int]:
    jobs = [site.submit("bio", method=method, run_time=300.0, time_limit=1000.0) for _ in range(4)]
    site.run(5)
    assert site.runs(*jobs)
    return jobs


def realtime(site: Site, **more: Any) -> int:
    return site.submit("physics", method="", **{"run_time": 20.0, "qos": "rt", "time_limit": LIMIT, **more})


def why(site: Site, job: int) -> WhyView:
    report, state = site.reports[-1], site.journal.state
    caller = Caller(0, 0, "root", Role.OPERATOR)
    return why_view(caller, str(job), report, state, site.settings.rules, site.history_database, report.plan)


def test_a_real_time_job_waits_for_its_threshold_and_starts_within_its_bound(tmp_path: Path) -> None:
    site = realtime_site(tmp_path)
    fill(site)
    job = realtime(site)
    site.run_until(lambda: bool(site.journal.state.preemptions), limit=DUE + 5, step=POLL)
    (preemption,) = site.journal.state.preemptions.values()
    assert 0 <= preemption.begun - (site.job(job).submit + DUE) <= POLL
    site.run_until(lambda: site.runs(job), limit=10)
    start = site.job(job).start
    assert start is not None
    assert (LIMIT + start - site.job(job).submit) / LIMIT <= BOUND
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}


def test_a_real_time_job_takes_over_the_cpus_of_another(tmp_path: Path) -> None:
    """They do not go back to the victim, which would be preempted again."""
    site = realtime_site(tmp_path)
    fill(site)
    first = realtime(site)
    site.run_until(lambda: site.runs(first), limit=DUE + 10)
    second = realtime(site)
    site.run_until(lambda: site.runs(second), limit=DUE + 10)
    assert site.job(second).start < site.job(second).submit + DUE  # type: ignore[operator]
    assert len(site.history_database.preemptions(99, 0.0)) == 1
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}


def test_who_was_promised_a_bound_may_have_brief_jobs(tmp_path: Path) -> None:
    """Else the third one of an hour would wait, whatever it was promised."""
    site = realtime_site(tmp_path)
    fill(site)
    for _ in range(8):
        job = realtime(site)
        site.run_until(lambda job=job: site.runs(job), limit=DUE + 10)  # type: ignore[misc]
        site.run_until(lambda job=job: site.slurm.history[job].outcome == "COMPLETED", limit=60)  # type: ignore[misc]
    assert len(site.history_database.preemptions(99, 0.0)) > 5, "the sixth would wait if it counted"


def test_bounds_kept_and_missed_are_counted_once(tmp_path: Path) -> None:
    """Over a restart of omfsd, too; nobody can be preempted for the second job before it is too late."""
    site = realtime_site(tmp_path)
    jobs = fill(site)
    kept = realtime(site)
    site.run_until(lambda: site.runs(kept), limit=DUE + 10)
    site.step()
    site.run(60)
    for job in jobs:
        site.slurm.set_comment(job, "")
    late = realtime(site, cpus=16, hosts=4)
    site.run(60)
    assert samples_after(site)["omfs_realtime_jobs{late}"] == 1
    site.run_until(lambda: site.runs(late), limit=1000)
    site.die()
    site.start_daemon()
    seen = samples_after(site)
    assert seen["omfs_realtime_bound_missed_total{physics}"] == 1
    assert (seen["omfs_realtime_slowdown_count{}"], seen["omfs_realtime_jobs{started}"]) == (1, 1)
    site.rest()
    assert site.history_database.bounds(0.0) == (1, 1)
    events = [event for event in site.history_database.of_job(str(kept)) if event.event == "realtime_started"]
    assert [event.data["kept"] for event in events] == [True]
    assert bounds_view(site.settings.rules, site.history_database, site.now) == {"kept": 1, "missed": 1}
    assert bounds_view(site.settings.rules, site.history_database, site.now + 2 * WEEK) == {"kept": 0, "missed": 0}


def samples_after(site: Site) -> dict[str, float]:
    """What the page for Prometheus has after another cycle."""
    report = site.step()
    site.metrics.observe_report(report, PollKind.FULL, 1, site.journal.state, site.settings)
    return samples(site.metrics)


def test_what_a_job_waited_before_it_was_requeued_counts(tmp_path: Path) -> None:
    """Slurm shows it as submitted when it was requeued. What it ran does not count: its owner may requeue it."""
    site = realtime_site(tmp_path)
    fill(site)
    job = realtime(site, run_time=1000.0, time_limit=400.0)
    site.run_until(lambda: site.runs(job), limit=100)
    waited = site.job(job).start - site.job(job).submit  # type: ignore[operator]
    assert waited >= 80
    site.run(30)
    assert People(site.slurm).requeue(job, Actor.OWNER)
    site.run(2)
    site.die()
    site.start_daemon()
    site.run(12)
    again = site.job(job)
    assert again.restarts == 1 and again.eligible is not None
    found = why(site, job)["realtime"]
    assert found is not None and found["slowdown"] is not None
    assert 1 + waited / 400 <= found["slowdown"] <= 1 + (waited + site.now - again.eligible) / 400


def test_a_victim_that_was_requeued_is_not_taken_as_if_it_had_not_waited(tmp_path: Path) -> None:
    site = realtime_site(tmp_path)
    (first, *others) = fill(site)
    submitted = site.job(first).submit
    for job in others:
        site.slurm.set_comment(job, "")
    served = realtime(site)
    site.run_until(lambda: site.runs(served), limit=DUE + 10)
    site.run(1)
    history = site.journal.state.preemption_history(site.settings.rules.methods)
    assert history.waits_since == {str(first): submitted}


def test_why_says_how_the_job_stands_and_what_others_would_cost(tmp_path: Path) -> None:
    site = realtime_site(tmp_path)
    jobs = fill(site)
    job = realtime(site)
    site.run(10)
    site.step(0.0)
    view = why(site, job)
    found = view["realtime"]
    assert found is not None
    elapsed = site.reports[-1].at - site.job(job).submit
    assert (found["slowdown"], found["bound"], found["act_at"]) == (round(1 + elapsed / LIMIT, 4), BOUND, ACT_AT)
    assert found["seconds_left"] == round(DUE - elapsed, 1)
    assert view["now"].startswith("waits: it is real-time and not due yet")
    assert len(found["sets"]) == 3
    for one in found["sets"]:
        (victim,) = one["victims"]
        assert int(victim["job"]) in jobs
        product = victim["cpus"] * victim["slowdown_factor"] * victim["checkpoint_factor"] * victim["remaining_factor"]
        assert abs(product - victim["cost"]) < 0.05
    assert [one["cost"] for one in found["sets"]] == sorted(one["cost"] for one in found["sets"])
    console = Console(file=StringIO(), width=160)
    for part in why_table(view):
        console.print(part)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert "its class promises a slowdown of at most 1.5" in printed and "The cheapest jobs to preempt" in printed


def test_a_job_without_a_time_limit_is_ordinary_and_logged_once(tmp_path: Path) -> None:
    site = realtime_site(tmp_path)
    fill(site)
    with capture_logs() as logged:
        site.start_daemon()
        job = realtime(site, time_limit=inf)
        site.run(DUE + 30)
    assert not site.journal.state.preemptions and not site.runs(job)
    assert [one["jobs"] for one in logged if one["event"] == "realtime_without_limit"] == [[str(job)]]
    assert samples_after(site)["omfs_realtime_jobs{no_limit}"] == 1
    found = why(site, job)["realtime"]
    assert found is not None and "it has no time limit" in found["text"]


def test_why_says_that_nobody_is_eligible(tmp_path: Path) -> None:
    site = realtime_site(tmp_path)
    fill(site, method="")
    job = realtime(site)
    site.run(DUE + 5)
    found = why(site, job)["realtime"]
    assert found is not None and not found["sets"]
    assert "no set of jobs may be preempted for it now" in found["text"]
    assert not site.journal.state.preemptions


def test_nobody_gains_by_what_he_writes_or_edits(tmp_path: Path) -> None:
    """A tighter bound, the name of the class, and a limit that is shortened after submission, over a restart."""
    site = realtime_site(tmp_path)
    fill(site)
    honest = realtime(site, time_limit=400.0)
    cheater = realtime(site, user="eve", time_limit=400.0)
    hopeful = site.submit("physics", user="eve", method="", run_time=20.0, time_limit=1.0)
    people = People(site.slurm)
    assert people.set_comment(hopeful, Actor.OWNER, "omfs:class=beamline omfs:bound=1.01")
    assert people.set_comment(cheater, Actor.OWNER, "omfs:bound=1.01")
    site.run(2)
    assert people.set_time_limit(cheater, Actor.OWNER, 30.0)
    site.run(10)
    site.die()
    site.start_daemon()
    site.run(30)
    assert not site.journal.state.preemptions, "with a limit of 30 s it would have been due after 6 s"
    limits = {one.ref: one.limit for one in site.reports[-1].plan.realtime}  # type: ignore[union-attr]
    assert limits == {str(honest): 400.0, str(cheater): 400.0}
    site.rest()
    assert site.journal.state.backoff.realtime == RealtimeMemory(), "what is gone is forgotten"


def test_who_raises_the_limit_while_others_are_preempted_is_not_due_any_more(tmp_path: Path) -> None:
    """A job of a minute is due within seconds; its owner may ask for a day until it has started."""
    site = realtime_site(tmp_path)
    site.slurm.timing = replace(site.slurm.timing, kill_wait=30.0)
    for _ in range(4):
        site.submit("bio", method="requeue", run_time=300.0, time_limit=1000.0, ignores_term=True)
    site.run(5)
    honest, cheater = realtime(site), realtime(site, user="eve")
    site.run_until(lambda: len(site.journal.state.preemptions) == 2, limit=DUE + 5, step=POLL)
    assert People(site.slurm).set_time_limit(cheater, Actor.OWNER, 5000.0)
    site.run(2)
    (left,) = site.journal.state.preemptions.values()
    assert left.preemptor.ref == str(honest)
    assert [one.outcome for one in site.history_database.preemptions(9, 0.0)] == ["not_due"]
    assert People(site.slurm).set_time_limit(cheater, Actor.OWNER, LIMIT)
    site.run_until(lambda: site.runs(honest), limit=60)
    standings = {one.ref: one.limit for one in site.reports[-1].plan.realtime}  # type: ignore[union-attr]
    assert standings.get(str(cheater), 5000.0) == 5000.0, "it counts from then on"
    site.rest()
    assert set(site.outcomes().values()) == {"COMPLETED"}


def test_killed_at_any_act_of_a_preemption_the_bound_is_kept_and_nothing_lost(tmp_path: Path) -> None:
    def play(directory: Path, kill_at: int | None) -> tuple[Site, int]:
        directory.mkdir()
        site = realtime_site(directory)
        fill(site, method="suspend")
        job = realtime(site)
        site.run(DUE - 2)
        site.fuse.acts, site.fuse.kinds = 0, []
        site.fuse.kill_at = kill_at
        try:
            site.run_until(lambda: site.runs(job), limit=60)
        except Killed:
            site.die()
            site.now += 3.0
            site.start_daemon()
            site.run_until(lambda: site.runs(job), limit=60)
        return site, job

    whole, _ = play(tmp_path / "whole", None)
    assert whole.fuse.acts > 4
    for kill_at in whole.fuse.crash_points():
        site, job = play(tmp_path / str(kill_at), kill_at)
        start, submit = site.job(job).start, site.job(job).submit
        assert start is not None and DUE <= start - submit <= (BOUND - 1) * LIMIT, kill_at
        site.rest()
        assert set(site.outcomes().values()) == {"COMPLETED"}, kill_at
        assert sum(site.slurm.history[one].lost for one in site.submitted) == 0, kill_at
