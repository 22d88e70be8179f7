"""The site's rules: job classes, quantum, and limits; and the class of a job.

Partition, QOS, and account decide which jobs are urgent, never what a user writes in a job. In the job's comment, users
choose only the preemption methods of their jobs (``omfs:method=NAME[,NAME]``, ``omfs:exclude=NAME[,NAME]``), the signal
that warns them of a requeue (``omfs:signal=NAME``), and how long a job should run before it is preempted
(``omfs:min_runtime=SECONDS``), as far as the site allows; and for a real-time job a looser bound on its slowdown
(``omfs:bound=NUMBER``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from omfs_daemon.cluster.accounts import AccountTree
from omfs_daemon.cluster.exemptions import Exemptions
from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.preempt_methods import ENDS, MethodSpeed, MethodTraits, PreemptionCost
from omfs_daemon.cluster.scope import OUT_OF_SCOPE, Scope, is_out_of_scope
from omfs_daemon.policy.rules.realtime_terms import MIRA_SIZES, JobSize, RealtimeTerms
from omfs_daemon.protocol.job_comment import (
    bound_in_comment,
    excluded_in_comment,
    methods_in_comment,
    min_runtime_in_comment,
    signal_in_comment,
)


class Preemptibility(StrEnum):
    """The three kinds of OMFS, section II."""

    NON_PREEMPTIBLE = "non-preemptible"
    PREEMPTABLE = "preemptable"
    CHECKPOINTABLE = "checkpointable"


@dataclass(frozen=True, slots=True)
class JobClassRule:
    """Which jobs a class contains (empty: any) and how they are treated. The first rule that matches applies.

    methods      methods that users may choose for their jobs
    default      methods of a job that chooses none; empty: it is non-preemptible
    last_resort  method to use when no method of the job itself works ("": the job keeps running)
    signal       signal that warns a job that chooses none before it is requeued ("": it is requeued at once)
    realtime     what real-time jobs are promised; None: they are not real-time
    """

    name: str
    partitions: frozenset[str] = frozenset()
    qos: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    urgent: bool = False
    methods: tuple[str, ...] = ()
    default: tuple[str, ...] = ()
    last_resort: str = ""
    signal: str = ""
    realtime: RealtimeTerms | None = None

    def matches(self, partition: str, qos: str, account: str) -> bool:
        return (
            (not self.partitions or partition in self.partitions)
            and (not self.qos or qos in self.qos)
            and (not self.accounts or account in self.accounts)
        )


@dataclass(frozen=True, slots=True)
class JobClass:
    """How one job is treated.

    methods      in the owner's order; empty: the job is non-preemptible
    keeps_work   at least one of them keeps the job's work
    last_resort  method to use when these do not work; "": the job keeps running
    signal       signal that warns the job before it is requeued, ``[B:]NAME``; "": it is requeued at once
    quantum      seconds that the job runs before it may be preempted for an entitled job
    realtime     what the job is promised; None: it is not real-time
    """

    name: str
    urgent: bool
    methods: tuple[str, ...]
    keeps_work: bool = False
    last_resort: str = ""
    quantum: float = 0.0
    realtime: RealtimeTerms | None = None
    signal: str = ""

    @property
    def is_never_preempted(self) -> bool:
        """Whether others may be preempted for it at need, and it for nobody."""
        return self.urgent or self.realtime is not None

    def allows(self, method: str) -> bool:
        """Whether the job may be preempted by this method; its last resort is for a job that has others, too."""
        is_preemptible = bool(self.methods) and not self.is_never_preempted
        return is_preemptible and method in (*self.methods, self.last_resort)

    @property
    def preemptibility(self) -> Preemptibility:
        if not self.methods:
            return Preemptibility.NON_PREEMPTIBLE
        return Preemptibility.CHECKPOINTABLE if self.keeps_work else Preemptibility.PREEMPTABLE


REGULAR = JobClassRule("regular")
"""A rule for all jobs that lets none be preempted."""

WHAT_IS_LEFT = "suspend"
"""The method for a heterogeneous job of which a part has ended, whatever it names: requeued, it would never run again,
and if it could not be preempted, its owner would only have to cancel a part to keep borrowed CPUs."""

_SET_ASIDE = JobClass("set aside", False, ())
_OUT_OF_SCOPE = JobClass(OUT_OF_SCOPE, False, ())


@dataclass(frozen=True, slots=True)
class Rules:
    """All settings of the policy.

    quantum                    seconds that a job runs before it may be preempted for an entitled job (OMFS, II)
    min_runtime_max            most seconds that a job may request instead of a shorter quantum
    max_preemptions_per_hour   preemptions of one job within an hour; more only for urgent jobs
    max_preemptions_per_cycle  victims in one plan; the rest follow in the next
    urgent_may_take_entitled   whether an urgent job may preempt jobs of accounts at or below their entitlement when
                               the borrowers' jobs are not enough
    rank_depth                 the most waiting jobs that we rank; the others keep Slurm's priority
    keeps_account_order        whether non-preemptible jobs of an account are admitted in order, with backfill; else
                               whatever fits, as published
    own_jobs_give_way          whether jobs of an account give way to its own non-preemptible and suspended jobs; else
                               it takes from others only, as published
    fair_set_searches          jobs for which one plan searches any fair set of victims where none in order is fair
                               (others wait for the next plan); 0: victims in order only, as published
    leaves_ending              whether jobs are left to run whose time is up before the slowest other victim lets go
    methods                    the installed methods, by name
    speeds                     the speed of each method; a method without one takes no time
    unmatched                  the rule for jobs that match none of the classes
    job_size                   which jobs are narrow, and which are short
    scope                      the jobs that are not set aside; entitlements are parts of the nodes of its partitions
    exemptions                 jobs that are never preempted, by an operator's word
    """

    tree: AccountTree = field(default_factory=lambda: AccountTree(()))
    classes: tuple[JobClassRule, ...] = ()
    quantum: float = 1800.0
    min_runtime_max: float = 0.0
    max_preemptions_per_hour: int = 4
    max_preemptions_per_cycle: int = 64
    urgent_may_take_entitled: bool = True
    rank_depth: int = 200
    keeps_account_order: bool = True
    own_jobs_give_way: bool = True
    fair_set_searches: int = 64
    leaves_ending: bool = True
    methods: Mapping[str, MethodTraits] = field(kw_only=True)
    speeds: Mapping[str, MethodSpeed] = field(default_factory=dict)
    unmatched: JobClassRule = field(kw_only=True)
    job_size: JobSize = MIRA_SIZES
    scope: Scope = field(default_factory=Scope)
    exemptions: Exemptions = field(default_factory=Exemptions)

    def method(self, name: str) -> MethodTraits:
        """By name; a method that is not installed is assumed to keep the job's work and to leave it on its nodes."""
        if name == ENDS.name:
            return ENDS
        return self.methods.get(name) or MethodTraits(name, keeps_work=True, leaves=False)

    def cost(self, name: str, job: Job, size: int) -> PreemptionCost:
        """The estimated cost for ``size`` bytes on a node; all nodes move theirs in parallel."""
        speed = self.speeds.get(name, _AT_ONCE)
        lost = 0.0 if self.method(name).keeps_work else job.run_time
        return PreemptionCost(
            speed.preempt_seconds + size / speed.preempt_rate, speed.resume_seconds + size / speed.resume_rate, lost
        )


_AT_ONCE = MethodSpeed()


def classify(rules: Rules, job: Job) -> JobClass:
    """The class of a job: by the partition in which it runs, or by all in which it waits.

    An urgent job is never preempted (UJFB, section IV: urgent jobs never preempt urgent jobs), nor is a real-time one.
    A job that waits in several partitions is preemptible only if it is in each, for it will run in one of them; so is
    a heterogeneous job whose parts are in several. A job
    set aside is neither urgent nor preemptible.
    """
    if job.set_aside:
        return _OUT_OF_SCOPE if is_out_of_scope(job) else _SET_ASIDE
    waits_anywhere = job.state is JobState.PENDING and len(job.request.partitions) > 1
    partitions = (job.partition,) if job.partition and not waits_anywhere else job.request.partitions
    job_class = _class_in(rules, job, partitions)
    if len(partitions) > 1 and not all(_class_in(rules, job, (partition,)).methods for partition in partitions):
        return replace(job_class, methods=(), keeps_work=False, last_resort="")
    return job_class


def _class_in(rules: Rules, job: Job, partitions: tuple[str, ...]) -> JobClass:
    rule = _first_match(rules, partitions, job.qos, job.account)
    if rule.urgent:
        return JobClass(rule.name, True, ())
    if rule.realtime is not None:
        return JobClass(rule.name, False, (), realtime=rule.realtime.loosened(bound_in_comment(job.comment)))
    excluded = excluded_in_comment(job.comment)
    methods = tuple(name for name in _methods(rule, job) if name not in excluded and _survives(rules, job, name))
    if job.ended_part and methods and WHAT_IS_LEFT in rules.methods:
        methods = (WHAT_IS_LEFT,)
    may_resort = (
        not job.ended_part
        and rule.last_resort
        and rule.last_resort not in excluded
        and _survives(rules, job, rule.last_resort)
    )
    keeps_work = any(rules.method(name).keeps_work for name in methods)
    chosen = signal_in_comment(job.comment)
    return JobClass(
        rule.name,
        False,
        methods,
        keeps_work,
        rule.last_resort if may_resort else "",
        _quantum(rules, job),
        signal=rule.signal if chosen is None else chosen,
    )


def _quantum(rules: Rules, job: Job) -> float:
    """The site's, or a longer one that the job requests and the site allows."""
    asked = min_runtime_in_comment(job.comment)
    return rules.quantum if asked is None else max(rules.quantum, min(float(asked), rules.min_runtime_max))


def _methods(rule: JobClassRule, job: Job) -> tuple[str, ...]:
    """The methods that the owner chose among the allowed ones; the default without any. ``none`` always means none."""
    chosen = methods_in_comment(job.comment)
    if "none" in chosen:
        return ()
    allowed = tuple(name for name in chosen if name in rule.methods)
    return allowed or rule.default


def _survives(rules: Rules, job: Job, method: str) -> bool:
    """Whether the job survives this method: a job that Slurm would not requeue must keep its work, one that was not
    submitted by sbatch (salloc, srun) its allocation, one on several nodes all of its processes, and a heterogeneous
    one all of its parts."""
    traits = rules.method(method)
    if job.parts and not traits.whole:
        return False
    if traits.one_node and job.spans_nodes:
        return False
    return not traits.leaves if not job.batch else job.requeue or traits.keeps_work


def _first_match(rules: Rules, partitions: tuple[str, ...], qos: str, account: str) -> JobClassRule:
    """A job in several partitions gets the rule that matches *all* of them, so that none raises its class."""
    for rule in rules.classes:
        if partitions and all(rule.matches(partition, qos, account) for partition in partitions):
            return rule
        if not partitions and rule.matches("", qos, account):
            return rule
    return rules.unmatched
