"""Stop by suspension: SIGSTOP by Slurm. CPUs become free for others; memory and generic resources stay taken."""

from __future__ import annotations

from collections.abc import Sequence

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.preempt_methods import SUSPEND
from omfs_daemon.cluster.preempt_methods import Pace
from omfs_daemon.preemption.methods.base import Action
from omfs_daemon.preemption.methods.base import Seen
from omfs_daemon.preemption.methods.base import Plain
from omfs_daemon.slurm import orders


class Suspend(Plain):
    """``scontrol suspend`` and ``resume``. Only an administrator can resume, so nothing need be held."""

    traits = SUSPEND
    pace = Pace()

    def stop(self, jobs: Sequence[Seen]) -> list[Action]:
        return [orders.Suspend(tuple(seen.job.ref for seen in jobs))]

    def bring_back(self, seen: Seen, cpus_free: bool) -> list[Action]:
        """Slurm would resume over busy CPUs and lose count of them: only where they are free."""
        if seen.job.state is JobState.SUSPENDED and cpus_free:
            return [orders.Resume((seen.job.ref,))]
        return []
