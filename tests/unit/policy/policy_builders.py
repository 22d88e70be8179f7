"""Short ways to make jobs, nodes and snapshots for tests of the policy, and a tiny executor that applies plans.

Memory is in GB here, times in seconds; every snapshot is taken at ``NOW`` unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.jobs import Request
from omfs_daemon.cluster.jobs import Share
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.cluster.nodes import Partition
from omfs_daemon.cluster.snapshot import Commitment
from omfs_daemon.cluster.snapshot import Ledger
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.cluster.snapshot import Stopped
from omfs_daemon.cluster.accounts import AccountShare
from omfs_daemon.cluster.accounts import AccountTree
from omfs_daemon.policy.validator import Conditions
from omfs_daemon.policy.validator import Verdict
from omfs_daemon.policy.validator import judge
from omfs_daemon.policy.plan import Plan
from omfs_daemon.policy.planner import plan
from omfs_daemon.policy.rules.classes import ClassRule
from omfs_daemon.policy.rules.classes import Rules

NOW = 100_000.0
GB = 1 << 30
FRESH = Conditions(max_age=60.0)

CLASSES = (
    ClassRule("urgent", qos=frozenset({"urgent"}), urgent=True),
    ClassRule("regular", methods=("requeue", "suspend")),
)


def tree(**shares: float) -> AccountTree:
    """``tree(bio=50, physics=50, bio__genes=40)``: two underscores part a child from its parent."""
    return AccountTree(
        [
            AccountShare(name.split("__")[-1], Fraction(percent), name.split("__")[-2] if "__" in name else "")
            for name, percent in shares.items()
        ]
    )


def rules(**shares: float) -> Rules:
    return Rules(tree=tree(**shares), classes=CLASSES, quantum=0.0, max_stops_per_hour=1000, max_stops_per_cycle=1000)


def nodes(count: int, cpus: int = 4, memory: float = 16, **fields: Any) -> list[Node]:
    return [Node(f"n{i}", cpus, int(memory * GB), partitions=("main",), **fields) for i in range(count)]


def request(cpus: int = 1, **fields: Any) -> Request:
    for name in ("memory_per_cpu", "memory_per_node"):
        fields[name] = int(fields.get(name, 0) * GB)
    fields.setdefault("partitions", ("main",))
    fields.setdefault("nodes", 1)
    fields.setdefault("max_nodes", fields["nodes"])
    return Request(cpus, **fields)


def waiting(number: int, account: str = "bio", cpus: int = 1, **fields: Any) -> Job:
    """A waiting job that may be requeued; ``asks``: its request, ``fixed``: it may never be stopped."""
    fields.setdefault("request", fields.pop("asks", None) or request(cpus))
    if fields.pop("fixed", False):
        fields["comment"] = ""
    else:
        fields.setdefault("comment", "omfs:method=requeue")
    fields.setdefault("ref", str(number))
    fields.setdefault("submit", float(number))
    return Job(number, user="u", uid=1, account=account, state=JobState.PENDING, **fields)


def gated(number: int, account: str = "bio", cpus: int = 1, **fields: Any) -> Job:
    """A non-preemptible job that is held by us."""
    fields.setdefault("hold", Hold.ADMIN)
    return waiting(number, account, cpus, fixed=True, admin_comment="omfs:gate", **fields)


def urgent(number: int, account: str = "bio", cpus: int = 1, **fields: Any) -> Job:
    return waiting(number, account, cpus, qos="urgent", **fields)


def running(number: int, account: str = "bio", cpus: int = 1, on: str | Sequence[str] = "n0", **fields: Any) -> Job:
    """A running job, its CPUs spread evenly over the nodes ``on``."""
    start = fields.pop("start", 0.0)
    names = [on] if isinstance(on, str) else list(on)
    job = waiting(number, account, cpus, **fields)
    each = job.request.cpus // len(names)
    memory = job.request.memory_per_node or each * job.request.memory_per_cpu
    shares = tuple(Share(name, each, memory) for name in names)
    return replace(job, state=JobState.RUNNING, start=start, shares=shares, partition="main")


def suspended(number: int, account: str = "bio", cpus: int = 1, on: str = "n0", **fields: Any) -> Job:
    return replace(running(number, account, cpus, on, **fields), state=JobState.SUSPENDED)


def array(number: int, tasks: int, account: str = "bio", cpus: int = 1, **fields: Any) -> Job:
    ref = f"{number}_[0-{tasks - 1}]"
    return waiting(number, account, cpus, ref=ref, array_id=number, task_ids=tuple(range(tasks)), **fields)


def snapshot(machine: Iterable[Node], jobs: Iterable[Job], taken: float = NOW, **partition: Any) -> Snapshot:
    """All nodes are in the one partition ``main``."""
    named = {node.name: node for node in machine}
    main = Partition("main", frozenset(named), **partition)
    return Snapshot(taken, {job.id: job for job in jobs}, named, {"main": main})


def decide(
    machine: Iterable[Node], jobs: Iterable[Job], by: Rules, ledger: Ledger | None = None, now: float = NOW
) -> Plan:
    return plan(snapshot(machine, jobs, now), ledger or Ledger(), by, now)


def started(suggested: Plan) -> list[str]:
    return [start.ref for start in suggested.starts]


def stopped_for(suggested: Plan) -> dict[str, set[str]]:
    """Victims by beneficiary."""
    return {reclaim.beneficiary: {v.ref for v in reclaim.victims} for reclaim in suggested.reclaims}


def why_waiting(suggested: Plan) -> Mapping[str, str]:
    return {wait.ref: wait.reason.name for wait in suggested.waits}


@dataclass
class World:
    """Applies plans at once: what starts runs, what is stopped waits again (or is suspended). No job ends by itself."""

    machine: list[Node]
    jobs: dict[int, Job]
    rules: Rules
    now: float = NOW
    ledger: Ledger = field(default_factory=Ledger)
    evictions: list[tuple[str, str]] = field(default_factory=list)

    def picture(self) -> Snapshot:
        return snapshot(self.machine, self.jobs.values(), self.now)

    def step(self, seconds: float = 1.0) -> tuple[Snapshot, Ledger, Plan, Verdict]:
        """One cycle; returns what it was decided on, and what was decided."""
        self.now += seconds
        seen, remembered = self.picture(), self.ledger
        suggested = plan(seen, remembered, self.rules, self.now)
        verdict = judge(suggested, seen, remembered, self.rules, self.now, FRESH)
        for hold in suggested.holds:
            self._change(hold.ref, hold=Hold.ADMIN, admin_comment="omfs:gate")
        for release in suggested.releases:
            self._change(release.ref, hold=Hold.NONE)
        for start in suggested.starts:
            self._run(start.ref, start.shares)
        for resume in verdict.resumes:
            self._run(resume.ref, resume.shares)
        for reclaim in verdict.reclaims:
            for victim in reclaim.victims:
                self.evictions.append((victim.ref, reclaim.beneficiary))
                self._stop(victim.ref, victim.method, reclaim.beneficiary)
            self._change(reclaim.beneficiary, hold=Hold.NONE)
            self._run(reclaim.beneficiary, reclaim.shares)
        return seen, remembered, suggested, verdict

    def rest(self, most: int = 60) -> int:
        """Step until a cycle changes nothing; returns how many steps that took. AssertionError if it does not come."""
        for taken in range(most):
            _, _, suggested, verdict = self.step()
            if not (suggested.starts or verdict.reclaims or verdict.resumes or suggested.holds or suggested.releases):
                return taken
        raise AssertionError(f"no rest after {most} cycles: {self.evictions[-6:]}")

    def end(self, ref: str) -> None:
        self.jobs.pop(self._by_ref(ref).id)

    def used(self, account: str | None = None) -> int:
        return sum(
            share.cpus
            for job in self.jobs.values()
            if job.runs and account in (None, job.account)
            for share in job.shares
        )

    def _by_ref(self, ref: str) -> Job:
        return next(job for job in self.jobs.values() if job.ref == ref)

    def _change(self, ref: str, **fields: Any) -> None:
        job = self._by_ref(ref)
        self.jobs[job.id] = replace(job, **fields)

    def _run(self, ref: str, shares: tuple[Share, ...]) -> None:
        was_suspended = self._by_ref(ref).state is JobState.SUSPENDED
        start = self._by_ref(ref).start if was_suspended else self.now
        self._change(ref, state=JobState.RUNNING, shares=shares, start=start, partition="main", hold=Hold.NONE)
        stopped = {name: value for name, value in self.ledger.stopped.items() if name != ref}
        self.ledger = replace(self.ledger, stopped=stopped, running_since={**self.ledger.running_since, ref: self.now})

    def _stop(self, ref: str, method: str, beneficiary: str) -> None:
        if method == "suspend":
            self._change(ref, state=JobState.SUSPENDED)
        else:
            self._change(ref, state=JobState.PENDING, shares=(), start=None, partition="")
        self.ledger = replace(self.ledger, stopped={**self.ledger.stopped, ref: Stopped(self.now, method, beneficiary)})


def commitment(beneficiary: str, account: str, shares: Iterable[tuple[str, int]], *victims: str) -> Commitment:
    return Commitment(beneficiary, account, tuple(Share(n, c, 0) for n, c in shares), frozenset(victims))


def world(machine: list[Node], jobs: Iterable[Job], by: Rules) -> World:
    return World(machine, {job.id: job for job in jobs}, by)
