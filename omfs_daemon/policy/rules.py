"""What the site has decided: classes of jobs, quantum, limits; and which class a job is in.

Who may be urgent is decided by partition, QOS or account, never by what a user writes in a job; a user chooses
only how his job may be stopped, with ``omfs:method=NAME[,NAME]`` in the job's comment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.methods import METHODS
from omfs_daemon.policy.accounts import AccountTree

_METHOD_IN_COMMENT = re.compile(r"(?:^|\s)omfs:method=([a-z0-9_]+(?:,[a-z0-9_]+)*)(?=\s|$)")


class Preemptibility(StrEnum):
    """The three kinds of OMFS, section II."""

    NON_PREEMPTIBLE = "non-preemptible"
    PREEMPTABLE = "preemptable"
    CHECKPOINTABLE = "checkpointable"


@dataclass(frozen=True, slots=True)
class ClassRule:
    """Which jobs it is for (empty: any) and how they are treated. The first rule that matches counts.

    methods  what a user may choose for his job
    default  what a job is stopped by that chooses nothing; empty: it is never stopped
    """

    name: str
    partitions: frozenset[str] = frozenset()
    qos: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    urgent: bool = False
    methods: tuple[str, ...] = ()
    default: tuple[str, ...] = ()

    def matches(self, partition: str, qos: str, account: str) -> bool:
        return (
            (not self.partitions or partition in self.partitions)
            and (not self.qos or qos in self.qos)
            and (not self.accounts or account in self.accounts)
        )


@dataclass(frozen=True, slots=True)
class JobClass:
    """How one job is treated. ``methods`` in order of preference; none: it is never stopped."""

    name: str
    urgent: bool
    methods: tuple[str, ...]

    @property
    def preemptibility(self) -> Preemptibility:
        if not self.methods:
            return Preemptibility.NON_PREEMPTIBLE
        keeps = any(METHODS[name].keeps_work for name in self.methods)
        return Preemptibility.CHECKPOINTABLE if keeps else Preemptibility.PREEMPTABLE


UNMATCHED = ClassRule("regular", methods=tuple(METHODS))


@dataclass(frozen=True, slots=True)
class Rules:
    """Everything that the policy goes by.

    quantum              seconds that a job runs undisturbed before it may be stopped for an entitled job (OMFS, II)
    max_stops_per_hour   stops of one job within an hour; more are refused
    max_stops_per_cycle  jobs that may be stopped by one plan; the rest follows in the next one
    urgent_may_take_entitled  whether an urgent job may stop jobs of accounts at or below their entitlement
                         when what borrowers hold is not enough
    rank_depth           how many waiting jobs at most get a rank of ours; the rest keep Slurm's priority
    """

    tree: AccountTree = field(default_factory=lambda: AccountTree(()))
    classes: tuple[ClassRule, ...] = ()
    quantum: float = 1800.0
    max_stops_per_hour: int = 4
    max_stops_per_cycle: int = 64
    urgent_may_take_entitled: bool = True
    rank_depth: int = 200


def chosen_methods(comment: str) -> tuple[str, ...]:
    """The methods that a user wrote in the job's comment, known or not; () when he wrote none."""
    found = _METHOD_IN_COMMENT.search(comment)
    return tuple(found.group(1).split(",")) if found else ()


def classify(rules: Rules, job: Job) -> JobClass:
    """The class of a job: by the partition in which it runs, or by all in which it waits.

    An urgent job is never stopped (UJFB, section IV: urgent jobs never preempt urgent jobs).
    """
    waits_anywhere = job.state is JobState.PENDING and len(job.request.partitions) > 1
    partitions = (job.partition,) if job.partition and not waits_anywhere else job.request.partitions
    rule = _first_match(rules, partitions, job.qos, job.account)
    if rule.urgent:
        return JobClass(rule.name, True, ())
    return JobClass(rule.name, False, tuple(name for name in _methods(rule, job) if _bears(job, name)))


def _methods(rule: ClassRule, job: Job) -> tuple[str, ...]:
    """What the owner chose of what he may choose; a choice of nothing that he may is none."""
    allowed = tuple(name for name in chosen_methods(job.comment) if name in rule.methods)
    return allowed or rule.default


def _bears(job: Job, method: str) -> bool:
    """Whether the job comes back after a stop by this method: one that Slurm would not requeue must keep its work."""
    return job.requeue or METHODS[method].keeps_work


def _first_match(rules: Rules, partitions: tuple[str, ...], qos: str, account: str) -> ClassRule:
    """A job in several partitions gets the rule that matches *all* of them, so that none raises its class."""
    for rule in rules.classes:
        if partitions and all(rule.matches(partition, qos, account) for partition in partitions):
            return rule
        if not partitions and rule.matches("", qos, account):
            return rule
    return UNMATCHED
