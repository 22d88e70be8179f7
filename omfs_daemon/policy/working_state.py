"""Free resources and usage, updated with each decision of the planner or the validator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from omfs_daemon.cluster.jobs import Allocation, Job, JobState
from omfs_daemon.cluster.snapshot import PreemptionHistory
from omfs_daemon.policy.arrays.capacity import Capacity, size_of
from omfs_daemon.policy.arrays.free_resources import freed_resources
from omfs_daemon.policy.arrays.job_arrays import JobArrays, cpus_held
from omfs_daemon.policy.arrays.snapshot_arrays import SnapshotArrays
from omfs_daemon.policy.arrays.usage import Usage, count_running
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.policy.rules.job_kinds import JobKind, JobKinds
from omfs_daemon.policy.victims.candidates import Candidates
from omfs_daemon.policy.victims.method_availability import SETTLES, MethodAvailability
from omfs_daemon.policy.victims.need import ResourceNeed
from omfs_daemon.policy.victims.remaining_times import RemainingTimes


class WorkingState:
    """Capacity and usage of a snapshot and the preemptions under way, updated decision by decision."""

    def __init__(self, arrays: SnapshotArrays, history: PreemptionHistory, rules: Rules) -> None:
        self.history = history
        self.job_arrays = arrays.job_arrays
        self.rules = rules
        self.kinds = JobKinds(rules)
        just_resumed = {ref for ref, at in history.running_since.items() if arrays.taken - at < SETTLES}
        self.remaining = RemainingTimes(arrays.remaining)
        self.availability = MethodAvailability(rules, arrays.facts, arrays.sizes, just_resumed, self.remaining)
        self.availability.take(_being_moved(self.job_arrays, history))
        self.capacity, self.blocks = Capacity(arrays, history), arrays.blocks
        self.node_arrays = self.capacity.node_arrays
        scope = rules.scope.nodes(arrays.partitions)
        self.usage = Usage(rules.tree, size_of(self.node_arrays, self.job_arrays, scope))
        count_running(self.usage, self.job_arrays, history, self.kinds)

    def need_of(self, job: Job) -> ResourceNeed:
        """What a waiting or suspended job needs to run."""
        kind = self.kinds.of(job)
        suspended = job.state is JobState.SUSPENDED
        preempted = self.history.preempted.get(job.ref) if suspended else None
        return ResourceNeed(
            request=job.request,
            leaf=kind.leaf,
            cpus=cpus_held(job) if suspended else self.capacity.cpus_of(job.request),
            urgent=kind.job_class.urgent,
            non_preemptible=kind.non_preemptible,
            own_since=self._own_since(job, kind),
            allocations=job.allocations if suspended else (),
            given_up=preempted.gres if preempted else (),
            ref=job.ref if suspended else "",
            blocks=self.blocks.by_job.get(job.id, frozenset()) if suspended else frozenset(),
        )

    def _own_since(self, job: Job, kind: JobKind) -> float:
        """An account's preemptible jobs give way to its non-preemptible ones, and those submitted later to a suspended
        one, which can run on its own CPUs only."""
        if not self.rules.own_jobs_give_way or kind.job_class.urgent or kind.leaf.is_others:
            return inf
        if job.state is JobState.SUSPENDED:
            return job.submit
        return -inf if kind.non_preemptible else inf

    def candidates(self, now: float) -> Candidates:
        """The jobs that may be preempted."""
        return Candidates(
            self.job_arrays, self.node_arrays, self.kinds, self.availability, self.history, now, self.blocks
        )

    def start(self, need: ResourceNeed, allocations: tuple[Allocation, ...], add_non_preemptible: bool) -> None:
        """The job starts on idle CPUs."""
        self.capacity.take_now(need.resources(self.node_arrays, allocations))
        self._count(need, allocations, add_non_preemptible)

    def promise(self, need: ResourceNeed, allocations: tuple[Allocation, ...], add_non_preemptible: bool) -> None:
        """The job will start on CPUs that are being freed."""
        resources = need.resources(self.node_arrays, allocations)
        if not need.allocations:
            resources = resources._replace(blocks=self.capacity.blocked_by_start(allocations))
        self.capacity.take_later(resources)
        self._count(need, allocations, add_non_preemptible)

    def preempt(self, victims: Sequence[tuple[Job, str]]) -> None:
        """These jobs will free their resources."""
        self.availability.take(victims)
        for job, method in victims:
            self.usage.remove(self.kinds.of(job).leaf, cpus_held(job))
            self.capacity.give_later(freed_resources(self.node_arrays, job, self.rules.method(method), self.blocks))

    def _count(self, need: ResourceNeed, allocations: tuple[Allocation, ...], add_non_preemptible: bool) -> None:
        cpus = sum(allocation.cpus for allocation in allocations)
        self.usage.add(need.leaf, cpus)
        if need.non_preemptible and add_non_preemptible:
            self.usage.add_non_preemptible(need.leaf, cpus)


def _being_moved(job_arrays: JobArrays, history: PreemptionHistory) -> Iterator[tuple[Job, str]]:
    """Victims under way whose memory is not moved out yet, so that nodes do not report its room as taken."""
    methods = {
        ref: method.name
        for commitment in history.under_way
        for ref, method in commitment.methods.items()
        if method.on_nodes
    }
    return ((job, methods[ref]) for ref, job in job_arrays.find(methods).items() if job.runs)
