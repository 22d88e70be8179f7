"""What methods have in common that let go by one order of Slurm's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.preempt_methods import Method
from omfs_daemon.cluster.preempt_methods import Pace
from omfs_daemon.preemption.methods.node_work import Do
from omfs_daemon.preemption.methods.node_work import WorkSeen
from omfs_daemon.slurm.orders import Order


class Progress(StrEnum):
    """How far the stop of one job is.

    UNTOUCHED  it runs, and nothing has been done to it: it can still be let off
    GOING      it is being stopped
    SECURED    its work is safe and it computes no longer, but Slurm still counts it as running: one order is missing
    STOPPED    it holds its CPUs no longer, and its work is as safe as the method makes it
    FAILED     it could not be stopped, and runs on (or will, when it is brought back)
    """

    UNTOUCHED = "untouched"
    GOING = "going"
    SECURED = "secured"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class OnNodes:
    """An order to omfs-node on all nodes of a job; ``resume`` as in ``Work``."""

    ref: str
    method: str
    do: Do
    resume: bool = False


Action = Order | OnNodes

Licenses = tuple[tuple[str, int], ...]


class Seen(NamedTuple):
    """One job as Slurm shows it now.

    ``work``: what was last done on its nodes, as far as this daemon knows; ``keeps``: the licences that it has while it
    is stopped (None: they are not touched); ``failed_before``: how many failures omfs-run had told of when this stop
    began.
    """

    job: Job
    work: WorkSeen | None = None
    keeps: Licenses | None = None
    failed_before: int = 0


class StopMethod(Protocol):
    """One way to stop jobs."""

    traits: Method
    pace: Pace

    def prepare(self, seen: Seen) -> list[Action]:
        """What must be so before the running job is stopped; it goes on meanwhile."""

    def stop(self, jobs: Sequence[Seen]) -> list[Action]:
        """What is missing so that these running jobs become SECURED or STOPPED."""

    def finish(self, jobs: Sequence[Seen]) -> list[Action]:
        """What makes SECURED jobs STOPPED: given when all others of the same stop are as far."""

    def progress(self, seen: Seen) -> Progress:
        """How far it is. STOPPED is a proof, not a hope."""

    def why_failed(self, seen: Seen) -> str:
        """A line for people about a FAILED stop."""

    def keep_stopped(self, seen: Seen) -> list[Action]:
        """What is still to be ordered so that nobody but us brings the job back before its turn."""

    def bring_back(self, seen: Seen, cpus_free: bool) -> list[Action]:
        """What lets a job go on that was stopped, wholly or in part; [] when nothing is left to order.

        ``cpus_free``: of a suspended job, whether its place is free.
        """


class Plain:
    """Nothing to prepare, nothing to finish; a job is stopped when it holds its CPUs no longer."""

    def prepare(self, seen: Seen) -> list[Action]:
        return []

    def finish(self, jobs: Sequence[Seen]) -> list[Action]:
        return []

    def progress(self, seen: Seen) -> Progress:
        if seen.job.runs:
            return Progress.UNTOUCHED
        return Progress.GOING if seen.job.holds_cpus else Progress.STOPPED

    def why_failed(self, seen: Seen) -> str:
        return ""

    def keep_stopped(self, seen: Seen) -> list[Action]:
        return []
