"""Jobs that an operator has exempted from being preempted: single ones, or all of a user or an account."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from omfs_daemon.cluster.jobs import Job

END_OF_TIME = 253_370_764_800.0
"""The begin of the year 9999, the last one that can be shown."""


class ExemptKind(StrEnum):
    JOB = "job"
    USER = "user"
    ACCOUNT = "account"


@dataclass(frozen=True, slots=True)
class Exemption:
    """``name``: of a job its reference or number, of an array for all of its tasks. ``until``: seconds since the epoch;
    None: until it is removed."""

    kind: ExemptKind
    name: str
    until: float | None = None
    by: str = ""


class Exemptions:
    """Those in force; an account counts without the accounts below it."""

    def __init__(self, exemptions: Iterable[Exemption] = ()) -> None:
        self.all = tuple(exemptions)
        self._by_name = {(one.kind, one.name): one for one in self.all}

    def __bool__(self) -> bool:
        return bool(self.all)

    def of(self, job: Job, now: float) -> Exemption | None:
        """What exempts this job; None if nothing does."""
        names = [(ExemptKind.JOB, job.ref), (ExemptKind.JOB, str(job.id)), (ExemptKind.JOB, str(job.array_id))]
        names += [(ExemptKind.USER, job.user), (ExemptKind.ACCOUNT, job.account)]
        found = (self._by_name.get(name) for name in names)
        return next((one for one in found if one is not None and (one.until is None or one.until > now)), None)


NOBODY_EXEMPT = Exemptions()
