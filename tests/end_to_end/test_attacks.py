"""What an ordinary user tries on a real Slurm with omfsd and its gate; the numbers are those of docs/security.md."""

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

MEMORY = 4000
SHAPE = Shape(
    nodes=2,
    memory_mb=MEMORY,
    features=dict.fromkeys(("n1", "n2"), "fast"),
    options={"Licenses": "fluent:5", "PrivateData": "jobs", "DefMemPerCPU": "10"},
)
MALLORY, OWNER = "nobody", "daemon"
NO_SHARE = ("-A", "guests", "-o", "/dev/null")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalSlurm]:
    classes = {"class_1": "partition=urgent;urgent=yes", "class_2": "methods=requeue,suspend"}
    with gated_cluster("attacks", classes, SHAPE) as slurm:
        yield slurm


@pytest.fixture
def daemon(cluster: LocalSlurm) -> Iterator[Daemon]:
    """It lives, and the gate has room to give."""
    with living_daemon(cluster) as installation:
        yield installation


def submit(daemon: Daemon, *arguments: str, user: str = MALLORY) -> int:
    return daemon.slurm.submit("sleep 3600", *arguments, uid=user)


def jobs(daemon: Daemon) -> dict[int, Job]:
    return {job.id: job for job in daemon.gateway.jobs()}


def running(daemon: Daemon) -> set[int]:
    return {job.id for job in jobs(daemon).values() if job.state is JobState.RUNNING}


def wait_running(daemon: Daemon, job: int) -> None:
    wait_until(lambda: job in running(daemon), lambda: f"job {job} to run: {daemon.observation()}; {daemon.tail()}")


def test_b01_a_part_of_a_heterogeneous_job_is_not_let_in_for_its_method(daemon: Daemon) -> None:
    """It is preempted as a whole, by what the first part names, so what another part names would never happen."""
    suspend = "--comment=omfs:method=suspend"
    for first in ("--comment=mine", "--comment=omfs:exclude=requeue"):  # without any, sbatch copies the second one
        done = daemon.slurm.command(
            "sbatch", *NO_SHARE, "-n1", first, ":", "-n2", suspend, "--wrap", "sleep 3600", uid=MALLORY, check=False
        )
        assert done.code == 0, done.stderr
        wait_for_cycles(daemon, 3)
        (mine,) = [job for job in jobs(daemon).values() if job.account == "guests"]
        assert (mine.state, mine.hold is Hold.NONE, len(mine.parts)) == (JobState.PENDING, False, 2)
        daemon.slurm.command("scontrol", "release", str(mine.id), uid=MALLORY, check=False)
        wait_for_cycles(daemon, 3)
        assert jobs(daemon)[mine.id].hold is not Hold.NONE, daemon.observation()
        daemon.slurm.command("scancel", str(mine.id), check=False)
        wait_until(lambda: not jobs(daemon), "the job to be gone")


def test_b05_a_job_that_keeps_its_memory_is_requeued_for_an_urgent_one(daemon: Daemon) -> None:
    config = daemon.config.read_text()
    daemon.config.write_text(config.rstrip() + '\nwhen_preemption_fails = "requeue"\n')
    daemon.stop()
    daemon.start()
    keeps = [
        submit(daemon, *NO_SHARE, "-n1", f"-wn{number}", "--mem=0", "--comment=omfs:method=suspend")
        for number in (1, 2)
    ]
    for job in keeps:
        wait_running(daemon, job)
    urgent = submit(daemon, "-A", "physics", "-p", "urgent", "-n4", "-o", "/dev/null", user=OWNER)
    wait_running(daemon, urgent)
    assert [jobs(daemon)[job].state for job in keeps].count(JobState.PENDING) == 1
    (preemption,) = wait_until(lambda: daemon.ask("history")["preemptions"], "the preemption to be over")
    assert [victim["method"] for victim in preemption["victims"]] == ["requeue"]


@pytest.mark.parametrize("change", ["NodeList=n1,n2", "Features=fast*2", "Features=fast*+2", "Features=fast* 0002"])
def test_k11_a_job_within_its_entitlement_does_not_grow_by_the_nodes_that_it_names(daemon: Daemon, change: str) -> None:
    mine = submit(daemon, "-A", "bio", "-n1", "-c4", "--begin=now+1hour", "-o", "/dev/null")
    wait_until(lambda: jobs(daemon)[mine].hold is Hold.NONE, "the job to be let go")
    for one in (change, "StartTime=now"):
        daemon.slurm.command("scontrol", "update", f"jobid={mine}", one, uid=MALLORY)
    wait_for_cycles(daemon, 3)
    assert jobs(daemon)[mine].hold is not Hold.NONE
    assert jobs(daemon)[mine].request.cpus == 8


@pytest.mark.parametrize("features", ["fast*2", "fast*+2"])
def test_k11_nor_by_the_nodes_that_its_features_count(daemon: Daemon, features: str) -> None:
    mine = submit(daemon, "-A", "bio", "-n1", "-c4", "-C", features, "-o", "/dev/null")
    wait_for_cycles(daemon, 3)
    assert jobs(daemon)[mine].hold is not Hold.NONE


@pytest.mark.parametrize("change", ["NodeList=n1 ", "ExcNodeList=n1 "])
def test_k24_no_owner_makes_a_job_unreadable_by_a_blank_between_nodes(daemon: Daemon, change: str) -> None:
    mine = submit(daemon, *NO_SHARE, "-n1", "--begin=now+1hour", "--comment=omfs:method=suspend", "-o", "/dev/null")
    done = daemon.slurm.command("scontrol", "update", f"jobid={mine}", change, uid=MALLORY, check=False)
    assert done.code != 0
    daemon.slurm.command("scontrol", "update", f"jobid={mine}", change)  # an administrator may
    wait_for_cycles(daemon, 3)
    assert not jobs(daemon)[mine].set_aside


def test_c01_an_array_that_runs_one_task_at_a_time_costs_one_victim(daemon: Daemon) -> None:
    guests = [submit(daemon, *NO_SHARE, "-n1", "--comment=omfs:method=requeue", user=OWNER) for _ in range(8)]
    for guest in guests:
        wait_running(daemon, guest)
    array = submit(daemon, "-A", "physics", "-n1", "-o", "/dev/null", "--comment=omfs:method=requeue", "--array=0-3%1")
    wait_until(lambda: any(job.array_id == array for job in jobs(daemon).values() if job.runs), "its first task")
    wait_for_cycles(daemon, 5)
    assert len(running(daemon) & set(guests)) == 7


def test_c02_licenses_that_others_have_cost_nobody_anything(daemon: Daemon) -> None:
    requeue = "--comment=omfs:method=requeue"
    holder = submit(daemon, "-A", "bio", "-n1", "-L", "fluent:5", requeue, user=OWNER)
    guests = [submit(daemon, *NO_SHARE, "-n1", requeue, user=OWNER) for _ in range(7)]
    for job in (holder, *guests):
        wait_running(daemon, job)
    attack = submit(daemon, "-A", "physics", "-n4", "-L", "fluent:5", requeue, "-o", "/dev/null")
    wait_until(lambda: "Licenses" in daemon.why_text(attack), lambda: daemon.why_text(attack))
    assert running(daemon) == {holder, *guests}
    assert not daemon.ask("history")["preemptions"]
