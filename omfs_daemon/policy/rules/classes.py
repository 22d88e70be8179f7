"""What the site has decided: classes of jobs, quantum, limits; and which class a job is in.

Who may be urgent is decided by partition, QOS or account, never by what a user writes in a job; a user chooses
only how his job may be stopped, with ``omfs:method=NAME[,NAME]`` in the job's comment, and for how long after a start
rather not, with ``omfs:min_runtime=SECONDS``, as far as the site grants it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.preempt_methods import BUILT_IN
from omfs_daemon.cluster.preempt_methods import Cost
from omfs_daemon.cluster.preempt_methods import Method
from omfs_daemon.cluster.preempt_methods import Pace
from omfs_daemon.cluster.accounts import AccountTree

_MIN_RUNTIME_IN_COMMENT = re.compile(r"(?:^|\s)omfs:min_runtime=(\d{1,9})(?=\s|$)")
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
    last_resort  what it is stopped by when no method of its own works ("": it is left running)
    """

    name: str
    partitions: frozenset[str] = frozenset()
    qos: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    urgent: bool = False
    methods: tuple[str, ...] = ()
    default: tuple[str, ...] = ()
    last_resort: str = ""

    def matches(self, partition: str, qos: str, account: str) -> bool:
        return (
            (not self.partitions or partition in self.partitions)
            and (not self.qos or qos in self.qos)
            and (not self.accounts or account in self.accounts)
        )


@dataclass(frozen=True, slots=True)
class JobClass:
    """How one job is treated. ``methods`` as its owner lists them; none: it is never stopped. ``keeps_work``: one of
    them at least does; ``last_resort``: what it is stopped by when they do not work, "" if it is then left alone;
    ``quantum``: seconds that it runs undisturbed before it may be stopped for an entitled job."""

    name: str
    urgent: bool
    methods: tuple[str, ...]
    keeps_work: bool = False
    last_resort: str = ""
    quantum: float = 0.0

    @property
    def preemptibility(self) -> Preemptibility:
        if not self.methods:
            return Preemptibility.NON_PREEMPTIBLE
        return Preemptibility.CHECKPOINTABLE if self.keeps_work else Preemptibility.PREEMPTABLE


UNMATCHED = ClassRule("regular", methods=tuple(BUILT_IN))


@dataclass(frozen=True, slots=True)
class Rules:
    """Everything that the policy goes by.

    quantum              seconds that a job runs undisturbed before it may be stopped for an entitled job (OMFS, II)
    min_runtime_max      seconds that a job may ask for instead of the quantum, where that is less
    max_stops_per_hour   stops of one job within an hour; more are refused
    max_stops_per_cycle  jobs that may be stopped by one plan; the rest follows in the next one
    urgent_may_take_entitled  whether an urgent job may stop jobs of accounts at or below their entitlement
                         when what borrowers hold is not enough
    rank_depth           how many waiting jobs at most get a rank of ours; the rest keep Slurm's priority
    methods              the methods that are installed, by name
    paces                how fast they are; one that is not there takes no time
    """

    tree: AccountTree = field(default_factory=lambda: AccountTree(()))
    classes: tuple[ClassRule, ...] = ()
    quantum: float = 1800.0
    min_runtime_max: float = 0.0
    max_stops_per_hour: int = 4
    max_stops_per_cycle: int = 64
    urgent_may_take_entitled: bool = True
    rank_depth: int = 200
    methods: Mapping[str, Method] = field(default_factory=lambda: BUILT_IN)
    paces: Mapping[str, Pace] = field(default_factory=dict)

    def method(self, name: str) -> Method:
        """By name; a job stopped by one that is no longer installed has its work, and stays where it is."""
        return self.methods.get(name) or Method(name, keeps_work=True, leaves=False)

    def cost(self, name: str, job: Job, size: int) -> Cost:
        """The estimate for a job with so many bytes on a node; all nodes move theirs at the same time."""
        pace = self.paces.get(name, _AT_ONCE)
        lost = 0.0 if self.method(name).keeps_work else job.run_time
        return Cost(pace.stop_seconds + size / pace.stop_rate, pace.back_seconds + size / pace.back_rate, lost)


_AT_ONCE = Pace()


def chosen_methods(comment: str) -> tuple[str, ...]:
    """The methods that a user wrote in the job's comment, known or not; () when he wrote none."""
    found = _METHOD_IN_COMMENT.search(comment)
    return tuple(found.group(1).split(",")) if found else ()


def classify(rules: Rules, job: Job) -> JobClass:
    """The class of a job: by the partition in which it runs, or by all in which it waits.

    An urgent job is never stopped (UJFB, section IV: urgent jobs never preempt urgent jobs). One that waits in several
    partitions can be stopped only if it can in each: it will run in one of them.
    """
    waits_anywhere = job.state is JobState.PENDING and len(job.request.partitions) > 1
    partitions = (job.partition,) if job.partition and not waits_anywhere else job.request.partitions
    job_class = _class_in(rules, job, partitions)
    if waits_anywhere and not all(_class_in(rules, job, (partition,)).methods for partition in partitions):
        return replace(job_class, methods=(), keeps_work=False, last_resort="")
    return job_class


def _class_in(rules: Rules, job: Job, partitions: tuple[str, ...]) -> JobClass:
    rule = _first_match(rules, partitions, job.qos, job.account)
    if rule.urgent:
        return JobClass(rule.name, True, ())
    methods = tuple(name for name in _methods(rule, job) if _bears(rules, job, name))
    last_resort = rule.last_resort if rule.last_resort and _bears(rules, job, rule.last_resort) else ""
    keeps_work = any(rules.method(name).keeps_work for name in methods)
    return JobClass(rule.name, False, methods, keeps_work, last_resort, _quantum(rules, job))


def _quantum(rules: Rules, job: Job) -> float:
    """The site's, or more if its owner asks for more and the site grants it."""
    found = _MIN_RUNTIME_IN_COMMENT.search(job.comment)
    return rules.quantum if found is None else max(rules.quantum, min(float(found[1]), rules.min_runtime_max))


def _methods(rule: ClassRule, job: Job) -> tuple[str, ...]:
    """What the owner chose of what he may choose; a choice of nothing that he may is none."""
    allowed = tuple(name for name in chosen_methods(job.comment) if name in rule.methods)
    return allowed or rule.default


def _bears(rules: Rules, job: Job, method: str) -> bool:
    """Whether the job comes back after a stop by this method: one that Slurm would not requeue must keep its work."""
    return job.requeue or rules.method(method).keeps_work


def _first_match(rules: Rules, partitions: tuple[str, ...], qos: str, account: str) -> ClassRule:
    """A job in several partitions gets the rule that matches *all* of them, so that none raises its class."""
    for rule in rules.classes:
        if partitions and all(rule.matches(partition, qos, account) for partition in partitions):
            return rule
        if not partitions and rule.matches("", qos, account):
            return rule
    return UNMATCHED
