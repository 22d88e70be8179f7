"""The daemon is killed between every two of its acts, started again, and nothing is lost or stuck."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.cluster.holds import OUR_MARK
from tests.whole_daemon.fake_site import Killed
from tests.whole_daemon.fake_site import Site


def requeue_story(site: Site) -> None:
    for _ in range(4):
        site.submit("bio", run_time=40)
    site.run(2)
    for _ in range(2):
        site.submit("physics", run_time=20)


def suspend_story(site: Site) -> None:
    for _ in range(4):
        site.submit("bio", method="suspend", run_time=40)
    site.run(2)
    site.submit("physics", run_time=20)
    site.submit("alarm", urgent=True, method="", run_time=10)


def gate_story(site: Site) -> None:
    for _ in range(2):
        site.submit("bio", method="", run_time=20)
    for _ in range(2):
        site.submit("bio", run_time=40)
    site.run(2)
    for _ in range(3):
        site.submit("physics", method="", run_time=10, hold=Hold.USER, admin_comment=f"{OUR_MARK}gate")


STORIES: dict[str, Callable[[Site], None]] = {
    "requeue": requeue_story,
    "suspend": suspend_story,
    "gate": gate_story,
}


def acts_of(story: Callable[[Site], None], directory: Path) -> int:
    """How many acts a story takes when nobody is killed."""
    site = Site(directory)
    story(site)
    site.rest()
    return site.fuse.acts


def play(story: Callable[[Site], None], directory: Path, kill_at: int, away: float) -> Site:
    site = Site(directory)
    site.fuse.kill_at = kill_at
    try:
        story(site)
        site.rest()
    except Killed:
        site.die()
        site.now += away
        site.start_daemon()
        while len(site.submitted) < 6 and story is requeue_story:
            site.submit("physics", run_time=20)
        site.rest()
    return site


@pytest.mark.parametrize("name", STORIES)
@pytest.mark.parametrize("away", [0.2, 30.0])
def test_killed_at_any_act_nothing_is_lost(name: str, away: float, tmp_path: Path) -> None:
    story = STORIES[name]
    (tmp_path / "whole").mkdir()
    acts = acts_of(story, tmp_path / "whole")
    assert acts > 10
    for kill_at in range(1, acts + 1):
        directory = tmp_path / str(kill_at)
        directory.mkdir()
        site = play(story, directory, kill_at, away)
        assert set(site.outcomes().values()) == {"COMPLETED"}, (kill_at, site.outcomes())
        assert not site.held()
        for job_id in site.submitted:
            history = site.slurm.history[job_id]
            if "suspend" in site.job(job_id).comment:
                assert history.lost == 0, (kill_at, job_id)
            assert len(history.starts) <= 4, (kill_at, job_id, history)


def test_killed_twice_in_a_row(tmp_path: Path) -> None:
    for kill_at in range(1, 60, 3):
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
    acts = acts_of(suspend_story, tmp_path / "whole")
    for kill_at in range(1, acts + 1):
        directory = tmp_path / str(kill_at)
        directory.mkdir()
        site = Site(directory)
        site.fuse.kill_at = kill_at
        try:
            suspend_story(site)
            site.rest()
        except Killed:
            site.die()
            (directory / "journal").unlink()
            site.start_daemon()
            site.rest()
        assert set(site.outcomes().values()) == {"COMPLETED"}, (kill_at, site.picture())
