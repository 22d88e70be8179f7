"""When slurmctld is asked when it has started."""

from __future__ import annotations

from omfs_daemon.daemon.observer import Observer
from omfs_daemon.testing.fake_slurm.controller import FakeSlurm
from omfs_daemon.testing.fake_slurm.fake_gateway import FakeGateway


def test_slurmctld_is_asked_for_its_start_with_the_nodes_and_once_for_each_odd_job() -> None:
    slurm = FakeSlurm.uniform(lambda: 0.0)
    observer = Observer(FakeGateway(slurm), lambda: 0.0)
    observer.poll()
    slurm.booted = "later"
    assert observer.boot(frozenset()) != "later"
    assert observer.boot(frozenset({("7", False)})) == "later"
    slurm.booted = "again"
    assert observer.boot(frozenset({("7", False)})) == "later", "known, and nothing new is odd"
    assert observer.boot(frozenset({("7", False), ("8", False)})) == "again"
    slurm.booted = "for the last time"
    observer.boot(frozenset())
    assert observer.boot(frozenset({("7", False)})) == "for the last time"
