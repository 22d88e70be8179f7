"""After a preemption in vain, the same job does not take the same victims again."""

from __future__ import annotations

from pathlib import Path

import pytest

from omfs_daemon.testing.fake_slurm.fake_jobs import Record
from tests.support.fake_site import Site

NEVER = 10_000.0


def site_of(directory: Path, hosts: int) -> tuple[Site, list[int]]:
    site = Site(directory, hosts=hosts, retry_after=10.0, start_timeout=5.0)
    jobs = [site.submit("chem", run_time=NEVER, time_limit=NEVER + number) for number in range(hosts)]
    site.run(2)
    assert site.runs(*jobs)
    return site, jobs


def lacks(site: Site, word: str) -> None:
    def lacking(record: Record) -> str:
        return word if record.what.account == "alarm" else ""

    site.slurm.let_lack(lacking)


def tried_once(site: Site) -> int:
    """An urgent job for which others were preempted in vain, until Slurm names another reason."""
    urgent = site.submit("alarm", urgent=True, method="", run_time=5.0)
    site.step(0.0)
    lacks(site, "Licenses")
    site.run_until(lambda: bool(site.journal.state.backoff.tried), limit=60)
    return urgent


def restarted(site: Site, jobs: list[int]) -> list[int]:
    return [job for job in jobs if len(site.slurm.history[job].starts) > 1]


def taken(site: Site) -> list[list[str]]:
    """The victims of each preemption that took some."""
    past = [one for one in reversed(site.history_database.preemptions(20, 0.0)) if one.outcome != "not_startable"]
    return [sorted(str(victim["job"]) for victim in one.victims if victim["preempted"]) for one in past]


@pytest.mark.parametrize("crash", [False, True])
def test_others_are_taken_next(crash: bool, tmp_path: Path) -> None:
    site, jobs = site_of(tmp_path, hosts=3)
    urgent = tried_once(site)
    site.run(20)
    if crash:
        site.die()
        site.start_daemon()
    lacks(site, "")
    site.run_until(lambda: site.slurm.history[urgent].outcome == "COMPLETED", limit=120)
    first, second = taken(site)
    assert first and second and not set(first) & set(second)
    site.run(2)
    assert not site.journal.state.backoff.tried, "it has started"
    assert all(site.runs(job) for job in jobs if job not in restarted(site, jobs))


def test_the_only_set_is_not_taken_again(tmp_path: Path) -> None:
    site, jobs = site_of(tmp_path, hosts=1)
    urgent = tried_once(site)
    site.run(20)
    lacks(site, "")
    site.run(200)
    assert len(taken(site)) == 1 and site.runs(*jobs)
    site.slurm.cancel(jobs[0])
    site.run_until(lambda: site.slurm.history[urgent].outcome == "COMPLETED", limit=30)
    site.run(310, step=5.0)
    assert not site.journal.state.backoff.tried
