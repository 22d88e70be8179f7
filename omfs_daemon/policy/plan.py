"""A plan: what the policy suggests, each action with its reason and numbers."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from math import inf
from operator import eq
from typing import NamedTuple

from omfs_daemon.cluster.jobs import Allocation, Job
from omfs_daemon.policy.arrays.usage import AccountUsage
from omfs_daemon.policy.realtime_standing import RealtimeStanding
from omfs_daemon.policy.rules.queue_order import Band
from omfs_daemon.policy.start_checks.answer import Answer


class Reason(StrEnum):
    """Why an action is suggested, or why a job waits; ``TEXT`` explains each."""

    URGENT = "urgent"
    ENTITLED = "entitled"
    REALTIME = "realtime"
    OWN_ACCOUNT = "own_account"
    BORROWS = "borrows"
    WITHIN_ENTITLEMENT = "within_entitlement"
    PREEMPTIBLE = "preemptible"
    BEYOND_ENTITLEMENT = "beyond_entitlement"
    NON_PREEMPTIBLE_BEYOND = "non_preemptible_beyond_entitlement"
    NOT_ENOUGH_VICTIMS = "not_enough_victims"
    BEING_FREED = "being_freed"
    NOT_DUE = "not_due"
    TRIED_IN_VAIN = "tried_in_vain"
    BRIEF_JOBS = "brief_jobs"
    ENOUGH_PREEMPTIONS = "enough_preemptions"
    CPUS_FREE_AGAIN = "cpus_free_again"
    OWN_CPUS_TAKEN = "own_cpus_taken"
    UNPLACED = "nodes_not_chosen_yet"
    WOULD_NOT_START = "slurm_would_not_start_it"
    ACCOUNT_ORDER = "account_order"
    WAITS_FOR_OTHER = "waits_for_other"
    WAITS_TOO_LONG = "waits_too_long"
    DEADLINE_PASSED = "deadline_passed"


TEXT: Mapping[Reason, str] = {
    Reason.URGENT: "an urgent job goes before all regular jobs",
    Reason.ENTITLED: "its account uses less than its entitlement",
    Reason.REALTIME: "its slowdown has reached what its real-time class acts at",
    Reason.OWN_ACCOUNT: "other jobs of its own account give way to it",
    Reason.BORROWS: "idle CPUs are lent to any account",
    Reason.WITHIN_ENTITLEMENT: "it fits into its account's entitlement",
    Reason.PREEMPTIBLE: "it is preemptible, so it may run on any idle CPUs",
    Reason.BEYOND_ENTITLEMENT: "it does not fit on idle nodes, and is beyond its account's entitlement",
    Reason.NON_PREEMPTIBLE_BEYOND: "it is non-preemptible, so it must fit into its account's entitlement",
    Reason.NOT_ENOUGH_VICTIMS: "preempting all jobs that may be preempted for it would not free enough",
    Reason.BEING_FREED: "nodes are already being freed for it",
    Reason.NOT_DUE: "it is real-time and not due yet, and does not fit on idle nodes",
    Reason.TRIED_IN_VAIN: "Slurm did not start it, or would not have, when jobs were last to be preempted for it",
    Reason.BRIEF_JOBS: "too many jobs of its user for which others were preempted ended at once, or did not start",
    Reason.ENOUGH_PREEMPTIONS: "this cycle preempts as many jobs as allowed; its turn comes in the next",
    Reason.CPUS_FREE_AGAIN: "the CPUs on which it was suspended are free again",
    Reason.OWN_CPUS_TAKEN: "others have, or are about to get, the CPUs on which it was suspended",
    Reason.UNPLACED: "it requests node licenses, so the daemon chooses its nodes first",
    Reason.WOULD_NOT_START: "Slurm would not start it",
    Reason.ACCOUNT_ORDER: "a job of its account that comes first would start later",
    Reason.WAITS_FOR_OTHER: "it cannot start yet, and others use its account's entitlement meanwhile",
    Reason.WAITS_TOO_LONG: "it waits for more than nodes, so others of its account go first",
    Reason.DEADLINE_PASSED: "its deadline has passed, so Slurm ends it",
}

WHY_FIRST: Mapping[Reason, str] = {
    Reason.URGENT: "urgent",
    Reason.ENTITLED: "entitled",
    Reason.REALTIME: "real-time",
    Reason.OWN_ACCOUNT: "first in its account",
}
"""Why others are preempted for a job, in a word or two."""


@dataclass(frozen=True, slots=True)
class Start:
    """A waiting job that fits on idle resources now; Slurm starts it once it is not held.

    ``after``: how many of the plan's preemptions were decided before it, so that the validator can follow the order.
    """

    ref: str
    account: str
    reason: Reason
    allocations: tuple[Allocation, ...]
    after: int = 0


@dataclass(frozen=True, slots=True)
class Victim:
    """A running job to be preempted, and the method."""

    ref: str
    account: str
    method: str
    cpus: int


@dataclass(frozen=True, slots=True)
class PlannedPreemption:
    """Preempt the victims so that the preemptor starts (or resumes, if it is suspended) on these nodes.

    ``numbers``: the CPUs on which the decision rests (entitled, used, idle), for the job history.
    """

    preemptor: str
    account: str
    reason: Reason
    urgent: bool
    suspended: bool
    allocations: tuple[Allocation, ...]
    victims: tuple[Victim, ...]
    submitted: float
    numbers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlannedResume:
    """A job that we suspended and whose CPUs are free again."""

    ref: str
    account: str
    allocations: tuple[Allocation, ...]
    after: int = 0


@dataclass(frozen=True, slots=True)
class HoldChange:
    """A hold or a release. ``waits_for``: Slurm's reason, which Slurm does not show of a held job; ``since``: from when
    on others of its account go first (0: they do not)."""

    ref: str
    account: str
    reason: Reason
    waits_for: str = ""
    since: float = 0.0

    @property
    def text(self) -> str:
        """For people; ``set_back_since`` reads it again from the job's AdminComment."""
        text = f"{self.waits_for}: {TEXT[self.reason]}" if self.waits_for else TEXT[self.reason]
        if not self.since:
            return text
        return f"{text} (since {datetime.fromtimestamp(self.since, UTC).isoformat(timespec='seconds')})"


_SINCE = re.compile(rf"{TEXT[Reason.WAITS_TOO_LONG]} \(since (\S{{1,40}})\)")


def set_back_since(admin_comment: str) -> float:
    """Since when other jobs of its account go before a held job, as its AdminComment says; 0.0 if they do not."""
    found = _SINCE.search(admin_comment) if admin_comment else None
    try:
        return datetime.fromisoformat(found[1]).timestamp() if found else 0.0
    except ValueError:
        return 0.0


@dataclass(frozen=True, slots=True)
class Rank:
    """The ``nice`` that puts a waiting job into its band."""

    ref: str
    band: Band
    nice: int


class Wait(NamedTuple):
    """Why a job does not start now; ``answer``: why Slurm would not start it, where that is the reason. ``detail``:
    in numbers."""

    ref: str
    account: str
    reason: Reason
    answer: Answer | None = None
    detail: str = ""

    @property
    def text(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        return TEXT[self.reason] + detail + (self.answer.why if self.answer is not None else "")


class Waits(Collection[Wait]):
    """Why jobs do not start now: single tasks, and whole jobs each with its reason.

    There may be as many as waiting jobs and they are rarely all read, so the latter are made on iteration.
    """

    def __init__(self, single: Sequence[Wait] = (), jobs: Sequence[Job] = (), reasons: Sequence[Reason] = ()) -> None:
        self._single, self._jobs, self._reasons = single, jobs, reasons

    @property
    def single(self) -> Sequence[Wait]:
        """Of the jobs that are alike and wait for the same reason, at least one."""
        return self._single

    def __iter__(self) -> Iterator[Wait]:
        yield from self._single
        for job, reason in zip(self._jobs, self._reasons, strict=True):
            yield Wait(job.ref, job.account, reason)

    def __len__(self) -> int:
        return len(self._single) + len(self._jobs)

    def __contains__(self, wait: object) -> bool:
        return any(wait == known for known in self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Waits) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Waits({list(self)!r})"


@dataclass(frozen=True, slots=True)
class Plan:
    """All suggestions for one snapshot. The same snapshot, history, rules, and time give the same plan.

    ``promises``: waiting jobs that will fit on resources that are being freed already. They count as running there, so
    that no job is preempted for them and no other job is given those CPUs. ``kept``: the jobs and tasks that we hold
    and that stay held. ``room``: by entity of the account tree, CPUs of non-preemptible jobs that may start without a
    hold (``room_without_hold``). ``urgent``: the urgent jobs that wait and could start by their own request.
    ``realtime``: the real-time jobs that wait. ``cpus``: those of which entitlements are parts.
    """

    taken: float
    now: float
    starts: tuple[Start, ...] = ()
    preemptions: tuple[PlannedPreemption, ...] = ()
    resumes: tuple[PlannedResume, ...] = ()
    holds: tuple[HoldChange, ...] = ()
    releases: tuple[HoldChange, ...] = ()
    kept: tuple[str, ...] = ()
    ranks: tuple[Rank, ...] = ()
    waits: Waits = field(default_factory=Waits)
    accounts: tuple[AccountUsage, ...] = ()
    cpus: int = 0
    promises: tuple[Start, ...] = ()
    room: tuple[int, ...] = ()
    urgent: tuple[str, ...] = ()
    realtime: tuple[RealtimeStanding, ...] = ()

    def starting_only(self, refs: Set[str]) -> Plan:
        """The same, but of the waiting jobs only these start, are released, and are ranked; none is held."""
        return replace(
            self,
            starts=tuple(start for start in self.starts if start.ref in refs),
            releases=tuple(change for change in self.releases if change.ref in refs),
            ranks=tuple(rank for rank in self.ranks if rank.ref in refs),
            holds=(),
            kept=(),
        )

    @property
    def next_due(self) -> float:
        """When the next real-time job becomes due, although nothing else may happen; infinite if none does."""
        return min((one.due_at for one in self.realtime if not one.is_due), default=inf)
