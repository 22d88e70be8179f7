"""Why CPUs are idle now, from what Slurm says of each pending job and from whom the daemon holds. Pure.

The causes are those of ``omfs report`` (reports/machine_use.py), where accounting has to guess some of them.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import NamedTuple

from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.cluster.snapshot import Snapshot

CAUSES = ("nobody_waits", "does_not_fit", "kept_for_large", "limited", "dependent", "down")

_LIMIT = re.compile(r"Assoc|QOS|Max|Grp|PartitionNodeLimit|PartitionTimeLimit|Licenses|JobArrayTaskLimit")
_NOT_YET = frozenset({"Dependency", "DependencyNeverSatisfied", "BeginTime", "Prolog", "Reservation", "DeadLine"})


class _Pending(NamedTuple):
    """CPUs that pending jobs ask for: of all; of eligible ones; of those of them that fit; of these the limited ones.
    ``wide``: whether an eligible job waits that does not fit."""

    asked: int
    eligible: int
    fit: int
    limited: int
    wide: bool


def idle_causes(snapshot: Snapshot, held: Container[str]) -> dict[str, int]:
    """CPUs by cause; together all that no job has. ``held``: jobs (``Job.ref``) that the daemon holds by its rules.

    nobody_waits    pending jobs together ask for fewer
    dependent       only jobs ask for them that are held by their owner or an administrator, depend on others, or begin
                    later
    does_not_fit    no eligible job fits on what is idle, or it is not known why one that does does not start
    limited         only jobs fit that a limit of an account or QOS, or a rule of the daemon, holds back
    kept_for_large  a job fits, but one waits that does not
    down            on nodes that start no job
    """
    free = {name: max(0, node.cpus - node.cpus_taken) for name, node in snapshot.nodes.items()}
    idle = sum(free[name] for name, node in snapshot.nodes.items() if node.up)
    pending = _pending(snapshot, held, idle, _widest(snapshot.nodes, free))
    asked, by_eligible, usable = (min(idle, cpus) for cpus in (pending.asked, pending.eligible, pending.fit))
    freely = min(idle, pending.fit - pending.limited)
    kept = freely if pending.wide else 0
    return {
        "nobody_waits": idle - asked,
        "does_not_fit": by_eligible - usable + freely - kept,
        "kept_for_large": kept,
        "limited": usable - freely,
        "dependent": asked - by_eligible,
        "down": sum(free.values()) - idle,
    }


def _widest(nodes: Mapping[str, Node], free: Mapping[str, int]) -> int:
    return max((free[name] for name, node in nodes.items() if node.up), default=0)


def _pending(snapshot: Snapshot, held: Container[str], idle: int, widest: int) -> _Pending:
    asked = eligible = fit = limited = 0
    wide, pending, unheld = False, JobState.PENDING, Hold.NONE
    for job in snapshot.jobs.values():
        if job.state is not pending:
            continue
        cpus = job.request.cpus * job.tasks
        asked += cpus
        by_rule = job.ref in held
        if not by_rule and (job.hold is not unheld or job.reason in _NOT_YET):
            continue
        eligible += cpus
        if not _fits(job, idle, widest):
            wide = True
            continue
        # A waiting array fits task by task.
        fit += cpus
        if by_rule or _LIMIT.match(job.reason):
            limited += cpus
    return _Pending(asked, eligible, fit, limited, wide)


def _fits(job: Job, idle: int, widest: int) -> bool:
    request = job.request
    each = request.cpus if max(request.nodes, request.max_nodes) <= 1 else request.min_cpus_per_node
    return request.cpus <= idle and each <= widest
