"""Nodes of a real Slurm fail under preemptors and victims; ``tests/whole_daemon/test_node_failures.py`` tries all that
can happen on the fake."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from omfs_daemon.cluster.jobs import JobState
from tests.end_to_end.test_daemon import events, fill
from tests.support.amounts import is_soak
from tests.support.daemons import Daemon
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slurm

DRAIN, DOWN = ("state=drain",), ("state=drain", "state=down")
"""A node that is only down comes back by itself (ReturnToService)."""

FAILURES = {"drained": DRAIN, **({"down": DOWN} if is_soak() else {})}


@pytest.fixture
def site(daemon: Daemon) -> Iterator[Daemon]:
    yield daemon
    for node in daemon.slurm.shape.node_names:
        set_node(daemon, node, "state=resume")


def set_node(daemon: Daemon, node: str, *states: str) -> None:
    for state in states:
        daemon.slurm.command("scontrol", "update", f"nodename={node}", state, "reason=test", check=False)


def node_of(daemon: Daemon, job: int) -> str:
    (node,) = daemon.job(job).on_nodes
    return node


def pin_of(daemon: Daemon, job: int) -> frozenset[str]:
    return daemon.job(job).request.required_nodes


def end(daemon: Daemon, *jobs: int) -> None:
    daemon.let_end(*jobs)
    daemon.wait_rest()
    assert daemon.completed(jobs), daemon.observation()


@pytest.mark.parametrize("failure", FAILURES)
def test_a_preemptor_goes_elsewhere_when_its_node_fails_while_it_is_freed(site: Daemon, failure: str) -> None:
    """Victims that ignore SIGTERM keep the step for KillWait."""
    work = f"trap '' TERM; while {site.stays}; do sleep 0.1; done"
    options = ("-A", "bio", "-n4", "-N1", "-o", "/dev/null", "--comment=omfs:method=requeue")
    bio = [site.slurm.submit(work, *options) for _ in range(4)]
    site.wait_running(*bio)
    site.start()
    urgent = site.submit("alarm", "-p", "urgent")
    wait_until(lambda: site.ask("status")["preemptions_under_way"], "the preemption to begin")
    (lost,) = wait_until(lambda: pin_of(site, urgent), "the pin")
    set_node(site, lost, *FAILURES[failure])
    wait_until(lambda: "node_lost" in events(site, urgent), f"the preemption to be undone: {site.tail()}")
    site.wait_running(urgent)
    assert node_of(site, urgent) != lost
    set_node(site, lost, "state=resume")
    end(site, *bio, urgent)


def test_a_preemptor_whose_node_dies_loses_its_pin_and_starts_elsewhere(site: Daemon) -> None:
    bio = fill(site)
    site.start()
    urgent = site.submit("alarm", "-p", "urgent")
    site.wait_running(urgent)
    lost = node_of(site, urgent)
    set_node(site, lost, *DOWN)
    wait_until(lambda: site.runs(urgent) and node_of(site, urgent) != lost, f"another node: {site.tail()}")
    assert not any(pin_of(site, job) for job in bio)
    set_node(site, lost, "state=resume")
    end(site, *bio, urgent)


def test_a_suspended_job_is_resumed_on_its_drained_node(site: Daemon) -> None:
    bio = fill(site, method="suspend")
    site.start()
    urgent = site.submit("alarm", "-p", "urgent")
    site.wait_running(urgent)
    (victim,) = [job for job in bio if site.job(job).state is JobState.SUSPENDED]
    set_node(site, node_of(site, victim), *DRAIN)
    site.let_end(urgent)
    site.wait_running(victim)
    end(site, *bio, urgent)
    assert site.job(victim).restarts == 0


def test_a_job_of_srun_is_neither_held_nor_requeued(site: Daemon) -> None:
    batch = [site.submit("bio", "-w", f"n{number}", method="requeue") for number in (1, 2, 3)]
    with subprocess.Popen(
        ["srun", "-A", "bio", "-w", "n4", "-n4", "--comment=omfs:method=requeue", "sleep", "3600"],
        env=os.environ | {"SLURM_CONF": str(site.slurm.conf)},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as srun:
        try:
            wait_until(lambda: len(site.gateway.jobs()) == 4, "srun's job")
            (job,) = {job.id for job in site.gateway.jobs()} - set(batch)
            site.wait_running(*batch, job)
            assert not site.job(job).batch
            site.start()
            wide = site.submit("alarm", "-p", "urgent", "-N4", "-n16")
            urgent = [site.submit("alarm", "-p", "urgent") for _ in range(3)]
            site.wait_running(*urgent)
            assert site.job(wide).state is JobState.PENDING
            seen = site.job(job)
            assert seen.runs and seen.priority and not seen.restarts
        finally:
            srun.send_signal(signal.SIGINT)
            srun.kill()
    site.slurm.command("scancel", str(wide))
    end(site, *batch, *urgent)
