"""The answer to ``omfs when --realtime``: whether a real-time job would keep its bound if it were submitted now."""

from __future__ import annotations

from typing import TypedDict

from omfs_daemon.cluster.jobs import Job, JobRequest, JobState
from omfs_daemon.cluster.snapshot import PreemptionHistory, Snapshot
from omfs_daemon.daemon.api.callers import Caller
from omfs_daemon.daemon.api.realtime_view import realtime_view_in
from omfs_daemon.daemon.learning.prediction_service import PredictionService
from omfs_daemon.errors import ConfigError
from omfs_daemon.policy.arrays.snapshot_arrays import SnapshotArrays
from omfs_daemon.policy.realtime_queue import standing_of
from omfs_daemon.policy.rules.classes import JobClassRule, Rules, classify
from omfs_daemon.policy.working_state import WorkingState

_NUMBER = 0
"""Slurm gives no job this number."""


class BoundChanceView(TypedDict):
    """Times are seconds since the epoch. ``chance``: that it starts by ``start_by`` without a preemption, 0 to 1.
    ``victims``: how many jobs would be preempted for it if it were due now; null: none may be."""

    job_class: str
    cpus: int
    limit: float
    slowdown_bound: float
    acts_at: float
    start_by: float
    chance: float
    victims: int | None


def bound_chance_view(
    caller: Caller,
    name: str,
    cpus: int,
    limit: float,
    service: PredictionService,
    snapshot: Snapshot,
    history: PreemptionHistory,
    rules: Rules,
) -> BoundChanceView:
    """Of a job of the class ``name``, behind other real-time jobs if it is first on idle nodes, else behind all others
    that wait, or those within their account's entitlement if it is, too; ConfigError if there is no such class."""
    job = _submitted_now(caller, _class_named(name, rules), cpus, limit, snapshot.taken)
    job_class = classify(rules, job)
    state = WorkingState(SnapshotArrays(snapshot.with_jobs(snapshot.taken, [job])), history, rules)
    nodes = state.node_arrays
    has_nodes = any(len(one.nodes) for one in nodes.suitable(nodes.normalized(job.request)))
    terms = job_class.realtime
    if terms is None or not has_nodes:
        raise ConfigError(f"--realtime {name}: no node serves such a job, or an earlier class takes it")
    standing = standing_of(state, job, terms, job_class.name, snapshot.taken)
    view = realtime_view_in(state, job, job_class.name, terms, snapshot.taken)
    taken, (probed,) = service.probed(lambda *_: [job])
    return BoundChanceView(
        job_class=name,
        cpus=cpus,
        limit=limit,
        slowdown_bound=standing.bound,
        acts_at=standing.due_at,
        start_by=standing.start_by,
        chance=float((taken + probed.draws <= standing.start_by).mean()),
        victims=len(view["sets"][0]["victims"]) if view["sets"] else None,
    )


def _class_named(name: str, rules: Rules) -> JobClassRule:
    found = {rule.name: rule for rule in rules.classes if rule.realtime is not None}
    if name not in found:
        known = ", ".join(found) if found else "none is configured"
        raise ConfigError(f"--realtime {name[:40]!r}: no such real-time class; there are: {known}")
    return found[name]


def _submitted_now(caller: Caller, rule: JobClassRule, cpus: int, limit: float, now: float) -> Job:
    """It matches its class by all that the class names."""
    partition, qos, account = (min(names, default="") for names in (rule.partitions, rule.qos, rule.accounts))
    return Job(
        id=_NUMBER,
        ref=str(_NUMBER),
        user=caller.user,
        uid=caller.uid,
        account=account,
        state=JobState.PENDING,
        request=JobRequest(cpus, partitions=(partition,) if partition else ()),
        submit=now,
        partition=partition,
        qos=qos,
        time_limit=limit,
    )
