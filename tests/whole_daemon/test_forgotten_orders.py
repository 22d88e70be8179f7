"""slurmctld is killed right after it has taken orders; the preemption is undone in the cycle that finds that out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omfs_daemon.cluster.holds import is_held
from omfs_daemon.testing.fake_slurm.fake_gateway import FakeGateway
from omfs_daemon.testing.fake_slurm.restarts import SavedState
from tests.support.fake_site import Site

SOON = 0.4
"""Seconds: sooner than an order without effect would be sent again."""


@pytest.mark.usefixtures("nodes_polled_with_jobs")
@pytest.mark.parametrize("method", ["requeue", "suspend"])
@pytest.mark.parametrize("plugin", [True, False])
def test_the_victims_run_again(tmp_path: Path, method: str, plugin: bool) -> None:
    site = Site(tmp_path, plugin=plugin)
    victims = [site.submit("bio", method=method, run_time=100) for _ in range(4)]
    site.run(2)
    urgent = site.submit("alarm", urgent=True, cpus=16, hosts=4)
    saved = site.slurm.save()
    site.step(seconds=SOON)
    assert not any(site.runs(job) for job in victims)
    site.slurm.restart(saved)
    site.slurm.drain("n4")
    site.step(seconds=SOON)
    assert not site.journal.state.preemptions
    site.slurm.cancel(urgent)
    site.run(3, step=SOON)
    site.slurm.node_up("n4")
    site.run_until(lambda: site.runs(*victims), limit=60)
    assert not any(is_held(job) for job in site.gateway.jobs())
    site.rest(limit=400)
    assert set(site.outcomes().values()) == {"COMPLETED", "CANCELLED"}


def test_a_preemption_goes_on_while_nodes_register_with_a_new_slurmctld(tmp_path: Path) -> None:
    site = Site(tmp_path)
    for _ in range(4):
        site.submit("bio", method="requeue", run_time=100)
    site.run(2)
    urgent = site.submit("alarm", urgent=True, cpus=16, hosts=4)
    site.step(seconds=SOON)
    site.slurm.restart(site.slurm.save())
    site.run_until(lambda: site.runs(urgent), limit=60)
    assert site.journal.state.next_preemption == 2, "none was undone and begun anew"


def test_a_job_runs_on_whose_suspension_is_forgotten_while_it_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """slurmctld dies under the order to resume; the next one refuses it, since the job seems to run."""
    site = Site(tmp_path)
    for _ in range(4):
        site.submit("bio", method="suspend", run_time=100)
    site.run(2)
    saved = site.slurm.save()
    urgent = site.submit("alarm", urgent=True, cpus=16, hosts=4, run_time=1)
    site.run_until(lambda: site.runs(urgent), limit=5)
    resume, refused = site.gateway.resume, []

    def resume_by_the_next_one(*arguments: Any) -> Any:
        if not refused:
            site.slurm.restart(saved)
        refused.append(resume(*arguments))
        return refused[-1]

    monkeypatch.setattr(site.gateway, "resume", resume_by_the_next_one)
    site.run_until(lambda: bool(refused), limit=20)
    assert refused[0], "it seems to run"
    site.rest(limit=400)
    assert set(site.outcomes().values()) == {"COMPLETED"}


@pytest.mark.parametrize("plugin", [True, False])
def test_a_job_is_released_again_whose_release_is_forgotten_and_its_mark_is_not(tmp_path: Path, plugin: bool) -> None:
    """slurmctld saves between the two commands of a release, and dies when omfsd has seen the job wait without hold."""
    site = Site(tmp_path, plugin=plugin)
    victims = [site.submit("bio", method="requeue", run_time=100) for _ in range(4)]
    site.run(2)
    urgent = site.submit("alarm", urgent=True, cpus=16, hosts=4, run_time=30)
    saved: list[SavedState] = []
    gateway: FakeGateway = site.gateway
    gateway.between = lambda: saved.append(site.slurm.save())
    site.run_until(lambda: site.runs(urgent), limit=20)
    site.run_until(lambda: bool(saved) and not site.journal.state.releasing, limit=20)
    assert not any(is_held(job) for job in site.gateway.jobs()), "its release is observed"
    site.slurm.restart(saved[-1])
    assert any(is_held(job) for job in site.gateway.jobs() if job.id in victims)
    gateway.between = lambda: None
    site.rest(limit=400)
    assert set(site.outcomes().values()) == {"COMPLETED"}


def test_a_hold_of_an_administrator_is_kept_when_slurmctld_was_not_restarted(tmp_path: Path) -> None:
    site = Site(tmp_path, plugin=False)
    victims = [site.submit("bio", method="requeue", run_time=100) for _ in range(4)]
    site.run(2)
    urgent = site.submit("alarm", urgent=True, cpus=16, hosts=4, run_time=30)
    site.run_until(lambda: site.runs(urgent) and bool(site.journal.state.releasing), limit=20)
    site.run_until(lambda: not site.journal.state.releasing, limit=20)
    assert site.journal.state.unsaved
    site.slurm.admin_hold(victims[0])
    site.run(8)
    assert is_held(next(job for job in site.gateway.jobs() if job.id == victims[0]))
