"""What is to become free; planner, validator, ranking and working state need it, not the search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from omfs_daemon.cluster.jobs import Request
from omfs_daemon.cluster.jobs import Share
from omfs_daemon.cluster.accounts import Entity
from omfs_daemon.policy.arrays.free_resources import Free
from omfs_daemon.policy.arrays.free_resources import Parcel
from omfs_daemon.policy.arrays.free_resources import has_place
from omfs_daemon.policy.arrays.free_resources import parcel
from omfs_daemon.policy.arrays.node_arrays import Ints
from omfs_daemon.policy.arrays.node_arrays import Machine
from omfs_daemon.policy.arrays.placement import place


class Need(NamedTuple):
    """What is to become free: ``request`` anywhere, or exactly ``shares``' CPUs for a suspended job.

    ``cpus``: the most that the job will come to hold; ``back``: generic resources per node that a suspended job gave
    up.
    """

    request: Request
    leaf: Entity
    cpus: int
    urgent: bool
    fixed: bool
    shares: tuple[Share, ...] = ()
    back: tuple[tuple[str, int], ...] = ()

    def place(self, free: Free, prefer: Free | None = None, only: Ints | None = None) -> tuple[Share, ...] | None:
        if self.shares:
            return self.shares if has_place(free, self.shares, self.back) else None
        return place(self.request, free, prefer, only)

    def parcel(self, machine: Machine, shares: Sequence[Share]) -> Parcel:
        """What the job takes there: a suspended one has all but its CPUs and what it gave up."""
        if self.shares:
            return parcel(machine, [share._replace(memory=0) for share in shares], self.back)
        return parcel(machine, shares, self.request.gres)
