"""Stop by suspension: SIGSTOP by Slurm. CPUs become free for others; memory and generic resources stay taken."""

from __future__ import annotations

from collections.abc import Sequence

from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.methods import SUSPEND
from omfs_daemon.slurm import orders
from omfs_daemon.slurm.orders import Order


class Suspend:
    """``scontrol suspend`` and ``resume``. Only an administrator can resume, so nothing need be held."""

    traits = SUSPEND

    def stop(self, refs: Sequence[str]) -> list[Order]:
        return [orders.Suspend(tuple(refs))]

    def has_let_go(self, job: Job) -> bool:
        return not job.holds_cpus

    def keep_stopped(self, job: Job) -> list[Order]:
        return []

    def bring_back(self, job: Job, cpus_free: bool) -> list[Order]:
        """Slurm would resume over busy CPUs and lose count of them: only where they are free."""
        if job.state is JobState.SUSPENDED and cpus_free:
            return [orders.Resume((job.ref,))]
        return []
