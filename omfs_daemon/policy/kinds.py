"""What the rules make of a job: where it counts, and how it is treated."""

from __future__ import annotations

from typing import NamedTuple

from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.policy.accounts import Entity
from omfs_daemon.policy.rules import JobClass, Rules, classify


class Kind(NamedTuple):
    """``fixed``: it counts against what its account may fill with jobs that are never stopped."""

    leaf: Entity
    job_class: JobClass
    fixed: bool


class Kinds:
    """The kind of every job, looked up once for all jobs that are alike."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._known: dict[tuple[object, ...], Kind] = {}

    def of(self, job: Job) -> Kind:
        waits = job.state is JobState.PENDING
        key = (waits, job.partition, job.request.partitions, job.qos, job.account, job.comment, job.requeue)
        kind = self._known.get(key)
        if kind is None:
            job_class = classify(self.rules, job)
            fixed = not job_class.methods and not job_class.urgent
            kind = self._known[key] = Kind(self.rules.tree.leaf(job.account), job_class, fixed)
        return kind
