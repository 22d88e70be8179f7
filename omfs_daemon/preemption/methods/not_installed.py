"""What stands for a method that is no longer installed, so that jobs which it stopped come back all the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from omfs_daemon.cluster.preempt_methods import Method
from omfs_daemon.cluster.preempt_methods import Pace
from omfs_daemon.preemption.methods.base import Action
from omfs_daemon.preemption.methods.base import Progress
from omfs_daemon.preemption.methods.base import Seen
from omfs_daemon.preemption.methods.base import StopMethod
from omfs_daemon.preemption.methods.requeue import Requeue
from omfs_daemon.preemption.methods.suspend import Suspend


class Missing(Requeue):
    """Stops nobody; lets a job go on however it was stopped."""

    traits = Method("missing", keeps_work=True, leaves=False)
    pace = Pace()

    def stop(self, jobs: Sequence[Seen]) -> list[Action]:
        return []

    def progress(self, seen: Seen) -> Progress:
        return Progress.FAILED if seen.job.runs else super().progress(seen)

    def why_failed(self, seen: Seen) -> str:
        return "the method is not installed"

    def bring_back(self, seen: Seen, cpus_free: bool) -> list[Action]:
        return [*super().bring_back(seen, cpus_free), *Suspend().bring_back(seen, cpus_free)]


_MISSING = Missing()


def method_of(methods: Mapping[str, StopMethod], name: str) -> StopMethod:
    """The method with that name, or what stands for it."""
    return methods.get(name, _MISSING)
