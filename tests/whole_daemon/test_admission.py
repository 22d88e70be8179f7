"""Admission of non-preemptible jobs: in order, and only what a rule needs held is held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from omfs_daemon.cluster.accounts import AccountTree, Entitlement
from omfs_daemon.cluster.holds import admin_comment_of
from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.cluster.marks import SUBMIT_MARK
from omfs_daemon.policy.admission_holds import BELIEF
from tests.support.fake_site import Site, site_rules

HELD_AT_SUBMIT: Mapping[str, Any] = {"method": "", "hold": Hold.USER, "admin_comment": SUBMIT_MARK}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def all_completed(site: Site) -> bool:
    return set(site.outcomes().values()) == {"COMPLETED"}


def test_a_job_for_later_is_held_only_where_others_use_the_entitlement(site: Site) -> None:
    later = site.submit("physics", cpus=8, hosts=2, begin=site.now + 1000, **HELD_AT_SUBMIT)
    site.run(3)
    assert site.job(later).hold is Hold.NONE
    now = site.submit("physics", run_time=100, **HELD_AT_SUBMIT)
    site.run_until(lambda: site.runs(now), limit=10)
    assert site.job(later).hold is Hold.ADMIN
    assert admin_comment_of(site.job(later)).sentence.startswith("[omfs] BeginTime:")
    site.run(300)
    assert site.job(later).hold is Hold.ADMIN, "it is not held and released by turns"
    site.run_until(lambda: site.runs(later), limit=1000)
    site.rest()
    assert all_completed(site)


def test_a_large_job_does_not_wait_behind_a_stream_of_small_ones_of_its_account(site: Site) -> None:
    def small() -> int:
        return site.submit("physics", cpus=1, run_time=20, time_limit=60, **HELD_AT_SUBMIT)

    stream = [small() for _ in range(8)]
    site.run(5)
    assert site.runs(*stream)
    large = site.submit("physics", cpus=8, hosts=2, method="", run_time=20, time_limit=60)
    for _ in range(60):
        site.run(1)
        stream.append(small())
        if site.runs(large):
            break
    assert site.now - site.job(large).submit < 30
    site.run(20)
    site.rest()
    assert all_completed(site)


def test_an_account_that_owns_the_whole_cluster_is_never_held(tmp_path: Path) -> None:
    site = Site(tmp_path, rules=replace(site_rules(), tree=AccountTree([Entitlement("physics", Fraction(100))])))
    jobs = [site.submit("physics", cpus=4, method="", run_time=20) for _ in range(6)]
    jobs += [site.submit("physics", cpus=4, run_time=20, **HELD_AT_SUBMIT) for _ in range(6)]
    site.run(3)
    assert all(site.job(job).hold is Hold.NONE for job in jobs)
    site.rest()
    assert all_completed(site)


def test_a_deadline_that_passes_while_a_job_is_held_ends_it(site: Site) -> None:
    first = site.submit("physics", cpus=8, hosts=2, method="", run_time=300)
    site.run(2)
    due = site.submit("physics", deadline=60.0, **HELD_AT_SUBMIT)
    site.run(30)
    assert site.job(due).hold is Hold.ADMIN
    site.run(60)
    assert site.outcomes()[due] == "DEADLINE" and site.runs(first)


def test_a_released_job_that_waits_for_a_limit_gives_way_after_a_while_and_comes_back(tmp_path: Path) -> None:
    site = Site(tmp_path, licenses={"fluent": 1})
    blocker = site.submit("bio", licenses=(("fluent", 1),), run_time=3000)
    site.run(2)
    share: Mapping[str, Any] = {"cpus": 8, "hosts": 2, **HELD_AT_SUBMIT}
    stuck = site.submit("physics", licenses=(("fluent", 1),), run_time=20, **share)
    site.run(3)
    assert site.job(stuck).reason == "Licenses" and site.runs(blocker)
    others = [site.submit("physics", run_time=100, **share) for _ in range(2)]
    site.run(BELIEF - 100)
    assert not site.runs(*others[:1])
    site.run_until(lambda: site.runs(others[0]), limit=200)
    assert admin_comment_of(site.job(stuck)).sentence.startswith("[omfs] Licenses: ")
    later = site.submit("physics", run_time=100, **share)
    site.run_until(lambda: site.runs(others[1]), limit=200)
    site.run_until(lambda: site.job(stuck).hold is Hold.NONE, limit=200)
    assert not site.runs(later), "it came after the job that was held"
    site.run_until(lambda: site.runs(later), limit=BELIEF + 20)
    site.slurm.cancel(blocker)
    site.run_until(lambda: site.runs(stuck), limit=200)
    held = [event for event in site.history_database.of_job(str(stuck)) if event.event == "held"]
    assert len(held) == 2, "not by turns"
    site.rest()


def test_what_an_administrator_has_released_beyond_the_entitlement_takes_no_nodes_from_its_account(site: Site) -> None:
    """It may run on idle CPUs; jobs of its own account give way only to what fits into the entitlement."""
    full = [site.submit("bio", method="", run_time=1000) for _ in range(2)]
    site.run_until(lambda: site.runs(*full), 20)
    held = site.submit("bio", run_time=100, **HELD_AT_SUBMIT)
    later = [site.submit("bio", run_time=200) for _ in range(2)]
    site.run_until(lambda: site.runs(*later), 20)
    site.run_until(lambda: site.job(held).hold is Hold.ADMIN, 20)
    assert site.slurm.admin_release(held)
    site.run(30)
    assert site.runs(*later)
    assert not any(report.verdict and report.verdict.refused for report in site.reports)
    site.run_until(lambda: site.runs(held), 300)
