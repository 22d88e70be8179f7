"""Whose job it is and where it runs, as the root process reads it from a real slurmctld."""

from __future__ import annotations

import json
import pwd
from collections.abc import Sequence
from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.config.load import parse_config
from omfs_daemon.daemon.node_client.node_answers import OmfsNodeAnswer
from omfs_daemon.daemon.node_client.transport import Request
from omfs_daemon.daemon.root_process.messages import RootProcessError, read_reply
from omfs_daemon.daemon.root_process.root_process import RootProcess
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slurm

OWNER = "nobody"
UID = pwd.getpwnam(OWNER).pw_uid
CONFIG = '[nodes]\nworker = "local"\n[[class]]\nname = "regular"\nmethods = ["pageout"]\n'


class Asked:
    """A transport that keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: list[tuple[tuple[str, ...], object]] = []

    def run(self, nodes: Sequence[str], request: Request, timeout: float) -> dict[str, OmfsNodeAnswer]:
        self.requests.append((tuple(nodes), request.get("uid")))
        return {node: OmfsNodeAnswer(ok=True) for node in nodes}


class Stand:
    def __init__(self, slurm: LocalSlurm) -> None:
        self.slurm = slurm
        self.asked = Asked()
        config = parse_config(CONFIG, "test")
        self.root = RootProcess(config, Path("/nonexistent"), slurm.gateway(), self.asked, UID)

    def running(self, *options: str, uid: str | None = OWNER) -> list[Job]:
        submitted = self.slurm.submit("sleep 3600", "-o", "/dev/null", *options, uid=uid)

        def run() -> list[Job]:
            jobs = [job for job in self.slurm.gateway().jobs() if submitted in (job.id, job.array_id)]
            return jobs if all(job.state is JobState.RUNNING for job in jobs) else []

        return wait_until(run, "the job to run")

    def out(self, job: int, *nodes: str) -> dict[str, OmfsNodeAnswer]:
        request = {"do": "out", "job": job, "method": "pageout", "nodes": nodes, "timeout": 5}
        return read_reply(self.root.reply(json.dumps(request).encode()))


@pytest.fixture
def stand(slurm: LocalSlurm) -> Stand:
    return Stand(slurm)


@pytest.mark.parametrize("words", ["x", "x UserId=root(0) NodeList=n4", "a|b\n7|0|n4", "0 0 0"])
def test_whatever_its_owner_writes_the_job_is_theirs(stand: Stand, words: str) -> None:
    (job,) = stand.running("-N2", "-n2", f"--job-name={words}", f"--comment={words}")
    answers = stand.out(job.id, "n1", "n2", "n3", "n4", "elsewhere")
    assert [node for node, answer in answers.items() if answer.ok] == list(job.on_nodes)
    assert stand.asked.requests == [(job.on_nodes, UID)]
    stand.slurm.command("scontrol", "suspend", str(job.id))
    assert stand.out(job.id, job.on_nodes[0])[job.on_nodes[0]].ok, "suspended jobs too"


def test_tasks_of_an_array_by_their_own_ids(stand: Stand) -> None:
    tasks = stand.running("--array=1-3", "-n4")
    for task in tasks:
        stand.out(task.id, "n1", "n2", "n3", "n4")
    assert len({task.id for task in tasks}) == 3
    assert stand.asked.requests == [(task.on_nodes, UID) for task in tasks]


def test_jobs_of_root_ended_jobs_and_waiting_jobs_are_left_alone(stand: Stand) -> None:
    (job,) = stand.running(uid=None)
    with pytest.raises(RootProcessError, match="root's"):
        stand.out(job.id, *job.on_nodes)
    ended = stand.slurm.submit("true", "-o", "/dev/null", uid=OWNER)
    wait_until(lambda: all(job.id != ended for job in stand.slurm.gateway().jobs()), "the job to end")
    waiting = stand.slurm.submit("true", "--hold", uid=OWNER)
    for unknown in (ended, waiting + 1000):
        with pytest.raises(RootProcessError, match="no job"):
            stand.out(unknown, "n1")
    assert not stand.out(waiting, "n1")["n1"].ok
    assert stand.asked.requests == []
