"""slurmctld is killed right after it has taken orders: it saves its state up to five seconds late and forgets them.

The processes have ended or stopped by then. Without the daemon such a job is shown running for ever, or as FAILED.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.end_to_end.test_daemon import fill
from tests.support.amounts import is_soak
from tests.support.daemons import Daemon
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slurm

TIMES = [n / 100 for n in range(200)] if is_soak() else [0.5, 1.0, 1.5, 2.0]
"""Seconds from the orders until slurmctld dies. Killed sooner, Slurm may drain nodes of the session's cluster later."""


@pytest.fixture
def restarted(daemon: Daemon) -> Iterator[Daemon]:
    yield daemon
    undrain(daemon)


def undrain(daemon: Daemon) -> None:
    """Slurm may drain a node on which it had just started a job when it was killed."""
    daemon.slurm.command("scontrol", "update", "nodename=n[1-4]", "state=resume", check=False)


def has_rest(daemon: Daemon) -> bool:
    undrain(daemon)
    return not daemon.gateway.jobs()


def wait_saved(daemon: Daemon) -> None:
    """Until slurmctld has saved all jobs."""
    saved, now = daemon.slurm.directory / "state" / "job_state", time.time()
    wait_until(lambda: saved.stat().st_mtime > now, "slurmctld to save its state")


@pytest.mark.parametrize("after", TIMES)
@pytest.mark.parametrize("method", ["requeue", "suspend"])
def test_what_slurmctld_forgets_is_ordered_again(restarted: Daemon, method: str, after: float) -> None:
    daemon = restarted
    bio = fill(daemon, method=method)
    urgent = daemon.slurm.submit("sleep 1", "-A", "alarm", "-p", "urgent", "-n16", "-N4", "-o", "/dev/null")
    wait_saved(daemon)  # else slurmctld would forget the jobs themselves
    daemon.start(ready=False)
    wait_until(lambda: "preemption_started" in daemon.log.read_text(), "the preemption to begin")
    time.sleep(after)
    daemon.slurm.kill_controller()
    daemon.slurm.start_controller()
    wait_until(lambda: daemon.ask("status", check=False).get("last_poll"), "omfsd to look at Slurm")
    wait_until(
        lambda: not daemon.ask("status")["preemptions_under_way"], lambda: f"the preemption to end: {daemon.tail()}"
    )
    # What Slurm does with a job that it had just started is not ours: it may hold it ("launch failed").
    daemon.slurm.command("scancel", str(urgent))
    daemon.let_end(*bio)
    wait_until(lambda: has_rest(daemon), lambda: f"all jobs to end: {daemon.observation()}; log: {daemon.tail()}")
    assert daemon.completed(bio), daemon.tail()
