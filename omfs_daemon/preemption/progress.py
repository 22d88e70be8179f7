"""How far it is, as seen, and by which methods and time-outs it is carried through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.preemption.methods.base import Progress
from omfs_daemon.preemption.methods.base import Seen
from omfs_daemon.preemption.methods.base import StopMethod
from omfs_daemon.preemption.methods.not_installed import method_of
from omfs_daemon.preemption.methods.node_work import WorkSeen
from omfs_daemon.preemption.preemption import Beneficiary
from omfs_daemon.preemption.preemption import VictimState
from omfs_daemon.preemption.preemption import Stop


class View(Protocol):
    """What is seen of the cluster now."""

    def job(self, ref: str) -> Job | None:
        """The job, also one task of an array that waits as a whole; None if Slurm lists it no longer."""

    def work(self, ref: str) -> WorkSeen | None:
        """What was last done on the job's nodes; None if this daemon had nothing done there."""

    def fit_together(self, jobs: Sequence[Job]) -> set[str]:
        """Which of these suspended jobs could run on side by side now: the first ones first."""


class Means(NamedTuple):
    """What a stop is carried out by.

    ``methods`` by name; ``stop``: seconds that a victim may take to let go, ``stop_by`` method where they differ;
    ``start``: seconds that the beneficiary may take to start.
    """

    methods: Mapping[str, StopMethod]
    stop: float
    start: float
    stop_by: Mapping[str, float] = {}

    def method(self, victim: VictimState) -> StopMethod:
        return method_of(self.methods, victim.method)

    def is_moved_in(self, beneficiary: Beneficiary) -> bool:
        """Whether its memory is out, so that its nodes have to bring it in before it is resumed."""
        return beneficiary.suspended and method_of(self.methods, beneficiary.method).traits.on_nodes

    def moves_in_first(self, stop: Stop) -> bool:
        """Whether its memory is moved in before anybody lets go, so that nobody else gets the CPUs meanwhile. A device
        whose memory a victim holds to its very end has no room before."""
        beneficiary = stop.beneficiary
        has_room = not beneficiary.lacks_devices or all(self.method(v).traits.on_nodes for v in stop.victims)
        return self.is_moved_in(beneficiary) and has_room

    def moving(self, beneficiary: Beneficiary) -> float:
        """Seconds that moving it in may take."""
        return self.stop_by.get(beneficiary.method, self.stop) if self.is_moved_in(beneficiary) else 0.0

    def start_limit(self, beneficiary: Beneficiary) -> float:
        return self.start + self.moving(beneficiary)

    def stop_limit(self, victim: VictimState) -> float:
        return self.stop_by.get(victim.method, self.stop)

    def is_careful(self, victim: VictimState) -> bool:
        """Whether its stop takes its time and may fail: then those that lose work or come back at once wait for it."""
        return self.method(victim).traits.is_careful

    def patience(self, stop: Stop) -> float:
        """Seconds until all careful victims are safe and the beneficiary is moved in, at most; 0 without any."""
        careful = max((self.stop_limit(v) for v in stop.victims if self.is_careful(v)), default=0.0)
        return careful + self.moving(stop.beneficiary)


def runs_still(victim: VictimState, view: View) -> bool:
    """Whether this very run of the victim goes on; a later run is not to be stopped again."""
    job = view.job(victim.ref)
    return job is not None and job.runs and job.start == victim.start


def progress_of(victim: VictimState, view: View, means: Means) -> Progress:
    """How far its stop is; a job that is gone, or runs for another time, has let go."""
    job = view.job(victim.ref)
    if job is None or (job.start is not None and job.start != victim.start and job.runs):
        return Progress.STOPPED
    return means.method(victim).progress(seen_of(victim, job, view))


def seen_of(victim: VictimState, job: Job, view: View) -> Seen:
    return Seen(job, view.work(job.ref), victim.keeps, victim.failed_before)
