"""A snapshot with its jobs by reference, as the preemption steps use it: no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from copy import copy
from functools import cached_property
from math import inf

from omfs_daemon.cluster.job_refs import first_task, task_ids_of
from omfs_daemon.cluster.jobs import Allocation, Job, JobState
from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.cluster.units import ResumeBlocks, resume_blocks
from omfs_daemon.preemption.methods.node_work import NodeWorkStatus


def _no_work(_ref: str) -> NodeWorkStatus | None:
    return None


class Observation:
    """An :class:`~omfs_daemon.preemption.progress.ObservedCluster`. ``work``: the latest work on a job's nodes;
    ``ended``: jobs that Slurm lists no longer and still remembers, by reference; ``answers``: Slurm's to questions, by
    preemption."""

    def __init__(
        self,
        snapshot: Snapshot,
        work: Callable[[str], NodeWorkStatus | None] = _no_work,
        ended: Mapping[str, Job] | None = None,
        answers: Mapping[int, str] | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.answers = answers or {}
        self.work = work
        self._ended = ended or {}
        self._by_ref: dict[str, Job] = {}
        for job in snapshot.jobs.values():
            self._by_ref[job.ref] = job
            if job.state is JobState.PENDING:
                for task in job.task_ids:
                    self._by_ref.setdefault(f"{job.array_id}_{task}", job)

    def with_jobs(self, changed: Iterable[Job]) -> Observation:
        """The same with these jobs as given."""
        return Observation(self.snapshot.with_jobs(self.snapshot.taken, changed), self.work, self._ended, self.answers)

    def without_nodes(self, names: Set[str]) -> Observation:
        """The same with these nodes down."""
        found = copy(self)
        found.snapshot = self.snapshot.without_nodes(names)
        return found

    def with_ended(self, ended: Mapping[str, Job]) -> Observation:
        found = copy(self)
        found._ended = ended
        return found

    def job(self, ref: str) -> Job | None:
        """The job; for tasks that are pending in their array, the array's record; for a list, the first one that is
        found."""
        found = self._by_ref.get(ref) or self._by_ref.get(first_task(ref))
        if found is None and "_[" in ref:
            array, _, listed = ref.partition("_")
            present = (self._by_ref.get(f"{array}_{task}") for task in sorted(task_ids_of(listed.strip("[]"))))
            return next((job for job in present if job is not None), None)
        return found

    def as_observed(self, numbers: Mapping[str, int]) -> dict[str, int]:
        """The same numbers by the references that the jobs have now: Slurm divides an array's record whenever something
        is done to some of its tasks."""
        lists = [ref for ref in numbers if "_[" in ref]
        if not lists:
            return dict(numbers)
        tasks: dict[tuple[int, int], int] = {}
        for ref in lists:
            array, _, listed = ref.partition("_")
            tasks |= dict.fromkeys(((int(array), task) for task in task_ids_of(listed.strip("[]"))), numbers[ref])
        found = {ref: number for ref, number in numbers.items() if "_[" not in ref}
        for job in self.snapshot.jobs.values():
            if job.array_id is not None and job.task_ids:
                number = tasks.get((job.array_id, job.task_ids[0]))
                if number is not None:
                    found[job.ref] = number
        return found

    def node(self, name: str) -> Node | None:
        return self.snapshot.nodes.get(name)

    def partition(self, name: str) -> Partition | None:
        return self.snapshot.partitions.get(name)

    def ended(self, ref: str) -> Job | None:
        return self._ended.get(ref)

    @cached_property
    def _blocks(self) -> ResumeBlocks:
        jobs = [job for job in self.snapshot.jobs.values() if job.state is not JobState.PENDING]
        suspended = [job for job in jobs if job.state is JobState.SUSPENDED]
        units = self.snapshot.units
        return ResumeBlocks() if units is None else resume_blocks(suspended, jobs, units, self.snapshot.taken)

    def has_free(self, allocations: Iterable[Allocation]) -> bool:
        """Whether these CPUs and this memory are free, as far as the jobs of their nodes tell."""
        nodes, cpus, memory = self.snapshot.nodes, Counter[str](), Counter[str]()
        for job in self.snapshot.jobs.values():
            for allocation in job.allocations:
                cpus[allocation.node] += allocation.cpus if job.holds_cpus else 0
                memory[allocation.node] += allocation.memory
        return all(
            node in nodes and nodes[node].cpus - cpus[node] >= wanted and nodes[node].memory - memory[node] >= size
            for node, wanted, size in allocations
        )

    @cached_property
    def _in_use(self) -> Counter[str]:
        return _cpus_by_node(job for job in self.snapshot.jobs.values() if job.runs)

    def taken_by(
        self, allocations: Sequence[Allocation], leaving: Sequence[Job], since: float, until: float = inf
    ) -> list[str]:
        """Jobs that have started since then, no later than ``until``, and have CPUs that these allocations lack once
        ``leaving`` have left."""
        nodes, given = self.snapshot.nodes, _cpus_by_node(job for job in leaving if job.runs)
        lacking = {
            node
            for node, wanted, _ in allocations
            if node in nodes and nodes[node].cpus - self._in_use[node] + given[node] < wanted
        }
        if not lacking:
            return []
        kept = {job.ref for job in leaving}
        running = (job for job in self.snapshot.jobs.values() if job.runs)
        started = (job for job in running if int(since) <= (job.start or 0.0) <= until)
        return sorted(job.ref for job in started if job.ref not in kept and not lacking.isdisjoint(job.on_nodes))

    def in_the_way(self, job: Job) -> set[str]:
        """Jobs that have CPUs or devices of this suspended job now, or may have some."""
        found = (self.snapshot.jobs[number] for number, blocked in self._blocks.by_job.items() if job.ref in blocked)
        return {other.ref for other in found if other.holds_cpus}

    def fit_together(self, jobs: Sequence[Job]) -> set[str]:
        """Which of these suspended jobs could be resumed together on idle CPUs of their own, in the given order."""
        taken = _cpus_by_node(job for job in self.snapshot.jobs.values() if job.holds_cpus)
        free = {name: node.cpus - taken[name] for name, node in self.snapshot.nodes.items() if node.works}
        fitting: set[str] = set()
        blocked: set[str] = set()
        for job in jobs:
            has_room = all(free.get(allocation.node, 0) >= allocation.cpus for allocation in job.allocations)
            if has_room and job.ref not in blocked and not self.in_the_way(job):
                fitting.add(job.ref)
                blocked |= self._blocks.by_job.get(job.id, frozenset())
                for allocation in job.allocations:
                    free[allocation.node] -= allocation.cpus
        return fitting

    def sharing(self, job: Job) -> set[str]:
        """Other jobs that run on CPUs or devices of this running job, as far as these could be read."""
        units = self.snapshot.units or {}
        mine = units.get(job.id, frozenset())
        others = (self.snapshot.jobs.get(number) for number, theirs in units.items() if not mine.isdisjoint(theirs))
        return {other.ref for other in others if other is not None and other.runs and other.id != job.id}

    def overcommitted(self) -> set[str]:
        """Nodes with more CPUs in use than they have, as after a resume over busy CPUs."""
        running = _cpus_by_node(job for job in self.snapshot.jobs.values() if job.runs)
        nodes = self.snapshot.nodes
        return {name for name, cpus in running.items() if name in nodes and cpus > nodes[name].cpus}


def _cpus_by_node(jobs: Iterable[Job]) -> Counter[str]:
    held: Counter[str] = Counter()
    for job in jobs:
        for allocation in job.allocations:
            held[allocation.node] += allocation.cpus
    return held
