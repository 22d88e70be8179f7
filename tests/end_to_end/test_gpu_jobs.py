"""Jobs with GPUs on a real Slurm: they take more nodes and CPUs than squeue shows of them while they wait."""

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
SHAPE = Shape(
    nodes=4,
    cpus=8,
    gres="gpu:2",
    partitions=("PartitionName=more Nodes=ALL DefCpuPerGPU=3",),
    options={"DefCpuPerGPU": "2"},
)
WIDER_THAN_A_NODE = (("--gpus=3",), ("-n3", "--gpus-per-task=1"), ("--gpus=2", "--cpus-per-gpu=5"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalSlurm]:
    with gated_cluster("gpus", {"class_1": "methods=requeue,suspend"}, SHAPE) as slurm:
        yield slurm


@pytest.fixture
def daemon(cluster: LocalSlurm) -> Iterator[Daemon]:
    """Bio owns half of 32 CPUs."""
    with living_daemon(cluster) as installation:
        yield installation


def submit(daemon: Daemon, *arguments: str) -> int:
    return daemon.slurm.submit("sleep 3600", "-A", "bio", "-o", "/dev/null", *arguments, uid=OWNER)


def look(daemon: Daemon, job_id: int) -> Job:
    job = daemon.gateway.find(job_id)
    assert job is not None
    return job


@pytest.mark.parametrize("options", WIDER_THAN_A_NODE, ids=" ".join)
def test_more_gpus_than_a_node_has_come_from_several(daemon: Daemon, options: tuple[str, ...]) -> None:
    job = submit(daemon, *options)
    wait_until(lambda: look(daemon, job).state is JobState.RUNNING, lambda: f"{daemon.observation()}")
    assert len(look(daemon, job).on_nodes) == 2


def test_a_job_preempts_others_on_several_nodes_for_its_gpus(daemon: Daemon) -> None:
    borrowers = [submit(daemon, "-N1", "-n8", "--comment=omfs:method=requeue") for _ in range(4)]
    for borrower in borrowers:
        daemon.wait_running(borrower)
    owner = daemon.slurm.submit("sleep 3600", "-A", "physics", "-o", "/dev/null", "--gpus=3", uid=OWNER)
    daemon.wait_running(owner)
    assert len(look(daemon, owner).on_nodes) == 2
    assert [look(daemon, borrower).runs for borrower in borrowers].count(True) == 2


def test_k25_cpus_that_come_with_gpus_by_default_count_before_the_start(daemon: Daemon) -> None:
    """Twelve CPUs are within bio's sixteen, eighteen are not, and this job is not preemptible."""
    within = submit(daemon, "--gpus=6")
    wait_until(lambda: look(daemon, within).state is JobState.RUNNING, lambda: f"{daemon.observation()}")
    assert look(daemon, within).request.cpus == 12
    daemon.slurm.command("scancel", str(within))
    beyond = submit(daemon, "--gpus=6", "--partition=more")
    wait_for_cycles(daemon, 3)
    assert look(daemon, beyond).hold is not Hold.NONE, daemon.observation()
