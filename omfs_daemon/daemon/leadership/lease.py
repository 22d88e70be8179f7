"""Who of two daemons acts: decisions about the lease. No I/O; times are seconds of the observer's own monotonic clock.

The lease is one file whose *name* is all that counts: its epoch, and how often it was renewed. Renewing and taking both
rename the file that was seen, so that of two that try only one succeeds, whatever either has cached or missed. It has
expired for an observer once the name has stayed the same for EXPIRY as the observer sees it: clocks of two machines are
never compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

EXPIRY = 15.0
"""Seconds without a renewal, as an observer sees it, after which it may take the lease."""

MARGIN = 3.0
"""The holder gives no orders for so long before that: clocks may run at slightly different speeds."""

FRESH = EXPIRY - MARGIN
"""Seconds from the beginning of a renewal for which its holder may give orders."""

RENEW_EVERY = 2.0

CONTROLLER_AWAY = 30.0
"""Seconds without an active slurmctld beside it after which the holder gives up the lease; a restart takes less."""

_NAME = re.compile(r"lease\.([1-9][0-9]{0,5})\.(free|[0-9]{1,15})")
_NUMBERED = re.compile(r"(?:holder|state)\.([1-9][0-9]{0,5})")


class Lease(NamedTuple):
    """``renewals``: how often; None once its holder has given it up."""

    epoch: int
    renewals: int | None = 0

    @property
    def name(self) -> str:
        return f"lease.{self.epoch}.{'free' if self.renewals is None else self.renewals}"

    @property
    def renewed(self) -> Lease:
        return self._replace(renewals=(self.renewals or 0) + 1)

    @property
    def given_up(self) -> Lease:
        return self._replace(renewals=None)


class LeaseView(NamedTuple):
    """What is in the shared directory.

    lease   the newest; None without any
    newest  the highest epoch that any file names, which the next one must exceed; 0 where nobody ever acted
    odd     a file that looks like a lease, but is none; "" without one
    others  further leases: somebody has copied one, or a listing during a renewal has both names. Any may be the
            holder's, so that a change of any counts as a renewal
    """

    lease: Lease | None
    newest: int
    odd: str = ""
    others: tuple[Lease, ...] = ()

    @property
    def is_free(self) -> bool:
        """Whether its holder has given it up: a copy says nothing about that."""
        return self.lease is not None and self.lease.renewals is None and not self.others


def read_names(names: Iterable[str]) -> LeaseView:
    """Of the files in the shared directory."""
    leases, newest, odd = list[Lease](), 0, ""
    for name in sorted(names):
        if found := _NAME.fullmatch(name):
            leases.append(Lease(int(found[1]), None if found[2] == "free" else int(found[2])))
        elif found := _NUMBERED.fullmatch(name):
            newest = max(newest, int(found[1]))
        elif name.startswith("lease"):
            odd = name
    if not leases:
        return LeaseView(None, newest, odd)
    *others, best = sorted(leases, key=lambda lease: (lease.epoch, -1 if lease.renewals is None else lease.renewals))
    return LeaseView(best, max(newest, best.epoch), odd, tuple(others))


class LeaseWatch(NamedTuple):
    """What an observer sees, and since when it has seen the same."""

    view: LeaseView
    since: float

    def after(self, view: LeaseView, now: float) -> LeaseWatch:
        return self if view == self.view else LeaseWatch(view, now)


class Stand(StrEnum):
    """What a daemon that does not hold the lease does."""

    TAKE = "take"
    STAND_BY = "stand by"
    REFUSE = "refuse"


class LeaseDecision(NamedTuple):
    stand: Stand
    why: str


class Controller(NamedTuple):
    """The active slurmctld: on which host, "" if none answers; and whether that is this host."""

    host: str = ""
    is_here: bool = False


def judge_lease(watch: LeaseWatch, now: float, controller: Controller, active: str, unfit: str) -> LeaseDecision:
    """``active``: who is active while the lease is renewed; ``unfit``: why this daemon must not act."""
    view = watch.view
    if view.odd:
        return LeaseDecision(Stand.REFUSE, f"{view.odd}: is no lease of omfsd's: remove it")
    if view.newest and not view.is_free and now - watch.since < EXPIRY:
        if view.lease is None:
            return LeaseDecision(Stand.STAND_BY, "the lease is missing: waiting whether its holder lives")
        return LeaseDecision(Stand.STAND_BY, active)
    if not controller.is_here:
        where = f"the active slurmctld is on {controller.host}" if controller.host else "no slurmctld answers"
        return LeaseDecision(Stand.STAND_BY, f"no omfsd is active, and {where}")
    if unfit:
        return LeaseDecision(Stand.REFUSE, unfit)
    return LeaseDecision(Stand.TAKE, f"epoch {view.newest + 1}")


def is_fresh(renewed_at: float, now: float) -> bool:
    """Whether a holder may give an order. ``renewed_at``: when its last renewal that succeeded began."""
    return 0 <= now - renewed_at < FRESH


def may_keep(controller_seen_at: float, now: float) -> bool:
    """Whether a holder may go on: ``controller_seen_at``: when an active slurmctld was last seen beside it."""
    return now - controller_seen_at < CONTROLLER_AWAY
