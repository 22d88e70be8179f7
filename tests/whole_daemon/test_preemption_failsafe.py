"""The daemon dies in the middle of a careful preemption and stays dead: the failsafe releases and resumes every job."""

from __future__ import annotations

from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.config.load import parse_config
from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.failsafe import rescue
from omfs_daemon.daemon.heartbeat import beat
from omfs_daemon.preemption.methods.node_work import NodeAction
from tests.support.fake_omfs_node import FakeTransport
from tests.support.fake_site import Killed, Site
from tests.support.preemption_cases import (
    ON_NODES,
    check_peace,
    check_running_as_before,
    lost,
    methods_site,
    preemptor,
    victims,
)
from tests.whole_daemon.test_preemption_crash import SCENARIOS, acts_of, site_of

TEXT = """
[daemon]
state_dir = "{directory}"
run_dir = "{directory}/run"
failsafe_grace_seconds = 10
[nodes]
worker = "local"
command = ["/usr/libexec/omfs/omfs-node"]
"""


def config_of(site: Site) -> Config:
    return parse_config(TEXT.format(directory=site.directory), "omfs.toml")


def failsafe(site: Site) -> int:
    def wait(seconds: float) -> None:
        site.now += seconds

    return rescue(config_of(site), site.gateway, lambda: site.now, FakeTransport(site.nodes, wait))


def die(site: Site) -> None:
    """With a heartbeat of this moment."""
    site.die()
    heartbeat = config_of(site).daemon.heartbeat
    heartbeat.parent.mkdir(exist_ok=True)
    beat(heartbeat, site.now)


def until_dead(site: Site, name: str) -> None:
    """Users do what is in the scenario; jobs that come after the daemon's death are not its business."""
    begun, left = site.now, list(SCENARIOS[name][1])
    try:
        while left or site.gateway.jobs():
            while left and site.now - begun >= left[0][0]:
                left.pop(0)[1](site)
            site.step(0.5)
    except Killed:
        die(site)
        site.now += 20


def failsafe_until_done(site: Site) -> None:
    """As its timer does."""
    for _ in range(30):
        left = failsafe(site)
        site.now += 30
        site.slurm.catch_up()
        if not left:
            return
    raise AssertionError(site.observation())


def check_licenses(site: Site, *where: object) -> None:
    """Who runs has what it was submitted with, apart from jobs for any node, which Slurm gave what they asked for."""
    for job in site.gateway.jobs():
        asked = dict(site.slurm.records[job.id].what.licenses)
        if job.state is JobState.RUNNING and "ve" not in asked:
            assert dict(job.licenses) == asked, (*where, job.ref)


@pytest.mark.parametrize("name", SCENARIOS)
def test_dead_at_any_act_for_ever_everybody_comes_back(name: str, tmp_path: Path) -> None:
    acts = acts_of(name, tmp_path / "whole")
    for kill_at in acts.crash_points(step=2):
        site = site_of(name, tmp_path / str(kill_at))
        site.fuse.kill_at = kill_at
        until_dead(site, name)
        failsafe_until_done(site)
        check_licenses(site, kill_at)
        assert not site.nodes.violations, (kill_at, site.nodes.violations)
        assert not site.nodes.stopped(), (kill_at, site.observation())
        site.now += 100
        assert set(site.outcomes().values()) == {"COMPLETED"}, (kill_at, site.observation())
        check_peace(site, may_be_crowded=True)
        kept = [job for job in site.submitted if "omfs:method=requeue" not in site.slurm.records[job].comment]
        assert lost(site, kept) == 0, kill_at


@pytest.mark.parametrize("name", ["pageout", "ve_swap"])
def test_a_daemon_that_comes_back_after_the_failsafe_finds_its_way(name: str, tmp_path: Path) -> None:
    acts = acts_of(name, tmp_path / "whole")
    for kill_at in acts.crash_points(step=4):
        site = site_of(name, tmp_path / str(kill_at))
        site.fuse.kill_at = kill_at
        until_dead(site, name)
        failsafe(site)
        site.start_daemon()
        site.rest()
        assert set(site.outcomes().values()) == {"COMPLETED"}, (kill_at, site.observation())
        check_peace(site, may_be_crowded=True)


@pytest.mark.parametrize("method", ON_NODES)
def test_a_node_that_cannot_bring_in_is_tried_again(method: str, tmp_path: Path) -> None:
    site = methods_site(tmp_path, hosts=1)
    (job,) = victims(site, method, count=1, run_time=100)
    urgent = preemptor(site, method, run_time=5)
    site.run_until(lambda: site.runs(urgent), limit=30)
    die(site)
    site.now += 30
    site.nodes.fail(NodeAction.IN, "no_ve_memory", times=2)
    assert failsafe(site) == 1
    assert site.state(job) is JobState.SUSPENDED, "a job whose memory is out is not let run"
    assert failsafe(site) == 1
    assert failsafe(site) == 0
    assert site.state(job) is JobState.RUNNING
    assert not site.nodes.stopped()
    site.start_daemon()
    site.run(5)
    check_running_as_before(site, job)
