"""When slurmctld is asked when it has started."""

from __future__ import annotations

from omfs_daemon.daemon.observer import REGISTERS_WITHIN, Observer
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


def test_nodes_that_have_not_registered_with_a_new_slurmctld_count_as_up_for_a_while() -> None:
    now = [0.0]
    slurm = FakeSlurm.uniform(lambda: now[0], nodes=2)
    slurm.drain("n2")
    observer = Observer(FakeGateway(slurm), lambda: now[0])
    observer.poll()
    now[0] = 100.0
    slurm.restart(slurm.save())
    assert not any(node.works for node in FakeGateway(slurm).nodes())
    found = observer.poll().nodes
    assert (found["n1"].up, found["n2"].up) == (True, False), "the other one is drained"
    slurm.node_down("n1")
    now[0] = 100.0 + REGISTERS_WITHIN
    assert not observer.poll().nodes["n1"].works
