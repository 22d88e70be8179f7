"""A simulated workload as the daemon would observe it: nodes, jobs as in Slurm, rules with classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from omfs_daemon.cluster.jobs import Allocation, Hold, Job, JobRequest, JobState
from omfs_daemon.cluster.marks import MarkWord, numbered_mark
from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.cluster.snapshot import RemainingTime, Snapshot
from omfs_daemon.policy.arrays.snapshot_arrays import SnapshotArrays
from omfs_daemon.policy.rules.classes import JobClassRule, Rules
from omfs_daemon.preemption.methods.registry import BUILT_IN_TRAITS
from omfs_daemon.simulate.engine.omfs_case import OmfsCase
from omfs_daemon.simulate.engine.scenario import Scenario

PARTITION = "main"
_HELD, _RELEASED = numbered_mark(MarkWord.HELD, 1), numbered_mark(MarkWord.RELEASED, 2)
CLASSES = (
    JobClassRule("urgent", qos=frozenset({"urgent"}), urgent=True),
    JobClassRule("non-preemptible", qos=frozenset({"non-preemptible"})),
    JobClassRule("requeue", qos=frozenset({"requeue"}), methods=("requeue",), default=("requeue",)),
    JobClassRule("suspend", qos=frozenset({"suspend"}), methods=("suspend",), default=("suspend",)),
)
"""The workload itself defines which jobs are urgent and how each can be preempted; here its QOS says so."""


class Cluster:
    """The jobs in the system, by index into the workload (Slurm's job ID is one more), and each node's idle CPUs."""

    def __init__(self, scenario: Scenario, case: OmfsCase) -> None:
        self.scenario, self.case = scenario, case
        learns = scenario.conventions.learning is not None
        self._limits = scenario.workload.limit if learns else case.jobs.estimate
        # Of the live rules, those of the published algorithm alone: the kernels have no others.
        self.rules: Rules = replace(
            scenario.rules,
            classes=CLASSES,
            methods=BUILT_IN_TRAITS,
            keeps_account_order=False,
            own_jobs_give_way=False,
            fair_set_searches=0,
            leaves_ending=False,
        )
        machine = scenario.machine
        count = machine.nodes or 1
        self._per_node = machine.cpus // count
        names = [f"n{i}" for i in range(count)]
        self.idle = dict.fromkeys(names, self._per_node)
        nodes = {name: Node(name, self._per_node, 0, partitions=(PARTITION,)) for name in names}
        self.snapshot = Snapshot(0.0, {}, nodes, {PARTITION: Partition(PARTITION, frozenset(names))})
        self.arrays = SnapshotArrays(self.snapshot)
        self.jobs: dict[int, Job] = {}
        self._changed: dict[int, Job] = {}
        self._gone: list[int] = []
        self._requests: dict[int, JobRequest] = {}
        # Jobs that count at one leaf are alike, whatever their accounts are called.
        leaves = {name: self.rules.tree.leaf(name).index for name in reversed(scenario.workload.accounts)}
        self._account_at = {leaf: name for name, leaf in leaves.items()}

    # -- jobs come, change and go ---------------------------------------------------------------------------
    def arrive(self, index: int) -> None:
        self._put(index, self.waiting_job(index))

    def waiting_job(self, index: int) -> Job:
        """The job as it comes."""
        workload, case = self.scenario.workload, self.case
        if workload.urgent[index]:
            qos = "urgent"
        elif case.non_preemptible[index]:
            qos = "non-preemptible"
        else:
            qos = "suspend" if case.costs.pinned[index] else "requeue"
        return Job(
            id=index + 1,
            ref=str(index + 1),
            user="",
            uid=0,
            account=self._account_at[int(case.leaf[index])],
            state=JobState.PENDING,
            request=self._request(int(workload.cpus[index])),
            submit=float(workload.submit[index]),
            qos=qos,
            priority=1,
            time_limit=float(self._limits[index]),
        )

    def run(self, index: int, allocations: tuple[Allocation, ...], now: float) -> None:
        """The job starts or resumes there; a suspended job keeps its start time, as in Slurm."""
        job = self.jobs[index]
        start = job.start if job.state is JobState.SUSPENDED else now
        self._occupy(allocations, +1)
        self._change(
            index,
            state=JobState.RUNNING,
            allocations=allocations,
            start=start,
            partition=PARTITION,
            hold=Hold.NONE,
            priority=1,
            admin_comment="",
        )

    def preempt(self, index: int) -> None:
        """The job is preempted and waits."""
        job = self.jobs[index]
        self._occupy(job.allocations, -1)
        if self.case.costs.pinned[index]:
            self._change(index, state=JobState.SUSPENDED)
        else:
            hold = Hold.ADMIN if job.priority == 0 else Hold.NONE
            self._change(index, state=JobState.PENDING, allocations=(), start=None, partition="", hold=hold)

    def leave(self, index: int) -> None:
        self._occupy(self.jobs[index].allocations, -1)
        del self.jobs[index]
        self._changed.pop(index, None)
        self._gone.append(index + 1)

    def hold(self, index: int) -> None:
        """A running job runs on, and waits once it is preempted."""
        hold = Hold.ADMIN if self.jobs[index].state is JobState.PENDING else Hold.NONE
        self._change(index, hold=hold, priority=0, admin_comment=_HELD)

    def release(self, index: int) -> None:
        self._change(index, hold=Hold.NONE, priority=1, admin_comment=_RELEASED)

    def mark(self, index: int, word: MarkWord) -> None:
        self._change(index, admin_comment=numbered_mark(word, 1))

    def has_run(self, index: int, seconds: float) -> None:
        self._change(index, run_time=seconds)

    def will_run(self, remaining: Mapping[int, float]) -> None:
        """How long running jobs are predicted to run still, in seconds, by index."""
        foreseen = {index + 1: RemainingTime(seconds, seconds) for index, seconds in remaining.items()}
        self.snapshot = replace(self.snapshot, remaining=foreseen)

    # -- the snapshot ------------------------------------------------------------------------------------------
    def observe(self, now: float) -> tuple[Snapshot, SnapshotArrays]:
        self.snapshot = self.snapshot.with_jobs(now, self._changed.values(), self._gone)
        self.arrays = SnapshotArrays(self.snapshot, self.arrays)
        self._changed, self._gone = {}, []
        return self.snapshot, self.arrays

    def is_idle(self, allocations: tuple[Allocation, ...]) -> bool:
        return all(self.idle[allocation.node] >= allocation.cpus for allocation in allocations)

    def _request(self, cpus: int) -> JobRequest:
        """Equal requests are one object, as the parsers make them."""
        known = self._requests.get(cpus)
        if known is None:
            if self.scenario.machine.nodes:
                count = -(-cpus // self._per_node)
                known = JobRequest(cpus, nodes=count, max_nodes=count, exclusive=True, partitions=(PARTITION,))
            else:
                known = JobRequest(cpus, nodes=1, max_nodes=1, partitions=(PARTITION,))
            self._requests[cpus] = known
        return known

    def _occupy(self, allocations: tuple[Allocation, ...], sign: int) -> None:
        for allocation in allocations:
            self.idle[allocation.node] -= sign * allocation.cpus

    def _change(self, index: int, **fields: object) -> None:
        self._put(index, replace(self.jobs[index], **fields))  # type: ignore[arg-type]

    def _put(self, index: int, job: Job) -> None:
        self.jobs[index] = self._changed[index] = job
