"""Polls for urgent jobs alone: other waiting jobs are not observed, and nothing is concluded about them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.daemon.cycle import PollKind
from omfs_daemon.slurm.gateway import Licenses, OrderRefusal, WaitingFilter
from omfs_daemon.testing.fake_slurm.fake_gateway import FakeGateway
from omfs_daemon.testing.fake_slurm.omfs_run_behavior import OmfsRunBehavior
from tests.support.fake_site import Site
from tests.support.preemption_cases import methods_site, preemptor, victim


class GatewayByProcesses(FakeGateway):
    """Counts the queries for single jobs."""

    found = 0

    def find(self, job: int | str) -> Job | None:
        self.found += 1
        return super().find(job)

    def jobs_at_once(self, waiting: Sequence[WaitingFilter]) -> list[Job]:
        named = {partition for which in waiting for partition in which.partitions}
        return [job for job in self.jobs() if job.state is not JobState.PENDING or job.partition in named]

    def pin_and_rank(self, ref: str, nodes: Sequence[str], licenses: Licenses | None, nice: int) -> list[OrderRefusal]:
        return [*self.pin(ref, nodes, licenses), *self.set_nice((ref,), nice)]


class SiteByProcesses(Site):
    gateway: GatewayByProcesses


@pytest.fixture
def site(tmp_path: Path) -> SiteByProcesses:
    found = methods_site(tmp_path, hosts=2)
    found.__class__ = SiteByProcesses
    found.gateway.__class__ = GatewayByProcesses
    assert isinstance(found, SiteByProcesses)
    return found


def test_only_the_preemptor_of_a_held_array_is_released(site: SiteByProcesses) -> None:
    for node in ("n1", "n2"):
        victim(site, "ve_swap", node, run_time=500)
    site.run(3)
    preemptor(site, "ve_swap", array=(1, 2, 3, 4))
    site.cycle.run(PollKind.URGENT)
    waiting = [job for job in site.gateway.jobs() if job.account == "alarm"]
    assert sum(job.tasks for job in waiting if job.hold is not Hold.NONE) == 2
    assert sum(job.tasks for job in waiting if job.hold is Hold.NONE) == 2


def test_jobs_that_wait_unobserved_stay_as_they_are(site: SiteByProcesses) -> None:
    slow = victim(site, "dmtcp", on="n1", run_time=500, launched=OmfsRunBehavior("dmtcp", seconds=20))
    site.submit("bio", method="", on="n2", run_time=500)
    site.run(3)
    held = site.submit("bio", method="", run_time=500)
    entitled = site.submit("physics", method="requeue", on="n1", run_time=500)
    site.run(1)
    before = [site.job(job) for job in (held, entitled)]
    assert before[0].hold is Hold.ADMIN
    assert site.journal.state.preemptions
    acts, found = site.fuse.acts, site.gateway.found
    for _ in range(5):
        assert not site.cycle.run(PollKind.URGENT).error
    assert (site.fuse.acts, site.gateway.found) == (acts, found)
    assert [site.job(job) for job in (held, entitled)] == before
    assert site.runs(slow)
