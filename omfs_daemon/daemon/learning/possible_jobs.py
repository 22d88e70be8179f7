"""What a job that would be submitted could be on a cluster: one for each partition, and number of nodes, that it leaves
open; and why it would never start there. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import inf
from typing import NamedTuple

from omfs_daemon.cluster.jobs import Job, JobRequest, JobState
from omfs_daemon.cluster.limits import SiteLimits
from omfs_daemon.cluster.nodes import Partition
from omfs_daemon.cluster.scope import OUT_OF_SCOPE
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.policy.arrays.free_resources import all_resources
from omfs_daemon.policy.arrays.node_arrays import NodeArrays
from omfs_daemon.policy.arrays.placement import place
from omfs_daemon.policy.rules.classes import Rules, classify
from omfs_daemon.policy.rules.job_kinds import JobKinds
from omfs_daemon.policy.start_checks.answer import AnswerKind
from omfs_daemon.policy.start_checks.limit_rules import limit_answers
from omfs_daemon.policy.start_checks.limit_use import Amounts, LimitUse
from omfs_daemon.policy.start_checks.partition_rules import of_licenses, of_partition
from omfs_daemon.slurm.batch_options import BatchOptions
from omfs_daemon.slurm.commands.gres_nodes import NodeSize, node_sizes

MOST_PARTITIONS = 30
MOST_COUNTS = 16
"""Numbers of nodes that are tried of a range."""
_ACCOUNT_WORDS, _QOS_WORDS = ("AccountNotAllowed", "InvalidAccount"), ("QOSNotAllowed",)


class Submitter(NamedTuple):
    """Who would submit it; ``is_member``: whether they are in one of these Unix groups."""

    user: str
    uid: int
    is_member: Callable[[Iterable[str]], bool]


class PossibleJob(NamedTuple):
    """``why_not``: why it would never start, "" if it could."""

    job: Job
    partition: str
    nodes: int
    why_not: str


def possible_jobs(
    options: BatchOptions, who: Submitter, snapshot: Snapshot, rules: Rules, is_ours: bool
) -> list[PossibleJob]:
    """In the order of the options' partitions; without any, that of jobs without a partition first, then by name, but
    none for urgent or real-time jobs: that is not for everybody to choose.

    A partition that the options name and the cluster lacks is one that it never starts in. ``rules``: of our own
    cluster; ``is_ours``: whether the snapshot is of it.
    """
    names = options.partitions or _all_partitions(snapshot)
    account = options.account or _usual_account(who.user, snapshot)
    nodes, sizes = NodeArrays(snapshot.nodes, snapshot.partitions), node_sizes(snapshot.nodes.values())
    found = []
    for name in names[:MOST_PARTITIONS]:
        partition = snapshot.partitions.get(name)
        for count in _node_counts(options, sizes.get(name, ())):
            request = options.request(count, name)
            if options.differs_by_nodes:
                request = replace(request, max_nodes=count)
            job = _job(options, who, account, request, partition, snapshot.taken)
            if not options.partitions and _goes_first(job, rules):
                continue
            if is_ours and not rules.scope.contains(job):
                job = replace(job, set_aside=OUT_OF_SCOPE)
            why = f"it has no partition {name}" if partition is None else _why_not(job, partition, who, snapshot, nodes)
            if is_ours and not why:
                why = _beyond_entitlement(job, rules, int(nodes.cpus[nodes.up].sum()))
            found.append(PossibleJob(job, name, count, why))
    return found


def partitions_not_tried(options: BatchOptions, snapshot: Snapshot) -> int:
    """How many ``possible_jobs`` leaves out, since they are too many."""
    return max(0, len(options.partitions or snapshot.partitions) - MOST_PARTITIONS)


def _goes_first(job: Job, rules: Rules) -> bool:
    job_class = classify(rules, job)
    return job_class.urgent or job_class.realtime is not None


def _all_partitions(snapshot: Snapshot) -> tuple[str, ...]:
    return tuple(sorted(snapshot.partitions, key=lambda name: (not snapshot.partitions[name].is_default, name)))


def _usual_account(user: str, snapshot: Snapshot) -> str:
    """The only one of which the user may use, else that of their latest job; "" if that is not known."""
    limits = snapshot.limits or SiteLimits()
    mine = {one.account for one in (limits.associations or {}).values() if one.user == user}
    if len(mine) == 1:
        return mine.pop()
    latest = max((job for job in snapshot.jobs.values() if job.user == user), key=lambda job: job.id, default=None)
    return latest.account if latest else ""


def _node_counts(options: BatchOptions, sizes: Iterable[NodeSize]) -> list[int]:
    least = options.nodes_on(sizes)
    if not options.differs_by_nodes:
        return [least]
    every = range(least, options.most_nodes + 1)
    if len(every) <= MOST_COUNTS:
        return list(every)
    return sorted({every[round(place * (len(every) - 1) / (MOST_COUNTS - 1))] for place in range(MOST_COUNTS)})


def _job(
    options: BatchOptions, who: Submitter, account: str, request: JobRequest, partition: Partition | None, now: float
) -> Job:
    limit = options.limit
    if limit is None and partition is not None:
        limit = partition.limit_of_others
    return Job(
        id=0,
        ref="",
        user=who.user,
        uid=who.uid,
        account=account,
        state=JobState.PENDING,
        request=request,
        submit=now,
        partition=request.partitions[0],
        qos=options.qos,
        time_limit=inf if limit is None else limit,
        licenses=options.licenses,
        reservation=options.reservation,
        requeue=options.requeue,
        comment=options.comment,
        name=options.name,
    )


def _why_not(job: Job, partition: Partition, who: Submitter, snapshot: Snapshot, nodes: NodeArrays) -> str:
    if partition.allow_groups is not None and who.uid != 0 and not who.is_member(partition.allow_groups):
        return f"partition {partition.name} is for the groups {', '.join(sorted(partition.allow_groups))}"
    return next(_refusals(job, partition, snapshot), "") or _lacking(job.request, nodes, partition.name)


def _beyond_entitlement(job: Job, rules: Rules, cpus: int) -> str:
    """Why a non-preemptible job would wait for ever, "" if it would not; ``cpus``: of the cluster."""
    kind = JobKinds(rules).of(job)
    entitled = rules.tree.entitled(cpus)
    most = min(entitled[index] for index in kind.leaf.path)
    if not kind.non_preemptible or job.request.cpus <= most:
        return ""
    whose = f"account {job.account}" if job.account else "its account, which is not known (--account),"
    return f"it is non-preemptible, and {whose} is entitled to {most} CPUs"


def _refusals(job: Job, partition: Partition, snapshot: Snapshot) -> Iterator[str]:
    """What Slurm would never start it for, even if nothing ran; of an account and a QOS only if the job names them."""
    limits = snapshot.limits or SiteLimits()
    unknown = (*(() if job.account else _ACCOUNT_WORDS), *(() if job.qos else _QOS_WORDS))
    nobody_runs = LimitUse((), limits, snapshot.partitions)
    request = job.request
    need = Amounts({"jobs": 1, "cpu": request.cpus, "node": request.nodes})
    need["mem"] = request.memory_per_cpu * request.cpus or request.memory_per_node * request.nodes
    need.update({f"license/{name}": count for name, count in job.licenses})
    for answers in (
        of_partition(job, partition, limits),
        limit_answers(job, partition, need, nobody_runs, limits),
        of_licenses(job, limits, nobody_runs),
    ):
        for answer in answers:
            if answer.kind is AnswerKind.NO and answer.reason not in unknown:
                yield answer.text


def _lacking(request: JobRequest, nodes: NodeArrays, partition: str) -> str:
    """What keeps it off nodes that are all empty; "" if it fits."""
    free = all_resources(nodes)
    if place(request, free):
        return ""
    gres = ", ".join(f"{name}:{count}" for name, count in request.gres)
    without = (
        ("so much memory", replace(request, memory_per_cpu=0, memory_per_node=0)),
        (gres, replace(request, gres=())),
        (f"the features {request.features}", replace(request, features="")),
        ("so many CPUs", replace(request, min_cpus_per_node=1, nodes=1, max_nodes=0)),
    )
    what = next((what for what, less in without if less != request and place(less, free)), "")
    return f"partition {partition} has " + (
        f"no nodes that are up with {what}" if what else "too few nodes that are up"
    )
