"""Whether Slurm starts a job is what the static rules say, limit by limit, on a real Slurm with slurmdbd.

Each reason is made, and the answer compared with what Slurm does on idle nodes; then the reason is removed, and the job
starts.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from omfs_daemon.cluster.jobs import Allocation, Job, JobState
from omfs_daemon.cluster.snapshot import PreemptionHistory
from omfs_daemon.daemon.observer import Observer
from omfs_daemon.policy.arrays.snapshot_arrays import SnapshotArrays
from omfs_daemon.policy.start_checks.answer import YES, Answer, AnswerKind
from omfs_daemon.policy.start_checks.static_rules import StartChecks
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from omfs_daemon.testing.local_slurm.slurmdbd import Accounting
from tests.support.amounts import sample
from tests.support.waiting import LIMIT, wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("start answers")]

OWNER, OTHER = "nobody", "daemon"
SHAPE = Shape(
    nodes=2,
    cpus=2,
    options={"AccountingStorageEnforce": "associations,limits,qos", "Licenses": "fluent:2"},
)
ACCOUNTS = Accounting(["bio", "physics"], [OWNER, OTHER], qos=["high"])
JOB = ("--account=bio", "--qos=high", "--ntasks=2", "--nodes=1", "--nodelist=n1", "--time=5", "--mem=50")


class Site:
    """The cluster, and what an administrator and users do there."""

    def __init__(self, slurm: LocalSlurm) -> None:
        self.slurm = slurm
        self.gateway = slurm.gateway()
        self._other = 0

    def modify(self, *words: str) -> None:
        self.slurm.command("sacctmgr", "--immediate", "modify", *words)

    def scontrol(self, *words: str) -> None:
        self.slurm.command("scontrol", *words, check=False)

    def submit(self, *options: str, user: str = OWNER) -> int:
        return self.slurm.submit("sleep 600", "--output=/dev/null", *options, uid=user)

    def running(self, *options: str, user: str = OTHER) -> int:
        job_id = self.submit(*options, user=user)
        wait_until(lambda: self.job(job_id).state is JobState.RUNNING, f"job {job_id} to run")
        return job_id

    def stand_in_the_way(self, user: str, *options: str) -> None:
        usual = ("--job-name=other", "--account=bio", "--ntasks=1", "--nodelist=n2", "--mem=50")
        self._other = self.running(*usual, *options, user=user)

    def step_aside(self) -> None:
        if self._other:
            self.slurm.command("scancel", str(self._other), check=False)
            wait_until(lambda: self.job(self._other).state is JobState.ENDED, "an end")
            self._other = 0

    def job(self, job_id: int) -> Job:
        found = self.gateway.find(job_id)
        assert found is not None
        return found

    def answer(self, job_id: int) -> Answer:
        """What the static rules say about this job on its node."""
        shown = Observer(self.slurm.gateway(), time.time).poll()
        job = shown.jobs[job_id]
        each = max(1, job.request.cpus // job.request.nodes)
        nodes = ("n1", "n2")[: job.request.nodes]
        allocations = [Allocation(node, each, job.request.memory_per_node) for node in nodes]
        return StartChecks(SnapshotArrays(shown), PreemptionHistory(), time.time()).answer(job, allocations)

    def clear(self) -> None:
        def is_empty() -> bool:
            listed = [str(job.id) for job in self.gateway.jobs()]
            if listed:
                self.slurm.command("scancel", "--signal=KILL", "--full", *listed, check=False)
                self.slurm.command("scancel", *listed, check=False)
            return not listed

        wait_until(is_empty, "no jobs")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="omfs-answers-") as directory:
        Path(directory).chmod(0o755)
        with LocalSlurm(Path(directory), SHAPE, accounting=ACCOUNTS, limit=LIMIT) as slurm:
            site = Site(slurm)
            site.modify("account", "bio,physics", "set", "qos=normal,high")
            site.modify("user", f"{OWNER},{OTHER}", "where", "account=bio,physics", "set", "qos=normal,high")
            yield site


class Case(NamedTuple):
    """``make`` and ``remove`` the reason, which Slurm calls ``word``; ``options`` of the job besides the usual."""

    word: str
    make: Callable[[Site], None]
    remove: Callable[[Site], None]
    options: tuple[str, ...] = ()


def limit(word: str, entity: str, setting: str, *options: str) -> Case:
    """A limit in slurmdbd; -1 (of each TRES) removes it."""
    name, _, value = setting.partition("=")
    cleared = f"{name}={value.rpartition('=')[0]}=-1" if "=" in value else f"{name}=-1"
    words = entity.split()
    return Case(
        word,
        lambda site: site.modify(*words, "set", setting),
        lambda site: site.modify(*words, "set", cleared),
        options,
    )


def partition(word: str, setting: str, cleared: str, *options: str) -> Case:
    update = ("update", "partitionname=main")
    return Case(
        word, lambda site: site.scontrol(*update, setting), lambda site: site.scontrol(*update, cleared), options
    )


def another(word: str, mine: tuple[str, ...], *options: str, user: str = OWNER) -> Case:
    """Another job, which runs on n2, stands in the way."""

    return Case(word, lambda site: site.stand_in_the_way(user, *options), Site.step_aside, mine)


def reservation(word: str, start: str, *options: str) -> Case:
    create = (
        "create",
        "reservation",
        "reservationname=r",
        f"starttime={start}",
        "duration=60",
        "users=root",
        "nodes=n1",
    )
    return Case(
        word, lambda site: site.scontrol(*create), lambda site: site.scontrol("delete", "reservationname=r"), options
    )


ASSOCIATION = f"user {OWNER} where account=bio"
CASES = {
    "QOS GrpTRES": limit("QOSGrpCpuLimit", "qos high", "GrpTRES=cpu=1"),
    "QOS GrpJobs": limit("QOSGrpJobsLimit", "qos high", "GrpJobs=0"),
    "QOS MaxTRESPerUser": limit("QOSMaxCpuPerUserLimit", "qos high", "MaxTRESPerUser=cpu=1"),
    "QOS MaxJobsPerUser": limit("QOSMaxJobsPerUserLimit", "qos high", "MaxJobsPerUser=0"),
    "QOS MaxTRESPerJob": limit("QOSMaxCpuPerJobLimit", "qos high", "MaxTRESPerJob=cpu=1"),
    "QOS MaxWall": limit("QOSMaxWallDurationPerJobLimit", "qos high", "MaxWall=1"),
    "QOS GrpTRESMins": limit("QOSGrpCPUMinutesLimit", "qos high", "GrpTRESMins=cpu=0"),
    "account GrpTRES": limit("AssocGrpCpuLimit", "account bio", "GrpTRES=cpu=1"),
    "account GrpJobs": limit("AssocGrpJobsLimit", "account bio", "GrpJobs=0"),
    "account GrpTRESMins": limit("AssocGrpCPUMinutesLimit", "account bio", "GrpTRESMins=cpu=0"),
    "account GrpWall": limit("AssocGrpWallLimit", "account bio", "GrpWall=0"),
    "user MaxJobs": limit("AssocMaxJobsLimit", ASSOCIATION, "MaxJobs=0"),
    "user MaxTRES": limit("AssocMaxCpuPerJobLimit", ASSOCIATION, "MaxTRESPerJob=cpu=1"),
    "partition DOWN": partition("PartitionDown", "state=down", "state=up"),
    "partition INACTIVE": partition("PartitionInactive", "state=inactive", "state=up"),
    "partition MaxTime": partition("PartitionTimeLimit", "maxtime=1", "maxtime=unlimited"),
    "partition MaxNodes": partition(
        "PartitionNodeLimit", "maxnodes=1", "maxnodes=unlimited", "--nodes=2", "--nodelist=n[1-2]"
    ),
    "partition AllowQos": partition("QOSNotAllowed", "allowqos=normal", "allowqos=all"),
    "partition DenyAccounts": partition("AccountNotAllowed", "denyaccounts=bio", "denyaccounts="),
    "partition MaxMemPerNode": partition("MaxMemPerLimit", "maxmempernode=10", "maxmempernode=0"),
    "license": another("Licenses", ("--licenses=fluent:1",), "--licenses=fluent:2"),
    "singleton": another("Dependency", ("--dependency=singleton", "--job-name=other")),
    "node drained": Case(
        "ReqNodeNotAvail",
        lambda site: site.scontrol("update", "nodename=n1", "state=drain", "reason=test"),
        lambda site: site.scontrol("update", "nodename=n1", "state=resume"),
    ),
    "reservation of others": reservation("ReqNodeNotAvail", "now+120"),
}


def refused_by_slurm(site: Site, job_id: int, word: str) -> bool:
    """Whether Slurm has looked at the job and says so; some reasons make the release itself fail."""
    job = site.job(job_id)
    assert job.state is JobState.PENDING, f"Slurm started it in spite of {word}"
    is_refused_at_release = job.reason.startswith("JobHeld") and word in REFUSED_AT_RELEASE
    return job.reason.startswith(IN_SENTENCES.get(word, word)) or is_refused_at_release


REFUSED_AT_RELEASE = ("PartitionInactive", "MaxMemPerLimit")
IN_SENTENCES = {
    "QOSNotAllowed": "Job's QOS not permitted to use this partition",
    "AccountNotAllowed": "Job's account not permitted to use this partition",
}


@pytest.mark.parametrize("name", sample(list(CASES), 8))
def test_answer_is_what_slurm_does(site: Site, name: str) -> None:
    case = CASES[name]
    with cleared(site, case):
        job_id = site.submit(*JOB, *case.options, "--hold")
        assert site.answer(job_id) == YES, "nothing is lacking yet"
        case.make(site)
        wait_until(lambda: site.answer(job_id).kind is AnswerKind.NO, f"the answer {case.word}")
        assert site.answer(job_id).reason == case.word
        site.scontrol("release", str(job_id))
        wait_until(lambda: refused_by_slurm(site, job_id, case.word), f"Slurm's reason {case.word}")
        assert site.answer(job_id).kind is AnswerKind.NO
        case.remove(site)
        wait_until(lambda: site.answer(job_id) == YES, "the answer yes")
        site.scontrol("release", str(job_id))
        wait_until(lambda: site.job(job_id).state is JobState.RUNNING, "a start")


@contextmanager
def cleared(site: Site, case: Case) -> Iterator[None]:
    try:
        yield
    finally:
        case.remove(site)
        site.clear()


def test_a_job_in_a_draining_partition_starts(site: Site) -> None:
    job_id = site.submit(*JOB, "--hold")
    with cleared(site, partition("", "state=drain", "state=up")):
        site.scontrol("update", "partitionname=main", "state=drain")
        assert site.answer(job_id) == YES
        site.scontrol("release", str(job_id))
        wait_until(lambda: site.job(job_id).state is JobState.RUNNING, "a start")


def test_what_a_suspended_job_uses_counts(site: Site) -> None:
    case = limit("QOSGrpCpuLimit", "qos high", "GrpTRES=cpu=2")
    with cleared(site, case):
        used = site.running("--account=physics", "--qos=high", "--ntasks=1", "--nodelist=n2", "--mem=50")
        case.make(site)
        site.scontrol("suspend", str(used))
        wait_until(lambda: site.job(used).state is JobState.SUSPENDED, "a suspended job")
        job_id = site.submit(*JOB)
        wait_until(lambda: refused_by_slurm(site, job_id, case.word), f"Slurm's reason {case.word}")
        assert site.answer(job_id).reason == case.word
