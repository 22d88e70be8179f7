"""Jobs of a private Slurm with job_submit.lua, as their marks and priorities are in Slurm: read without the daemon."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm, SubmitGate, as_user
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from tests.support.waiting import LIMIT

PLUGIN = Path(__file__).parents[2] / "plugins" / "job_submit.lua"
DAEMON, ROOT, OPERATOR, OWNER, OTHER = "slurm", "root", "daemon", "nobody", "games"
"""Users of a Debian with Slurm. OPERATOR is one by the plug-in's settings; Slurm knows Operators only from slurmdbd."""

MAX_AGE, GONE = "3600", 4000
"""Seconds: a heartbeat does not grow old within a test, and one of a daemon that is gone."""

PREEMPTIBLE = "--comment=omfs:method=requeue,suspend"
LATER = "--begin=now+1hour"


@dataclass(frozen=True)
class Record:
    """One record that Slurm has: a job, a task, or the tasks of an array that are not split off yet."""

    id: str
    array: str
    task: str
    state: str
    reason: str = field(compare=False)  # Slurm writes it when its scheduler passes
    priority: int
    admin_comment: str
    comment: str

    @property
    def mark(self) -> str:
        found = re.match(r"(?:omfs|adm):[^\s?]*", self.admin_comment)
        return found[0] if found else ""

    @property
    def ref(self) -> str:
        """As in an order for this record alone."""
        task = f"[{self.task}]" if re.search(r"[-,]", self.task) else self.task
        return f"{self.array}_{task}" if task else self.id


class MarkedCluster:
    """``slurm``, whose plug-in takes DAEMON for the user of omfsd and has settings for this directory."""

    def __init__(self, slurm: LocalSlurm) -> None:
        self.slurm = slurm

    def beat(self, age: float = 0) -> None:
        """The daemon seems to live; with the ``age`` GONE it seems gone."""
        (self.slurm.directory / "heartbeat").write_text(f"{int(time.time() - age)}\n")

    def submit(self, *arguments: str, script: str = "sleep 3600", user: str = OWNER) -> str:
        return str(self.slurm.submit(script, *arguments, uid=user))

    def scontrol(self, user: str, *arguments: str) -> str:
        """What Slurm says to the user's command; "" if it took it for every record."""
        output = self.slurm.command("scontrol", *arguments, check=False, uid=user)
        return (output.stderr or output.stdout or f"exit {output.code}") if output.code else ""

    def order(self, ref: str, admin_comment: str, *, hold: bool = False, user: str = DAEMON) -> str:
        """An update as omfsd sends it; in one RPC."""
        fields = [*(["Priority=0"] if hold else []), f"AdminComment={admin_comment}"]
        return self.scontrol(user, "update", f"jobid={ref}", *fields)

    def records(self, ref: str = "") -> list[Record]:
        """All that Slurm shows for ``scontrol show job REF``."""
        shown = self.slurm.command("scontrol", "show", "job", *([ref] if ref else [])).stdout
        return [_record(text) for text in shown.split("\n\n") if "JobId=" in text]

    def record(self, ref: str) -> Record:
        (found,) = self.records(ref)
        return found


def _record(text: str) -> Record:
    def word(name: str) -> str:
        found = re.search(rf"(?m)(?:^|\s){name}=(\S*)", text)
        return found[1] if found else ""

    def line(name: str) -> str:
        found = re.search(rf"(?m)^\s+{name}=(.*?) ?$", text)
        return found[1] if found else ""

    return Record(
        id=word("JobId"),
        array=word("ArrayJobId"),
        task=word("ArrayTaskId"),
        state=word("JobState"),
        reason=word("Reason"),
        priority=int(word("Priority")),
        admin_comment=line("AdminComment"),
        comment=line("Comment"),
    )


@contextmanager
def marked_cluster(daemon: str = DAEMON, nodes: int = 2) -> Iterator[MarkedCluster]:
    """A cluster whose SlurmUser, and whose omfsd, is the user ``daemon``."""
    directory = Path(tempfile.mkdtemp(prefix="omfs-marks-"))
    settings = {
        "heartbeat": str(directory / "heartbeat"),
        "wake": str(directory / "wake"),
        "max_age": MAX_AGE,
        "daemon_uid": uid_of(daemon),
        "operator_uids": uid_of(OPERATOR),
    }
    shape = Shape(nodes=nodes, options={"SlurmUser": daemon, "KillWait": "2", "RequeueExitHold": "101-109"})
    try:
        with LocalSlurm(directory, shape, gate=SubmitGate(PLUGIN, settings), limit=LIMIT) as slurm:
            yield MarkedCluster(slurm)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def uid_of(user: str) -> str:
    return as_user(user)[1].rpartition("=")[2]
