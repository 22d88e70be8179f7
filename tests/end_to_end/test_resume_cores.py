"""A suspended job on a real Slurm returns to its own CPUs and GPUs when they are free, and not before."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.units import CPU, Units
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from tests.support.daemons import Daemon
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slurm

POLLS = 4
"""Polls of the daemon in which it would have resumed a job."""


@pytest.fixture
def gpu_daemon(own_slurm: Callable[..., LocalSlurm]) -> Iterator[Daemon]:
    """One node of four CPUs and two GPUs; not started yet."""
    directory = Path(tempfile.mkdtemp(prefix="omfsd-"))
    installation = Daemon(own_slurm(Shape(nodes=1, gres="gpu:2")), directory)
    try:
        yield installation
    finally:
        installation.kill()
        shutil.rmtree(directory, ignore_errors=True)


def two_cpus(daemon: Daemon, account: str, *arguments: str, gpus: int = 0, method: str = "") -> int:
    gres = [f"--gres=gpu:{gpus}"] if gpus else []
    return daemon.submit(account, "-n2", *gres, *arguments, method=method)


def units(daemon: Daemon) -> dict[int, Units]:
    """Of all jobs that have nodes."""
    return daemon.gateway.units(daemon.gateway.jobs())


def check_apart(daemon: Daemon) -> None:
    """No two running jobs share a CPU or a GPU."""
    running = [job for job in daemon.gateway.jobs() if job.runs]
    found = daemon.gateway.units(running)
    assert all(one.isdisjoint(other) for one, other in combinations(found.values(), 2)), found


def events(daemon: Daemon, job: int) -> list[str]:
    return [event["event"] for event in daemon.why(job)["events"]]


def let_polls_pass(daemon: Daemon) -> None:
    seen: set[float] = set()

    def polled() -> bool:
        seen.add(daemon.ask("status")["last_poll"])
        return len(seen) > POLLS

    wait_until(polled, "omfsd to look at Slurm")


def test_as_many_idle_cpus_on_its_node_are_not_its_own(gpu_daemon: Daemon) -> None:
    daemon = gpu_daemon
    daemon.start()
    job = two_cpus(daemon, "physics", gpus=1, method="suspend")
    daemon.wait_running(job)
    beside = two_cpus(daemon, "bio")
    daemon.wait_running(beside)
    urgent = two_cpus(daemon, "alarm", "-p", "urgent", gpus=1)
    daemon.wait_running(urgent)
    found = units(daemon)
    assert {unit for unit in found[job] if unit.kind == CPU} == {unit for unit in found[urgent] if unit.kind == CPU}
    daemon.let_end(beside)
    wait_until(lambda: daemon.job(beside).state is JobState.ENDED, "the end of the job beside it")
    let_polls_pass(daemon)
    assert daemon.job(job).state is JobState.SUSPENDED
    daemon.let_end(urgent)
    daemon.wait_running(job)
    wait_until(lambda: events(daemon, job) == ["preempted", "runs_again"], "omfsd to see that it runs again")
    check_apart(daemon)
    daemon.let_end(job)
    daemon.wait_rest()
    assert daemon.completed([job, beside, urgent])
    assert events(daemon, job) == ["preempted", "runs_again"]


def test_those_who_have_its_cpus_are_preempted_for_it(gpu_daemon: Daemon) -> None:
    daemon = gpu_daemon
    daemon.start()
    job = two_cpus(daemon, "physics", gpus=1, method="suspend")
    daemon.wait_running(job)
    urgent = daemon.submit("alarm", "-p", "urgent")
    daemon.wait_running(urgent)
    daemon.kill()
    daemon.let_end(urgent)
    wait_until(lambda: daemon.job(urgent).state is JobState.ENDED, "the urgent job's end")
    first = two_cpus(daemon, "bio", method="requeue")
    daemon.wait_running(first)
    last = two_cpus(daemon, "bio", gpus=1, method="requeue")
    daemon.wait_running(last)
    found = units(daemon)
    assert found[job] > found[first] and found[job].isdisjoint(found[last])
    daemon.start()
    daemon.wait_running(job)
    let_polls_pass(daemon)
    check_apart(daemon)
    assert daemon.runs(job, last) and daemon.job(first).state is JobState.PENDING
    assert (daemon.job(first).restarts, daemon.job(last).restarts) == (1, 0)
    daemon.let_end(job, first, last)
    daemon.wait_rest()
    assert daemon.completed([job, first, last, urgent])
