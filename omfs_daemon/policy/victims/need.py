"""The resources that a job needs to start or to resume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from omfs_daemon.cluster.accounts import AccountNode
from omfs_daemon.cluster.jobs import Allocation, JobRequest
from omfs_daemon.policy.arrays.free_resources import FreeResources, JobResources, has_place, job_resources, of_parts
from omfs_daemon.policy.arrays.node_arrays import Ints, NodeArrays
from omfs_daemon.policy.arrays.part_placement import divided
from omfs_daemon.policy.arrays.placement import place
from omfs_daemon.policy.rules.realtime_terms import RealtimeTerms
from omfs_daemon.policy.victims.remaining_times import RemainingTimes


class VictimChoice(NamedTuple):
    """The victims (indices of candidates) with their methods, and where the preemptor then fits."""

    victims: tuple[tuple[int, str], ...]
    allocations: tuple[Allocation, ...]


class RealtimeNeed(NamedTuple):
    """Of a real-time job that is due: whose slowdown bounds it, on a machine of how many CPUs, and when;
    ``waits_since``: as in ``PreemptionHistory``; ``remaining``: how long victims would run still."""

    terms: RealtimeTerms
    machine_cpus: int
    now: float
    waits_since: Mapping[str, float] = {}
    remaining: RemainingTimes = RemainingTimes({})


class ResourceNeed(NamedTuple):
    """What a job needs: its ``request`` on any nodes, or exactly its ``allocations`` if it is suspended.

    ``cpus``: the most that it may be allocated. ``own_since``: jobs of its own account that were submitted later give
    way to it (inf: none). Of a suspended job: ``given_up``: the generic resources per node that
    it gave up; ``ref``: its reference; ``blocks``: other suspended jobs that cannot be resumed while it runs.
    ``realtime``: None but of a real-time job that is due.
    """

    request: JobRequest
    leaf: AccountNode
    cpus: int
    urgent: bool
    non_preemptible: bool
    own_since: float = inf
    allocations: tuple[Allocation, ...] = ()
    given_up: tuple[tuple[str, int], ...] = ()
    ref: str = ""
    blocks: frozenset[str] = frozenset()
    realtime: RealtimeNeed | None = None

    def place(
        self, free: FreeResources, prefer: FreeResources | None = None, only: Ints | None = None
    ) -> tuple[Allocation, ...] | None:
        if self.allocations:
            return self.allocations if has_place(free, self.ref, self.allocations, self.given_up) else None
        return place(self.request, free, prefer, only)

    def resources(self, node_arrays: NodeArrays, allocations: Sequence[Allocation]) -> JobResources:
        """What the job takes there; a suspended job already has all but its CPUs and what it gave up."""
        if self.allocations:
            here = [allocation._replace(memory=0) for allocation in allocations]
            return job_resources(node_arrays, here, self.given_up, self.blocks)
        parts = divided(self.request.parts, allocations, node_arrays) if self.request.parts else None
        if parts is not None:
            return of_parts(node_arrays, ((given, part.gres) for part, given in parts))
        return job_resources(node_arrays, allocations, self.request.gres)
