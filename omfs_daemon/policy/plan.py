"""What the policy suggests: plain data, each piece with its reason and numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import eq
from typing import NamedTuple
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import Share
from omfs_daemon.policy.rules.queue_order import Band
from omfs_daemon.policy.arrays.usage import AccountUse


class Reason(StrEnum):
    """Why something is suggested, or why a job waits. ``TEXT`` holds the sentence for people."""

    URGENT = "urgent"
    ENTITLED = "entitled"
    BORROWS = "borrows"
    WITHIN_SHARE = "within_share"
    MAY_BE_STOPPED = "may_be_stopped"
    BEYOND_ENTITLEMENT = "beyond_entitlement"
    NON_PREEMPTIBLE_BEYOND = "non_preemptible_beyond_entitlement"
    NOT_ENOUGH_TO_STOP = "not_enough_to_stop"
    BEING_FREED = "being_freed"
    TRIED_IN_VAIN = "tried_in_vain"
    ENOUGH_STOPS = "enough_stops_at_once"
    CPUS_FREE_AGAIN = "cpus_free_again"
    UNPLACED = "nodes_not_chosen_yet"


TEXT: Mapping[Reason, str] = {
    Reason.URGENT: "an urgent job goes before all regular ones",
    Reason.ENTITLED: "its account uses less than its entitlement",
    Reason.BORROWS: "idle CPUs are lent to anybody",
    Reason.WITHIN_SHARE: "it fits into its account's entitlement",
    Reason.MAY_BE_STOPPED: "it may be stopped, so it may run on whatever is idle",
    Reason.BEYOND_ENTITLEMENT: "nothing idle fits, and it is beyond its account's entitlement",
    Reason.NON_PREEMPTIBLE_BEYOND: "it may never be stopped, so it must fit into its account's entitlement",
    Reason.NOT_ENOUGH_TO_STOP: "even all jobs that may be stopped for it would not make it fit",
    Reason.BEING_FREED: "nodes for it are being freed already",
    Reason.TRIED_IN_VAIN: "stopping jobs for it did not let it start lately",
    Reason.ENOUGH_STOPS: "so many jobs are being stopped already that its turn is in the next cycle",
    Reason.CPUS_FREE_AGAIN: "the CPUs on which it was suspended are free again",
    Reason.UNPLACED: "what it asks for on any node is counted by node, so its nodes are chosen first",
}


@dataclass(frozen=True, slots=True)
class Start:
    """A waiting job that fits on idle resources now; Slurm starts it as soon as nothing holds it.

    ``after``: how many of the plan's reclaims were decided before, so that the gate can follow the plan's books.
    """

    ref: str
    account: str
    reason: Reason
    shares: tuple[Share, ...]
    after: int = 0


@dataclass(frozen=True, slots=True)
class Victim:
    """A running job to be stopped, and how."""

    ref: str
    account: str
    method: str
    cpus: int


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Stop the victims, so that the beneficiary starts (or, suspended before, runs on) on these nodes.

    ``numbers``: what the decision rests on, for the story (CPUs entitled, used, idle).
    """

    beneficiary: str
    account: str
    reason: Reason
    urgent: bool
    suspended: bool
    shares: tuple[Share, ...]
    victims: tuple[Victim, ...]
    submitted: float
    numbers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resume:
    """A job that we suspended, whose CPUs are free again."""

    ref: str
    account: str
    shares: tuple[Share, ...]
    after: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """A hold or the end of one."""

    ref: str
    account: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Rank:
    """The ``nice`` that puts a waiting job into its band."""

    ref: str
    band: Band
    nice: int


class Wait(NamedTuple):
    """Why a job does not start now."""

    ref: str
    account: str
    reason: Reason


class Waits(Collection[Wait]):
    """Why jobs do not start now: some told one by one, and whole jobs each with its reason.

    There may be as many as jobs wait, and seldom is each of them asked for; so they are made when they are.
    """

    def __init__(self, single: Sequence[Wait] = (), jobs: Sequence[Job] = (), reasons: Sequence[Reason] = ()) -> None:
        self._single, self._jobs, self._reasons = single, jobs, reasons

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
    """All suggestions for one snapshot. The same snapshot, ledger, rules and time give the same plan.

    ``promises``: waiting jobs that will fit on what is being freed already; they count as there, so that nobody
    is stopped for them and nobody else is told that he may have those CPUs.
    """

    taken: float
    now: float
    starts: tuple[Start, ...] = ()
    reclaims: tuple[Reclaim, ...] = ()
    resumes: tuple[Resume, ...] = ()
    holds: tuple[Change, ...] = ()
    releases: tuple[Change, ...] = ()
    ranks: tuple[Rank, ...] = ()
    waits: Waits = field(default_factory=Waits)
    accounts: tuple[AccountUse, ...] = ()
    promises: tuple[Start, ...] = ()
