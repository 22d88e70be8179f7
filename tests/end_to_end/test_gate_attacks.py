"""What an ordinary user tries at the gate of a Slurm with slurmdbd; the numbers are those of docs/security.md."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.daemon.admission_file import ADMISSION_FILE
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from omfs_daemon.testing.local_slurm.slurmdbd import Accounting
from tests.support.daemons import Daemon
from tests.support.gated_clusters import gated_cluster, gated_daemon, wait_for_cycles
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slurm

MALLORY = "nobody"
CLASSES = {"class_1": "qos=solid", "class_2": "methods=requeue,suspend"}
SOLID = '[[class]]\nname = "solid"\nqos = ["solid"]\nmethods = []\n'
SCHEDULING = "batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1,permit_job_expansion"
SHAPE = Shape(
    nodes=2,
    options={"AccountingStorageEnforce": "associations,limits,qos", "SchedulerParameters": SCHEDULING},
)
ACCOUNTS = Accounting(["bio", "physics", "guests"], [MALLORY], qos=["solid"])
REQUEUE = "--comment=omfs:method=requeue"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalSlurm]:
    with gated_cluster("gate-attacks", CLASSES, SHAPE, ACCOUNTS) as slurm:
        yield slurm


@pytest.fixture
def daemon(cluster: LocalSlurm) -> Iterator[Daemon]:
    with gated_daemon(cluster) as installation:
        config = installation.config.read_text()
        installation.config.write_text(config.replace("[[class]]", SOLID + "[[class]]", 1))
        installation.start()
        wait_until((installation.directory / "run" / ADMISSION_FILE).exists, "the room of accounts")
        yield installation


def submit(daemon: Daemon, *arguments: str) -> Job:
    job_id = daemon.slurm.submit("sleep 3600", "-o", "/dev/null", *arguments, uid=MALLORY)
    return look(daemon, job_id)


def look(daemon: Daemon, job_id: int) -> Job:
    return next(job for job in daemon.gateway.jobs() if job.id == job_id)


def give_qos(daemon: Daemon, *settings: str) -> None:
    daemon.slurm.command("sacctmgr", "--immediate", "modify", "user", MALLORY, "set", *settings)


@pytest.mark.parametrize("spelling", ["SOLID", "Solid"])
def test_k34_a_qos_in_capitals_is_not_another_qos(daemon: Daemon, spelling: str) -> None:
    give_qos(daemon, "qos=normal,solid", "defaultqos=normal")
    done = daemon.slurm.command(
        "sbatch", "-A", "guests", "-n8", f"--qos={spelling}", REQUEUE, "--wrap=true", uid=MALLORY, check=False
    )
    assert done.code != 0, "it would be of a class that is never preempted"
    assert submit(daemon, "-A", "guests", "-n8", REQUEUE).hold is Hold.NONE


def test_k34_a_qos_that_slurm_chooses_is_not_known(daemon: Daemon) -> None:
    """The association has one and no default, which the gate is not shown."""
    give_qos(daemon, "qos=solid", "defaultqos=-1")
    job = submit(daemon, "-A", "guests", "-n5", REQUEUE)
    assert job.qos == "solid"
    wait_for_cycles(daemon, 3)
    job = look(daemon, job.id)
    assert (job.state, job.hold is Hold.NONE) == (JobState.PENDING, False)


@pytest.mark.parametrize("word", ["expand", "EXPAND", "after:1,Expand"])
def test_k36_no_job_grows_by_the_cpus_of_another(daemon: Daemon, word: str) -> None:
    give_qos(daemon, "qos=normal,solid", "defaultqos=normal")
    owned = submit(daemon, "-A", "bio", "-n4")
    wait_until(lambda: look(daemon, owned.id).runs, "the job to run")
    suspend = ("-A", "guests", "-n4", "--comment=omfs:method=suspend", "-o", "/dev/null")
    expanding = f"--dependency={word}:{owned.id}"
    done = daemon.slurm.command("sbatch", *suspend, expanding, "--wrap=true", uid=MALLORY, check=False)
    assert done.code != 0 and "expand:" in done.stderr
    other = submit(daemon, *suspend, "--begin=now+1hour")
    change = f"Dependency={word}:{owned.id}"
    done = daemon.slurm.command("scontrol", "update", f"jobid={other.id}", change, uid=MALLORY, check=False)
    assert done.code != 0
