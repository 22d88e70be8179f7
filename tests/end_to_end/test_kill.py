"""``kill -9`` between steps of a preemption on a real Slurm, then a restart: no job lost, none stuck."""

from __future__ import annotations

import pytest

from omfs_daemon.cluster.jobs import JobState
from tests.support.amounts import is_soak
from tests.support.daemons import Daemon, dying_at
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slurm

POINTS = [(step, after_orders) for step in ("stopping", "starting", "done") for after_orders in (False, True)]


SAMPLE = [("stopping", False, "requeue"), ("stopping", True, "suspend"), ("starting", False, "requeue")]
"""In a soak all of ``CASES``. On the fake it is killed at the first act of each kind, in a soak between any two."""

CASES = [(*point, method) for point in POINTS for method in ("requeue", "suspend")]


@pytest.mark.parametrize(("step", "after_orders", "method"), CASES if is_soak() else SAMPLE)
def test_killed_and_started_again(daemon: Daemon, step: str, after_orders: bool, method: str) -> None:
    daemon.start(dying_at(step, after_orders))
    bio = [daemon.submit("bio", method=method) for _ in range(4)]
    daemon.wait_running(*bio)
    physics = daemon.submit("physics", seconds=2, method="requeue")
    daemon.wait_for_death()
    daemon.start()
    wait_until(lambda: daemon.completed([physics]), "the preemptor to end")
    daemon.let_end(*bio)
    daemon.wait_rest()
    assert daemon.completed([*bio, physics])
    wait_until(lambda: not daemon.ask("status")["preemptions_under_way"], "the preemption to be over")
    wait_until(lambda: daemon.ask("status")["held"] == 0, "a poll after the last job")
    stopped = [job for job in bio if daemon.job(job).restarts]
    assert len(stopped) <= (1 if method == "requeue" else 0)
    assert all(daemon.job(job).state is JobState.ENDED for job in bio)
