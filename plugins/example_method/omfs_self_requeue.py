"""Jobs that save their work when they get SIGUSR2 and requeue themselves; docs/methods.md explains it line by line."""

from __future__ import annotations

from collections.abc import Sequence

from omfs_daemon.cluster import run_report as launched
from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.run_report import RunState
from omfs_daemon.cluster.preempt_methods import Method
from omfs_daemon.cluster.preempt_methods import Pace
from omfs_daemon.preemption.methods.base import Action
from omfs_daemon.preemption.methods.base import Progress
from omfs_daemon.preemption.methods.base import Seen
from omfs_daemon.slurm import orders


class SelfRequeue:
    """Asked by ``scancel -s USR2 --batch``; a job counts as stopped when it waits in the queue again."""

    traits = Method("self_requeue", keeps_work=True, leaves=True, launched=True)
    pace = Pace(stop_seconds=5.0, stop_rate=200e6, back_seconds=10.0, back_rate=200e6)

    def prepare(self, seen: Seen) -> list[Action]:
        return [] if seen.job.requeue else [orders.AllowRequeue((seen.job.ref,))]

    def stop(self, jobs: Sequence[Seen]) -> list[Action]:
        return [orders.Signal(seen.job.ref, "USR2") for seen in jobs if _says(seen.job) is RunState.READY]

    def finish(self, jobs: Sequence[Seen]) -> list[Action]:
        return []

    def progress(self, seen: Seen) -> Progress:
        if seen.job.runs:
            return Progress.GOING if _says(seen.job) is RunState.STOPPING else Progress.UNTOUCHED
        return Progress.GOING if seen.job.holds_cpus else Progress.STOPPED

    def why_failed(self, seen: Seen) -> str:
        return ""

    def keep_stopped(self, seen: Seen) -> list[Action]:
        job = seen.job
        return [orders.Hold((job.ref,))] if job.state is JobState.PENDING and job.hold is not Hold.ADMIN else []

    def bring_back(self, seen: Seen, cpus_free: bool) -> list[Action]:
        job = seen.job
        return [orders.Release((job.ref,))] if job.state is JobState.PENDING and job.hold is not Hold.NONE else []


def _says(job: Job) -> RunState | None:
    run = launched.of(job)
    return run.state if run is not None else None


METHOD = SelfRequeue()
