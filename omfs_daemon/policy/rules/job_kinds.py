"""The kind of a job: the account at which it counts, its class, and whether it is non-preemptible."""

from __future__ import annotations

from typing import NamedTuple

from omfs_daemon.cluster.accounts import AccountNode
from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.run_report import run_report
from omfs_daemon.cluster.scope import is_out_of_scope
from omfs_daemon.policy.rules.classes import JobClass, Rules, classify


class JobKind(NamedTuple):
    """``non_preemptible``: the job counts against its account's limit for non-preemptible jobs. ``counts``: it is
    use of its account; a job out of scope is use of its nodes only.

    So does a running job that only omfs-run could preempt, until omfs-run reports: otherwise a job comment would be
    enough to keep borrowed CPUs.
    """

    leaf: AccountNode
    job_class: JobClass
    non_preemptible: bool
    counts: bool = True


class JobKinds:
    """The kind of each job, determined once for all jobs that are alike."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._known: dict[tuple[object, ...], JobKind] = {}

    def of(self, job: Job) -> JobKind:
        waits = job.state is JobState.PENDING
        key = (
            waits,
            job.partition,
            job.request.partitions,
            job.qos,
            job.account,
            job.comment,
            job.requeue,
            job.batch,
            job.spans_nodes,
            job.restarts,
            job.set_aside,
            bool(job.parts),
            job.ended_part,
        )
        kind = self._known.get(key)
        if kind is None:
            job_class = classify(self.rules, job)
            non_preemptible = not job_class.is_never_preempted and (
                not job_class.methods or (not waits and self.is_only_declared(job, job_class))
            )
            leaf, counts = self.rules.tree.leaf(job.account), not is_out_of_scope(job)
            kind = self._known[key] = JobKind(leaf, job_class, non_preemptible and counts, counts)
        return kind

    def is_only_declared(self, job: Job, job_class: JobClass) -> bool:
        """Whether only omfs-run could preempt the job, and has not reported."""
        by_omfs_run_only = all(self.rules.method(name).launched for name in job_class.methods)
        return by_omfs_run_only and not job_class.last_resort and run_report(job) is None
