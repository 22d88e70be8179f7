"""A simulated workload as the daemon would see it: nodes, jobs as Slurm shows them, rules with classes."""

from __future__ import annotations

from dataclasses import replace

from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.jobs import Request
from omfs_daemon.cluster.jobs import Share
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.cluster.nodes import Partition
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.cluster.holds import OUR_MARK
from omfs_daemon.policy.rules.classes import ClassRule
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.policy.arrays.snapshot_arrays import Scene
from omfs_daemon.simulate.engine.omfs_case import Case
from omfs_daemon.simulate.engine.scenario import Setting

PARTITION = "main"
CLASSES = (
    ClassRule("urgent", qos=frozenset({"urgent"}), urgent=True),
    ClassRule("fixed", qos=frozenset({"fixed"})),
    ClassRule("requeue", qos=frozenset({"requeue"}), methods=("requeue",), default=("requeue",)),
    ClassRule("suspend", qos=frozenset({"suspend"}), methods=("suspend",), default=("suspend",)),
)
"""A workload says itself who is urgent and how a job can be stopped; here that is its QOS."""


class Cluster:
    """The jobs that are there, by index into the workload (Slurm's id is one more), and what is idle on each node."""

    def __init__(self, setting: Setting, case: Case) -> None:
        self.setting, self.case = setting, case
        self.rules: Rules = replace(setting.rules, classes=CLASSES)
        machine = setting.machine
        count = machine.nodes or 1
        self._per_node = machine.cpus // count
        names = [f"n{i}" for i in range(count)]
        self.idle = dict.fromkeys(names, self._per_node)
        nodes = {name: Node(name, self._per_node, 0, partitions=(PARTITION,)) for name in names}
        self.snapshot = Snapshot(0.0, {}, nodes, {PARTITION: Partition(PARTITION, frozenset(names))})
        self.scene = Scene(self.snapshot)
        self.jobs: dict[int, Job] = {}
        self._changed: dict[int, Job] = {}
        self._gone: list[int] = []
        self._requests: dict[int, Request] = {}
        # Jobs that count at one leaf are alike, whatever their accounts are called.
        leaves = {name: self.rules.tree.leaf(name).index for name in reversed(setting.workload.accounts)}
        self._account_at = {leaf: name for name, leaf in leaves.items()}

    # -- jobs come, change and go ---------------------------------------------------------------------------
    def arrive(self, index: int) -> None:
        workload, case = self.setting.workload, self.case
        if workload.urgent[index]:
            qos = "urgent"
        elif case.fixed[index]:
            qos = "fixed"
        else:
            qos = "suspend" if case.costs.pinned[index] else "requeue"
        self._put(
            index,
            Job(
                id=index + 1,
                ref=str(index + 1),
                user="",
                uid=0,
                account=self._account_at[int(case.leaf[index])],
                state=JobState.PENDING,
                request=self._request(int(workload.cpus[index])),
                submit=float(workload.submit[index]),
                qos=qos,
                time_limit=float(case.jobs.estimate[index]),
            ),
        )

    def run(self, index: int, shares: tuple[Share, ...], now: float) -> None:
        """It starts or runs on there; Slurm keeps a suspended job's start."""
        job = self.jobs[index]
        start = job.start if job.state is JobState.SUSPENDED else now
        self._occupy(shares, +1)
        self._change(index, state=JobState.RUNNING, shares=shares, start=start, partition=PARTITION, hold=Hold.NONE)

    def put_back(self, index: int) -> None:
        """It is stopped, and waits."""
        job = self.jobs[index]
        self._occupy(job.shares, -1)
        if self.case.costs.pinned[index]:
            self._change(index, state=JobState.SUSPENDED)
        else:
            self._change(index, state=JobState.PENDING, shares=(), start=None, partition="")

    def leave(self, index: int) -> None:
        self._occupy(self.jobs[index].shares, -1)
        del self.jobs[index]
        self._changed.pop(index, None)
        self._gone.append(index + 1)

    def hold(self, index: int) -> None:
        self._change(index, hold=Hold.ADMIN, admin_comment=f"{OUR_MARK}gate")

    def release(self, index: int) -> None:
        self._change(index, hold=Hold.NONE)

    def has_run(self, index: int, seconds: float) -> None:
        self._change(index, run_time=seconds)

    # -- the picture ------------------------------------------------------------------------------------------
    def look(self, now: float) -> tuple[Snapshot, Scene]:
        self.snapshot = self.snapshot.with_jobs(now, self._changed.values(), self._gone)
        self.scene = Scene(self.snapshot, self.scene)
        self._changed, self._gone = {}, []
        return self.snapshot, self.scene

    def is_idle(self, shares: tuple[Share, ...]) -> bool:
        return all(self.idle[share.node] >= share.cpus for share in shares)

    def _request(self, cpus: int) -> Request:
        """Equal requests are one object, as the parsers make them."""
        known = self._requests.get(cpus)
        if known is None:
            if self.setting.machine.nodes:
                count = -(-cpus // self._per_node)
                known = Request(cpus, nodes=count, max_nodes=count, exclusive=True, partitions=(PARTITION,))
            else:
                known = Request(cpus, nodes=1, max_nodes=1, partitions=(PARTITION,))
            self._requests[cpus] = known
        return known

    def _occupy(self, shares: tuple[Share, ...], sign: int) -> None:
        for share in shares:
            self.idle[share.node] -= sign * share.cpus

    def _change(self, index: int, **fields: object) -> None:
        self._put(index, replace(self.jobs[index], **fields))  # type: ignore[arg-type]

    def _put(self, index: int, job: Job) -> None:
        self.jobs[index] = self._changed[index] = job
