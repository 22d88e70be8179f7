"""Whether Slurm would start a waiting job on nodes that are freed for it, as far as one observation tells.

The order is that of the rules in docs/policy.md; the first that says no decides, and yes is certain only if none of
them is in doubt. Each was measured on a real Slurm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from omfs_daemon.cluster.het_jobs import as_parts
from omfs_daemon.cluster.jobs import Allocation, Job, JobState
from omfs_daemon.cluster.limits import SiteLimits
from omfs_daemon.cluster.nodes import Partition
from omfs_daemon.cluster.snapshot import PreemptionHistory
from omfs_daemon.policy.arrays.free_resources import FreeResources, all_resources
from omfs_daemon.policy.arrays.placement import place
from omfs_daemon.policy.arrays.snapshot_arrays import SnapshotArrays
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.policy.start_checks.answer import YES, Answer, AnswerKind
from omfs_daemon.policy.start_checks.limit_rules import limit_answers, no, unknown
from omfs_daemon.policy.start_checks.limit_use import Amounts, LimitUse, amounts_of
from omfs_daemon.policy.start_checks.other_jobs import OtherJobs
from omfs_daemon.policy.start_checks.partition_rules import of_licenses, of_partition

_CANNOT_RUN = "BadConstraints"


class LeavingVictim(NamedTuple):
    """A victim, and whether it gives up what it uses of limits: one that is suspended does not."""

    job: Job
    leaves: bool


def leaving_victims(chosen: Iterable[tuple[Job, str]], rules: Rules) -> list[LeavingVictim]:
    """Of victims and the methods by which they are preempted."""
    return [LeavingVictim(job, rules.method(method).leaves) for job, method in chosen]


class StartChecks:
    """The answers for the jobs of one snapshot, while starts are planned one after the other.

    Without limits in the snapshot (simulations) there is nothing to check.
    """

    def __init__(self, arrays: SnapshotArrays, history: PreemptionHistory, now: float) -> None:
        self._arrays, self._now = arrays, now
        self._limits = arrays.limits
        self._others = OtherJobs(arrays)
        self._use: LimitUse | None = None
        self._empty: FreeResources | None = None
        self._known: dict[tuple[object, ...], Answer] = {}
        self._hopeless: dict[tuple[object, ...], Answer] = {}
        self._starting = Counter(one.preemptor.partition("_")[0] for one in history.under_way if "_" in one.preemptor)

    @property
    def is_on(self) -> bool:
        return self._limits is not None

    def answer(self, job: Job, allocations: Sequence[Allocation] = (), victims: Sequence[LeavingVictim] = ()) -> Answer:
        """Whether Slurm would start it on these nodes once the victims have let go; without nodes, on any."""
        if self._limits is None or job.state is not JobState.PENDING:
            return YES
        if allocations:
            return self._on_nodes(self._limits, job, allocations, victims)
        key = _key(job)
        if key not in self._known:
            self._known[key] = self._best(self._limits, job, (), self._used(self._limits))
        return self._known[key]

    def for_good(self, job: Job) -> Answer:
        """As ``answer``; a no only if Slurm would not start it whoever were preempted."""
        answer = self.answer(job)
        if self._limits is None or answer.kind is not AnswerKind.NO:
            return answer
        key = _key(job)
        if key not in self._hopeless:
            nobody_runs = LimitUse((), self._limits, self._arrays.partitions)
            self._hopeless[key] = self._best(self._limits, job, (), nobody_runs)
        return self._hopeless[key]

    def count(self, job: Job, allocations: Sequence[Allocation], victims: Iterable[LeavingVictim] = ()) -> None:
        """The job will run there, and the victims will have let go."""
        if self._limits is None:
            return
        use = self._used(self._limits)
        for victim in victims:
            if victim.leaves:
                use.leave(victim.job)
        if job.state is JobState.PENDING:
            use.add(job, self._partitions(job, allocations)[0].name, amounts_of(allocations, job.licenses))
            self._starting[str(job.array_id)] += 1
        self._known.clear()
        self._hopeless.clear()

    # -- the rules ----------------------------------------------------------------------------------------
    def _on_nodes(
        self, limits: SiteLimits, job: Job, allocations: Sequence[Allocation], victims: Sequence[LeavingVictim]
    ) -> Answer:
        use, leaving = self._used(limits), [victim.job for victim in victims if victim.leaves]
        for one in leaving:
            use.leave(one)
        try:
            return self._best(limits, job, allocations, use, {victim.job.id for victim in victims})
        finally:
            for one in leaving:
                use.come_back(one)

    def _best(
        self,
        limits: SiteLimits,
        job: Job,
        allocations: Sequence[Allocation],
        use: LimitUse,
        victims: Collection[int] = (),
    ) -> Answer:
        """Of a job in several partitions, that of the most favorable one that has the nodes; of a heterogeneous job,
        that of its least favorable part."""
        order = (AnswerKind.YES, AnswerKind.UNKNOWN, AnswerKind.NO)
        if job.parts:
            each = [self._best(limits, part, (), use, victims) for part in as_parts(job)]
            return max([*each, self._of_all_parts(job)], key=lambda answer: order.index(answer.kind))
        found = [
            _decided(self._answers(limits, job, partition, allocations, use, victims))
            for partition in self._partitions(job, allocations)
        ]
        return min(found, key=lambda answer: order.index(answer.kind))

    def _of_all_parts(self, job: Job) -> Answer:
        """Slurm refuses a part that fits nowhere, but not parts that have too few nodes for all of them."""
        if self._empty is None:
            self._empty = all_resources(self._arrays.node_arrays)
        if place(job.request, self._empty) is None:
            return no("Resources", "its parts, each on nodes of its own, do not fit on all nodes that are up")
        return YES

    def _answers(
        self,
        limits: SiteLimits,
        job: Job,
        partition: Partition,
        allocations: Sequence[Allocation],
        use: LimitUse,
        victims: Collection[int],
    ) -> Iterator[Answer]:
        yield from self._of_job(job, limits)
        yield from of_partition(job, partition, limits)
        need = amounts_of(allocations, job.licenses) if allocations else _least(job)
        yield from limit_answers(job, partition, need, use, limits)
        yield from of_licenses(job, limits, use)
        if allocations:
            nodes = frozenset(allocation.node for allocation in allocations)
            yield from self._of_nodes(job, partition, nodes, victims)

    def _of_job(self, job: Job, limits: SiteLimits) -> Iterator[Answer]:
        if job.reason.startswith(_CANNOT_RUN):
            yield no(_CANNOT_RUN, "no nodes that it may use have what it requests")
        if job.eligible is not None and job.eligible > self._now:
            is_dependent = job.eligible == float("inf")
            yield no("Dependency", "it waits for other jobs") if is_dependent else no("BeginTime", "it begins later")
        if job.singleton and (other := self._others.peer(job)):
            yield no("Dependency", f"job {other} of the same user and name began before it (singleton)")
        if job.array_throttle and self._others.tasks(job) + self._starting[str(job.array_id)] >= job.array_throttle:
            yield no("JobArrayTaskLimit", f"{job.array_throttle} tasks of its array may run at a time, and do")
        required, nodes = job.request.required_nodes, self._arrays.nodes
        if doubted := required & job.doubted:
            yield no("Resources", f"Slurm did not start a job that requests the same on {', '.join(sorted(doubted))}")
        elif reserved := required & job.request.excluded_nodes:
            yield no("ReqNodeNotAvail", f"{', '.join(sorted(reserved))} are reserved for others before it would end")
        elif down := sorted(name for name in required if name in nodes and not nodes[name].up):
            yield no("ReqNodeNotAvail", f"it requires {', '.join(down)}, where Slurm starts nothing now")
        if not job.reservation:
            return
        if limits.reservations is None:
            yield unknown("the reservations cannot be read")
            return
        mine = [one for one in limits.reservations if one.name in job.reservation.split(",")]
        if not any(one.is_active(self._now) for one in mine):
            yield no("Reservation", f"its reservation {job.reservation} is not active")
        else:
            yield unknown(f"it uses the reservation {job.reservation}")

    def _of_nodes(
        self, job: Job, partition: Partition, nodes: frozenset[str], victims: Collection[int]
    ) -> Iterator[Answer]:
        others = self._others.jobs if job.exclusive_user or partition.exclusive_user else self._others.alone
        for other in others:
            if other.uid != job.uid and other.id not in victims and not nodes.isdisjoint(other.on_nodes):
                where = ", ".join(sorted(nodes.intersection(other.on_nodes)))
                yield no("Resources", f"job {other.ref} of another user stays on {where} (exclusive=user)")
                break
        if partition.allow_groups is not None:
            yield unknown(f"whether its user is in a group that partition {partition.name} allows is not known")
        for tier, wanted, other in self._others.of_higher_tiers(self._now):
            if tier > partition.priority_tier and not nodes.isdisjoint(wanted) and other.id != job.id:
                yield unknown(f"job {other.ref} waits in a partition of a higher tier that has its nodes")
                break

    def _partitions(self, job: Job, allocations: Sequence[Allocation]) -> list[Partition]:
        known = self._arrays.partitions
        nodes = {allocation.node for allocation in allocations}
        mine = [known[name] for name in job.request.partitions or (job.partition,) if name in known]
        here = [partition for partition in mine if nodes <= partition.nodes]
        return here or mine or [Partition(job.partition)]

    def _used(self, limits: SiteLimits) -> LimitUse:
        if self._use is None:
            arrays = self._arrays.job_arrays
            self._use = LimitUse([*self._others.jobs, *arrays.completing], limits, self._arrays.partitions)
        return self._use


def _least(job: Job) -> Amounts:
    """What it needs at the least, wherever it runs."""
    request = job.request
    memory = max(request.memory_per_cpu * request.cpus, request.memory_per_node * request.nodes)
    found = amounts_of((), job.licenses)
    found.update({"cpu": request.cpus, "mem": memory, "node": request.nodes})
    return found


def _key(job: Job) -> tuple[object, ...]:
    """Jobs with the same key get the same answer."""
    eligible = job.eligible is not None and job.eligible
    array = job.array_id if job.array_throttle else None
    single = (job.id, job.name) if job.singleton else None
    return (
        *(job.account, job.user, job.qos, job.request, job.time_limit, job.licenses, job.reservation, eligible),
        *(array, single, job.reason.startswith(_CANNOT_RUN)),
    )


def _decided(answers: Iterable[Answer]) -> Answer:
    """The first no; else the first doubt; else yes."""
    doubt: Answer | None = None
    for answer in answers:
        if answer.kind is AnswerKind.NO:
            return answer
        doubt = doubt or answer
    return doubt or YES
