"""What may keep a job from starting although nodes are free for it, as Slurm shows it.

Memory is bytes, also in TRES; times are seconds. In a mapping of TRES (``cpu``, ``mem``, ``node``, ``gres/gpu``,
``license/x``) only what is limited is listed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

Tres = Mapping[str, int]


class Limit(NamedTuple):
    """A limit, and how much Slurm counted as used when it was asked: of minutes, which decay, for instance."""

    most: float
    used: float


@dataclass(frozen=True, slots=True)
class UsageLimits:
    """The limits of an association or a QOS; None and what is not listed: no limit.

    ``jobs``, ``tres``: of all its jobs that run (GrpJobs, GrpTRES); ``wall``, ``tres_seconds``: of all of them so far
    (GrpWall, GrpTRESMins); ``running_seconds``: of what those that run may still use (GrpTRESRunMins). ``job_*`` and
    ``node_tres``: of a single job (MaxTRESPJ, MinTRESPJ, MaxTRESMinsPJ, MaxWallPJ, MaxTRESPN). ``not_modeled``: other
    limits that are set, by Slurm's name.
    """

    jobs: int | None = None
    tres: Tres = field(default_factory=dict)
    wall: Limit | None = None
    tres_seconds: Mapping[str, Limit] = field(default_factory=dict)
    running_seconds: Mapping[str, Limit] = field(default_factory=dict)
    job_tres: Tres = field(default_factory=dict)
    job_least_tres: Tres = field(default_factory=dict)
    job_tres_seconds: Tres = field(default_factory=dict)
    job_wall: float | None = None
    node_tres: Tres = field(default_factory=dict)
    not_modeled: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RunningLimits:
    """What the running jobs of one user or of one account may use in a QOS (MaxJobsPU, MaxTRESPU, MaxJobsPA, ...)."""

    jobs: int | None = None
    tres: Tres = field(default_factory=dict)
    not_modeled: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Association:
    """A user in an account (of one partition, if it names one), or an account itself, without a user.

    ``parent``: the account above, "" for root. ``own_jobs``: the jobs of the user that may run (MaxJobs).
    """

    account: str
    user: str = ""
    partition: str = ""
    parent: str = ""
    own_jobs: int | None = None
    limits: UsageLimits = UsageLimits()

    @property
    def text(self) -> str:
        return f"user {self.user} in account {self.account}" if self.user else f"account {self.account}"


@dataclass(frozen=True, slots=True)
class Qos:
    """A QOS. ``by_user`` (by uid) and ``by_account``: of those whose jobs wait or run in it, as Slurm shows no others.

    ``flags``: None where they could not be read, and then it is not known either whether there is a UsageThreshold.
    """

    name: str
    limits: UsageLimits = UsageLimits()
    by_user: Mapping[int, RunningLimits] = field(default_factory=dict)
    by_account: Mapping[str, RunningLimits] = field(default_factory=dict)
    flags: frozenset[str] | None = None
    has_usage_threshold: bool = False


@dataclass(frozen=True, slots=True)
class SiteReservation:
    """A reservation; ``nodes``: also those of which it reserves some cores only."""

    name: str
    start: float
    end: float
    nodes: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()

    def is_active(self, now: float) -> bool:
        return self.start <= now < self.end


class SiteLicense(NamedTuple):
    """A license: how many exist, and how many are set aside by reservations. ``remote``: it belongs to several clusters
    or to a server, so that what our jobs hold does not tell how many are free."""

    total: int
    reserved: int = 0
    remote: bool = False


AssociationKey = tuple[str, str, str]
"""Account, user, and partition of an association."""


@dataclass(frozen=True, slots=True)
class SiteLimits:
    """What Slurm was last asked for; a part that could not be read is None. ``enforced``: AccountingStorageEnforce."""

    enforced: frozenset[str] | None = frozenset()
    associations: Mapping[AssociationKey, Association] | None = field(default_factory=dict)
    qos: Mapping[str, Qos] | None = field(default_factory=dict)
    reservations: tuple[SiteReservation, ...] | None = ()
    licenses: Mapping[str, SiteLicense] | None = field(default_factory=dict)

    def unread(self) -> Iterator[str]:
        """The parts that could not be read."""
        if self.enforced is None or self.associations is None or self.qos is None:
            yield "associations and QOS"
        elif any(level.flags is None for level in self.qos.values()):
            yield "flags of QOS"
        if self.reservations is None:
            yield "reservations"
        if self.licenses is None:
            yield "licenses"

    def without_licenses(self, names: Collection[str]) -> SiteLimits:
        """Without these licenses, which are counted as resources of nodes."""
        if not names or not self.licenses or self.licenses.keys().isdisjoint(names):
            return self
        kept = {name: license for name, license in self.licenses.items() if name not in names}
        return replace(self, licenses=kept)

    def chain(self, account: str, user: str, partition: str) -> Iterator[Association]:
        """The association of a job, then those of its account and of all accounts above; none if there is none."""
        known = self.associations or {}
        leaf = known.get((account, user, partition)) or known.get((account, user, ""))
        if leaf is None:
            return
        yield leaf
        above, seen = account, set[str]()
        while above not in seen and (found := known.get((above, "", ""))) is not None:
            yield found
            seen.add(above)
            above = found.parent
