"""What a user can do to the daemon with the job comment of omfs-run, which they can write at will."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from omfs_daemon.cluster import run_report as launched
from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.cluster.run_report import RunState
from omfs_daemon.testing.fake_slurm.omfs_run_behavior import OmfsRunBehavior, OnUsr1
from tests.support.fake_site import Site
from tests.support.preemption_cases import methods_site, preemptor, victim, victims


def counted(site: Site, name: str) -> list[Any]:
    """The orders of one kind that are given from now on."""
    calls: list[Any] = []
    order = getattr(site.gateway, name)

    def count(refs: Any, *more: Any, **named: Any) -> Any:
        calls.append(refs)
        return order(refs, *more, **named)

    setattr(site.gateway, name, count)
    return calls


def ready(site: Site, job: int) -> bool:
    return site.runs(job) and ":ready" in site.job(job).comment


def without_daemon(site: Site, seconds: float) -> None:
    for _ in range(int(seconds * 2)):
        site.now += 0.5
        site.slurm.catch_up()


def test_an_administrators_hold_outlasts_any_job_comment(tmp_path: Path) -> None:
    """Checkpointed for no preemption that we know, and then held by an administrator: not released."""
    site = methods_site(tmp_path)
    job = victim(site, "dmtcp", run_time=1e6)
    site.run_until(lambda: ready(site, job), 30)
    site.die()
    site.gateway.signal(str(job), "USR1", batch_only=True)
    without_daemon(site, 30)
    assert site.job(job).special_exit
    site.slurm.admin_hold(job)
    assert site.job(job).hold is Hold.ADMIN
    restarts = site.job(job).restarts
    site.start_daemon()
    for state in ("stopped", "ready", "held:why=tool_failed", "failed"):
        site.slurm.set_comment(job, f"omfs:method=dmtcp omfs:run={restarts - 1}:{state}:method=dmtcp")
        site.run(20)
        assert site.job(job).hold is Hold.ADMIN, state
    assert site.job(job).restarts == restarts


def test_who_preempts_himself_again_and_again_is_released_once_each_time(tmp_path: Path) -> None:
    site = methods_site(tmp_path)
    job = victim(site, "dmtcp", run_time=1e6)
    releases, end = counted(site, "release"), site.now + 300
    while site.now < end:
        site.step()
        if ready(site, job):
            site.gateway.signal(str(job), "USR1", batch_only=True)
    recorded = len(site.history_database.of_job(str(job)))
    assert site.job(job).restarts > 10
    assert len(releases) <= site.job(job).restarts + 1
    assert recorded <= site.job(job).restarts + 1


STATES = (
    "ready",
    "stopping",
    "failed",
    "stopped",
    "held",
    "ready:method=criu",
    "ready:method=dmtcp:seconds=9" + "9" * 15,
)


def test_a_word_that_changes_all_the_time_costs_few_signals_and_ends(tmp_path: Path) -> None:
    """Victims that never stop, whatever they report: the preemption times out, and is not tried again at once."""
    site = methods_site(tmp_path)
    jobs = victims(site, "dmtcp", run_time=1e6, launched=OmfsRunBehavior("dmtcp", on_usr1=OnUsr1.IGNORE))
    urgent = preemptor(site, "dmtcp", cpus=16, hosts=4)
    signals, begun, turn = counted(site, "signal"), site.now, 0
    while site.now < begun + 600:
        turn += 1
        for job in jobs:
            state = STATES[turn % len(STATES)]
            method = "" if "method" in state else ":method=dmtcp"
            site.slurm.set_comment(job, f"omfs:method=dmtcp omfs:run={site.job(job).restarts}:{state}{method}")
        site.step()
    assert site.runs(*jobs)
    assert not site.runs(urgent)
    assert len(signals) <= 4 * 600 / 5, "at most one in five seconds for each"
    assert [preemption.outcome for preemption in site.history_database.preemptions(100, 0.0)].count(
        "victim_not_preempted"
    ) <= 600 / 60


HOSTILE = [
    " omfs:run=1:ready" * 60,
    "omfs:run=1:ready" + ":a=b" * 250 + "!",
    (" omfs:run=1:ready" + ":a=b" * 10) * 18 + "!",
    "omfs:run=1:ready:a=" + "a" * 990,
    "omfs:run=" + "9" * 1000,
    " omfs:run=" * 100,
    "omfs:run=1:ready:a=" + "=a:" * 330,
]


@pytest.mark.parametrize("comment", HOSTILE)
def test_reading_a_hostile_comment_takes_no_time(comment: str, tmp_path: Path) -> None:
    def took(turn: int) -> float:
        begun = time.process_time()
        launched._read(f"{comment} {turn}")
        return time.process_time() - begun

    assert min(map(took, range(100))) < 0.002, "seconds of the processor; a busy machine disturbs some of them"


@pytest.mark.parametrize(
    ("reported", "size", "seconds", "lost"),
    [
        ("bytes=1000:seconds=1.5:lost=2", 1000, 1.5, 2.0),
        ("bytes=9999999999999999:seconds=9999999999999999:lost=9999999999999999.9", 0, 0.0, 0.0),
        ("bytes=-1:seconds=-1:lost=-1", 0, 0.0, 0.0),
        ("bytes=nan:seconds=inf:lost=1e300", 0, 0.0, 0.0),
    ],
)
def test_a_lie_does_not_spoil_what_is_counted_over_all_jobs(
    reported: str, size: int, seconds: float, lost: float
) -> None:
    run = launched._read(f"omfs:run=0:stopped:method=dmtcp:{reported}")
    assert run is not None
    assert run.state is RunState.STOPPED
    assert (run.size, run.seconds, run.lost) == (size, seconds, lost)


def test_what_a_return_took_is_no_longer_than_the_job_has_run(tmp_path: Path) -> None:
    site = methods_site(tmp_path)
    (job, *_) = jobs = victims(site, "dmtcp", run_time=1000)
    urgent = preemptor(site, "dmtcp", cpus=16, hosts=4)
    site.run_until(lambda: site.runs(urgent), 60)

    def returned() -> bool:
        if site.runs(job):
            site.slurm.set_comment(job, "omfs:method=dmtcp omfs:run=1:ready:method=dmtcp:from=1:seconds=9999999")
        return site.runs(*jobs) and len(
            [paid for paid in site.history_database.costs(0.0) if paid.direction == "in"]
        ) == len(jobs)

    site.run_until(returned, 120)
    costs: Sequence[Any] = site.history_database.costs(0.0)
    assert max(paid.seconds for paid in costs if paid.direction == "in" and paid.job == str(job)) < 200
