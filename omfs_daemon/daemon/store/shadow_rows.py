"""What a dry run would have done, as the history keeps it."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class ShadowKind(StrEnum):
    """START: a job would have been started by preempting others. PREEMPTION: a job would have been preempted. HOLD: a
    job would have been held. WATCHED: a time in which the daemon decided in a dry run."""

    START = "start"
    PREEMPTION = "preemption"
    HOLD = "hold"
    WATCHED = "watched"


class ShadowRow(NamedTuple):
    """One decision; one that is repeated in each cycle is one row.

    begun     when it was made first
    method    of a preemption
    preemptor of a preemption
    patience  of a start: the most seconds until it would have run; infinite where Slurm might not have started it
    lost      of a preemption: CPU seconds of work that the method does not keep
    ended     of a start: when the job really started, or was gone; None while it waits
    started   of a start: whether it has really started
    """

    kind: str
    job: str
    begun: float
    user: str = ""
    account: str = ""
    job_class: str = ""
    cpus: int = 0
    method: str = ""
    preemptor: str = ""
    patience: float = 0.0
    lost: float = 0.0
    ended: float | None = None
    started: bool = False

    def gain(self, now: float) -> tuple[float, float]:
        """The seconds by which a job would have started earlier, at least and at most. Of a job that was gone without a
        start nothing is known."""
        if self.ended is not None and not self.started:
            return 0.0, 0.0
        most = max(0.0, (now if self.ended is None else self.ended) - self.begun)
        return max(0.0, most - self.patience), most
