"""How omfs-run behaves in a job of the fake, as a test chooses, and its report in the job comment."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from omfs_daemon.protocol.job_comment import make_run_comment, put_run_comment


class OnUsr1(Enum):
    """What omfs-run does when it gets USR1."""

    CHECKPOINT = auto()
    """It writes a checkpoint and exits 101: Slurm requeues the job, held."""
    FAIL = auto()
    """The checkpoint fails and the program runs on; the job comment reports that."""
    IGNORE = auto()
    """Nothing: omfs-run hangs."""
    DIE = auto()
    """The signal kills the program, and the job ends."""


class OnRestart(Enum):
    """What it does when the job runs again."""

    CONTINUE = auto()
    """From the newest checkpoint."""
    FRESH = auto()
    """From the beginning; the job comment reports that."""
    HELD = auto()
    """No checkpoint can be restarted: exit 102, Slurm requeues the job, held."""


@dataclass(frozen=True, slots=True)
class OmfsRunBehavior:
    """A job whose batch script is ``exec omfs-run``, or passes the request on and goes on after it (``traps``: omfs-run
    requeues and holds the job itself), and how it behaves.

    ``ready_after``: seconds from each start until omfs-run reports ready; USR1 before that kills the job, as the
    default action does. ``seconds``: from USR1 until the checkpoint is verified (or has failed).
    """

    method: str = "dmtcp"
    on_usr1: OnUsr1 = OnUsr1.CHECKPOINT
    on_restart: OnRestart = OnRestart.CONTINUE
    ready_after: float = 0.0
    seconds: float = 0.5
    size: int = 1 << 20
    why: str = "no_space"
    traps: bool = False


def with_run_comment(comment: str, run: int, state: str, **fields: str | int | float) -> str:
    """The job's comment with a new report of omfs-run in place of the old one."""
    return put_run_comment(comment, make_run_comment(run, state, fields))
