"""What the demo's story is played on: one small interface, whether Slurm is real or the fake."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.daemon.api.history_view import PastStopView
from omfs_daemon.daemon.api.status_view import StatusView
from omfs_daemon.errors import OmfsError

NODES = 4
CPUS_PER_NODE = 4
LONGEST_HISTORY = 100

_CONFIG = """\
{slurm}
[daemon]
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
    """The story cannot go on; the text says why."""


@dataclass(frozen=True)
class Part:
    """A job of the story: one node's CPUs for ``work`` seconds. ``method``: how it may be stopped, "" for never."""

    name: str
    account: str
    work: int
    method: str = ""
    partition: str = "main"

    @property
    def comment(self) -> str:
        return f"omfs:method={self.method}" if self.method else ""


class Fate(NamedTuple):
    """What became of a job: what Slurm says, and the proof that the job left itself.

    outcome   the state in which Slurm knows it: COMPLETED is the only good end
    restarts  how often Slurm put it back
    starts    how often the job began its work
    steps     seconds of work that it did, those lost in a requeue included
    finished  whether it came to its last line
    """

    outcome: str
    restarts: int
    starts: int
    steps: int
    finished: bool


class Stage(Protocol):
    """A cluster with omfsd beside it. ``close`` may be called at any time, also twice."""

    name: str

    def start(self) -> None:
        """Bring everything up."""

    def close(self) -> None:
        """Take everything down; an error if something resists."""

    def now(self) -> float:
        """The time in which the story plays."""

    def tick(self) -> None:
        """Let a moment pass; DemoError if omfsd is gone."""

    def submit(self, part: Part) -> int:
        """Its job id."""

    def jobs(self) -> list[Job]:
        """All that have not ended."""

    def status(self) -> StatusView:
        """What ``omfs status`` tells."""

    def stops(self) -> list[PastStopView]:
        """What ``omfs history`` tells, newest first."""

    def fate(self, part: Part, job_id: int) -> Fate:
        """What became of a job so far."""


def write_config(directory: Path, slurm_conf: Path | None = None) -> Path:
    """The configuration of the demo's omfsd, which keeps its things in ``directory``."""
    slurm = f'[slurm]\nconf = "{slurm_conf}"\npoll_seconds = 0.3\n' if slurm_conf else ""
    path = directory / "omfs.toml"
    path.write_text(_CONFIG.format(slurm=slurm, directory=directory), encoding="utf-8")
    return path
