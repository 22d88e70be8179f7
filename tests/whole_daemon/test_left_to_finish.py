"""A victim that is left to end its checkpoint, or to come back from it, once its preemption was undone."""

from __future__ import annotations

from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.cluster.marks import SUBMIT_MARK
from omfs_daemon.testing.fake_slurm.omfs_run_behavior import OmfsRunBehavior
from tests.support.fake_omfs_node import GB
from tests.support.fake_site import Site
from tests.support.preemption_cases import methods_site, preemptor, victim

BEHAVIOR = {"dmtcp": {"launched": OmfsRunBehavior(seconds=20)}, "pageout": {"size": 20 * GB}}


def left_to_finish(directory: Path, method: str) -> tuple[Site, int]:
    """Beside a job of its account that is never preempted."""
    site = methods_site(directory, hosts=2, preempt_timeout=120.0)
    job = victim(site, method, on="n1", run_time=10_000.0, **BEHAVIOR[method])
    site.submit("bio", method="", on="n2", run_time=60.0)
    site.run(3)
    urgent = preemptor(site, "")
    site.run_until(lambda: bool(site.slurm.history[job].signals or site.nodes.stopped()), limit=20, step=0.2)
    site.run(0.5)
    assert site.runs(job)
    site.slurm.cancel(urgent)
    site.run_until(lambda: not site.journal.state.preemptions, limit=5, step=0.2)
    return site, job


@pytest.mark.parametrize("method", BEHAVIOR)
def test_it_counts_as_preemptible(tmp_path: Path, method: str) -> None:
    """So non-preemptible jobs of its account start within what the account owns."""
    site, job = left_to_finish(tmp_path, method)
    assert site.journal.state.spared[str(job)] > site.now + 60 and not site.journal.state.failures
    site.run(100, step=1.0)
    late = site.submit("bio", method="", run_time=60.0, hold=Hold.USER, admin_comment=SUBMIT_MARK)
    site.run_until(lambda: site.runs(late), limit=60)


@pytest.mark.parametrize("method", BEHAVIOR)
def test_it_is_spared_no_longer_than_that_takes(tmp_path: Path, method: str) -> None:
    site, job = left_to_finish(tmp_path, method)
    site.run_until(lambda: site.journal.state.spared[str(job)] <= site.now, limit=40)
    site.run_until(lambda: site.runs(job), limit=20)
    assert not site.journal.state.failures
