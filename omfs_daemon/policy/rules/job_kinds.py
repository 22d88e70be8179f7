"""What the rules make of a job: where it counts, and how it is treated."""

from __future__ import annotations

from typing import NamedTuple

from omfs_daemon.cluster import run_report as launched
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.accounts import Entity
from omfs_daemon.policy.rules.classes import JobClass
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.policy.rules.classes import classify


class Kind(NamedTuple):
    """``fixed``: it counts against what its account may fill with jobs that are never stopped. That does a running job,
    too, that could be stopped by omfs-run alone, for as long as that has not said that it is there: else a word in a
    comment would be enough to hold what was lent."""

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
        key = (
            waits,
            job.partition,
            job.request.partitions,
            job.qos,
            job.account,
            job.comment,
            job.requeue,
            job.restarts,
        )
        kind = self._known.get(key)
        if kind is None:
            job_class = classify(self.rules, job)
            fixed = not job_class.urgent and (
                not job_class.methods or (not waits and self.is_only_said(job, job_class))
            )
            kind = self._known[key] = Kind(self.rules.tree.leaf(job.account), job_class, fixed)
        return kind

    def is_only_said(self, job: Job, job_class: JobClass) -> bool:
        """Whether the job can be stopped by omfs-run alone, and nothing in it has spoken."""
        launch = all(self.rules.method(name).launched for name in job_class.methods)
        return launch and not job_class.last_resort and launched.of(job) is None
