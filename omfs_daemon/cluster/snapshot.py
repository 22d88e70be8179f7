"""The cluster at one instant, and what the daemon remembers besides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from omfs_daemon.cluster.jobs import Allocation, Job
from omfs_daemon.cluster.limits import SiteLimits
from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.cluster.preempt_methods import MethodTraits
from omfs_daemon.cluster.units import Units


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """What omfs-node found on a node: bytes that can still be moved out, by usable method."""

    room: Mapping[str, int] = field(default_factory=dict)


class RemainingTime(NamedTuple):
    """Seconds for which a running job is predicted to run still: as likely more as less than ``likely``, and with nine
    chances in ten at most ``at_most`` (its time limit where too little is known)."""

    likely: float
    at_most: float


class IdleMemory(NamedTuple):
    """Bytes of a node that no job had when Slurm was asked, and when that was."""

    bytes: int
    asked_at: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster at one instant; ``taken``: when Slurm was *queried*.

    Consecutive snapshots share unchanged ``Job`` and ``Node`` objects. ``facts``: by node name; ``sizes``: by raw job
    id and method, the most bytes that the method would move out of one of the job's nodes, where measured. ``units``:
    by raw id, of jobs on the nodes of suspended ones, as far as they could be read; None where CPUs are only counted.
    ``limits``: None where nothing but nodes keeps a job waiting (simulations). ``remaining``: by raw id, of running
    jobs, where victims are chosen by predictions; of others their time limits say it. ``asked``: by raw id, when Slurm
    was asked for single jobs later than ``taken``; ``idle_memory``: by name, of the nodes that it was asked for later.
    """

    taken: float
    jobs: Mapping[int, Job]
    nodes: Mapping[str, Node]
    partitions: Mapping[str, Partition]
    facts: Mapping[str, NodeRoom] = field(default_factory=dict)
    sizes: Mapping[tuple[int, str], int] = field(default_factory=dict)
    units: Mapping[int, Units] | None = None
    limits: SiteLimits | None = None
    remaining: Mapping[int, RemainingTime] = field(default_factory=dict)
    asked: Mapping[int, float] = field(default_factory=dict)
    idle_memory: Mapping[str, IdleMemory] = field(default_factory=dict)

    def with_jobs(self, taken: float, changed: Iterable[Job], removed: Iterable[int] = ()) -> Snapshot:
        """This snapshot with some jobs replaced or added, and others removed."""
        jobs = dict(self.jobs)
        for job in changed:
            jobs[job.id] = job
        for job_id in removed:
            jobs.pop(job_id, None)
        return replace(self, taken=taken, jobs=jobs)

    def without_nodes(self, names: Set[str]) -> Snapshot:
        """This snapshot with these nodes down."""
        nodes = {name: replace(node, up=False) if name in names else node for name, node in self.nodes.items()}
        return replace(self, nodes=nodes)


def with_whole_nodes(job: Job, nodes: Mapping[str, Node]) -> Job:
    """A job set aside takes the whole of its nodes, as far as it could not be read what it has there."""
    here = [nodes[name] for name in job.on_nodes if name in nodes]
    if not job.set_aside or not here:
        return job
    allocations = tuple(
        Allocation(node, nodes[node].cpus, nodes[node].memory) if not cpus and node in nodes else allocation
        for allocation in job.allocations
        for node, cpus, _ in [allocation]
    )
    request = job.request
    if not request.cpus:
        gres: dict[str, int] = {}
        for node in here:
            gres |= {name: max(count, gres.get(name, 0)) for name, count in node.gres}
        request = replace(request, gres=tuple(sorted(gres.items())))
    return replace(job, allocations=allocations, request=request)


@dataclass(frozen=True, slots=True)
class PreemptionUnderWay:
    """A preemption under way: nodes are being freed for a preemptor, which counts as running there already.

    Jobs are given by ``Job.ref``, which is stable for single jobs and single array tasks. ``methods``: by victim; a
    victim without one leaves its nodes.
    """

    preemptor: str
    account: str
    allocations: tuple[Allocation, ...]
    victims: frozenset[str]
    urgent: bool = False
    methods: Mapping[str, MethodTraits] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PreemptedJob:
    """A preempted job that does not run again yet.

    ``gres``: what it needs back on each of its nodes to resume.
    """

    at: float
    method: str
    preemptor: str
    gres: tuple[tuple[str, int], ...] = ()


class RealtimeRun(NamedTuple):
    """The last run of a real-time job that was seen: its number, and the seconds that the job waited before earlier
    runs, and before this one and those together."""

    restarts: int
    earlier: float
    waited: float


@dataclass(frozen=True, slots=True)
class PreemptionHistory:
    """What only the daemon knows, by ``Job.ref``; everything else is read from Slurm in every cycle.

    preempted         jobs that we preempted and that have not run again yet
    running_since     when we last resumed a job (otherwise its start time counts)
    preemption_times  when each job was preempted, for the limit on preemptions per job and hour
    preemption_counts how often each job was preempted in its life, for the quantum that grows with it
    backoff           preemptors that did not start although others were preempted, and until when not to try again
    shapes            shapes of jobs (``shape_of``, ``shape_of_user``) that Slurm did not start, and until when not to
                      try again
    users             users for whose jobs others were preempted, and which ended at once: until when not for another
    tried             by preemptor, the sets of victims that were preempted for it in vain
    spared            victims that could not be preempted, and until when not to try again
    failures          how often in a row a job could not be preempted
    set_apart         jobs that preempted each other by turns, and until when not to preempt them but for urgent jobs
    time_limits       time limits of real-time jobs (``limit_key``), the longest since each was first seen
    runs              of real-time jobs
    waits_since       when the wait of a job that we had requeued began, less the run time of which the work was kept
    under_way         preemptions under way
    """

    preempted: Mapping[str, PreemptedJob] = field(default_factory=dict)
    running_since: Mapping[str, float] = field(default_factory=dict)
    preemption_times: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    preemption_counts: Mapping[str, int] = field(default_factory=dict)
    backoff: Mapping[str, float] = field(default_factory=dict)
    shapes: Mapping[str, float] = field(default_factory=dict)
    users: Mapping[str, float] = field(default_factory=dict)
    tried: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    spared: Mapping[str, float] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)
    set_apart: Mapping[str, float] = field(default_factory=dict)
    time_limits: Mapping[str, float] = field(default_factory=dict)
    runs: Mapping[str, RealtimeRun] = field(default_factory=dict)
    waits_since: Mapping[str, float] = field(default_factory=dict)
    under_way: tuple[PreemptionUnderWay, ...] = ()


class NodeObservations(NamedTuple):
    """What omfs-node reported of nodes and jobs: ``facts`` and ``sizes`` of ``Snapshot``."""

    nodes: Mapping[str, NodeRoom] = {}
    sizes: Mapping[tuple[int, str], int] = {}
