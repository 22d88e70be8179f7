"""The report of a dry run, against what the same daemon does when it is not dry, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from omfs_daemon.daemon.api.operations import perform
from omfs_daemon.daemon.api.shadow_view import ShadowAccountView, ShadowView, shadow_view
from omfs_daemon.daemon.store.history_database import SHADOW_ROWS
from omfs_daemon.daemon.store.shadow_rows import ShadowKind, ShadowRow
from omfs_daemon.errors import DeniedError
from tests.support.fake_site import Site
from tests.whole_daemon.test_process import ALICE, ROOT, Stand

Act = Callable[[Site], dict[str, int]]


def dry_site(directory: Path, **settings: Any) -> Site:
    return Site(directory, dry_run=True, **settings)


def pair(directory: Path) -> tuple[Site, Site]:
    """Two daemons, of which the first only says what it would do."""
    places = [directory / "dry", directory / "real"]
    for place in places:
        place.mkdir()
    return dry_site(places[0]), Site(places[1])


def report(site: Site, since: float = 0.0) -> ShadowView:
    return shadow_view(site.history_database.shadow(since), since, site.now)


def row(site: Site, account: str, name: str = "regular") -> ShadowAccountView:
    (found,) = [one for one in report(site)["accounts"] if (one["account"], one["job_class"]) == (account, name)]
    return found


def rows(site: Site, kind: ShadowKind) -> list[ShadowRow]:
    return [one for one in site.history_database.shadow(0.0) if one.kind == kind]


def entitled(site: Site) -> dict[str, int]:
    """bio borrows everything; physics comes later."""
    jobs = {f"bio{number}": site.submit("bio", run_time=200 + number) for number in range(4)}
    site.run(50)
    return jobs | {"physics": site.submit("physics", run_time=50)}


def urgent(site: Site) -> dict[str, int]:
    jobs = {f"bio{number}": site.submit("bio", method="suspend", run_time=300 + number) for number in range(4)}
    site.run(20)
    return jobs | {"physics": site.submit("physics", run_time=30, urgent=True)}


def started(site: Site, job_id: int) -> float:
    site.run_until(lambda: site.runs(job_id), 1000)
    start = site.job(job_id).start
    assert start is not None
    return start


@pytest.mark.parametrize(("act", "method", "name"), [(entitled, "requeue", "regular"), (urgent, "suspend", "urgent")])
def test_it_says_what_the_same_daemon_does_when_it_is_not_dry(tmp_path: Path, act: Act, method: str, name: str) -> None:
    """The same preemptor, victims, and method; and the time won lies between the report's bounds."""
    shadow, daemon = pair(tmp_path)
    in_shadow, in_real = act(shadow), act(daemon)
    won = started(shadow, in_shadow["physics"]) - started(daemon, in_real["physics"])
    shadow.run(5)
    daemon.run(5)
    (preemption,) = daemon.history_database.preemptions(10, 0.0)
    assert [one.job for one in rows(shadow, ShadowKind.START)] == [preemption.preemptor]
    assert [(one.job, one.method) for one in rows(shadow, ShadowKind.PREEMPTION)] == [
        (victim["job"], victim["method"]) for victim in preemption.victims
    ]
    found = row(shadow, "physics", name)
    assert (found["earlier"], found["waiting"], found["gone"]) == (1, 0, 0)
    assert found["least_seconds"] <= won <= found["most_seconds"] + 1
    assert found["most_seconds"] > 0
    (by_method,) = row(shadow, "bio")["preempted"]
    assert (by_method["method"], by_method["times"], by_method["jobs"]) == (method, 1, 1)
    (cost,) = daemon.history_database.costs(0.0)[:1]
    assert by_method["lost_cpu_seconds"] == pytest.approx(cost.lost * 4, abs=8)
    assert not any(shadow.job(job).restarts for job in shadow.slurm.records), "and nothing was done"


def test_a_decision_that_is_repeated_counts_once_also_over_a_restart(tmp_path: Path) -> None:
    site = dry_site(tmp_path)
    jobs = entitled(site)
    site.run(20)
    site.die()
    site.start_daemon()
    site.run(20)
    assert len(rows(site, ShadowKind.START)) == len(rows(site, ShadowKind.PREEMPTION)) == 1
    found = row(site, "physics")
    assert (found["earlier"], found["waiting"]) == (0, 1)
    assert 39 <= found["most_seconds"] <= 41
    started(site, jobs["physics"])
    site.run(1)
    assert row(site, "physics")["earlier"] == 1


def test_the_gain_ends_when_the_job_has_really_started_also_between_two_polls(tmp_path: Path) -> None:
    site = dry_site(tmp_path)
    for number in range(4):
        site.submit("bio", run_time=60.2 + number)
    site.run(10)
    job = site.submit("physics", run_time=0.2)
    site.run_until(lambda: not [one for one in site.gateway.jobs() if one.id == job], 200)
    site.run(2)
    found = row(site, "physics")
    assert found["earlier"] == 1
    assert 45 <= found["most_seconds"] <= 52


def test_of_a_job_that_leaves_the_queue_nothing_is_gained(tmp_path: Path) -> None:
    site = dry_site(tmp_path)
    jobs = entitled(site)
    site.run(10)
    site.slurm.cancel(jobs["physics"])
    site.run(2)
    found = row(site, "physics")
    assert (found["gone"], found["least_seconds"], found["most_seconds"]) == (1, 0, 0)


def test_jobs_that_would_be_held_count_once(tmp_path: Path) -> None:
    shadow, daemon = pair(tmp_path)
    for site in (shadow, daemon):
        for _ in range(4):
            site.submit("bio", run_time=1000)
        site.run(1)
        for _ in range(3):
            site.submit("bio", method="", run_time=1000)
        site.run(10)
    assert len(daemon.held()) == row(shadow, "bio")["held"]
    assert not shadow.held()


def test_it_ends_with_the_dry_run(tmp_path: Path) -> None:
    site = dry_site(tmp_path)
    entitled(site)
    site.run(10)
    site.settings = replace(site.settings, dry_run=False)
    site.run(30)
    found = row(site, "physics")
    assert (found["earlier"], found["waiting"]) == (1, 0)
    assert found["most_seconds"] <= 11


def test_bounds_of_the_time_won() -> None:
    waits = ShadowRow(ShadowKind.START, "1", 100.0, patience=30.0)
    assert waits.gain(150.0) == (20.0, 50.0)
    assert waits._replace(ended=120.0, started=True).gain(999.0) == (0.0, 20.0)
    assert waits._replace(ended=120.0).gain(999.0) == (0.0, 0.0)
    assert waits._replace(patience=inf).gain(150.0) == (0.0, 50.0)


def test_it_is_bounded(tmp_path: Path) -> None:
    site = dry_site(tmp_path)
    many = [ShadowRow(ShadowKind.HOLD, str(number), float(number)) for number in range(SHADOW_ROWS + 10)]
    site.history_database.record_shadow(many)
    left = site.history_database.shadow(0.0)
    assert len(left) == SHADOW_ROWS
    assert left[0].begun == 10.0


def test_operators_see_it_and_users_do_not(tmp_path: Path) -> None:
    stand = Stand(tmp_path)
    stand.service.close()
    stand.service = stand.serve(dry_run=True)
    for _ in range(4):
        stand.submit("alice", "bio", run_time=1000)
    stand.run(2)
    stand.submit("bob", "physics")
    stand.run(70)
    view: Any = perform(stand.service.answers, ROOT, {"op": "shadow", "args": {"since": 0}})
    assert [(one["account"], one["waiting"]) for one in view["accounts"]] == [("bio", 0), ("physics", 1)]
    assert view["watched_seconds"] >= 60
    with pytest.raises(DeniedError):
        perform(stand.service.answers, ALICE, {"op": "shadow", "args": {}})
    stand.service.close()
