"""What every way of stopping a job must be able to say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.methods import Method
from omfs_daemon.slurm.orders import Order


class StopMethod(Protocol):
    """One way. Jobs are seen as Slurm shows them now; orders may be given again after a crash."""

    traits: Method

    def stop(self, refs: Sequence[str]) -> list[Order]:
        """The orders that stop these running jobs."""

    def has_let_go(self, job: Job) -> bool:
        """Whether a job that was told to stop holds its CPUs no longer: the proof that the stop is done."""

    def keep_stopped(self, job: Job) -> list[Order]:
        """What is still to be ordered so that nobody but us brings the job back before its turn."""

    def bring_back(self, job: Job, cpus_free: bool) -> list[Order]:
        """What lets a stopped job have its turn again; [] when nothing is left to order."""
