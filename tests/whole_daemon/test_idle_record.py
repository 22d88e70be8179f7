"""Why CPUs were idle while the daemon held a job, from its polls to the report; waits, from its polls to a client."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from omfs_daemon.cli.report_source import recorded_idle
from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.daemon.api.callers import operators
from omfs_daemon.daemon.api.client import Client
from omfs_daemon.daemon.api.control_socket import ControlServer
from omfs_daemon.daemon.store.idle_hours import HOUR
from omfs_daemon.reports.machine_use import HEAPS, MachineUse
from omfs_daemon.reports.recorded_idle import covering, split_as_recorded
from tests.whole_daemon.test_process import Stand


def by_accounting(begin: float, **idle: int) -> MachineUse:
    """An hour of sixteen cores, in which nothing changes."""
    used = 16 - sum(idle.values())
    available, taken, down, waiting = (np.array([cores], dtype=np.int32) for cores in (16, used, 0, 1))
    heaps = {name: np.array([idle.get(name, 0)], dtype=np.int32) for name in HEAPS}
    return MachineUse(np.array([begin]), begin + HOUR, available, taken, down, waiting, np.array([4]), heaps)


def polled(stand: Stand, until: float) -> None:
    """A poll a minute."""
    while stand.now < until:
        stand.now += 60
        stand.service.once()


def test_a_job_that_the_daemon_holds_is_limited_and_not_dependent(tmp_path: Path) -> None:
    """Two jobs have what their account owns; the third may not borrow, for it cannot be preempted. Eight CPUs are idle,
    of which it asks for four. Accounting says that it was not eligible."""
    stand = Stand(tmp_path)
    begin = (stand.now // HOUR + 1) * HOUR
    stand.now = begin - 120
    for _ in range(2):
        stand.submit("bob", "physics", "", run_time=1e6)
        stand.submit("alice", "bio", run_time=20)
    stand.run(1)
    held = stand.submit("bob", "physics", "", run_time=100)
    stand.run(1)
    assert next(job for job in stand.gateway.jobs() if job.id == held).hold is Hold.ADMIN
    polled(stand, begin + HOUR / 2)
    assert len([job for job in stand.gateway.jobs() if job.runs]) == 2
    stand.service.close()
    stand.service = stand.serve()  # it goes on with the hour
    polled(stand, begin + HOUR + 120)
    path = stand.config.daemon.socket
    with ControlServer(path, stand.service.answers, operators(None, None)):
        hours = covering(recorded_idle(Client(path), begin), begin, begin + HOUR)
    stand.service.close()
    assert [hour.begin for hour in hours] == [begin]
    assert {cause: seconds / hours[0].watched for cause, seconds in hours[0].cpu_seconds.items() if seconds} == (
        pytest.approx({"nobody_waits": 4, "limited": 4})
    )
    after = split_as_recorded(by_accounting(begin, nobody_waits=4, dependent=4), hours)
    found = {name: after.core_seconds(cores) for name, cores in after.heaps.items()}
    assert found == pytest.approx(dict.fromkeys(HEAPS, 0.0) | {"nobody_waits": 4 * HOUR, "limited": 4 * HOUR})


def test_waits_are_kept_over_a_restart(tmp_path: Path) -> None:
    """Four of five jobs start at once; the last waits for ten minutes, and starts when another daemon runs."""
    stand = Stand(tmp_path)
    begin = (stand.now // HOUR + 1) * HOUR
    stand.now = begin + 60
    stand.run(1)
    for _ in range(5):
        stand.submit("alice", "bio", run_time=600)
    polled(stand, begin + 600)
    stand.service.close()
    stand.service = stand.serve()
    polled(stand, begin + 1200)
    path = stand.config.daemon.socket
    with ControlServer(path, stand.service.answers, operators(None, None)):
        found = Client(path).wait_hours(begin)["waits"]
    stand.service.close()
    assert [(row["begin"], row["group"], row["value"], row["jobs"]) for row in found] == [
        (begin, "account", "bio", 5),
        (begin, "partition", "main", 5),
    ]
    for row in found:
        assert row["longest_wait_seconds"] == pytest.approx(600, abs=1)
        assert row["mean_wait_seconds"] == pytest.approx(120, abs=1)


def test_without_a_daemon_nothing_is_recorded(tmp_path: Path) -> None:
    assert recorded_idle(Client(tmp_path / "omfs.sock"), 0.0) == []
