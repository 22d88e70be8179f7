"""The cluster of the demo: one small interface, whether Slurm is real or the fake."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.daemon.api.history_view import PastPreemptionView
from omfs_daemon.daemon.api.status_view import StatusView
from omfs_daemon.errors import OmfsError
from omfs_daemon.protocol.job_comment import METHOD_KEY

NODES = 4
CPUS_PER_NODE = 4
LONGEST_HISTORY = 100

_CONFIG = """\
{slurm}
[daemon]{user}
state_dir = "{directory}/state"
run_dir = "{directory}/run"
log_format = "console"

[policy]
quantum_seconds = 2

[metrics]
enabled = false

[entitlements.bio]
percent = 50

[entitlements.physics]
percent = 50

[entitlements.alarm]
percent = 0

[[class]]
name = "urgent"
partition = ["urgent"]
account = ["alarm"]
urgent = true

[[class]]
name = "regular"
methods = ["requeue", "suspend"]
"""


class DemoError(OmfsError):
    """The demo cannot continue; the text says why."""


@dataclass(frozen=True)
class DemoJob:
    """A job with the CPUs of one node for ``work`` seconds. ``method``: how it may be preempted; "" for never."""

    name: str
    account: str
    work: int
    method: str = ""
    partition: str = "main"

    @property
    def comment(self) -> str:
        return METHOD_KEY + self.method if self.method else ""


class DemoJobResult(NamedTuple):
    """How a job ended: what Slurm reports, and what the job itself wrote.

    outcome   its state in Slurm: COMPLETED is the only good one
    restarts  how often Slurm restarted it
    starts    how often it started its work
    steps     seconds of work that it did, including those lost in a requeue
    finished  whether it wrote its last line
    """

    outcome: str
    restarts: int
    starts: int
    steps: int
    finished: bool


class DemoCluster(Protocol):
    """A cluster with omfsd beside it. ``close`` may be called at any time, also twice."""

    name: str

    def start(self) -> None:
        """Bring everything up."""

    def close(self) -> None:
        """Take everything down; an error if something resists."""

    def now(self) -> float:
        """The time on the cluster's clock."""

    def tick(self) -> None:
        """Let a short time pass; DemoError if omfsd is gone."""

    def submit(self, job: DemoJob) -> int:
        """Its job id."""

    def jobs(self) -> list[Job]:
        """All jobs that have not ended."""

    def status(self) -> StatusView:
        """What ``omfs status`` shows."""

    def preemptions(self) -> list[PastPreemptionView]:
        """What ``omfs history`` shows, newest first."""

    def result(self, job: DemoJob, job_id: int) -> DemoJobResult:
        """The result of a job so far."""


def write_config(directory: Path, slurm_conf: Path | None = None, user: str = "") -> Path:
    """The configuration of the demo's omfsd, which keeps its files in ``directory``."""
    slurm = f'[slurm]\nconf = "{slurm_conf}"\npoll_seconds = 0.3\n' if slurm_conf else ""
    path = directory / "omfs.toml"
    own = f'\nuser = "{user}"' if user else ""
    path.write_text(_CONFIG.format(slurm=slurm, user=own, directory=directory), encoding="utf-8")
    return path
