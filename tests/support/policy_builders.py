"""Builders of jobs, nodes, and snapshots for tests of the policy, and a small executor that applies plans.

Memory is in GB here, times in seconds; snapshots are taken at ``NOW`` by default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from omfs_daemon.cluster.accounts import AccountTree, Entitlement
from omfs_daemon.cluster.jobs import Allocation, Hold, Job, JobRequest, JobState
from omfs_daemon.cluster.marks import SUBMIT_MARK
from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.cluster.snapshot import PreemptedJob, PreemptionHistory, PreemptionUnderWay, Snapshot
from omfs_daemon.policy.plan import Plan
from omfs_daemon.policy.planner import make_plan
from omfs_daemon.policy.rules.classes import REGULAR, JobClassRule, Rules
from omfs_daemon.policy.validator import Conditions, Verdict, validate
from omfs_daemon.preemption.methods.registry import BUILT_IN_TRAITS

NOW = 100_000.0
GB = 1 << 30
FRESH = Conditions(max_age=60.0)

CLASSES = (
    JobClassRule("urgent", qos=frozenset({"urgent"}), urgent=True),
    JobClassRule("regular", methods=("requeue", "suspend")),
)


def tree(**percents: float) -> AccountTree:
    """``tree(bio=50, physics=50, bio__genes=40)``: two underscores separate a child from its parent."""
    return AccountTree(
        [
            Entitlement(name.split("__")[-1], Fraction(percent), name.split("__")[-2] if "__" in name else "")
            for name, percent in percents.items()
        ]
    )


def rules(**percents: float) -> Rules:
    return Rules(
        tree=tree(**percents),
        classes=CLASSES,
        quantum=0.0,
        max_preemptions_per_hour=1000,
        max_preemptions_per_cycle=1000,
        methods=BUILT_IN_TRAITS,
        unmatched=REGULAR,
    )


def nodes(count: int, cpus: int = 4, memory: float = 16, **fields: Any) -> list[Node]:
    return [Node(f"n{i}", cpus, int(memory * GB), partitions=("main",), **fields) for i in range(count)]


def request(cpus: int = 1, **fields: Any) -> JobRequest:
    for name in ("memory_per_cpu", "memory_per_node"):
        fields[name] = int(fields.get(name, 0) * GB)
    fields.setdefault("partitions", ("main",))
    fields.setdefault("nodes", 1)
    fields.setdefault("max_nodes", fields["nodes"])
    return JobRequest(cpus, **fields)


def waiting(number: int, account: str = "bio", cpus: int = 1, **fields: Any) -> Job:
    """A waiting job that is preemptible by requeue, unless ``non_preemptible``."""
    fields.setdefault("request", request(cpus))
    if fields.pop("non_preemptible", False):
        fields["comment"] = ""
    else:
        fields.setdefault("comment", "omfs:method=requeue")
    fields.setdefault("ref", str(number))
    fields.setdefault("submit", float(number))
    return Job(number, user="u", uid=1, account=account, state=JobState.PENDING, **fields)


def held(number: int, account: str = "bio", cpus: int = 1, **fields: Any) -> Job:
    """A non-preemptible job that we hold."""
    fields.setdefault("hold", Hold.ADMIN)
    return waiting(number, account, cpus, non_preemptible=True, admin_comment=SUBMIT_MARK, **fields)


def urgent(number: int, account: str = "bio", cpus: int = 1, **fields: Any) -> Job:
    return waiting(number, account, cpus, qos="urgent", **fields)


def running(number: int, account: str = "bio", cpus: int = 1, on: str | Sequence[str] = "n0", **fields: Any) -> Job:
    """A running job, its CPUs spread evenly over the nodes ``on``."""
    start = fields.pop("start", 0.0)
    names = [on] if isinstance(on, str) else list(on)
    job = waiting(number, account, cpus, **fields)
    each = job.request.cpus // len(names)
    memory = job.request.memory_per_node or each * job.request.memory_per_cpu
    allocations = tuple(Allocation(name, each, memory) for name in names)
    return replace(job, state=JobState.RUNNING, start=start, allocations=allocations, partition="main")


def suspended(number: int, account: str = "bio", cpus: int = 1, on: str = "n0", **fields: Any) -> Job:
    return replace(running(number, account, cpus, on, **fields), state=JobState.SUSPENDED)


def array(number: int, tasks: int, account: str = "bio", cpus: int = 1, **fields: Any) -> Job:
    ref = f"{number}_[0-{tasks - 1}]"
    return waiting(number, account, cpus, ref=ref, array_id=number, task_ids=tuple(range(tasks)), **fields)


def snapshot(cluster: Iterable[Node], jobs: Iterable[Job], taken: float = NOW, **partition: Any) -> Snapshot:
    """All nodes are in the one partition ``main``."""
    named = {node.name: node for node in cluster}
    main = Partition("main", frozenset(named), **partition)
    return Snapshot(taken, {job.id: job for job in jobs}, named, {"main": main})


def decide(
    cluster: Iterable[Node],
    jobs: Iterable[Job],
    by: Rules,
    history: PreemptionHistory | None = None,
    now: float = NOW,
) -> Plan:
    return make_plan(snapshot(cluster, jobs, now), history or PreemptionHistory(), by, now)


def started(suggested: Plan) -> list[str]:
    return [start.ref for start in suggested.starts]


def victims_by_preemptor(suggested: Plan) -> dict[str, set[str]]:
    """Victims by preemptor."""
    return {planned.preemptor: {v.ref for v in planned.victims} for planned in suggested.preemptions}


def why_waiting(suggested: Plan) -> Mapping[str, str]:
    return {wait.ref: wait.reason.name for wait in suggested.waits}


@dataclass
class World:
    """Applies plans at once: starts run, victims wait again (or are suspended). No job ends by itself."""

    nodes: list[Node]
    jobs: dict[int, Job]
    rules: Rules
    now: float = NOW
    history: PreemptionHistory = field(default_factory=PreemptionHistory)
    preemptions: list[tuple[str, str]] = field(default_factory=list)

    def observation(self) -> Snapshot:
        return snapshot(self.nodes, self.jobs.values(), self.now)

    def step(self, seconds: float = 1.0) -> tuple[Snapshot, PreemptionHistory, Plan, Verdict]:
        """One cycle; returns what the decision was based on, and the decision."""
        self.now += seconds
        seen, remembered = self.observation(), self.history
        suggested = make_plan(seen, remembered, self.rules, self.now)
        verdict = validate(suggested, seen, remembered, self.rules, self.now, FRESH)
        for hold in suggested.holds:
            self._change(hold.ref, hold=Hold.ADMIN, admin_comment=SUBMIT_MARK)
        for release in suggested.releases:
            self._change(release.ref, hold=Hold.NONE, admin_comment="omfs:rel:1")
        for start in suggested.starts:
            self._run(start.ref, start.allocations)
        for resume in verdict.resumes:
            self._run(resume.ref, resume.allocations)
        for planned in verdict.preemptions:
            for victim in planned.victims:
                self.preemptions.append((victim.ref, planned.preemptor))
                self._preempt(victim.ref, victim.method, planned.preemptor)
            self._change(planned.preemptor, hold=Hold.NONE, admin_comment="")
            self._run(planned.preemptor, planned.allocations)
        return seen, remembered, suggested, verdict

    def rest(self, most: int = 60) -> int:
        """Step until a cycle changes nothing; returns the number of steps. AssertionError after ``most``."""
        for taken in range(most):
            _, _, suggested, verdict = self.step()
            if not (
                suggested.starts or verdict.preemptions or verdict.resumes or suggested.holds or suggested.releases
            ):
                return taken
        raise AssertionError(f"no rest after {most} cycles: {self.preemptions[-6:]}")

    def end(self, ref: str) -> None:
        self.jobs.pop(self._by_ref(ref).id)

    def used(self, account: str | None = None) -> int:
        return sum(
            allocation.cpus
            for job in self.jobs.values()
            if job.runs and account in (None, job.account)
            for allocation in job.allocations
        )

    def _by_ref(self, ref: str) -> Job:
        return next(job for job in self.jobs.values() if job.ref == ref)

    def _change(self, ref: str, **fields: Any) -> None:
        job = self._by_ref(ref)
        self.jobs[job.id] = replace(job, **fields)

    def _run(self, ref: str, allocations: tuple[Allocation, ...]) -> None:
        was_suspended = self._by_ref(ref).state is JobState.SUSPENDED
        start = self._by_ref(ref).start if was_suspended else self.now
        self._change(
            ref,
            state=JobState.RUNNING,
            allocations=allocations,
            start=start,
            partition="main",
            hold=Hold.NONE,
            admin_comment="",
        )
        preempted = {name: value for name, value in self.history.preempted.items() if name != ref}
        self.history = replace(
            self.history, preempted=preempted, running_since={**self.history.running_since, ref: self.now}
        )

    def _preempt(self, ref: str, method: str, preemptor: str) -> None:
        if method == "suspend":
            self._change(ref, state=JobState.SUSPENDED)
        else:
            self._change(ref, state=JobState.PENDING, allocations=(), start=None, partition="")
        self.history = replace(
            self.history, preempted={**self.history.preempted, ref: PreemptedJob(self.now, method, preemptor)}
        )


def under_way(
    preemptor: str, account: str, allocations: Iterable[tuple[str, int]], *victims: str
) -> PreemptionUnderWay:
    return PreemptionUnderWay(
        preemptor, account, tuple(Allocation(n, c, 0) for n, c in allocations), frozenset(victims)
    )


def world(cluster: list[Node], jobs: Iterable[Job], by: Rules) -> World:
    return World(cluster, {job.id: job for job in jobs}, by)
