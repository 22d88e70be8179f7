"""Nodes with two threads per core on a real Slurm: a core belongs to one job, whatever the job uses of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from tests.support.daemons import Daemon
from tests.support.gated_clusters import gated_cluster, living_daemon, wait_for_cycles
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slurm

OWNER = "nobody"
ONE_THREAD = ("--threads-per-core=1", "--hint=nomultithread", "--ntasks-per-core=1", "--extra-node-info=*:*:1")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalSlurm]:
    classes = {"class_1": "partition=urgent;urgent=yes", "class_2": "methods=requeue,suspend"}
    with gated_cluster("cores", classes, Shape(nodes=2, cpus=8, threads=2)) as slurm:
        yield slurm


@pytest.fixture
def daemon(cluster: LocalSlurm) -> Iterator[Daemon]:
    """Bio owns half of sixteen CPUs."""
    with living_daemon(cluster) as installation:
        yield installation


def submit(daemon: Daemon, *arguments: str) -> int:
    return daemon.slurm.submit("sleep 3600", "-A", "bio", "-o", "/dev/null", *arguments, uid=OWNER)


def look(daemon: Daemon, job_id: int) -> Job:
    job = daemon.gateway.find(job_id)
    assert job is not None
    return job


def test_k17_a_job_that_uses_one_thread_of_each_core_counts_for_whole_cores(daemon: Daemon) -> None:
    within = submit(daemon, "-n4", "--threads-per-core=1")
    wait_until(lambda: look(daemon, within).state is JobState.RUNNING, lambda: f"{daemon.observation()}")
    daemon.slurm.command("scancel", str(within))
    beyond = [submit(daemon, "-n5", "-N1-1", option) for option in ONE_THREAD]
    wait_for_cycles(daemon, 3)
    for job in beyond:
        assert look(daemon, job).hold is not Hold.NONE, daemon.observation()


def test_k17_nor_does_its_owner_make_it_such_a_job_later(daemon: Daemon) -> None:
    mine = submit(daemon, "-n5", "-N1-1", "--hold")
    update = ("scontrol", "update", f"jobid={mine}", "ReqThreads=1")
    assert daemon.slurm.command(*update, uid=OWNER, check=False).code != 0
    daemon.slurm.command("scontrol", "release", str(mine), uid=OWNER)
    wait_until(lambda: look(daemon, mine).state is JobState.RUNNING, lambda: f"{daemon.observation()}")
    assert sum(allocation.cpus for allocation in look(daemon, mine).allocations) == 6


def test_what_is_counted_of_a_waiting_job_is_what_it_gets(cluster: LocalSlurm) -> None:
    gateway = cluster.gateway()
    gateway.nodes()
    requests = [
        *(("-n4", option) for option in ONE_THREAD),
        ("-n3",),
        ("-n4", "--ntasks-per-core=2"),
        ("-n4", "--threads-per-core=2"),
        ("-n4", "--hint=multithread"),
        ("-n2", "-c2", "--threads-per-core=1"),
        ("-n2", "-c3", "--ntasks-per-core=1"),
        ("-n2", "-c3"),
        ("-N2", "-n2", "-c2", "--hint=nomultithread"),
        ("-N2", "--mincpus=3", "--threads-per-core=1"),
    ]
    for request in requests:
        number = cluster.submit("sleep 3600", "--hold", "--comment=omfs:method=requeue", "-o", "/dev/null", *request)
        job, (listed,) = gateway.find(number), (one for one in gateway.jobs() if one.id == number)
        assert job is not None and job.request == listed.request
        cluster.command("scontrol", "release", str(number))
        wait_until(lambda number=number: look_at(cluster, number), "the job to run")  # type: ignore[misc]
        running = gateway.find(number)
        assert running is not None
        got = sum(allocation.cpus for allocation in running.allocations)
        whole = -(-job.request.cpus // 2) * 2  # a part of a core that nobody asks for is for the policy to count
        assert whole == got, request
        cluster.command("scancel", str(number))
        wait_until(lambda: not gateway.jobs(), "its end")


def look_at(cluster: LocalSlurm, number: int) -> bool:
    job = cluster.gateway().find(number)
    return job is not None and job.state is JobState.RUNNING
