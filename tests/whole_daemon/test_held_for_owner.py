"""A job that omfs-run cannot restart belongs to its owner again."""

from __future__ import annotations

from pathlib import Path

import pytest

from omfs_daemon.cluster.holds import admin_comment_of
from omfs_daemon.cluster.marks import MarkWord
from omfs_daemon.testing.fake_slurm.omfs_run_behavior import OmfsRunBehavior, OnRestart
from tests.support.preemption_cases import methods_site, preemptor, victim


@pytest.mark.parametrize("requeue", (True, False))
def test_the_reason_is_reported_to_the_owner_who_may_release_it(tmp_path: Path, requeue: bool) -> None:
    """Also where it was submitted with --no-requeue: since Slurm 24.05 its exit code alone would not hold it."""
    site = methods_site(tmp_path, hosts=1)
    bad = OmfsRunBehavior("dmtcp", on_restart=OnRestart.HELD, why="not_verified")
    job = victim(site, "dmtcp", on="n1", run_time=100, launched=bad, requeue=requeue)
    site.run(3)
    urgent = preemptor(site, "", cpus=4)
    site.run_until(lambda: site.runs(urgent), limit=45)
    site.run(60)
    seen = site.job(job)
    written = admin_comment_of(seen)
    assert seen.special_exit and written.sentence.startswith("[omfs] could not be restarted")
    assert written.word is MarkWord.RELEASED
    assert len(site.slurm.history[job].starts) == 2, "it is not released again and again"
    assert [event.event for event in site.history_database.of_job(str(job))][-1] == "held_for_owner"
    assert str(job) not in site.journal.state.preempted
    site.slurm.behave(job, OmfsRunBehavior("dmtcp"))
    assert site.slurm.user_release(job)
    site.run_until(lambda: site.runs(job), limit=20)
