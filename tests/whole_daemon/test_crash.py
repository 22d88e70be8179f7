"""The daemon is killed between every two of its acts, started again, and nothing is lost or stuck."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.cluster.marks import SUBMIT_MARK
from tests.support.amounts import sample
from tests.support.fake_site import Fuse, Killed, Site


def requeue_scenario(site: Site) -> None:
    for _ in range(4):
        site.submit("bio", run_time=40)
    site.run(2)
    for _ in range(2):
        site.submit("physics", run_time=20)


def suspend_scenario(site: Site) -> None:
    for _ in range(4):
        site.submit("bio", method="suspend", run_time=40)
    site.run(2)
    site.submit("physics", run_time=20)
    site.submit("alarm", urgent=True, method="", run_time=10)


def gate_scenario(site: Site) -> None:
    for _ in range(2):
        site.submit("bio", method="", run_time=20)
    for _ in range(2):
        site.submit("bio", run_time=40)
    site.run(2)
    for _ in range(3):
        site.submit("physics", method="", run_time=10, hold=Hold.USER, admin_comment=SUBMIT_MARK)


SCENARIOS: dict[str, Callable[[Site], None]] = {
    "requeue": requeue_scenario,
    "suspend": suspend_scenario,
    "gate": gate_scenario,
}


def acts_of(scenario: Callable[[Site], None], directory: Path) -> Fuse:
    """The acts of a case in which nobody is killed."""
    site = Site(directory)
    scenario(site)
    site.rest()
    return site.fuse


def play(scenario: Callable[[Site], None], directory: Path, kill_at: int, away: float, plugin: bool) -> Site:
    site = Site(directory, plugin=plugin)
    site.fuse.kill_at = kill_at
    try:
        scenario(site)
        site.rest()
    except Killed:
        site.die()
        site.now += away
        site.start_daemon()
        while len(site.submitted) < 6 and scenario is requeue_scenario:
            site.submit("physics", run_time=20)
        site.rest()
    return site


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize(("away", "plugin"), [(0.2, True), (30.0, True), (0.2, False)])
def test_killed_at_any_act_nothing_is_lost(name: str, away: float, plugin: bool, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]
    (tmp_path / "whole").mkdir()
    acts = acts_of(scenario, tmp_path / "whole")
    assert acts.acts > 10
    for kill_at in acts.crash_points():
        directory = tmp_path / str(kill_at)
        directory.mkdir()
        site = play(scenario, directory, kill_at, away, plugin)
        assert set(site.outcomes().values()) == {"COMPLETED"}, (kill_at, site.outcomes())
        assert not site.held()
        for job_id in site.submitted:
            history = site.slurm.history[job_id]
            if "suspend" in site.job(job_id).comment:
                assert history.lost == 0, (kill_at, job_id)
            assert len(history.starts) <= 4, (kill_at, job_id, history)


def test_killed_twice_in_a_row(tmp_path: Path) -> None:
    for kill_at in sample(range(1, 60, 3), 5):
        directory = tmp_path / str(kill_at)
        directory.mkdir()
        site = Site(directory)
        site.fuse.kill_at = kill_at
        for _ in range(4):
            site.submit("bio", run_time=40)
        lives = 0
        physics = 0
        while True:
            try:
                if not physics:
                    site.run(2)
                    physics = site.submit("physics", run_time=20)
                site.rest()
                break
            except Killed:
                lives += 1
                site.die()
                site.fuse.acts = 0
                site.fuse.kill_at = kill_at if lives < 3 else None
                site.now += 1
                site.start_daemon()
        assert set(site.outcomes().values()) == {"COMPLETED"}, (kill_at, site.outcomes())


def test_without_its_journal_the_daemon_goes_by_the_marks(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    acts = acts_of(suspend_scenario, tmp_path / "whole")
    for kill_at in acts.crash_points():
        directory = tmp_path / str(kill_at)
        directory.mkdir()
        site = Site(directory)
        site.fuse.kill_at = kill_at
        try:
            suspend_scenario(site)
            site.rest()
        except Killed:
            site.die()
            (directory / "journal").unlink()
            site.start_daemon()
            assert site.journal.state.sequence == 0
            site.rest()
        assert set(site.outcomes().values()) == {"COMPLETED"}, (kill_at, site.observation())
