"""Jobs whose batch script goes on after omfs-run, which then requeues and holds the job itself: Slurm shows that as a
hold of its owner's, and nobody but we would release it."""

from __future__ import annotations

from pathlib import Path

import pytest

from omfs_daemon.cluster.marks import MarkWord
from omfs_daemon.testing.fake_slurm.omfs_run_behavior import OmfsRunBehavior
from tests.support.fake_site import Site
from tests.support.preemption_cases import check_peace, lost, methods_site, preemptor, victim, word_of
from tests.whole_daemon.test_preemption_failsafe import die, failsafe_until_done


def until_writing(site: Site, seconds: float) -> tuple[int, int]:
    """A victim that writes its checkpoint for so long, and the job for which it does."""
    job = victim(site, "dmtcp", run_time=100, launched=OmfsRunBehavior(traps=True, seconds=seconds))
    site.run(3)
    urgent = preemptor(site, "dmtcp", run_time=5)
    site.run_until(lambda: ":stopping:" in site.job(job).comment, limit=10)
    return job, urgent


def test_after_its_preemption_it_comes_back(tmp_path: Path) -> None:
    site = methods_site(tmp_path, hosts=1)
    job, urgent = until_writing(site, 2.0)
    site.run_until(lambda: site.runs(urgent), limit=10)
    assert not site.slurm.user_release(job), "it is ours"
    site.run_until(lambda: site.runs(job), limit=60)
    site.rest()
    assert lost(site, [job]) == 0


@pytest.mark.parametrize("plugin", [True, False])
def test_so_it_does_if_that_was_undone_while_it_wrote_its_checkpoint(tmp_path: Path, plugin: bool) -> None:
    site = methods_site(tmp_path, hosts=1, plugin=plugin)
    job, urgent = until_writing(site, 8.0)
    site.slurm.cancel(urgent)
    site.run_until(lambda: bool(site.held()), limit=20)
    assert word_of(site, job) is MarkWord.RELEASED and not site.journal.state.preemptions
    site.run_until(lambda: site.runs(job), limit=20)
    assert "released" in [event.event for event in site.history_database.of_job(str(job))]
    site.rest()
    assert lost(site, [job]) == 0
    check_peace(site)


def test_so_it_does_if_the_daemon_has_died_since(tmp_path: Path) -> None:
    site = methods_site(tmp_path, hosts=1)
    job, urgent = until_writing(site, 8.0)
    site.slurm.cancel(urgent)
    site.run_until(lambda: word_of(site, job) is MarkWord.RELEASED, limit=5)
    assert site.runs(job)
    die(site)
    site.now += 20
    assert site.held() == [str(job)]
    failsafe_until_done(site)
    assert not site.held()


def test_a_requeuehold_in_a_later_run_is_its_owners(tmp_path: Path) -> None:
    """What omfs-run has reported was of the run before."""
    site = methods_site(tmp_path, hosts=1)
    job, urgent = until_writing(site, 2.0)
    site.slurm.behave(job, OmfsRunBehavior(traps=True, ready_after=1e6))
    site.run_until(lambda: site.slurm.history[urgent].outcome == "COMPLETED", limit=30)
    site.run_until(lambda: str(job) not in site.journal.state.preempted, limit=120)
    assert site.runs(job) and ":stopped:" in site.job(job).comment
    assert site.slurm.requeue_hold(job)
    site.run(30)
    assert site.held() == [str(job)]
